/* hutch doctor: what this host can do, and with --network whether policies hold. Exits 1 if a check fails. */
#include "base/cleanup.h"
#include "cli/canary.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>
#include <string.h>

/* Asks the daemon; one that does not start is asked as a program, which checks the host all the same. */
static int checks(struct cli *x, struct json **ret)
{
    if (!api_call(x, "GET", "/v1/doctor", NULL, ret))
        return 0;
    if (!x->local || x->no_start || daemon_answers(x, NULL))
        return -1;
    struct cli y = *x;
    return daemon_doctor(&y, ret) ? -1 : 1;
}

static int exec_doctor(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"", "CHECK", "FOUND", NULL};
    auto_json j = NULL;
    if (args_flag(a, "network"))
        return canary_run(x, args_str(a, "isolation", NULL), args_flag(a, "json"));
    if (args_str(a, "isolation", NULL))
        return cli_usage(x, "doctor: --isolation needs --network");
    int got = checks(x, &j);
    if (got < 0)
        return cli_fail(x);
    struct json *list = json_get(j, "checks");
    int failed = 0;
    struct table *t = table_new(heads);
    auto_buf advice = {0};
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *c = json_at(list, i);
        const char *status = jget_str(c, "status", "fail"), *lost = jget_str(c, "lost", NULL), *fix = jget_str(c, "fix", NULL);
        bool ok = !strcmp(status, "ok"), warn = !strcmp(status, "warn");
        failed += !ok && !warn;
        table_cell(t, ok ? ST_GOOD : warn ? ST_WARN : ST_BAD, ok ? "ok" : warn ? "warn" : "FAIL");
        table_cell(t, ST_PLAIN, jget_str(c, "name", "?"));
        table_cell(t, ST_PLAIN, jget_str(c, "found", ""));
        if (ok || (!lost && !fix))
            continue;
        buf_puts(&advice, "\n");
        esc_put(&advice, str_of(jget_str(c, "name", "?")));
        buf_puts(&advice, ":");
        if (lost)
            buf_puts(&advice, " affects "), esc_put(&advice, str_of(lost));
        buf_puts(&advice, "\n");
        if (fix)
            buf_puts(&advice, "  fix: "), esc_put(&advice, str_of(fix)), buf_puts(&advice, "\n");
    }
    if (args_flag(a, "json")) {
        table_free(t);
        json_print(list);
    } else {
        table_print(t);
        if (advice.n)
            (void)fwrite(advice.p, 1, advice.n, stdout);
    }
    (void)fflush(stdout);
    return got ? cli_fail(x) : failed ? 1 : 0;
}

static const struct opt opts[] = {{"network", 0, 'f', NULL, "test every live network policy from a scratch sandbox", NULL},
                                  {"isolation", 0, 's', "TIER", "with --network: tier of the scratch sandboxes (default: that of each sandbox)", "vm gvisor container"},
                                  OPT_JSON,
                                  OPT_END};
const struct cmd cmd_doctor = {.name = "doctor", .usage = "[--network]", .help = "check what this host supports, and how to fix what is missing", .opts = opts, .exec = exec_doctor};
