/* API keys. Stored hashed; the plain key is seen once. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
struct core;
struct key { struct list link; char id[22]; char *name; char prefix[13]; unsigned char hash[32]; int64_t created_ns, last_used_ns; };
const struct key *auth_find(struct core *c, struct str key); /* constant time per candidate; NULL: not known */
bool auth_check(struct core *c, struct str key);             /* the same, and it counts as used */
int auth_create(struct core *c, const char *name, char plain[45], struct key **ret, struct err *e);
int auth_revoke(struct core *c, const char *id, struct err *e);
size_t auth_list(struct core *c, struct key **ret, size_t max);
