/* hutch doctor: what this host can do, and with --network whether policies hold. Exits 1 if a check fails. */
#include "base/cleanup.h"
#include "cli/canary.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>
#include <string.h>

static int exec_doctor(struct cli *x, struct args *a)
{
    static const char *const heads[] = {"", "CHECK", "FOUND", NULL};
    auto_json j = NULL;
    if (args_flag(a, "network"))
        return canary_run(x, args_str(a, "isolation", NULL), args_flag(a, "json"));
    if (args_str(a, "isolation", NULL))
        return cli_usage(x, "doctor: --isolation belongs to --network");
    if (api_call(x, "GET", "/v1/doctor", NULL, &j))
        return cli_fail(x);
    struct json *list = json_get(j, "checks");
    int failed = 0;
    struct table *t = table_new(heads);
    auto_buf mends = {0};
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *c = json_at(list, i);
        const char *status = jget_str(c, "status", "fail"), *lost = jget_str(c, "lost", NULL), *mend = jget_str(c, "mend", NULL);
        bool ok = !strcmp(status, "ok"), warn = !strcmp(status, "warn");
        failed += !ok && !warn;
        table_cell(t, ok ? ST_GOOD : warn ? ST_WARN : ST_BAD, ok ? "ok" : warn ? "warn" : "FAIL");
        table_cell(t, ST_PLAIN, jget_str(c, "name", "?"));
        table_cell(t, ST_PLAIN, jget_str(c, "found", ""));
        if (ok || (!lost && !mend))
            continue;
        buf_puts(&mends, "\n");
        esc_put(&mends, str_of(jget_str(c, "name", "?")));
        buf_puts(&mends, ":");
        if (lost)
            buf_puts(&mends, " without it: "), esc_put(&mends, str_of(lost));
        buf_puts(&mends, "\n");
        if (mend)
            buf_puts(&mends, "  mend: "), esc_put(&mends, str_of(mend)), buf_puts(&mends, "\n");
    }
    if (args_flag(a, "json")) {
        table_free(t);
        json_print(list);
    } else {
        table_print(t);
        if (mends.n)
            (void)fwrite(mends.p, 1, mends.n, stdout);
    }
    return failed ? 1 : 0;
}
static const struct opt opts[] = {{"network", 0, 'f', NULL, "try every live network policy from inside a scratch sandbox", NULL},
                                  {"isolation", 0, 's', "TIER", "with --network: of the scratch sandboxes (that of each sandbox)", "vm container"},
                                  OPT_JSON,
                                  OPT_END};
const struct cmd cmd_doctor = {.name = "doctor", .usage = "[--network]", .help = "check what this host can do, and how to mend the rest", .opts = opts, .exec = exec_doctor};
