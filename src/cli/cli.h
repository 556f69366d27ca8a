/* The command line: what a verb is, and what all verbs share.
 *
 * A verb is one file cmd_<verb>.c with one const struct cmd: name, usage, help,
 * options, exec. main.c finds and parses, exec does the work and returns the
 * exit status. Failures go into x->err (and x->hint) and end in `return
 * cli_fail(x)`, which prints them and maps the code to the exit status.
 * One thread, except for the stdin pump of stream.c. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

#define EX_USAGE_CODE 64

/* kind: 'f' flag, 's' one value, 'l' may repeat. */
struct opt {
    const char *name;  /* long, without dashes */
    char letter;       /* 0: none */
    char kind;
    const char *arg;   /* placeholder in the help, NULL for flags */
    const char *help;
    const char *
        words; /* completion: "a b c", where @id, @template, @snapshot, @volume, @secret, @key, @place (ID:) and @file stand for what there is; NULL: nothing */
};
#define OPT_END {0}
#define OPT_JSON {"json", 0, 'f', NULL, "print JSON", NULL}

struct cli;
struct args;
struct cmd {
    const char *name, *usage /* after the name */, *help /* one line */;
    const struct opt *opts;      /* ends with OPT_END; may be NULL */
    int min, max;                /* positional arguments; max -1: any number */
    int stop_at;                 /* that many positionals end option parsing (run 1, exec 2); 0: never */
    const char *
        words; /* completion of positionals, as in struct opt; ";" between those of the first, the second, … */
    int (*exec)(struct cli *x, struct args *a);
    const struct cmd *const *sub; /* then exec is NULL */
};

struct cli {
    char *url;         /* where to connect: "unix:…", "http://…" or "https://…" */
    bool local;        /* the unix socket: may start the daemon */
    char *key;         /* NULL: none */
    char *ca;          /* --cacert, HUTCH_CA: whom to trust besides the system's; NULL: nobody */
    char *home, *run;  /* HUTCH_HOME, HUTCH_RUN */
    bool no_start;     /* never start a daemon */
    int sigfd;         /* signals_open(): INT, TERM and HUP come here; 0: they end us */
    int caught;        /* a signal that came while waiting for an answer, 0: none */
    struct err err;
    char about[160];   /* the path of the last request: whose name goes into a hint */
    char hint[256];    /* "" if none */
};

extern const struct cmd *const cmds[]; /* all verbs, NULL at the end; main.c */

int cli_main(int argc, char **argv);   /* the exit status */
int cli_fail(struct cli *x);           /* "hutch: message", hint; returns the exit status of x->err.code */
int cli_usage(struct cli *x, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* the same for a usage error: 64 */
