/* hutch doctor --network: does the gate really do what the policies say? Every
 * policy of a sandbox that runs or is paused, and the three modes, are given to
 * a scratch sandbox, from inside of which things are tried that must not work
 * and one that must be let through. What counts is both ends: what happened
 * inside, and what the gate wrote down. Prints a table, or JSON.
 * Returns the exit status: 0 all as it should be, 1 something is not. */
#pragma once
#include "cli/args.h"

int canary_run(struct cli *x, const char *isolation /* NULL: as the sandbox, and the host's default */, bool json);
