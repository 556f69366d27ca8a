/* A command of a sandbox with its output into a file, or its input from one:
 * trees travel as tar streams. Bytes wait in the sandbox, never in memory. Loop
 * thread. */
#pragma once
#include "base/err.h"
#include <stdint.h>
struct sandbox;
struct spool;
#define SPOOL_LIMIT 75
struct spool_spec {
    const char *script;      /* for /bin/sh, as root in / */
    const char *const *args; /* its $1 …, NULL-terminated; may be NULL */
    const char *what;        /* "reading the files of …": begins an error's sentence */
    int out, in;             /* borrowed; -1: none */
    uint64_t max;            /* bytes of out; more is E_TOO_LARGE */
    const char *
        limit; /* … and how that limit is called. A script that ends with SPOOL_LIMIT met another and said so */
    uint64_t timeout_ms;
};
/* done once, never inside the call, not after spool_cancel. -1 + e: not even begun. */
struct spool *spool_start(struct sandbox *sb, const struct spool_spec *how,
                          void (*done)(void *arg, uint64_t bytes, const struct err *e), void *arg,
                          struct err *e);
void spool_cancel(struct spool *s); /* the command is killed */
/* tar of the root of a sandbox, without what is mounted there and without what hutch put there. */
extern const char spool_root[];
