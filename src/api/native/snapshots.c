/* Snapshots and forks. */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/fork.h"
#include "core/snapshot.h"
#include "core/usage.h"
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 1000

/* ---- rendering ---- */
void put_snapshot(struct jw *w, const struct snapshot *s)
{
    jw_obj(w);
    jw_kv_str(w, "id", s->id);
    jw_kv_str(w, "name", s->name);
    jw_kv_str(w, "sandbox", *s->sandbox ? s->sandbox : NULL);
    jw_kv_str(w, "template", s->template_name);
    jw_kv_str(w, "template_id", s->template_id);
    jw_kv_str(w, "tier", tier_name(s->tier));
    jw_kv_bool(w, "memory", s->memory);
    jw_kv_f64(w, "cpu", s->cpu_millis / 1000.0);
    jw_kv_u64(w, "memory_mib", s->memory_mib);
    jw_kv_u64(w, "disk_mib", s->disk_mib);
    put_time(w, "created_at", s->created_ns);
    put_time(w, "expires_at", s->expires_ns);
    jw_kv_str(w, "parent", *s->parent ? s->parent : NULL);
    jw_kv_u64(w, "memory_bytes", s->memory_bytes);
    jw_kv_u64(w, "disk_bytes", s->disk_bytes);
    jw_kv_f64(w, "downtime_ms", tenths((double)s->downtime_ns / 1e6));
    jw_kv_u64(w, "users", snapshot_users(s));
    jw_kv_str(w, "path", s->path);
    jw_kv_str(w, "tenant", *snapshot_tenant(s) ? snapshot_tenant(s) : NULL);
    jw_kv_str(w, "signer", *s->signer ? s->signer : NULL);
    jw_end(w);
}

/* ---- take ---- */
static void on_taken(void *arg, struct snapshot *sn, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r))
        return; /* it stays, and can be found in the list */
    if (!sn) {
        req_fail(r, e, ABOUT_SNAPSHOT);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_snapshot(&w, sn);
    req_json(r, 201, &b);
}

static void on_take_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct snapshot_spec how = {0};
    bool memory;
    int64_t expires, keep;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "SnapshotCreate", &e);
    if (!j || body_name(j, "name", &how.name, false, &e) || json_bool(j, "memory", true, &memory, &e) ||
        json_i64(j, "expires_s", 1, INT32_MAX, 0, &expires, &e) || json_i64(j, "keep_last", 1, 1000, 0, &keep, &e) ||
        body_text(j, "path", PARAM_PATH_MAX, &how.path, false, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    how.files_only = !memory;
    how.memory_wanted = json_has(j, "memory") && memory;
    how.expires_s = (uint32_t)expires, how.keep_last = (uint32_t)keep;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if ((how.path ? snapshot_take_tree : snapshot_take)(sb, &how, on_taken, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_SNAPSHOT);
    }
}
void snapshots_take(struct http_stream *s, void *a) { api_body(a, s, on_take_body); }

/* ---- look, list, delete ---- */
void snapshots_list(struct http_stream *s, void *a)
{
    struct err e = {0};
    struct snapshot_filter f = {0};
    auto_buf sandbox = {0}, name = {0}, cursor = {0};
    uint64_t limit = 0, bytes = 0;
    bool more = false;
    auto_free struct snapshot **hit = xcalloc(LIST_MAX, sizeof(struct snapshot *));
    int bad = param_text(s, "sandbox", 63, &sandbox, &f.sandbox, &e) || param_text(s, "name", 63, &name, &f.name, &e) ||
              param_text(s, "cursor", 200, &cursor, &f.cursor, &e) || param_u64(s, "limit", 1, LIST_MAX, 100, &limit, &e);
    if (!bad && f.sandbox) { /* a name stands for the sandbox that has it now */
        struct sandbox *sb = sandbox_find(api_core(a), f.sandbox, NULL);
        f.sandbox = sb ? sb->id : f.sandbox;
    }
    f.limit = limit;
    size_t n = bad ? 0 : snapshot_list(api_core(a), &f, hit, &more, &e);
    if (bad || n > limit) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "snapshots");
    for (size_t i = 0; i < n; i++) {
        put_snapshot(&w, hit[i]);
        bytes += hit[i]->memory_bytes + hit[i]->disk_bytes;
    }
    jw_end(&w);
    char next[24];
    if (more)
        (void)snprintf(next, sizeof next, "%lld", (long long)hit[n - 1]->created_ns);
    jw_kv_str(&w, "next", more ? next : NULL);
    jw_kv_u64(&w, "bytes", bytes);
    jw_end(&w);
    reply_json(s, 200, &b);
}

struct snapshot *api_snapshot(struct api *a, struct http_stream *s)
{
    struct err e;
    struct str id = http_param(s, "snapshot");
    struct snapshot *sn = NULL;
    if (name_ok(id))
        sn = snapshot_find(api_core(a), id.p, &e);
    else
        err_set(&e, E_NOT_FOUND, "no snapshot has such a name or id");
    if (!sn)
        problem_about(s, &e, ABOUT_SNAPSHOT);
    return sn;
}

void snapshots_get(struct http_stream *s, void *a)
{
    struct snapshot *sn = api_snapshot(a, s);
    struct buf b = {0};
    struct jw w;
    if (!sn)
        return;
    jw_init(&w, &b);
    put_snapshot(&w, sn);
    reply_json(s, 200, &b);
}

/* ---- what is held ---- */
static void put_usage(void *arg, const struct usage *u)
{
    struct jw *w = arg;
    jw_obj(w);
    jw_kv_str(w, "tenant", *u->tenant ? u->tenant : NULL);
    jw_kv_u64(w, "snapshots", u->snapshots);
    jw_kv_u64(w, "snapshot_bytes", u->snapshot_bytes);
    jw_kv_u64(w, "paused", u->paused);
    jw_kv_u64(w, "paused_bytes", u->paused_bytes);
    jw_kv_u64(w, "bytes", u->snapshot_bytes + u->paused_bytes);
    jw_key(w, "limit_bytes");
    if (u->limit_bytes)
        jw_u64(w, u->limit_bytes);
    else
        jw_null(w);
    jw_end(w);
}

void usage_get(struct http_stream *s, void *a)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "tenants");
    usage_each(api_core(a), put_usage, &w);
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 200, &b);
}

static void on_over(void *arg, const struct err *e)
{
    struct req *r = arg;
    req_none(r, e, ABOUT_SNAPSHOT);
}

void snapshots_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct snapshot *sn = api_snapshot(a, s);
    if (!sn)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if (snapshot_delete(sn, on_over, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_SNAPSHOT);
    }
}

/* ---- a directory into a sandbox ---- */
static void on_restore_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    const char *name, *path;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "Restore", &e);
    if (!j || body_name(j, "snapshot", &name, true, &e) || body_text(j, "path", PARAM_PATH_MAX, &path, false, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct snapshot *sn = snapshot_find(api_core(a), name, &e);
    if (!sn) {
        problem_about(s, &e, ABOUT_SNAPSHOT);
        return;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if (snapshot_put_tree(sn, sb, path, on_over, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_SNAPSHOT);
    }
}
void sandboxes_restore(struct http_stream *s, void *a) { api_body(a, s, on_restore_body); }

/* ---- fork ---- */
static void put_child(struct jw *w, struct req *r, const struct fork_child *c)
{
    struct err e = c->err;
    struct sandbox *sb = *c->id ? sandbox_find(api_core(r->api), c->id, &e) : NULL;
    jw_obj(w);
    jw_key(w, sb ? "sandbox" : "error");
    if (sb)
        put_sandbox(w, sb);
    else
        problem_put_stream(w, r->s, &e, ABOUT_SANDBOX);
    jw_end(w);
}

static void on_forked(void *arg, const struct snapshot *of, const struct fork_child *child, unsigned n, const struct err *e)
{
    struct req *r = arg;
    struct api *a = r->api;
    if (!req_back(r)) {
        fork_undo(api_core(a), child, n); /* nobody knows their ids */
        return;
    }
    if (e) {
        req_fail(r, e, ABOUT_SNAPSHOT);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "forks");
    for (unsigned i = 0; i < n; i++)
        put_child(&w, r, &child[i]);
    jw_end(&w);
    jw_kv_bool(&w, "memory", of && of->memory);
    jw_kv_f64(&w, "downtime_ms", of ? tenths((double)of->downtime_ns / 1e6) : 0);
    jw_end(&w);
    req_json(r, 201, &b);
}

static void on_fork_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct fork_spec how = {0};
    bool memory;
    int64_t count, timeout;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "SandboxFork", &e);
    if (!j || json_i64(j, "count", 1, FORK_MAX, 1, &count, &e) || json_i64(j, "timeout_s", 1, INT32_MAX, 0, &timeout, &e) ||
        json_bool(j, "memory", true, &memory, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    how = (struct fork_spec){.count = (unsigned)count, .timeout_s = (uint32_t)timeout, .files_only = !memory, .memory_wanted = json_has(j, "memory") && memory};
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_watch(r);
    req_hold(r);
    if (sandbox_fork(sb, &how, on_forked, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_SNAPSHOT);
    }
}
void sandboxes_fork(struct http_stream *s, void *a) { api_body(a, s, on_fork_body); }
