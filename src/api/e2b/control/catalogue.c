/* Templates by E2B's rules: a stable id and name, many builds, tags that point
 * at builds. A build stands on one template of the core. Kept in HOME/e2b.json,
 * replaced as a whole on every change; changes are rare. A template of the core
 * that was not built here is found by its own name, with the one tag default. */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/e2b.h"
#include "core/catalog/template.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/log.h"
#include "crypto/digest.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_MAX (16u << 20)

/* ---- references ---- */
static bool word(const char *p, size_t n, const char *extra, char out[E2B_NAME_MAX])
{
    if (!n || n >= E2B_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = p[i] >= 'A' && p[i] <= 'Z' ? (char)(p[i] + 32) : p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || (c && strchr(extra, c))))
            return false;
        out[i] = c;
    }
    out[n] = 0;
    return true;
}

bool e2b_tag_read(const char *tag, char out[E2B_NAME_MAX])
{
    return word(tag, strlen(tag), "-_.", out);
}

int e2b_ref_parse(const char *text, struct e2b_ref *ret, struct err *e)
{
    const char *slash = strchr(text, '/'), *name = slash ? slash + 1 : text,
               *colon = strchr(name, ':');
    char ns[E2B_NAME_MAX];
    *ret = (struct e2b_ref){0};
    if ((slash && !word(text, (size_t)(slash - text), "-_", ns)) ||
        !word(name, colon ? (size_t)(colon - name) : strlen(name), "-_", ret->name) ||
        (colon && !word(colon + 1, strlen(colon + 1), "-_.", ret->tag)))
        return err_set(e, E_INVALID, "Invalid template reference: '%.120s'", text);
    if (slash && strcmp(ns, E2B_NAMESPACE))
        return err_set(e, E_NOT_FOUND, "template '%.120s' not found", text);
    return 0;
}

/* ---- objects ---- */
static void build_free(struct e2b_build *b)
{
    list_del(&b->link);
    for (size_t i = 0; i < b->nlog; i++)
        free(b->log[i].text);
    free(b->log);
    free(b->error), free(b->tenant);
    kv_free(&b->tags), kv_free(&b->lines);
    free(b);
}

void build_drop(struct e2b_build *b)
{
    if (b->core)
        build_cancel(b->core);
    build_free(b);
}

void catalogue_del(struct e2b_template *t)
{
    struct e2b_build *b;
    list_each(b, &t->builds, link)
        build_drop(b);
    kv_free(&t->tags), kv_free(&t->tagged);
    list_del(&t->link);
    free(t);
}

void catalogue_free(struct e2b *x)
{
    struct e2b_template *t;
    struct e2b_build *b;
    list_each(t, &x->templates, link) {
        list_each(b, &t->builds, link)
            b->core = NULL; /* core went before us */
        catalogue_del(t);
    }
}

static struct e2b_template *template_new(struct e2b *x, const char *tenant, const char *name)
{
    struct e2b_template *t = xcalloc(1, sizeof *t);
    list_init(&t->builds);
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    (void)snprintf(t->tenant, sizeof t->tenant, "%s", tenant);
    t->created_ns = clock_wall();
    list_add_tail(&x->templates, &t->link);
    return t;
}

struct e2b_template *catalogue_add(struct e2b *x, const char *tenant, const char *name)
{
    catalogue_load(x);
    struct e2b_template *t = template_new(x, tenant, name);
    id_make('t', t->id);
    return t;
}

struct e2b_build *catalogue_add_build(struct e2b_template *t)
{
    struct e2b_build *b = xcalloc(1, sizeof *b);
    unsigned char r[16];
    random_bytes(r, sizeof r);
    r[6] = (r[6] & 15) | 0x40, r[8] = (r[8] & 63) | 0x80;
    (void)snprintf(b->id, sizeof b->id,
                   "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", r[0],
                   r[1], r[2], r[3], r[4], r[5], r[6], r[7], r[8], r[9], r[10], r[11], r[12], r[13],
                   r[14], r[15]);
    b->t = t;
    b->created_ns = clock_wall();
    list_add_tail(&t->builds, &b->link);
    return b;
}

void build_uuid(const char *core_id, char out[37])
{
    char h[SHA256_HEX];
    sha256_hex(core_id, strlen(core_id), h);
    (void)snprintf(out, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", h, h + 8, h + 12, h + 16, h + 20);
}

struct e2b_build *catalogue_build(struct e2b_template *t, const char *id)
{
    struct e2b_build *b;
    list_each(b, &t->builds, link)
        if (!strcmp(b->id, id))
            return b;
    return NULL;
}

struct e2b_template *catalogue_get(struct e2b *x, const struct caller *who, const char *id_or_name)
{
    struct e2b_template *t;
    struct pick p = {.who = who};
    catalogue_load(x);
    list_each(t, &x->templates, link)
        if (!strcmp(t->id, id_or_name) || !strcmp(t->name, id_or_name))
            pick_add(&p, t->tenant, t);
    return pick_get(&p, true);
}

struct e2b_template *catalogue_own(struct e2b *x, const char *tenant, const char *name)
{
    struct e2b_template *t;
    catalogue_load(x);
    list_each(t, &x->templates, link)
        if (!strcmp(t->name, name) && !strcmp(t->tenant, tenant))
            return t;
    return NULL;
}

void catalogue_tag(struct e2b_template *t, const char *tag, const char *build_id)
{
    char now[32];
    clock_rfc3339(clock_wall(), now);
    kv_set(&t->tags, str_of(tag), str_of(build_id));
    kv_set(&t->tagged, str_of(tag), str_of(now));
}

/* ---- resolving ---- */
static int found_core(struct e2b *x, const struct caller *who, const char *name, const char *tag,
                      struct e2b_found *ret, struct err *e)
{
    const struct template *t = template_find_for(api_core(x->api), who, name, NULL);
    if (!t && !strcmp(name, "code-interpreter-v1"))
        t = template_find(api_core(x->api), "code-interpreter", NULL);
    if (!t)
        return err_set(e, E_NOT_FOUND, "template '%.120s' not found", name);
    if (*tag && strcmp(tag, "default") && strcmp(tag, "latest"))
        return err_set(e, E_NOT_FOUND, "tag '%.60s' does not exist for template '%.120s'", tag,
                       name);
    memcpy(ret->core_id, t->id, sizeof ret->core_id);
    memcpy(ret->template_id, t->id, sizeof ret->template_id);
    build_uuid(t->id, ret->build_id);
    (void)snprintf(ret->alias, sizeof ret->alias, "%s", strcmp(name, t->id) ? name : t->name);
    return 0;
}

int catalogue_resolve(struct e2b *x, const struct caller *who, const char *ref,
                      struct e2b_found *ret, struct err *e)
{
    struct e2b_ref r;
    *ret = (struct e2b_found){0};
    if (e2b_ref_parse(ref, &r, e))
        return -1;
    struct e2b_template *t = catalogue_get(x, who, r.name);
    if (!t)
        return found_core(x, who, r.name, r.tag, ret, e);
    const char *tag = *r.tag ? r.tag : "default", *bid = kv_get(&t->tags, tag);
    const struct e2b_build *b = bid ? catalogue_build(t, bid) : NULL;
    if (!b && *r.tag)
        return err_set(e, E_NOT_FOUND, "tag '%.60s' does not exist for template '%.120s'", r.tag,
                       r.name);
    if (!b) {
        /* no build under the tag default: one that is asked for by name alone is the newest that is ready */
        struct e2b_build *it;
        list_each(it, &t->builds, link)
            if (it->state == BUILD_READY)
                b = it;
    }
    if (!b || b->state != BUILD_READY || !template_find(api_core(x->api), b->core_id, NULL))
        return err_set(e, E_NOT_FOUND, "template '%.120s' not found: it has no finished build",
                       r.name);
    memcpy(ret->core_id, b->core_id, sizeof ret->core_id);
    memcpy(ret->template_id, t->id, sizeof ret->template_id);
    memcpy(ret->build_id, b->id, sizeof ret->build_id);
    memcpy(ret->alias, t->name, sizeof ret->alias);
    ret->cpu = t->cpu, ret->memory_mib = t->memory_mib, ret->t = t;
    return 0;
}

/* ---- the file ---- */
static void put_kv(struct jw *w, const char *key, const struct kv *m)
{
    jw_kv_obj(w, key);
    for (size_t i = 0; i < m->n; i++)
        jw_kv_str(w, m->at[i].k, m->at[i].v);
    jw_end(w);
}

static void put_catalogue(struct jw *w, struct e2b *x)
{
    struct e2b_template *t;
    struct e2b_build *b;
    jw_obj(w);
    jw_kv_arr(w, "templates");
    list_each(t, &x->templates, link) {
        jw_obj(w);
        jw_kv_str(w, "id", t->id);
        jw_kv_str(w, "name", t->name);
        jw_kv_str(w, "tenant", t->tenant);
        jw_kv_i64(w, "created_ns", t->created_ns);
        jw_kv_u64(w, "cpu", t->cpu);
        jw_kv_u64(w, "memory_mib", t->memory_mib);
        put_kv(w, "tags", &t->tags);
        put_kv(w, "tagged", &t->tagged);
        jw_kv_arr(w, "builds");
        list_each(b, &t->builds, link) {
            jw_obj(w);
            jw_kv_str(w, "id", b->id);
            jw_kv_bool(w, "ready", b->state == BUILD_READY);
            jw_kv_str(w, "core_id", b->core_id);
            jw_kv_str(w, "key", b->key);
            jw_kv_i64(w, "created_ns", b->created_ns);
            jw_kv_str(w, "error", b->error);
            jw_end(w);
        }
        jw_end(w);
        jw_end(w);
    }
    jw_end(w);
    jw_end(w);
}

void catalogue_save(struct e2b *x)
{
    char path[256], tmp[264];
    auto_buf b = {0};
    struct jw w;
    (void)snprintf(path, sizeof path, "%s/e2b.json", core_config(api_core(x->api))->home);
    (void)snprintf(tmp, sizeof tmp, "%s.tmp", path);
    jw_init(&w, &b);
    put_catalogue(&w, x);
    auto_fd fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || !fd_write_all(fd, b.p, b.n) || fsync(fd) || rename(tmp, path))
        log_error("e2b: its templates could not be stored: %m");
}

static void load_kv(struct json *obj, const char *key, struct kv *ret)
{
    struct json *m = json_get(obj, key);
    struct str v;
    for (void *it = json_first(m); it; it = json_next(m, it))
        if (!json_to_str(json_iter_value(m, it), &v, NULL))
            kv_set(ret, json_iter_key(it), v);
}

static void load_text(struct json *obj, const char *key, char *out, size_t cap)
{
    struct str v = {0};
    (void)json_str(obj, key, &v, false, NULL); /* ours: absent is empty */
    (void)snprintf(out, cap, "%s", v.p ? v.p : "");
}

static void load_template(struct e2b *x, struct json *j)
{
    char name[E2B_NAME_MAX], tenant[TENANT_NAME_MAX + 1];
    int64_t v;
    load_text(j, "name", name, sizeof name);
    load_text(j, "tenant", tenant, sizeof tenant); /* none before there were any: for all */
    struct e2b_template *t = template_new(x, tenant, name);
    load_text(j, "id", t->id, sizeof t->id);
    if (!json_i64(j, "created_ns", 0, INT64_MAX, 0, &v, NULL))
        t->created_ns = v;
    if (!json_i64(j, "cpu", 0, 64, 0, &v, NULL))
        t->cpu = (uint32_t)v;
    if (!json_i64(j, "memory_mib", 0, 1 << 20, 0, &v, NULL))
        t->memory_mib = (uint32_t)v;
    load_kv(j, "tags", &t->tags);
    load_kv(j, "tagged", &t->tagged);
    struct json *bs = json_get(j, "builds");
    for (size_t i = 0; i < json_len(bs); i++) {
        struct json *bj = json_at(bs, i);
        struct e2b_build *b = catalogue_add_build(t);
        bool ready = false;
        char error[400];
        load_text(bj, "id", b->id, sizeof b->id);
        load_text(bj, "core_id", b->core_id, sizeof b->core_id);
        load_text(bj, "key", b->key, sizeof b->key);
        load_text(bj, "error", error, sizeof error);
        if (!json_i64(bj, "created_ns", 0, INT64_MAX, 0, &v, NULL))
            b->created_ns = v;
        (void)json_bool(bj, "ready", false, &ready, NULL);
        b->state = ready ? BUILD_READY : BUILD_ERROR;
        if (!ready)
            b->error = xstrdup(*error ? error : "the daemon was restarted during the build");
    }
}

void catalogue_load(struct e2b *x)
{
    char path[256];
    struct err e;
    size_t n;
    if (x->loaded)
        return;
    x->loaded = true;
    (void)snprintf(path, sizeof path, "%s/e2b.json", core_config(api_core(x->api))->home);
    auto_free char *text = fd_slurp_at(AT_FDCWD, path, FILE_MAX, &n);
    if (!text)
        return; /* none was stored yet */
    auto_json j = json_parse_obj(text, n, &e);
    if (!j) {
        log_error("e2b: %s is damaged: %s", path, e.msg);
        return;
    }
    struct json *ts = json_get(j, "templates");
    for (size_t i = 0; i < json_len(ts); i++)
        load_template(x, json_at(ts, i));
}
