/* Run a list of commands one after another over a bare agent channel: warming
 * a guest before its snapshot, and its START/READY commands. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
struct agent;
struct loop;
struct prime_cmd {
    const char *const *argv;
    const char *user;
    unsigned timeout_ms;
    bool must;         /* a failure fails the list */
    bool background;   /* left running */
    unsigned retry_ms; /* until exit 0, for at most this long */
};
struct prime;
/* cmds and the agent must outlive it; done once, never inside the call. */
struct prime *prime_run(struct loop *l, struct agent *a, const struct prime_cmd *cmds, size_t n,
                        void (*done)(void *arg, const struct err *e), void *arg);
/* A template's START (left running; an end that is not 0 before READY succeeded fails the list) and READY (retried until it
 * succeeds, two minutes); either may be NULL. Strings are copied. */
struct prime *prime_start(struct loop *l, struct agent *a, const char *start, const char *ready,
                          void (*done)(void *arg, const struct err *e), void *arg);
void prime_cancel(struct prime *p); /* no done; the agent is not used any more */
void prime_fail(
    struct prime *p,
    const struct err *e); /* done(e) from the loop, once; the agent is not used any more */
extern const struct prime_cmd prime_template[]; /* what a variant is warmed with */
extern const size_t prime_template_n;
extern const struct prime_cmd
    prime_pool[]; /* what a pool member is warmed with: translations under TCG */
extern const size_t prime_pool_n;
