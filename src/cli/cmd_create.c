/* hutch create: prints the id, alone on its line, for scripts. */
#include "cli/cmds.h"
#include "cli/out.h"
#include "cli/sandbox.h"
#include <stdio.h>

static int exec_create(struct cli *x, struct args *a)
{
    auto_json sb = NULL;
    if (sandbox_create(x, a, -1, !args_flag(a, "no-build"), &sb))
        return cli_fail(x);
    if (args_flag(a, "json"))
        json_print(sb);
    else {
        char id[64];
        esc_text(str_of(jget_str(sb, "id", "")), id, sizeof id);
        (void)printf("%s\n", id);
    }
    return 0;
}

static const struct opt opts[] = {CREATE_OPTS,
                                  {"on-timeout", 0, 's', "WHAT", "kill or pause at the timeout (kill)", "kill pause"},
                                  {"idle", 0, 's', "S", "do what --on-idle says after S seconds (or 5m, 1h30m) without activity", NULL},
                                  {"on-idle", 0, 's', "WHAT", "kill or pause when it is idle (kill)", "kill pause"},
                                  {"max-lifetime", 0, 's', "S", "maximum lifetime, whatever extends the timeout", NULL},
                                  {"auto-resume", 0, 'f', NULL, "any call resumes it when it is paused", NULL},
                                  {"no-build", 0, 'f', NULL, "do not build template base when it is missing", NULL},
                                  OPT_JSON,
                                  OPT_END};
const struct cmd cmd_create = {.name = "create", .usage = "[options]", .help = "start a sandbox and print its id", .opts = opts, .exec = exec_create};
