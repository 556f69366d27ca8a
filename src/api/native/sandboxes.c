/* Sandboxes: create, list, look, change, end. */
#include "api/native/native.h"
#include "api/gate.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "api/schema.h"
#include "base/clock.h"
#include "core/snapshot.h"
#include "core/volume.h"
#include "core/network.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX   1000
#define LIFE_MAX_S 31536000 /* a year */

/* ---- rendering ---- */
void put_time(struct jw *w, const char *key, int64_t wall_ns)
{
    char t[32];
    if (wall_ns > 0)
        clock_rfc3339(wall_ns, t);
    jw_kv_str(w, key, wall_ns > 0 ? t : NULL);
}

static void put_map(struct jw *w, const char *key, const struct kv *m)
{
    jw_kv_obj(w, key);
    for (size_t i = 0; i < m->n; i++)
        jw_kv_str(w, m->at[i].k, m->at[i].v);
    jw_end(w);
}

void put_sandbox(struct jw *w, const struct sandbox *sb)
{
    jw_obj(w);
    jw_kv_str(w, "id", sb->id);
    jw_kv_str(w, "name", sb->name);
    jw_kv_str(w, "template", sb->template_name);
    jw_kv_str(w, "template_id", sb->template_id);
    jw_kv_str(w, "tenant", *sandbox_tenant(sb) ? sandbox_tenant(sb) : NULL);
    jw_kv_str(w, "state", state_name(sb->state));
    jw_kv_obj(w, "isolation");
    jw_kv_str(w, "tier", tier_name(sb->tier));
    jw_kv_str(w, "boundary", sandbox_boundary(sb));
    jw_kv_str(w, "accel", sandbox_accel(sb));
    jw_end(w);
    if (sb->cpu_millis % 1000)
        jw_kv_f64(w, "cpu", sb->cpu_millis / 1000.0);
    else
        jw_kv_u64(w, "cpu", sb->cpu_millis / 1000);
    jw_kv_u64(w, "memory_mib", sb->memory_mib);
    jw_kv_u64(w, "disk_mib", sb->disk_mib);
    jw_kv_u64(w, "timeout_s", sb->timeout_s);
    jw_kv_str(w, "on_timeout", on_timeout_name(sb->on_timeout));
    jw_kv_u64(w, "idle_timeout_s", sb->life.idle_s);
    jw_kv_str(w, "on_idle", on_timeout_name(sb->life.on_idle));
    jw_kv_u64(w, "max_lifetime_s", sb->life.lifetime_s);
    jw_kv_bool(w, "auto_resume", sb->life.auto_resume);
    if (sb->state == SB_PAUSED) {
        jw_kv_obj(w, "paused");
        jw_kv_str(w, "kind", pause_name(sb->life.paused));
        jw_kv_bool(w, "memory", sb->life.memory);
        put_time(w, "at", sb->life.paused_ns);
        jw_kv_u64(w, "bytes", sb->life.bytes);
        jw_kv_str(w, "reason", pause_why_name(sb->life.why));
        jw_end(w);
    } else {
        jw_kv_null(w, "paused");
    }
    put_time(w, "created_at", sb->created_ns);
    put_time(w, "started_at", sb->started_ns);
    put_time(w, "expires_at", sb->state != SB_PAUSED ? sb->expires_ns : sb->life.lifetime_s ? sandbox_lifetime_end(sb) : 0);
    put_map(w, "metadata", &sb->metadata);
    jw_key(w, "network");
    network_put(w, sb);
    put_attachments(w, sb);
    jw_kv_str(w, "snapshot", sandbox_base(sb));
    jw_kv_str(w, "box", *sb->box_id ? sb->box_id : NULL);
    jw_kv_u64(w, "generation", sb->generation);
    jw_kv_str(w, "kernel", sb->kernel);
    if (sb->start_path) {
        jw_kv_obj(w, "start");
        jw_kv_str(w, "path", sb->start_path);
        jw_kv_f64(w, "ms", tenths(sb->start_ms));
        jw_end(w);
    } else {
        jw_kv_null(w, "start");
    }
    if (sb->end_reason != END_NONE) {
        jw_kv_obj(w, "end");
        jw_kv_str(w, "reason", end_name(sb->end_reason));
        jw_kv_str(w, "message", sb->end_message);
        put_time(w, "at", sb->ended_ns);
        jw_end(w);
    } else {
        jw_kv_null(w, "end");
    }
    jw_end(w);
}

static void reply_sandbox(struct http_stream *s, int status, const struct sandbox *sb)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_sandbox(&w, sb);
    reply_json(s, status, &b);
}

/* ---- create ---- */
static int read_timeout(struct api *a, struct json *j, bool required, uint32_t *ret, struct err *e)
{
    uint32_t max = core_config(api_core(a))->max_timeout_s;
    int64_t v;
    if (required && json_need(j, e, "timeout_s", NULL))
        return -1;
    if (json_i64(j, "timeout_s", 1, max ? max : 86400, 0, &v, e))
        return -1;
    *ret = (uint32_t)v;
    return 0;
}

/* kill or pause; absent: left as it is */
static int read_then(struct json *j, const char *key, enum on_timeout *ret, struct err *e)
{
    struct str v = {0};
    if (json_str(j, key, &v, false, e))
        return -1;
    int what = v.p ? on_timeout_parse(v.p) : (int)*ret;
    if (what < 0)
        return err_set(e, E_INVALID, "%s: must be kill or pause", key);
    *ret = (enum on_timeout)what;
    return 0;
}

static int read_seconds(struct json *j, const char *key, uint32_t *ret, struct err *e)
{
    int64_t v;
    if (json_i64(j, key, 0, LIFE_MAX_S, *ret, &v, e))
        return -1;
    *ret = (uint32_t)v;
    return 0;
}

static int read_network(struct api *a, struct json *j, struct network_spec *ret, struct err *e)
{
    struct json *net = json_get(j, "network");
    return net ? native_network(a, net, ret, e) : network_parse(api_core(a), NULL, ret, e);
}

/* Who may reach ports inside: everybody who can reach us, or those with a token that `url` tells. */
static int read_preview(struct json *j, struct kv *opt, struct err *e)
{
    struct str v = {0};
    char token[41];
    if (json_str(j, "preview", &v, false, e))
        return -1;
    if (!v.p || str_eqz(v, "public"))
        return 0;
    if (!str_eqz(v, "token"))
        return json_fail(json_get(j, "preview"), e, "must be public or token");
    token_make("", 20, token);
    kv_set(opt, S("e2b.traffic_token"), str_of(token));
    return 0;
}

static int read_isolation(struct json *j, int *tier, struct err *e)
{
    struct str v = {0};
    enum tier t;
    if (json_str(j, "isolation", &v, false, e))
        return -1;
    if (!v.p || str_eqz(v, "auto"))
        return 0;
    if (tier_parse(v.p, &t))
        return err_set(e, E_INVALID, "isolation: must be auto, vm or container");
    *tier = (int)t;
    return 0;
}

static int read_volumes(struct json *j, struct volume_mount *at, struct sandbox_spec *sp, struct err *e)
{
    struct json *list = NULL;
    if (json_arr(j, "volumes", &list, false, e))
        return -1;
    for (size_t i = 0; list && i < json_len(list); i++) {
        struct json *o = json_at(list, i);
        if (i == VOLUMES_PER_SANDBOX)
            return err_set(e, E_INVALID, "volumes: at most %d", VOLUMES_PER_SANDBOX);
        if (json_kind(o) != JSON_OBJ)
            return json_fail(o, e, "must be an object");
        if (schema_only(o, "VolumeMount", e) || body_text(o, "name", 63, &at[i].volume, true, e) ||
            body_text(o, "path", VOLUME_PATH_MAX, &at[i].path, true, e) || json_bool(o, "read_only", false, &at[i].read_only, e))
            return -1;
        sp->nvolumes = i + 1;
    }
    sp->volumes = at;
    return 0;
}

/* A key makes sandboxes for its own tenant; the operator, who needs none, for any. */
static int read_tenant(struct json *j, struct sandbox_spec *sp, struct err *e)
{
    const char *name;
    if (body_text(j, "tenant", 64, &name, false, e))
        return -1;
    if (name && *sp->tenant && strcmp(name, sp->tenant) != 0)
        return err_set(e, E_DENIED, "tenant: this key makes sandboxes for '%s'; for others only the operator does, over the daemon's socket without a key", sp->tenant);
    if (name)
        sp->tenant = name;
    return 0;
}

static int read_snapshot(struct api *a, struct json *j, struct sandbox_spec *sp, struct err *e)
{
    const char *name;
    bool memory;
    if (body_name(j, "snapshot", &name, false, e) || json_bool(j, "memory", true, &memory, e))
        return -1;
    if (!name)
        return json_has(j, "memory") ? err_set(e, E_INVALID, "memory: goes with a snapshot") : 0;
    if (json_has(j, "template"))
        return err_set(e, E_INVALID, "template: comes with the snapshot; leave it out");
    sp->from = snapshot_find(api_core(a), name, e);
    if (!sp->from)
        return -1;
    if (memory && json_has(j, "memory") && !sp->from->memory)
        return err_set(e, E_INVALID, "memory: the snapshot holds none");
    sp->boot = !memory;
    return 0;
}

static int read_spec(struct api *a, struct json *j, struct sandbox_spec *sp, struct network_spec *net, struct err *e)
{
    double cpu;
    int64_t mem, disk;
    if (body_text(j, "template", 63, &sp->template, false, e) || body_name(j, "name", &sp->name, false, e) ||
        read_isolation(j, &sp->tier, e) || json_f64(j, "cpu", 0.1, 64, 0, &cpu, e) || json_i64(j, "memory_mib", 128, 65536, 0, &mem, e) ||
        json_i64(j, "disk_mib", 1, 1048576, 0, &disk, e) || read_timeout(a, j, false, &sp->timeout_s, e) ||
        read_then(j, "on_timeout", &sp->on_timeout, e) || read_seconds(j, "idle_timeout_s", &sp->idle_s, e) || read_then(j, "on_idle", &sp->on_idle, e) ||
        read_seconds(j, "max_lifetime_s", &sp->lifetime_s, e) || json_bool(j, "auto_resume", false, &sp->auto_resume, e) || read_network(a, j, net, e) || read_preview(j, &sp->options, e) || body_env(j, "env", &sp->env, e) ||
        body_meta(j, "metadata", &sp->metadata, e))
        return -1;
    if (sp->template && !name_ok(str_of(sp->template)))
        return err_set(e, E_INVALID, "template: must be a name or id, ^[a-z0-9][a-z0-9-]{0,62}$");
    sp->cpu_millis = (uint32_t)(cpu * 1000 + 0.5);
    sp->memory_mib = (uint32_t)mem;
    sp->disk_mib = (uint32_t)disk;
    return 0;
}

static void on_created(void *arg, struct sandbox *sb, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r)) {
        /* Nobody knows its id: a create that was not heard of did not happen. */
        if (sb)
            (void)sandbox_kill(sb, END_KILLED, "the client left before it was created", NULL, NULL, NULL);
        return;
    }
    if (!sb) {
        req_fail(r, e, e->code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_SANDBOX);
        return;
    }
    reply_sandbox(r->s, 201, sb);
    req_end(r);
}

static void on_create_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct network_spec net = {0};
    struct sandbox_spec sp = {.network = &net, .tenant = gate_tenant(api_core(a), s)};
    struct volume_mount volumes[VOLUMES_PER_SANDBOX] = {0};
    auto_json j = body_parse(p, n, "SandboxCreate", &e);
    if (!j || read_spec(a, j, &sp, &net, &e) || read_tenant(j, &sp, &e) || read_volumes(j, volumes, &sp, &e) || read_snapshot(a, j, &sp, &e)) {
        problem_about(s, &e, e.code == E_NOT_FOUND ? ABOUT_SNAPSHOT : ABOUT_REQUEST);
    } else {
        struct req *r = req_new(a, s, sizeof *r, NULL);
        req_watch(r);
        req_hold(r);
        if (sandbox_create(api_core(a), &sp, on_created, r, &e)) {
            (void)req_back(r); /* it will not come */
            req_fail(r, &e, e.code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_SANDBOX);
        }
    }
    kv_free(&sp.env);
    kv_free(&sp.metadata);
    kv_free(&sp.options);
    network_spec_free(&net);
}
void sandboxes_create(struct http_stream *s, void *a) { api_body(a, s, on_create_body); }

/* ---- list ---- */
static int read_states(struct http_stream *s, unsigned *ret, struct err *e)
{
    auto_buf b = {0};
    const char *p = param_str(s, "state", &b);
    char one[16];
    *ret = 0;
    while (p && *p) {
        size_t n = strcspn(p, ",");
        (void)snprintf(one, sizeof one, "%.*s", (int)(n < sizeof one ? n : 0), p);
        int st = state_parse(one);
        if (st < 0)
            return err_set(e, E_INVALID, "state: '%s' is none of creating running pausing paused stopping gone failed", one);
        *ret |= 1u << st;
        p += n + (p[n] == ',');
    }
    return 0;
}

void sandboxes_list(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct err e = {0};
    struct sandbox_filter f = {0};
    auto_buf name = {0}, template = {0}, cursor = {0};
    uint64_t limit;
    bool more = false;
    auto_free struct sandbox **hit = xcalloc(LIST_MAX, sizeof(struct sandbox *));
    int bad = read_states(s, &f.states, &e) || param_text(s, "name", 63, &name, &f.name, &e) ||
              param_text(s, "template", 63, &template, &f.template, &e) ||
              param_text(s, "cursor", 200, &cursor, &f.cursor, &e) || param_u64(s, "limit", 1, LIST_MAX, 100, &limit, &e) ||
              param_map(s, "meta.", false, &f.meta, &e);
    size_t n = 0;
    if (!bad) {
        f.limit = limit;
        n = sandbox_list(api_core(a), &f, hit, limit, &more, &e);
        bad = n > limit; /* refused: SIZE_MAX */
    }
    kv_free(&f.meta);
    if (bad) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "sandboxes");
    for (size_t i = 0; i < n; i++)
        put_sandbox(&w, hit[i]);
    jw_end(&w);
    char next[24];
    if (more && n)
        (void)snprintf(next, sizeof next, "%lld", (long long)hit[n - 1]->created_ns);
    jw_kv_str(&w, "next", more && n ? next : NULL);
    jw_end(&w);
    reply_json(s, 200, &b);
}

/* ---- one ---- */
void sandboxes_get(struct http_stream *s, void *a)
{
    struct sandbox *sb = api_sandbox(a, s);
    if (sb)
        reply_sandbox(s, 200, sb);
}

static void on_patch_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct kv meta = {0};
    const char *name;
    uint32_t timeout = 0;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    uint32_t idle = sb->life.idle_s;
    enum on_timeout on_timeout = sb->on_timeout, on_idle = sb->life.on_idle;
    auto_json j = body_parse(p, n, "SandboxPatch", &e);
    /* Everything is checked before anything changes; the name, the only part that can still be refused, goes first. */
    int bad = !j || body_name(j, "name", &name, false, &e) || body_meta(j, "metadata", &meta, &e) || read_timeout(a, j, false, &timeout, &e) ||
              read_then(j, "on_timeout", &on_timeout, &e) || read_seconds(j, "idle_timeout_s", &idle, &e) || read_then(j, "on_idle", &on_idle, &e);
    bad = bad || (json_has(j, "name") && sandbox_rename(sb, name, &e)) || (json_get(j, "metadata") && sandbox_set_metadata(sb, &meta, &e)) ||
          (timeout && sandbox_set_timeout(sb, timeout, &e));
    if (!bad && on_timeout != sb->on_timeout)
        sandbox_set_on_timeout(sb, on_timeout);
    if (!bad && (idle != sb->life.idle_s || on_idle != sb->life.on_idle))
        sandbox_set_idle(sb, idle, on_idle);
    kv_free(&meta);
    if (bad)
        problem_about(s, &e, ABOUT_SANDBOX);
    else
        reply_sandbox(s, 200, sb);
}
void sandboxes_patch(struct http_stream *s, void *a) { api_body(a, s, on_patch_body); }

static void on_timeout_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    uint32_t timeout;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "SandboxTimeout", &e);
    if (!j || read_timeout(a, j, true, &timeout, &e) || sandbox_set_timeout(sb, timeout, &e))
        problem_about(s, &e, ABOUT_SANDBOX);
    else
        reply_sandbox(s, 200, sb);
}
void sandboxes_timeout(struct http_stream *s, void *a) { api_body(a, s, on_timeout_body); }

static void on_keepalive_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    uint32_t timeout;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "KeepAlive", &e);
    if (!j || read_timeout(a, j, false, &timeout, &e) || sandbox_keep_alive(sb, timeout, &e))
        problem_about(s, &e, ABOUT_SANDBOX);
    else
        reply_sandbox(s, 200, sb);
}
void sandboxes_keepalive(struct http_stream *s, void *a) { api_body(a, s, on_keepalive_body); }

/* ---- end ---- */
static void on_killed(void *arg, struct sandbox *sb, const struct err *e)
{
    struct req *r = arg;
    (void)sb;
    req_none(r, e, ABOUT_SANDBOX);
}

void sandboxes_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    if (sb->state == SB_GONE) {
        err_set(&e, E_NOT_FOUND, "sandbox '%s' has already ended", sb->id);
        problem_about(s, &e, ABOUT_SANDBOX);
        return;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if (sandbox_kill(sb, END_KILLED, "ended by request", on_killed, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_SANDBOX);
    }
}
