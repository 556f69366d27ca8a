/* Paths of the file operations. Everything is resolved by the kernel from "/"
 * without magic links, and acted on relative to an opened parent directory, so
 * a path cannot change its meaning between a check and its use. */
#pragma once
#include "guest/agent.h"
#include "wire/rec.h"
#include <sys/stat.h>

struct place {
    char *path;      /* absolute, no "//", no "." parts, no slash at the end */
    const char *base; /* last part, inside path; "." for "/" */
    int dir;         /* parent directory, O_PATH */
    struct user user;
};
void place_fini(struct place *p);
#define auto_place __attribute__((cleanup(place_fini))) struct place

int path_user(struct agent *a, struct rec r, struct user *ret, struct err *e);  /* T_USER, else the default user, else root */
char *path_absolute(const struct user *u, struct str s, const char *what, struct err *e);
int path_err(struct err *e, int sys, const char *path); /* typed sentence for an errno */
/* Opens the parent of the path in field `tag`; parents: creates missing directories, owned by the user. */
int place_open(struct agent *a, struct rec r, uint8_t tag, bool parents, struct place *ret, struct err *e);
int place_changeable(const struct place *p, struct err *e); /* refuses "/", "." and ".." */
int open_beneath(int dir, const char *path, int flags, unsigned mode); /* openat2 without magic links; -1 + errno */

/* entry.c */
/* Appends one T_ENTRY of `name` in `dir`; -1 + errno if it does not exist. */
int entry_put(struct agent *a, struct buf *b, int dir, const char *name, const char *path);
/* Appends one T_ENTRY of the open file fd as st says it, so that what is announced is what will be read. */
void entry_put_open(struct agent *a, struct buf *b, int fd, const struct stat *st, const char *path);
void entry_reply(const struct req *q, const struct place *p); /* FR_RES with the entry */
#define ENTRY_MAX (24u << 10) /* upper bound of one encoded entry */
