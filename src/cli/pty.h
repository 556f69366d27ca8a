/* An interactive terminal in a sandbox over a WebSocket. */
#pragma once
#include "cli/client.h"
struct args;
/* argv may be empty: a login shell. Returns the exit status, or -1 with x->err. The terminal is back as it was on every path. */
int pty_run(struct cli *x, const char *id, int argc, char *const *argv, const char *user, const char *cwd, struct args *env);
