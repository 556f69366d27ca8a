/* hutch kill, hutch timeout, hutch keepalive: end a sandbox now or later. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>

static int exec_kill(struct cli *x, struct args *a)
{
    int rc = 0;
    for (int i = 0; i < a->n; i++) { /* one bad id does not save the others */
        auto_free char *t = url("/v1/sandboxes/{}", a->v[i]);
        x->hint[0] = 0;
        if (api_call(x, "DELETE", t, NULL, NULL)) {
            int k = cli_fail(x);
            rc = rc ? rc : k;
        }
    }
    return rc;
}

/* what: "timeout" sets, "keepalive" extends; without a duration the sandbox's own timeout */
static int expire(struct cli *x, struct args *a, const char *what)
{
    int64_t s = 0;
    if (a->n > 1 && (!dur_parse(a->v[1], &s) || s < 1 || s > 86400))
        return cli_usage(x, "%s: want a duration from 1 s to 24 h, such as 90, 5m or 1h30m", what);
    auto_free char *base = url("/v1/sandboxes/{}/", a->v[0]), *t = xasprintf("%s%s", base, what);
    auto_buf b = {0};
    if (s)
        buf_printf(&b, "{\"timeout_s\":%lld}", (long long)s);
    else
        buf_puts(&b, "{}");
    auto_json sb = NULL;
    if (api_call(x, "POST", t, &b, &sb))
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(sb);
    return 0;
}

static int exec_timeout(struct cli *x, struct args *a) { return expire(x, a, "timeout"); }
static int exec_keepalive(struct cli *x, struct args *a) { return expire(x, a, "keepalive"); }

static const struct opt opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_kill = {.name = "kill", .usage = "ID…", .help = "destroy sandboxes", .min = 1, .max = -1, .words = "@id", .exec = exec_kill};
const struct cmd cmd_timeout = {.name = "timeout", .usage = "ID S", .help = "let a sandbox live S more seconds (or 5m, 1h30m) from now", .opts = opts,
                                .min = 2, .max = 2, .words = "@id", .exec = exec_timeout};
const struct cmd cmd_keepalive = {.name = "keepalive", .usage = "ID [S]", .help = "let a sandbox live at least S more seconds (or its timeout); never shortens", .opts = opts,
                                  .min = 1, .max = 2, .words = "@id", .exec = exec_keepalive};
