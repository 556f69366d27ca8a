/* hutch exec, hutch sh: commands in a running sandbox. INT and TERM are passed
 * on to the command; a second one leaves, and the daemon then kills it. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/ndjson.h"
#include "cli/pty.h"
#include "cli/sandbox.h"
#include "cli/stream.h"
#include <stdio.h>
#include <unistd.h>

static int background(struct cli *x, struct args *a, struct exec_req *q)
{
    auto_free char *t = url("/v1/sandboxes/{}/exec", a->v[0]);
    auto_buf body = {0};
    auto_json j = NULL;
    q->background = true;
    if (exec_body(x, q, &body) || api_call(x, "POST", t, &body, &j))
        return cli_fail(x);
    (void)printf("%lld\n", (long long)jget_i64(j, "pid", 0));
    return 0;
}

static int exec_exec(struct cli *x, struct args *a)
{
    int64_t timeout_s = 0;
    if (args_seconds(a, "timeout", 1, 86400, 0, &timeout_s, &x->err))
        return cli_fail(x);
    struct exec_req q = {.argv = a->v + 1, .argc = a->n - 1, .user = args_str(a, "user", NULL), .cwd = args_str(a, "cwd", NULL),
                         .timeout_ms = timeout_s * 1000, .args = a};
    if (args_flag(a, "detach"))
        return background(x, a, &q);
    if (args_flag(a, "tty") || at_terminal(a)) {
        int rc = pty_run(x, a->v[0], q.argc, q.argv, q.user, q.cwd, a);
        return rc < 0 ? cli_fail(x) : rc;
    }
    q.keep_stdin = stdin_worth_forwarding();
    x->sigfd = signals_open();
    struct exec_run r = {.id = a->v[0], .stdin_fd = q.keep_stdin ? STDIN_FILENO : -1, .forward_signals = true, .out_fd = STDOUT_FILENO, .err_fd = STDERR_FILENO};
    if (exec_body(x, &q, &r.body) || exec_stream(x, &r)) {
        buf_free(&r.body);
        return cli_fail(x);
    }
    return r.status;
}

static int exec_sh(struct cli *x, struct args *a)
{
    int rc = pty_run(x, a->v[0], a->n - 1, a->v + 1, args_str(a, "user", NULL), args_str(a, "cwd", NULL), a);
    return rc < 0 ? cli_fail(x) : rc;
}

#define WHO {"user", 'u', 's', "NAME", "run as this user of the sandbox (user)", NULL}, {"cwd", 'C', 's', "DIR", "working directory in the sandbox", NULL}, \
            {"env", 'e', 'l', "K=V", "environment variable; may be repeated", NULL}
static const struct opt exec_opts[] = {WHO,
                                       {"detach", 'd', 'f', NULL, "run in the background and print the pid", NULL},
                                       {"tty", 't', 'f', NULL, "give the command a terminal (default at a terminal)", NULL},
                                       {"timeout", 0, 's', "S", "kill the command after S seconds (or 5m, 1h30m)", NULL},
                                       OPT_END};
static const struct opt sh_opts[] = {WHO, OPT_END};
const struct cmd cmd_exec = {.name = "exec", .usage = "ID [options] -- CMD…", .help = "run a command in a sandbox", .opts = exec_opts, .min = 2, .max = -1,
                             .stop_at = 2, .words = "@id;@file", .exec = exec_exec};
const struct cmd cmd_sh = {.name = "sh", .usage = "ID [options] [-- CMD…]", .help = "open an interactive terminal in a sandbox", .opts = sh_opts, .min = 1, .max = -1,
                           .stop_at = 2, .words = "@id;@file", .exec = exec_sh};
