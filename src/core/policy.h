/* What happens to sandboxes without anybody asking: standby that lasted too
 * long goes to disk, idle ones are looked at, the longest life of paused ones
 * ends. One timer of the main loop. */
#pragma once
struct core;
void policy_start(struct core *c);
void policy_stop(struct core *c);
