/* Mounts that boxes are made of: what many of them clone, and the overlays of
 * their roots, on every kernel.
 *
 * Since Linux 6.15 a detached mount can be cloned and can be a layer of an
 * overlay. Older kernels do both only with mounts that hang in the mount
 * namespace of the caller. For them there is the shelf: a mount namespace with
 * nothing else in it, which the process enters for the moment of a call. They
 * do not hang in the process's own namespace, because every jail and tool that
 * is made meanwhile would get a copy and keep it busy for as long as it lives.
 *
 * For one thread: entering changes the mount namespace, the root and the
 * working directory of the whole process, and "/" is both when it is back. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <sys/types.h>

#define SHELF_NAME 64

struct shelf { int ns, back, root; }; /* the namespace, the process's own, its root there; -1: this kernel needs no shelf */
#define SHELF_NONE ((struct shelf){-1, -1, -1})

/* always: have one even if this kernel needs none, to test what older ones need. */
int shelf_open(struct shelf *s, bool always, struct err *e) __attribute__((warn_unused_result));
void shelf_close(struct shelf *s);

/* From now on `mnt` can be cloned, until shelf_drop(). The descriptor stays the caller's; the name is its choice, unique, without slashes. */
int shelf_keep(const struct shelf *s, int mnt, const char *name, struct err *e) __attribute__((warn_unused_result));
void shelf_drop(const struct shelf *s, const char *name);

int shelf_clone(const struct shelf *s, int mnt, struct err *e) __attribute__((warn_unused_result)); /* of a kept one -> detached mount, owned */

/* As mount_overlay(). Both layers are detached and not kept; on the shelf they cannot be cloned afterwards, only used. */
int shelf_overlay(const struct shelf *s, int lower, int upper, uid_t uid, gid_t gid, struct err *e) __attribute__((warn_unused_result));

/* Does it work here? A kept mount, a clone of it and an overlay on that are made and go again. For `hutch doctor`. */
int shelf_try(const struct shelf *s, struct err *e) __attribute__((warn_unused_result));
