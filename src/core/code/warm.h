/* Kernels that run before anybody asks for them (struct template, `kernels`):
 * in the guest that becomes a VM's snapshot, and in containers that wait. They
 * are ordinary processes with the tag of their language's default context, so
 * whoever gets the sandbox finds them (core/code/context.h). Each has run a cell for
 * rehearsal and belongs to nobody yet. Main loop only. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct core;
struct agent;
struct warm;

enum warm_how {
    WARM_START,    /* start them */
    WARM_REHEARSE, /* they came out of a snapshot: let the emulator see their code once */
};
/* kernels: a set of languages (kernels.h). The agent must outlive it; done once, never inside the call. */
struct warm *warm_run(struct core *c, struct agent *a, unsigned kernels, enum warm_how how,
                      void (*done)(void *arg, const struct err *e), void *arg);
void warm_cancel(struct warm *w); /* no done; the agent is about to be freed. NULL is fine */
