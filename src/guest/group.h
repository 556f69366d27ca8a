/* Cgroups of a VM's processes: one for each process the host starts, below
 * /sys/fs/cgroup/user, so that a whole tree can be killed at once.
 *
 * An emulated machine works longer on making and removing a group than on a
 * small program, so the group of a process that left nobody behind is given to
 * the next one. Not one that was killed: some kernels (Linux 6.1.190) kill who is
 * cloned into it later. Whoever still holds somebody waits in a->stale. */
#pragma once
#include "guest/proc.h"

void groups_init(struct agent *a);
void groups_fini(struct agent *a);
int group_join(struct agent *a, struct proc *p);  /* the directory, or -1: there are no groups here; p keeps it */
void group_leave(struct agent *a, struct proc *p); /* p is done: looked at by groups_tidy, when its answer is on the way */
void group_drop(struct agent *a, struct proc *p);  /* p goes away now */
bool group_kill(struct proc *p);
void groups_tidy(struct agent *a);
void groups_retry(struct agent *a); /* an orphan was reaped */
