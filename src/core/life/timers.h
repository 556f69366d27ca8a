/* When a sandbox's time is up. One timer of the main loop for all of them takes care of what no timer of their
 * own does: standby that lasted too long goes to disk, idle ones are looked at, the longest life of paused ones
 * ends, and so does the wait for somebody to recover a failed one. */
#pragma once
#include "core/sandbox/sandbox.h"

void timers_start(struct core *c);
void timers_stop(struct core *c);
void sandbox_arm_expiry(struct sandbox *sb, int64_t in_ns); /* no later than its longest life */
void sandbox_on_expiry(void *sb);
void sandbox_time_up(struct sandbox *sb, enum on_timeout what, enum pause_why which,
                     uint32_t seconds);
void sandbox_lifetime_over(struct sandbox *sb);
