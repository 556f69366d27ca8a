/* `--isolation isolate` of eval and run: one POST /v1/eval, its output here. */
#pragma once
#include "base/str.h"
#include "cli/args.h"

#define ISOLATE_OPTS                                                                                                                             \
    {"input", 0, 's', "JSON", "value of `input` in the program; -: read it from standard input (isolate)", NULL},                             \
        {"function", 0, 's', "NAME", "call this function of the program with the input (isolate)", NULL}

bool isolate_asked(const struct args *a); /* --isolation isolate */
const char *isolate_language_of(const char *path); /* by extension; NULL: unknown */
/* The exit status, errors printed. show: the value goes to standard output, unless it is null. */
int isolate_run(struct cli *x, struct args *a, const char *language, struct str code, bool show);
