#include "core/host/auth.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/log.h"
#include "core/host/host.h"
#include "crypto/digest.h"
#include "store/store.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOUCH_NS (60 * NS_PER_S)
#define KEYS_MAX 10000

struct keys {
    struct list all;
    size_t n;
};

void auth_init(struct core *c)
{
    c->keys = xcalloc(1, sizeof *c->keys);
    list_init(&c->keys->all);
}
size_t auth_count(const struct core *c) { return c->keys->n; }

static void key_free(struct key *k)
{
    free(k->name), free(k->tenant);
    scope_free(&k->scope);
    free(k);
}

/* ---- who is it ---- */
const struct key *auth_find(struct core *c, struct str key)
{
    unsigned char h[32];
    struct key *hit = NULL, *k;
    if (!key.n || key.n >= AUTH_PLAIN)
        return NULL;
    sha256(key.p, key.n, h);
    list_each(k, &c->keys->all, link)
        if (mem_eq_ct(h, k->hash, sizeof h))
            hit = k;
    return hit;
}

bool auth_expired(const struct key *k) { return k->expires_ns && clock_wall() >= k->expires_ns; }

const struct key *auth_check(struct core *c, struct str key, struct err *e)
{
    struct key *hit = (struct key *)(uintptr_t)auth_find(c, key);
    char when[32];
    if (!hit) {
        err_set(e, E_UNAUTHENTICATED, "the API key is unknown or was revoked");
        return NULL;
    }
    if (auth_expired(hit)) {
        clock_rfc3339(hit->expires_ns, when);
        err_set(e, E_UNAUTHENTICATED, "the API key '%.64s' expired at %s", hit->name, when);
        return NULL;
    }
    int64_t now = clock_wall();
    if (now - hit->last_used_ns > TOUCH_NS) {
        hit->last_used_ns = now;
        store_touch_key(c->store, hit->id, now);
    }
    return hit;
}

struct caller auth_caller(const struct key *k)
{
    if (!k || auth_expired(k))
        return (struct caller){.role = ROLE_NONE, .tenant = ""};
    return (struct caller){.role = k->role, .tenant = k->tenant, .scope = &k->scope, .key = k};
}

/* ---- rows ---- */
static void store_row(struct core *c, const struct key *k)
{
    char hashed[65];
    auto_buf scope = {0};
    struct jw w;
    hex_encode(k->hash, sizeof k->hash, hashed);
    jw_init(&w, &scope);
    if (scope_any(&k->scope))
        scope_put(&w, &k->scope);
    struct key_row row = {.id = k->id,
                          .name = k->name,
                          .prefix = k->prefix,
                          .sha256 = hashed,
                          .created_wall_ns = k->created_ns,
                          .last_used_wall_ns = k->last_used_ns,
                          .tenant = k->tenant,
                          .role = role_name(k->role),
                          .scope = scope.n ? scope.p : NULL,
                          .expires_wall_ns = k->expires_ns};
    store_put_key(c->store, &row, NULL, NULL);
}

static void enter(struct core *c, struct key *k)
{
    list_add_tail(&c->keys->all, &k->link);
    c->keys->n++;
}

/* ---- make, list, revoke ---- */
static int check_spec(struct core *c, struct key_spec *s, struct err *e)
{
    bool needs = s->role == ROLE_MEMBER || s->role == ROLE_VIEWER;
    if (c->keys->n >= KEYS_MAX)
        return err_set(e, E_QUOTA, "there are already %d keys, the limit; revoke some", KEYS_MAX);
    if (s->role == ROLE_NONE)
        return err_set(e, E_INVALID, "role: must be one of " ROLE_WORDS);
    if (needs && (!s->tenant || !*s->tenant))
        return err_set(e, E_INVALID, "tenant: a key with role %s needs one", role_name(s->role));
    if (s->tenant && *s->tenant && !tenant_name_ok(s->tenant))
        return err_set(e, E_INVALID, "tenant: must match [A-Za-z0-9][A-Za-z0-9_.-]{0,63}");
    if (s->expires_ns && s->expires_ns <= clock_wall())
        return err_set(e, E_INVALID, "expires: is in the past");
    return 0;
}

int auth_create(struct core *c, struct key_spec *spec, char plain[AUTH_PLAIN], struct key **ret,
                struct err *e)
{
    if (check_spec(c, spec, e)) {
        scope_free(&spec->scope);
        return -1;
    }
    unsigned char r[20];
    random_bytes(r, sizeof r);
    char hex[2 * sizeof r + 1];
    hex_encode(r, sizeof r, hex);
    (void)snprintf(plain, AUTH_PLAIN, "%s%s", c->cfg.key_prefix, hex);
    struct key *k = xcalloc(1, sizeof *k);
    id_make('k', k->id);
    k->name = xstrdup(spec->name);
    k->tenant = xstrdup(spec->tenant ? spec->tenant : "");
    k->role = spec->role, k->scope = spec->scope, k->expires_ns = spec->expires_ns;
    spec->scope = (struct scope){0};
    (void)snprintf(k->prefix, sizeof k->prefix, "%.12s", plain);
    sha256(plain, strlen(plain), k->hash);
    k->created_ns = clock_wall();
    store_row(c, k);
    enter(c, k);
    *ret = k;
    return 0;
}

struct key *auth_key_for(struct core *c, const struct caller *who, const char *id_or_name,
                         struct err *e)
{
    struct key *k, *hit = NULL;
    unsigned named = 0;
    list_each(k, &c->keys->all, link) {
        if (!caller_sees(who, k->tenant))
            continue;
        if (!strcmp(k->id, id_or_name))
            return k;
        if (!strcmp(k->name, id_or_name))
            hit = k, named++;
    }
    if (named > 1)
        err_set(e, E_CONFLICT, "%u keys have the name '%.64s': use the id of one", named,
                id_or_name);
    else if (!hit)
        err_set(e, E_NOT_FOUND, "key '%.64s' does not exist", id_or_name);
    return named == 1 ? hit : NULL;
}

void auth_revoke(struct core *c, struct key *k)
{
    store_del_key(c->store, k->id, NULL, NULL);
    list_del(&k->link);
    c->keys->n--;
    key_free(k);
}

size_t auth_list(struct core *c, struct key **ret, size_t max)
{
    struct key *k;
    size_t n = 0;
    list_each(k, &c->keys->all, link)
        if (n < max)
            ret[n++] = k;
    return n;
}

unsigned auth_keys_of(const struct core *c, const char *tenant)
{
    struct key *k;
    unsigned n = 0;
    list_each(k, &c->keys->all, link)
        n += !strcmp(k->tenant, tenant);
    return n;
}

/* ---- after a restart ---- */

/* A row of before keys had roles. A key's name was its tenant: where the operator had limits for that name
 * it becomes a member of it, else it stays what it was, a key that may do everything. Decided once, and stored. */
static void inherit(struct core *c, struct key *k)
{
    const struct tenant *t = tenant_find(&c->tenants, k->name);
    bool bound = t && strcmp(t->name, "*") != 0;
    k->tenant = xstrdup(k->name);
    k->role = bound ? ROLE_MEMBER : ROLE_ADMIN;
    log_info("key %s ('%s') is from before keys had roles: it is now %s", k->id, k->name,
             role_name(k->role));
    store_row(c, k);
}

static int load_key(void *arg, const struct key_row *r)
{
    struct core *c = arg;
    struct err e;
    if (r->revoked_wall_ns || strlen(r->sha256) != 64)
        return 0;
    struct key *k = xcalloc(1, sizeof *k);
    (void)snprintf(k->id, sizeof k->id, "%s", r->id);
    (void)snprintf(k->prefix, sizeof k->prefix, "%s", r->prefix);
    k->name = xstrdup(r->name ? r->name : "");
    if (!hex_decode(r->sha256, 64, k->hash)) {
        key_free(k);
        return 0;
    }
    k->created_ns = r->created_wall_ns, k->last_used_ns = r->last_used_wall_ns;
    k->expires_ns = r->expires_wall_ns;
    if (!r->role) {
        inherit(c, k);
    } else {
        k->tenant = xstrdup(r->tenant ? r->tenant : "");
        k->role = role_parse(r->role);
        if (!k->role || scope_parse_text(r->scope, &k->scope, &e)) {
            log_error("key %s: its stored rights are damaged; it may do nothing", k->id);
            k->role = ROLE_NONE;
        }
    }
    enter(c, k);
    return 0;
}
int auth_load(struct core *c, struct err *e) { return store_load_keys(c->store, load_key, c, e); }
void auth_free(struct core *c)
{
    struct key *k;
    list_each(k, &c->keys->all, link) {
        list_del(&k->link);
        key_free(k);
    }
    free(c->keys);
    c->keys = NULL;
}
