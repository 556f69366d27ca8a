/* hutch kill, hutch timeout, hutch keepalive: end a sandbox now or later. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>

static int kill_one(struct cli *x, struct args *a, const char *id, void *ctx)
{
    auto_free char *t = url("/v1/sandboxes/{}", id);
    (void)a, (void)ctx;
    if (api_call(x, "DELETE", t, NULL, NULL))
        return -1;
    said(id, "killed");
    return 0;
}

static int exec_kill(struct cli *x, struct args *a) { return each_arg(x, a, kill_one, NULL); }

/* what: "timeout" sets, "keepalive" extends; without a duration the sandbox's own timeout */
static int expire(struct cli *x, struct args *a, const char *what)
{
    int64_t s = 0;
    if (a->n > 1 && (!dur_parse(a->v[1], &s) || s < 1 || s > 86400))
        return cli_usage(x, "%s: must be a duration from 1 s to 24 h, such as 90, 5m or 1h30m",
                         what);
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
    else
        said(a->v[0], "deadline changed");
    return 0;
}

static int exec_timeout(struct cli *x, struct args *a) { return expire(x, a, "timeout"); }
static int exec_keepalive(struct cli *x, struct args *a) { return expire(x, a, "keepalive"); }

static const struct opt opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_kill = {.name = "kill", .usage = "ID…", .help = "destroy sandboxes", .min = 1, .max = -1, .words = "@id", .exec = exec_kill};
const struct cmd cmd_timeout = {.name = "timeout", .usage = "ID S", .help = "set the deadline of a sandbox to S seconds (or 5m, 1h30m) from now", .opts = opts,
                                .min = 2, .max = 2, .words = "@id;", .exec = exec_timeout};
const struct cmd cmd_keepalive = {.name = "keepalive", .usage = "ID [S]", .help = "extend the deadline of a sandbox to S seconds from now (default: its timeout); never shortens it", .opts = opts,
                                  .min = 1, .max = 2, .words = "@id;", .exec = exec_keepalive};
