/* hutch up, hutch down: the daemon's life. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/args.h"
#include "cli/client.h"
#include "cli/cmds.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int exec_up(struct cli *x, struct args *a)
{
    if (!x->local)
        return cli_usage(x, "up starts the daemon of this machine; unset HUTCH_URL");
    auto_json h = NULL;
    bool was = daemon_answers(x, &h);
    if (args_flag(a, "foreground")) {
        if (was)
            return (void)err_set(&x->err, E_CONFLICT, "hutchd is already running, pid %lld", (long long)jget_i64(h, "pid", 0)), cli_fail(x);
        auto_free char *prog = daemon_find(x);
        if (!prog)
            return cli_fail(x);
        (void)execl(prog, "hutchd", (char *)NULL);
        (void)err_sys(&x->err, errno, "cannot run %s", prog);
        return cli_fail(x);
    }
    if (!was && (daemon_start(x, true) || !daemon_answers(x, &h))) {
        if (x->err.code == E_OK)
            (void)err_set(&x->err, E_UNAVAILABLE, "hutchd started and exited again");
        return cli_fail(x);
    }
    if (args_flag(a, "json"))
        json_print(h);
    else
        (void)printf("hutchd %s %s, pid %lld, socket %s/hutch.sock\n", jget_str(h, "version", "?"), was ? "is already running" : "started",
                     (long long)jget_i64(h, "pid", 0), x->run);
    return 0;
}

static int exec_down(struct cli *x, struct args *a)
{
    x->no_start = true;
    auto_json h = NULL;
    if (!daemon_answers(x, &h) && x->local) {
        (void)fprintf(stderr, "hutch: hutchd is not running\n");
        return 0;
    }
    auto_buf b = {0};
    buf_printf(&b, "{\"keep\":%s}", args_flag(a, "keep") ? "true" : "false");
    if (api_call(x, "POST", "/v1/shutdown", &b, NULL) || daemon_wait_gone(x, x->local ? jget_i64(h, "pid", 0) : 0, 60 * NS_PER_S))
        return cli_fail(x);
    return 0;
}

static const struct opt up_opts[] = {{"foreground", 'f', 'f', NULL, "stay in the foreground, log to stderr", NULL}, OPT_JSON, OPT_END};
static const struct opt down_opts[] = {{"keep", 0, 'f', NULL, "leave the sandboxes running; the next hutchd takes them over", NULL}, OPT_END};
const struct cmd cmd_up = {.name = "up", .usage = "[--foreground]", .help = "start the daemon", .opts = up_opts, .exec = exec_up};
const struct cmd cmd_down = {.name = "down", .usage = "[--keep]", .help = "stop the daemon and its sandboxes", .opts = down_opts, .exec = exec_down};
