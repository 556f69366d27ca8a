/* hutch pause, hutch resume, hutch recover: stop a sandbox and keep it, continue it, bring it back. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>

struct move { const char *target, *done; const struct buf *body; };

static int move(struct cli *x, struct args *a, const char *id, void *ctx)
{
    struct move *m = ctx;
    auto_free char *base = url("/v1/sandboxes/{}/", id), *t = xasprintf("%s%s", base, m->target);
    auto_json sb = NULL;
    if (api_call(x, "POST", t, m->body, &sb))
        return -1;
    if (args_flag(a, "json"))
        json_print(sb);
    else
        said(id, m->done);
    return 0;
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
    return each_arg(
        x, a, move,
        &(struct move){"pause", args_flag(a, "standby") ? "paused in standby" : "paused", &b});
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
    return each_arg(x, a, move, &(struct move){"resume", "running", &b});
}

static int recover_one(struct cli *x, struct args *a, const char *id, void *ctx)
{
    (void)ctx;
    auto_free char *t = url("/v1/sandboxes/{}/recover", id);
    auto_buf none = {0};
    auto_json got = NULL;
    struct str what;
    buf_puts(&none, "{}");
    if (api_call(x, "POST", t, &none, &got))
        return -1;
    if (args_flag(a, "json")) {
        json_print(got);
        return 0;
    }
    struct json *lost = json_get(got, "lost");
    (void)printf("%s: %s", id, json_len(lost) ? "recovered; lost:" : "recovered, nothing lost");
    for (size_t i = 0; i < json_len(lost); i++)
        if (!json_to_str(json_at(lost, i), &what, NULL))
            (void)printf("%s %.*s", i ? "," : "", (int)what.n, what.p);
    (void)printf("\n");
    return 0;
}

static int exec_recover(struct cli *x, struct args *a) { return each_arg(x, a, recover_one, NULL); }

static const struct opt pause_opts[] = {{"files-only", 0, 'f', NULL, "keep its files only; resume boots it", NULL},
                                        {"standby", 0, 'f', NULL, "keep its memory in RAM: resumes in a millisecond", NULL},
                                        OPT_JSON,
                                        OPT_END};
static const struct opt resume_opts[] = {{"timeout", 0, 's', "S", "lifetime from now: seconds, or 5m, 1h30m", NULL},
                                         {"cold", 0, 'f', NULL, "boot it from its files and drop its saved memory", NULL},
                                         OPT_JSON,
                                         OPT_END};
const struct cmd cmd_pause = {.name = "pause", .usage = "ID…", .help = "stop sandboxes and keep their state", .opts = pause_opts, .min = 1, .max = -1, .words = "@id", .exec = exec_pause};
const struct cmd cmd_resume = {.name = "resume", .usage = "ID…", .help = "continue paused sandboxes", .opts = resume_opts, .min = 1, .max = -1, .words = "@id", .exec = exec_resume};
static const struct opt recover_opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_recover = {.name = "recover", .usage = "ID…", .help = "restart failed sandboxes from their disks", .opts = recover_opts, .min = 1, .max = -1, .words = "@id", .exec = exec_recover};
