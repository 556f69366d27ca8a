/* Capabilities, ids, limits. Raw capset and prctl; no libcap. Hard limits are
 * never raised: root on some hosts lacks CAP_SYS_RESOURCE, and a jail that
 * starts on one host and not on the next is worse than a low limit. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CAP_BIT(n) (1ull << (n))
#define CAPS_NONE 0ull
extern const uint64_t CAPS_BOX;   /* bounding set of a container's PID 1 */
extern const uint64_t CAPS_UNTAR; /* what unpacking a tree as its root needs; no MKNOD */
extern const uint64_t CAPS_KEEPER; /* what acting on the files of others as their root needs */

int privs_death_signal(struct err *e) __attribute__((warn_unused_result)); /* SIGKILL when the parent is gone */
int privs_ids(uid_t uid, gid_t gid, struct err *e) __attribute__((warn_unused_result));
int privs_bound(uint64_t keep, struct err *e) __attribute__((warn_unused_result)); /* drop the rest from the bounding set */
int privs_caps(uint64_t keep, struct err *e) __attribute__((warn_unused_result));  /* permitted = effective = keep; inheritable empty */
int privs_no_new(struct err *e) __attribute__((warn_unused_result));
int privs_limits(uint64_t nofile, uint64_t stack_bytes, struct err *e) __attribute__((warn_unused_result)); /* soft, at most the hard ones; no core files */
/* For the parent: another effective id for a moment, with file accesses and capabilities as they are. 0 ends it. Clears the death
 * signal and the dumpable mark of the process, either way. */
int privs_act_as(uid_t uid, struct err *e) __attribute__((warn_unused_result));
/* For the parent: file accesses as another id for a moment, with capabilities kept effective. */
int privs_fs_as(uid_t uid, gid_t gid, struct err *e) __attribute__((warn_unused_result));
