/* How many of a tenant's sandboxes run at once, and how much memory they have
 * together: `running` and `memory_mib` of HUTCH_TENANTS.
 *
 * Whoever wants one more takes the place of a sandbox of the same tenant that
 * rests: one that asked to be paused when it is idle, and was found idle at the
 * last look (core/life/idle.h); the one that has rested longest goes first. Its
 * pause has begun, not ended, when the newcomer starts. If that is not enough
 * the newcomer is refused, and nothing is paused for it. */
#pragma once
#include "base/err.h"
#include <stdint.h>
struct core;
struct sandbox;
/* E_QUOTA: there is no place for one more with so much memory. `but`, which may be NULL, is not counted: it is about to run. */
int quota_admit(struct core *c, const char *tenant /* NULL or "": the operator, unbounded */,
                uint32_t memory_mib, const struct sandbox *but, struct err *e);
