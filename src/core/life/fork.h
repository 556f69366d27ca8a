/* Fork: copies of a running sandbox, as many as asked for, from one moment of
 * it. A VM's have its memory and processes, a container's its files. Each is a
 * sandbox of its own: identity, randomness, clock, tokens, network, deadline.
 * Forks of one sandbox that are asked for at the same time share the moment. */
#pragma once
#include "core/catalog/snapshot.h"

#define FORK_MAX 100

struct fork_spec {
    unsigned count;
    uint32_t timeout_s; /* 0: its own */
    bool files_only, memory_wanted;
    const struct caller *by; /* during the call: its scope counts; NULL: the daemon */
};
struct fork_child {
    char id[22]; /* "": failed */
    struct err err;
};
/* Once, when every child runs or has failed. `of` is NULL if there was no moment to begin with (e says why). */
typedef void fork_cb(void *arg, const struct snapshot *of, const struct fork_child *child,
                     unsigned n, const struct err *e);
int sandbox_fork(struct sandbox *sb, const struct fork_spec *how, fork_cb *done, void *arg,
                 struct err *e);
void fork_undo(struct core *c, const struct fork_child *child,
               unsigned n); /* nobody will use them */
