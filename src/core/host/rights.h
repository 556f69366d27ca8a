/* Who asks, and what he may: one struct for all of core and every dialect.
 *
 * A tenant owns things. A key belongs to a tenant and has a role:
 *
 *   admin      everything, of everybody
 *   operator   reads everything; changes only what is its own tenant's
 *   member     reads and changes what is its own tenant's
 *   viewer     reads what is its own tenant's
 *   metrics    GET /metrics and nothing else
 *
 * A scope takes from what a role may. Whoever may not see a thing is told that
 * it does not exist, in the same words as for one that does not: lookups take
 * the caller (sandbox_find_for and its like), so that no handler can forget. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "json/read.h"
#include "json/write.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum role { ROLE_NONE, ROLE_METRICS, ROLE_VIEWER, ROLE_MEMBER, ROLE_OPERATOR, ROLE_ADMIN };
#define ROLE_WORDS "metrics|viewer|member|operator|admin"
const char *role_name(enum role r);
enum role role_parse(const char *s); /* ROLE_NONE: unknown */

#define TENANT_NAME_MAX 64
#define SCOPE_TEMPLATES 64
#define SCOPE_TIERS     4
bool tenant_name_ok(const char *name); /* ^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$ */

/* What a key's bearer may not exceed. Zero, NULL: no limit of the key's own. */
struct scope {
    char *templates[SCOPE_TEMPLATES]; /* names or ids it may start from */
    size_t ntemplates;
    char *tiers[SCOPE_TIERS];
    size_t ntiers;
    char *network; /* a ceiling for the policies it sets, as JSON */
    uint32_t cpu_millis, memory_mib, disk_mib;
    bool keys; /* may make keys of its own tenant */
};
int scope_parse(struct json *obj /* NULL: none */, struct scope *ret, struct err *e);
int scope_parse_text(const char *text /* NULL, "": none */, struct scope *ret, struct err *e);
void scope_put(struct jw *w, const struct scope *s); /* one object, or null */
bool scope_any(const struct scope *s);               /* anything at all */
bool scope_limits(const struct scope *s);            /* takes something away */
void scope_free(struct scope *s);

struct key;
struct caller {
    enum role role;
    const char *tenant;        /* of what it makes; "": nobody's, the operator's own */
    const struct scope *scope; /* NULL: none */
    const struct key *key;     /* NULL: a trusted peer of the socket, or the daemon itself */
};
extern const struct caller caller_daemon; /* hutchd for its own purposes: admin, no tenant */
struct caller caller_of_tenant(const char *tenant /* "", NULL: the daemon */); /* on behalf of */

bool caller_all(const struct caller *who);                         /* sees everything */
bool caller_sees(const struct caller *who, const char *tenant);    /* what is that tenant's */
bool caller_changes(const struct caller *who, const char *tenant); /* likewise */
bool caller_makes(const struct caller *who);                       /* may have things of its own */
int caller_forbid(const struct caller *who, const char *needs /* "admin" */,
                  struct err *e); /* -1 */
/* A sandbox of these sizes from this template, by the scope alone. */
int caller_may_start(const struct caller *who, const char *template_name, const char *template_id,
                     const char *tier, uint32_t cpu_millis, uint32_t memory_mib, uint32_t disk_mib,
                     struct err *e);

/* ---- names: a tenant's own ---- */
/* Two tenants may use the same name. Where a table has one column for it, and in maps, it is
 * stored as "name@tenant"; the operator's as "name". No name has an '@'. */
#define FULL_NAME 160
const char *full_name(const char *tenant, const char *name, char out[FULL_NAME]);
const char *full_name_tenant(const char *full); /* "": none */
size_t full_name_len(const char *full);         /* of the name alone */

/* Of all that go by a name: the caller's own, else what all share, else, for who sees all, the only one. */
struct pick {
    const struct caller *who;
    void *own, *shared, *other;
    unsigned others;
};
void pick_add(struct pick *p, const char *tenant, void *thing);
void *pick_get(const struct pick *p, bool with_shared); /* NULL: none, or more than one of others */
bool pick_several(const struct pick *p);
