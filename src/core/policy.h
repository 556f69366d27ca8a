/* What happens to sandboxes without anybody asking: standby that lasted too
 * long goes to disk, idle ones are looked at, the longest life of paused ones
 * ends, and so does the wait for somebody to recover a failed one. One timer of the main loop. */
#pragma once
struct core;
void policy_start(struct core *c);
void policy_stop(struct core *c);
