#include "core/host/auth.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
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

bool auth_check(struct core *c, struct str key)
{
    struct key *hit = (struct key *)(uintptr_t)auth_find(c, key);
    if (!hit)
        return false;
    int64_t now = clock_wall();
    if (now - hit->last_used_ns > TOUCH_NS) {
        hit->last_used_ns = now;
        store_touch_key(c->store, hit->id, now);
    }
    return true;
}

int auth_create(struct core *c, const char *name, char plain[AUTH_PLAIN], struct key **ret,
                struct err *e)
{
    if (c->keys->n >= KEYS_MAX)
        return err_set(e, E_QUOTA, "there are already %d keys, the limit; revoke some", KEYS_MAX);
    unsigned char r[20];
    random_bytes(r, sizeof r);
    char hex[2 * sizeof r + 1];
    hex_encode(r, sizeof r, hex);
    (void)snprintf(plain, AUTH_PLAIN, "%s%s", c->cfg.key_prefix, hex);
    struct key *k = xcalloc(1, sizeof *k);
    id_make('k', k->id);
    k->name = xstrdup(name);
    (void)snprintf(k->prefix, sizeof k->prefix, "%.12s", plain);
    sha256(plain, strlen(plain), k->hash);
    k->created_ns = clock_wall();
    char hashed[65];
    hex_encode(k->hash, sizeof k->hash, hashed);
    struct key_row row = {.id = k->id,
                          .name = k->name,
                          .prefix = k->prefix,
                          .sha256 = hashed,
                          .created_wall_ns = k->created_ns};
    store_put_key(c->store, &row, NULL, NULL);
    list_add_tail(&c->keys->all, &k->link);
    c->keys->n++;
    *ret = k;
    return 0;
}

int auth_revoke(struct core *c, const char *id, struct err *e)
{
    struct key *k;
    list_each(k, &c->keys->all, link)
        if (!strcmp(k->id, id)) {
            store_del_key(c->store, id, NULL, NULL);
            list_del(&k->link);
            c->keys->n--;
            free(k->name);
            free(k);
            return 0;
        }
    return err_set(e, E_NOT_FOUND, "key '%.40s' does not exist", id);
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

static int load_key(void *arg, const struct key_row *r)
{
    struct core *c = arg;
    if (r->revoked_wall_ns || strlen(r->sha256) != 64)
        return 0;
    struct key *k = xcalloc(1, sizeof *k);
    (void)snprintf(k->id, sizeof k->id, "%s", r->id);
    (void)snprintf(k->prefix, sizeof k->prefix, "%s", r->prefix);
    k->name = xstrdup(r->name ? r->name : "");
    if (!hex_decode(r->sha256, 64, k->hash)) {
        free(k->name);
        free(k);
        return 0;
    }
    k->created_ns = r->created_wall_ns, k->last_used_ns = r->last_used_wall_ns;
    list_add_tail(&c->keys->all, &k->link);
    c->keys->n++;
    return 0;
}
int auth_load(struct core *c, struct err *e) { return store_load_keys(c->store, load_key, c, e); }
void auth_free(struct core *c)
{
    struct key *k;
    list_each(k, &c->keys->all, link) {
        list_del(&k->link);
        free(k->name);
        free(k);
    }
    free(c->keys);
    c->keys = NULL;
}
