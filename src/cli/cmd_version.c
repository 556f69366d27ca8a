/* hutch version: ours, and the daemon's if one runs. Starts nothing. */
#include "base/version.h"
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>

static int exec_version(struct cli *x, struct args *a)
{
    auto_json h = NULL;
    bool up = daemon_answers(x, &h);
    char theirs[128];
    esc_text(str_of(jget_str(h, "build", jget_str(h, "version", "?"))), theirs, sizeof theirs);
    if (args_flag(a, "json")) {
        auto_buf b = {0};
        struct jw w;
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kv_str(&w, "client", version_full);
        jw_kv_str(&w, "daemon", up ? theirs : NULL);
        jw_end(&w);
        (void)printf("%s\n", b.p);
    } else
        (void)printf("hutch %s, hutchd %s\n", version_full, up ? theirs : "is not running");
    return 0;
}
static const struct opt opts[] = {OPT_JSON, OPT_END};
const struct cmd cmd_version = {.name = "version", .usage = "", .help = "print the versions of client and daemon", .opts = opts, .exec = exec_version};
