/* `hutch eval` in a sandbox: the cell's output here as it comes, its value as
 * text, its pictures as files. */
#pragma once
#include "cli/args.h"
#include "cli/client.h"

#define EVAL_OPTS \
    { \
        "save", 0, 's', "DIR", "directory for pictures; created if missing (.)", "@file" \
    }

/* Without --template: code-interpreter if that is built, so that a fresh sandbox has all the languages. */
void eval_template(struct cli *x, struct args *a);
/* The exit status, errors printed: 0, 1 if the cell failed, that of `timeout` if it was late. */
int eval_show(struct cli *x, struct args *a, const char *id, const char *language /* NULL: python */, const char *code);
