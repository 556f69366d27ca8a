/* Option parsing against a const table; no globals, no exit, no output. */
#pragma once
#include "base/buf.h"
#include "base/suggest.h"
#include "cli/cli.h"

#define ARGS_OPTS_MAX 128 /* option occurrences on one command line */

struct args {
    const struct cmd *cmd;
    int n;              /* positionals */
    char **v;
    bool dashdash;      /* a "--" came before the first positional */
    bool help;          /* --help or -h: nothing else was checked */
    int nset;
    struct { const struct opt *opt; const char *value; } set[ARGS_OPTS_MAX];
};

/* argv[0] is the verb. v points into argv, which is permuted. -1: E_INVALID with the sentence for the user. */
int args_parse(const struct cmd *c, int argc, char **argv, struct args *a, struct err *e);
bool args_flag(const struct args *a, const char *name);
const char *args_str(const struct args *a, const char *name, const char *def); /* the last one wins */
const char *args_list(const struct args *a, const char *name, int *i);         /* *i starts at 0; NULL at the end */
int args_int(const struct args *a, const char *name, int64_t min, int64_t max, int64_t def, int64_t *ret, struct err *e);
/* seconds; accepts "90", "90s", "5m", "1h30m", "2d" */
int args_seconds(const struct args *a, const char *name, int64_t min, int64_t max, int64_t def, int64_t *ret, struct err *e);

const struct cmd *cmd_find(const struct cmd *const *list, const char *name);
const char *cmd_suggest(const struct cmd *const *list, const char *name);
const char *cmd_foreign(
    const char *name); /* an answer to a verb of other tools, NULL if it is none */
const char *const *cmd_examples(
    const char *name); /* two command lines without "hutch", by "verb" or "noun verb"; examples.c */
void cmd_help(const struct cmd *c, const char *parent /* "" or "template " */, struct buf *out);
