/* /etc/passwd and /etc/group, parsed by us and cached until the files change.
 * Bounded: a hostile file costs at most USERS_FILE_MAX bytes. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#define USERS_FILE_MAX (1u << 20)
#define USER_GROUPS_MAX 64

struct user { uint32_t uid, gid; const char *name, *home, *shell; };
struct group { uint32_t gid; const char *name, *members; };
struct user_file { char *text; struct timespec mtime; uint64_t ino, size; bool loaded; };
struct users {
    struct user_file pf, gf;
    struct user *user;
    struct group *group;
    size_t nuser, ngroup;
    bool none; /* there are no files to read: ids only */
};

void users_free(struct users *u);
/* A name, or a decimal uid (which need not be in the file). The pointer lives until the next call into users. */
int user_find(struct users *u, struct str name, struct user *ret, struct err *e);
bool group_find(struct users *u, const char *name, uint32_t *ret_gid);
const char *user_name(struct users *u, uint32_t uid);   /* NULL if none */
const char *group_name(struct users *u, uint32_t gid);
int user_groups(struct users *u, const struct user *who, uint32_t *out /* USER_GROUPS_MAX */);
void users_refresh(struct users *u); /* stat both files; reparse those that changed */
