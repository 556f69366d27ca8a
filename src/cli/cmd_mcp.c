/* hutch mcp: standard input and output as an MCP transport. */
#include "base/cleanup.h"
#include "cli/cmds.h"
#include "cli/client.h"
#include <stdio.h>
#include <stdlib.h>

/* A message per line, each one POSTed to /mcp; a daemon that does not speak it refuses, and that is shown. */
static int exec_mcp(struct cli *x, struct args *a)
{
    auto_free char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    (void)a;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        struct buf body = {.p = line, .n = (size_t)n};
        auto_json j = NULL;
        if (api_call(x, "POST", "/mcp", &body, &j))
            return cli_fail(x);
        if (j)
            json_print(j);
        (void)fflush(stdout);
    }
    return 0;
}

const struct cmd cmd_mcp = {.name = "mcp", .usage = "", .help = "speak MCP on standard input and output", .exec = exec_mcp};
