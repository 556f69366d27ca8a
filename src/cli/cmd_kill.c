/* hutch kill, hutch timeout: end a sandbox now or later. */
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

static int exec_timeout(struct cli *x, struct args *a)
{
    int64_t s = 0;
    if (!dur_parse(a->v[1], &s) || s < 1 || s > 86400)
        return cli_usage(x, "timeout: want a duration from 1 s to 24 h, such as 90, 5m or 1h30m");
    auto_free char *t = url("/v1/sandboxes/{}/timeout", a->v[0]);
    auto_buf b = {0};
    buf_printf(&b, "{\"timeout_s\":%lld}", (long long)s);
    auto_json sb = NULL;
    if (api_call(x, "POST", t, &b, &sb))
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(sb);
    return 0;
}

static const struct opt opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_kill = {.name = "kill", .usage = "ID…", .help = "destroy sandboxes", .min = 1, .max = -1, .words = "@id", .exec = exec_kill};
const struct cmd cmd_timeout = {.name = "timeout", .usage = "ID S", .help = "let a sandbox live S more seconds (or 5m, 1h30m) from now", .opts = opts,
                                .min = 2, .max = 2, .words = "@id", .exec = exec_timeout};
