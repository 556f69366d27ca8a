/* Mounts by descriptor (the new mount API): detached until they are moved into
 * place, so that nothing half-built is ever visible in a mount table and no
 * host path appears in a box's.
 *
 * The first half runs in the parent, with rights over the host; the second
 * half in the jailed child, which only moves and hides. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* ---- parent ---- */

/* May the host's kernel, or a tool that runs as root, read this as a file system? Only what root wrote: a regular file of root's that
 * nobody else can write to, with one name. One that is only read (a template) may have more where the kernel keeps others from making
 * them (homes that were copied by hard links). E_DENIED. Whatever mounts here asks this. */
int image_check(int image, bool read_only, struct err *e) __attribute__((warn_unused_result));
/* Mounted for writing once, or for reading as often as wanted, whatever it is called by now: the lock is of the open
 * file, which the loop device keeps. Mounting takes it by itself. */
int image_lock(int image, bool read_only, struct err *e);
int mount_image(int image, bool read_only, const char *scratch, struct err *e) __attribute__((warn_unused_result)); /* ext4 on a loop device -> detached mount */
int mount_image_copy(int image, int from, const char *scratch, struct err *e) __attribute__((warn_unused_result)); /* likewise, of an empty file that becomes a copy of `from` */
/* The same for a volume: write barriers on (an fsync inside is a promise), freed blocks given back to the host's file
 * system, read-only after the first sign of damage. The image's lock (disk_volume) stays with the loop device. */
int mount_volume(int image, const char *scratch, struct err *e) __attribute__((warn_unused_result));
int mount_tmpfs(const char *size, const char *mode, struct err *e) __attribute__((warn_unused_result));
int mount_clone(int dirfd, const char *path, bool recursive, struct err *e) __attribute__((warn_unused_result)); /* of one that hangs in our namespace; others: jail/shelf.h */
int mount_attr(int mnt, uint64_t set, bool recursive, struct err *e) __attribute__((warn_unused_result)); /* MATTR_* */
int mount_idmap(int mnt, int userns, struct err *e) __attribute__((warn_unused_result));
/* Overlay of idmapped layers. upper holds the directories "upper" and "work". uid, gid: what 0 of the layers is outside. */
int mount_overlay(int lower, int upper, uid_t uid, gid_t gid, struct err *e) __attribute__((warn_unused_result));
/* The same for kernels before 6.15: of layers that hang at these places (jail/shelf.h). */
int mount_overlay_at(const char *lower, const char *upper, uid_t uid, gid_t gid, struct err *e) __attribute__((warn_unused_result));
int mount_move(int mnt, int dirfd, const char *path, struct err *e) __attribute__((warn_unused_result));

/* ---- child ---- */
int mount_fs(const char *type, const char *const *options, uint64_t attr, struct err *e) __attribute__((warn_unused_result)); /* options: key, value, …, NULL; value NULL = flag */
int mount_pivot(int root, const char *at, struct err *e) __attribute__((warn_unused_result)); /* root becomes /, the old tree is gone */
int mount_enter(int root, struct err *e) __attribute__((warn_unused_result));                  /* the same for one that is in place */
int mount_put(int mnt, int top, const char *dir, struct err *e) __attribute__((warn_unused_result)); /* at dir below top (AT_FDCWD: /), made if missing; no symlinks followed */
int mount_mask(const char *path, const char *null_dir, struct err *e) __attribute__((warn_unused_result)); /* hide a file or directory of the kernel's own, where no link leads astray; absent is fine */
int mount_ro(int top, const char *path, struct err *e) __attribute__((warn_unused_result));            /* a directory read-only, by a bind onto itself; absent is fine */
