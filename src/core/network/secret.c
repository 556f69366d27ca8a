#include "core/network/secret.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/network/egress.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/host/keyfile.h"
#include "crypto/seal.h"
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_FILE "secrets.key"

struct secrets {
    struct map by_name;
    unsigned char key[SEAL_KEY];
};

/* ---- the key ------------------------------------------------------------------------------------------------------ */

static int key_load(struct core *c, unsigned char key[SEAL_KEY], struct err *e)
{
    return *c->cfg.secrets_key ? keyfile_parse(c->cfg.secrets_key, "the key for secrets", key, e)
                               : keyfile_load(c->home_fd, KEY_FILE, key, e);
}

/* ---- rows --------------------------------------------------------------------------------------------------------- */

static void secret_free(struct secret *s)
{
    free(s->name), free(s->label), free(s->tenant), free(s->sealed);
    kv_free(&s->metadata);
    free(s);
}

static struct secret *secret_new(const char *full)
{
    struct secret *s = xcalloc(1, sizeof *s);
    s->name = xstrdup(full);
    s->label = xstrndup(full, full_name_len(full));
    s->tenant = xstrdup(full_name_tenant(full));
    return s;
}

static void store_row(struct core *c, const struct secret *s,
                      void (*done)(void *, const struct err *), void *arg)
{
    struct secret_row r = {.name = s->name,
                           .sandbox = *s->sandbox ? s->sandbox : NULL,
                           .sealed = s->sealed,
                           .created_wall_ns = s->created_ns,
                           .updated_wall_ns = s->updated_ns,
                           .calls_max = (int64_t)s->calls_max,
                           .bytes_max = (int64_t)s->bytes_max,
                           .calls = (int64_t)s->calls,
                           .bytes = (int64_t)s->bytes,
                           .id = s->id,
                           .version = (int64_t)s->version};
    auto_free char *metadata = kv_to_json(&s->metadata);
    r.metadata = metadata;
    store_put_secret(c->store, &r, done, arg);
}

static int load_row(void *arg, const struct secret_row *r)
{
    struct core *c = arg;
    struct secret *s = secret_new(r->name);
    s->sealed = xstrdup(r->sealed ? r->sealed : "");
    (void)snprintf(s->sandbox, sizeof s->sandbox, "%s", r->sandbox ? r->sandbox : "");
    s->created_ns = r->created_wall_ns, s->updated_ns = r->updated_wall_ns;
    s->calls_max = (uint64_t)r->calls_max, s->bytes_max = (uint64_t)r->bytes_max,
    s->calls = (uint64_t)r->calls, s->bytes = (uint64_t)r->bytes;
    s->version = (uint64_t)r->version;
    if (r->id && id_ok(str_of(r->id)))
        memcpy(s->id, r->id, sizeof s->id);
    else
        id_make('s', s->id); /* from before there were any; stored when it changes */
    if (r->metadata && kv_from_json(&s->metadata, r->metadata, NULL))
        log_warn("secret '%s': its metadata is damaged", s->name);
    map_set(&c->secrets->by_name, s->name, s);
    return 0;
}

int secrets_load(struct core *c, struct err *e)
{
    c->secrets = xcalloc(1, sizeof *c->secrets);
    if (key_load(c, c->secrets->key, e))
        return -1;
    return store_load_secrets(c->store, load_row, c, e);
}

void secrets_free(struct core *c)
{
    struct map_entry *en;
    if (!c->secrets)
        return;
    for (size_t i = 0; (en = map_next(&c->secrets->by_name, &i));)
        secret_free(en->value);
    map_free(&c->secrets->by_name);
    explicit_bzero(c->secrets->key, SEAL_KEY);
    free(c->secrets);
    c->secrets = NULL;
}

struct secret *secret_find(struct core *c, const char *name)
{
    return map_get(&c->secrets->by_name, name);
}

struct secret *secret_of_tenant(struct core *c, const char *tenant, const char *name)
{
    char full[FULL_NAME];
    struct secret *s = strchr(name, '@') ? NULL : secret_find(c, full_name(tenant, name, full));
    return s && !*s->sandbox ? s : NULL;
}

struct secret *secret_find_for(struct core *c, const struct caller *who, const char *id_or_name,
                               struct err *e)
{
    struct map_entry *en;
    struct pick p = {.who = who};
    for (size_t i = 0; (en = map_next(&c->secrets->by_name, &i));) {
        struct secret *s = en->value;
        if (*s->sandbox || !caller_sees(who, s->tenant))
            continue;
        if (!strcmp(s->id, id_or_name))
            return s;
        if (!strcmp(s->label, id_or_name))
            pick_add(&p, s->tenant, s);
    }
    struct secret *hit = pick_get(&p, false);
    if (!hit && pick_several(&p))
        err_why(e, REASON_NAME_TAKEN, E_CONFLICT,
                "several tenants have a secret named '%.63s': use its id", id_or_name);
    else if (!hit)
        err_why(e, REASON_NO_SECRET, E_NOT_FOUND, "secret '%.63s' does not exist", id_or_name);
    return hit;
}

bool secret_name_ok(const char *name)
{
    static const char first[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                      rest[] = "_.-";
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!strchr(first, name[i]) && (!i || !strchr(rest, name[i])))
            return false;
    return n && n <= 63;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(struct secret *const *)a)->name, (*(struct secret *const *)b)->name); /* of one name by tenant */
}

size_t secret_list(struct core *c, const struct caller *who, struct secret **ret, size_t max)
{
    struct map_entry *en;
    size_t n = 0;
    for (size_t i = 0; n < max && (en = map_next(&c->secrets->by_name, &i));) {
        struct secret *s = en->value;
        if (!*s->sandbox && caller_sees(who, s->tenant))
            ret[n++] = s;
    }
    qsort(ret, n, sizeof *ret, by_name);
    return n;
}

/* ---- values ------------------------------------------------------------------------------------------------------- */

const char *secret_value_fault(struct str v)
{
    if (!v.n || v.n > GATE_SECRET_MAX)
        return "1 to 8192 bytes";
    for (size_t i = 0; i < v.n; i++)
        if ((unsigned char)v.p[i] < 0x20 || v.p[i] == 0x7f)
            return "a header cannot contain control characters or line ends";
    return NULL;
}
_Static_assert(GATE_SECRET_MAX == 8192, "the sentence says so");

size_t secrets_room(const struct core *c)
{
    return c->secrets->by_name.n < SECRETS_MAX ? SECRETS_MAX - c->secrets->by_name.n : 0;
}

int secret_put(struct core *c, const struct secret_spec *sp,
               void (*done)(void *arg, const struct err *e), void *arg, struct err *e)
{
    char full[FULL_NAME];
    struct secret *s = secret_find(c, full_name(sp->tenant, sp->name, full));
    if (!secret_name_ok(sp->name))
        return err_set(e, E_INVALID, "name: must match [A-Za-z0-9][A-Za-z0-9_.-]{0,62}");
    const char *fault = secret_value_fault(sp->value);
    if (fault)
        return err_set(e, E_INVALID, "value: %s", fault);
    if (!s && !secrets_room(c))
        return err_set(e, E_QUOTA, "there are already %d secrets, the limit", SECRETS_MAX);
    if (s && !sp->sandbox && *s->sandbox)
        return err_why(e, REASON_NAME_TAKEN, E_CONFLICT, "a secret named '%s' already exists",
                       sp->name);
    if (!s) {
        s = secret_new(full);
        s->created_ns = clock_wall();
        id_make('s', s->id);
        if (sp->sandbox)
            (void)snprintf(s->sandbox, sizeof s->sandbox, "%s", sp->sandbox);
        map_set(&c->secrets->by_name, s->name, s);
    } else if (s->calls_max != sp->calls_max || s->bytes_max != sp->bytes_max) {
        s->calls = s->bytes = 0;
    }
    struct buf sealed = {0};
    seal(c->secrets->key, str_of(s->name), sp->value, &sealed);
    free(s->sealed);
    s->sealed = buf_take(&sealed);
    s->updated_ns = clock_wall();
    s->version++;
    if (sp->metadata) {
        kv_free(&s->metadata);
        kv_copy(&s->metadata, sp->metadata);
    }
    s->calls_max = sp->calls_max, s->bytes_max = sp->bytes_max;
    store_row(c, s, done, arg);
    egress_secret(c, s->name);
    return 0;
}

void secret_delete(struct core *c, struct secret *s)
{
    map_del(&c->secrets->by_name, s->name);
    store_del_secret(c->store, s->name, NULL, NULL);
    egress_secret(c, s->name);
    secret_free(s);
}

void secrets_of_sandbox_drop(struct core *c, const char *sandbox, const char *policy)
{
    struct map_entry *en;
    for (size_t i = 0; c->secrets && (en = map_next(&c->secrets->by_name, &i));) {
        struct secret *s = en->value;
        if (strcmp(s->sandbox, sandbox) || (policy && strstr(policy, s->name)))
            continue;
        map_del(&c->secrets->by_name, s->name);
        store_del_secret(c->store, s->name, NULL, NULL);
        egress_secret(c, s->name);
        secret_free(s);
    }
}

static bool open_one(struct core *c, const struct secret *s, secret_fn *fn, void *arg)
{
    auto_buf plain = {0};
    struct err e;
    struct gate_budget b = {
        .calls_max = s->calls_max, .bytes_max = s->bytes_max, .calls = s->calls, .bytes = s->bytes};
    if (unseal(c->secrets->key, str_of(s->name), str_of(s->sealed), &plain, &e)) {
        log_error("secret '%s': %s", s->name, e.msg);
        return false;
    }
    fn(arg, s->name, (struct str){plain.p, plain.n}, &b);
    explicit_bzero(plain.p, plain.n);
    return true;
}

void secret_each(struct core *c, secret_fn *fn, void *arg)
{
    struct map_entry *en;
    for (size_t i = 0; (en = map_next(&c->secrets->by_name, &i));)
        (void)open_one(c, en->value, fn, arg); /* logged there */
}

bool secret_open(struct core *c, const char *name, secret_fn *fn, void *arg)
{
    struct secret *s = secret_find(c, name);
    return s && open_one(c, s, fn, arg);
}

void secret_seal(struct core *c, const char *about, const char *plain, struct buf *ret)
{
    seal(c->secrets->key, str_of(about), str_of(plain), ret);
}
int secret_unseal(struct core *c, const char *about, const char *sealed, struct buf *ret,
                  struct err *e)
{
    return unseal(c->secrets->key, str_of(about), str_of(sealed), ret, e);
}

/* ---- use ---------------------------------------------------------------------------------------------------------- */

struct refresh {
    struct core *core;
    void (*done)(void *arg);
    void *arg;
};

static void refreshed(void *arg, const struct err *e, const struct gate_secret_stat *st, size_t n)
{
    struct refresh r = *(struct refresh *)arg;
    free(arg);
    for (size_t i = 0; !e && r.core->secrets && i < n; i++) {
        struct secret *s = secret_find(r.core, st[i].id);
        if (!s || (s->calls >= st[i].calls && s->bytes >= st[i].bytes))
            continue;
        s->calls = st[i].calls, s->bytes = st[i].bytes;
        store_row(r.core, s, NULL, NULL);
    }
    if (r.done)
        r.done(r.arg);
}

void secret_refresh(struct core *c, void (*done)(void *arg), void *arg)
{
    struct refresh *r = xcalloc(1, sizeof *r);
    *r = (struct refresh){c, done, arg};
    gate_secret_stats(egress_client(c), NULL, refreshed, r);
}
