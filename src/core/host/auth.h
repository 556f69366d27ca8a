/* API keys. Stored hashed; the plain key is seen once. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
struct core;
void auth_init(struct core *c);
int auth_load(struct core *c, struct err *e);
void auth_free(struct core *c);
size_t auth_count(const struct core *c);
#define AUTH_FIRST "admin" /* the name of the key that a new home gets: the operator's */
#define AUTH_PLAIN 57 /* config.key_prefix, 40 hex digits and the NUL */
struct key {
    struct list link;
    char id[22];
    char *name;
    char prefix[13];
    unsigned char hash[32];
    int64_t created_ns, last_used_ns;
};
const struct key *auth_find(struct core *c,
                            struct str key);     /* constant time per candidate; NULL: not known */
bool auth_check(struct core *c, struct str key); /* the same, and it counts as used */
int auth_create(struct core *c, const char *name, char plain[AUTH_PLAIN], struct key **ret,
                struct err *e);
int auth_revoke(struct core *c, const char *id, struct err *e);
size_t auth_list(struct core *c, struct key **ret, size_t max);
