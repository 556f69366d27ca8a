/* Namespaces: birth of a child in new ones, its id maps, its host name. The
 * network one is furnished from outside: jail/net.h. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* How a child is born. */
struct ns_birth {
    unsigned namespaces;
    int cgroup; /* the cgroup2 directory it is born in; -1: ours */
    uid_t owner; /* of its user namespace. What the kernel counts per user (inotify, queued signals, timers, message queues,
                  * namespaces) it also counts for whoever made the namespace: were that root, all boxes and the host's root
                  * would draw on one account. 0: no new user namespace */
    bool sibling; /* our parent's child, who waits for it */
};

/* clone3 into new namespaces. In the parent: the pid, and the pidfd in *ret_pidfd. In the child: 0. The child has default signal
 * handlers and an empty mask. */
pid_t ns_clone(const struct ns_birth *b, int *ret_pidfd, struct err *e);
/* inside first..first+count-1 are outside base..base+count-1, for users and groups. ret_userns, ret_mntns (or NULL): descriptors of the namespaces. */
int ns_map_ids(pid_t pid, uint32_t first, uint32_t base, uint32_t count, int *ret_userns, int *ret_mntns, struct err *e) __attribute__((warn_unused_result));
int ns_hostname(const char *name, struct err *e) __attribute__((warn_unused_result));
