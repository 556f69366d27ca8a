/* API keys: whose they are and what they may (core/host/rights.h). Stored hashed;
 * the plain key is seen once. A key's last use is stored once a minute at most. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"
#include "core/host/rights.h"
#include <stdbool.h>
#include <stdint.h>
struct core;
void auth_init(struct core *c);
int auth_load(struct core *c, struct err *e);
void auth_free(struct core *c);
size_t auth_count(const struct core *c);
#define AUTH_FIRST "admin" /* the name of the key that a new home gets: the operator's */
#define AUTH_PLAIN 57      /* config.key_prefix, 40 hex digits and the NUL */
struct key {
    struct list link;
    char id[22];
    char *name, *tenant; /* tenant "": none */
    enum role role;
    struct scope scope;
    char prefix[13];
    unsigned char hash[32];
    int64_t created_ns, last_used_ns, expires_ns; /* wall; expires 0: never */
};
/* Constant time per candidate. NULL: not known. One that has expired is found too. */
const struct key *auth_find(struct core *c, struct str key);
/* The same for who wants in: NULL + E_UNAUTHENTICATED for one that is unknown or has expired; counts as used. */
const struct key *auth_check(struct core *c, struct str key, struct err *e);
bool auth_expired(const struct key *k);
struct caller auth_caller(const struct key *k /* NULL: nobody, who sees nothing */);

struct key_spec {
    const char *name, *tenant; /* NULL, "": none; a member and a viewer need one */
    enum role role;
    struct scope scope; /* taken */
    int64_t expires_ns; /* wall; 0: never */
};
int auth_create(struct core *c, struct key_spec *spec, char plain[AUTH_PLAIN], struct key **ret,
                struct err *e);
/* By its id, or by a name that only one of those the caller may revoke has. */
struct key *auth_key_for(struct core *c, const struct caller *who, const char *id_or_name,
                         struct err *e);
void auth_revoke(struct core *c, struct key *k);
size_t auth_list(struct core *c, struct key **ret, size_t max);
unsigned auth_keys_of(const struct core *c, const char *tenant); /* how many a tenant has */
