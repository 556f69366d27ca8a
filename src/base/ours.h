/* Names in folders that somebody else may write to, as root has to use them:
 * nothing is followed, everything is opened once, looked at, and used by its
 * descriptor from then on.
 *
 * "Ours" is what belongs to the uid we run as. A folder that only we can write
 * to, or that has the sticky bit, keeps our entries where they are: the kernel
 * lets nobody else rename or remove them. */
#pragma once
#include "base/err.h"
#include <sys/stat.h>
#include <sys/types.h>

struct owner {
    uid_t uid;
    gid_t gid;
    mode_t mode;
};

/* The folder `name` in `parent`, made if missing, of that owner afterwards -> descriptor. What belongs to neither us, the new owner nor
 * `was` is refused (E_DENIED), and so is what is no folder. The top folder of a tree may be reached through links (parent AT_FDCWD):
 * its name is the operator's. */
int ours_dir(int parent, const char *name, const struct owner *to, uid_t was, struct err *e)
    __attribute__((warn_unused_result));

/* Is this folder a place where our entries stay? E_DENIED if not. */
int ours_place(int dir, const char *name, struct err *e) __attribute__((warn_unused_result));

/* A regular file of ours with one name, made if missing (0600) -> descriptor. What another has put there is removed. */
int ours_file(int dir, const char *name, int flags, struct err *e)
    __attribute__((warn_unused_result));

/* The socket that we have just bound becomes that user's. */
int ours_give_socket(int dir, const char *name, uid_t uid, struct err *e)
    __attribute__((warn_unused_result));
