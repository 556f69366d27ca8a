/* hutch pause, hutch resume, hutch recover: stop a sandbox and keep it, let it go on, bring it back. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>

static int move(struct cli *x, struct args *a, const char *id, const char *target, const struct buf *body)
{
    auto_free char *base = url("/v1/sandboxes/{}/", id), *t = xasprintf("%s%s", base, target);
    auto_json sb = NULL;
    x->hint[0] = 0;
    if (api_call(x, "POST", t, body, &sb))
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(sb);
    return 0;
}

static int each(struct cli *x, struct args *a, const char *target, const struct buf *body)
{
    int rc = 0;
    for (int i = 0; i < a->n; i++) { /* one that cannot does not stop the others */
        int k = move(x, a, a->v[i], target, body);
        rc = rc ? rc : k;
    }
    return rc;
}

static int exec_pause(struct cli *x, struct args *a)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    if (args_flag(a, "files-only"))
        jw_kv_bool(&w, "memory", false);
    if (args_flag(a, "standby"))
        jw_kv_bool(&w, "standby", true);
    jw_end(&w);
    return each(x, a, "pause", &b);
}

static int exec_resume(struct cli *x, struct args *a)
{
    int64_t s = 0;
    if (args_seconds(a, "timeout", 1, 86400, 0, &s, &x->err))
        return cli_fail(x);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    if (s)
        jw_kv_i64(&w, "timeout_s", s);
    if (args_flag(a, "cold"))
        jw_kv_bool(&w, "memory", false);
    jw_end(&w);
    return each(x, a, "resume", &b);
}

static int recover_one(struct cli *x, struct args *a, const char *id)
{
    auto_free char *t = url("/v1/sandboxes/{}/recover", id);
    auto_buf none = {0};
    auto_json got = NULL;
    struct str what;
    x->hint[0] = 0;
    buf_puts(&none, "{}");
    if (api_call(x, "POST", t, &none, &got))
        return cli_fail(x);
    if (args_flag(a, "json")) {
        json_print(got);
        return 0;
    }
    struct json *lost = json_get(got, "lost");
    (void)printf("%s: %s", id, json_len(lost) ? "recovered without" : "recovered whole");
    for (size_t i = 0; i < json_len(lost); i++)
        if (!json_to_str(json_at(lost, i), &what, NULL))
            (void)printf("%s %.*s", i ? "," : "", (int)what.n, what.p);
    (void)printf("\n");
    return 0;
}

static int exec_recover(struct cli *x, struct args *a)
{
    int rc = 0;
    for (int i = 0; i < a->n; i++) { /* one that cannot does not stop the others */
        int k = recover_one(x, a, a->v[i]);
        rc = rc ? rc : k;
    }
    return rc;
}

static const struct opt pause_opts[] = {{"files-only", 0, 'f', NULL, "keep its files only; a resume boots it", NULL},
                                        {"standby", 0, 'f', NULL, "keep its memory in memory: resumes in a millisecond", NULL},
                                        OPT_JSON,
                                        OPT_END};
static const struct opt resume_opts[] = {{"timeout", 0, 's', "S", "let it live S seconds (or 5m, 1h30m) from now", NULL},
                                         {"cold", 0, 'f', NULL, "boot it from its files, drop its saved memory", NULL},
                                         OPT_JSON,
                                         OPT_END};
const struct cmd cmd_pause = {.name = "pause", .usage = "ID…", .help = "stop sandboxes and keep them", .opts = pause_opts, .min = 1, .max = -1, .words = "@id", .exec = exec_pause};
const struct cmd cmd_resume = {.name = "resume", .usage = "ID…", .help = "let paused sandboxes go on", .opts = resume_opts, .min = 1, .max = -1, .words = "@id", .exec = exec_resume};
static const struct opt recover_opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_recover = {.name = "recover", .usage = "ID…", .help = "bring failed sandboxes back from their disks", .opts = recover_opts, .min = 1, .max = -1, .words = "@id", .exec = exec_recover};
