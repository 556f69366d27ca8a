/* Snapshots and forks. */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/life/fork.h"
#include "core/catalog/snapshot.h"
#include "core/life/usage.h"
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 1000
#define KEEP_MAX 1000

/* ---- rendering ---- */
void put_snapshot(struct jw *w, const struct snapshot *s)
{
    jw_obj(w);
    jw_kv_str(w, "id", s->id);
    jw_kv_str(w, "name", s->name);
    jw_kv_str(w, "sandbox", *s->sandbox ? s->sandbox : NULL);
    jw_kv_str(w, "template", s->template_name);
    jw_kv_str(w, "template_id", s->template_id);
    jw_kv_str(w, "tier", s->tier->name);
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
    struct jw *w = reply_begin(r->s);
    put_snapshot(w, sn);
    req_send(r, 201);
}

struct take {
    struct snapshot_spec how;
    bool memory;
};
static const struct field take_rows[] = {
    FIELD("name", F_NAME, struct take, how.name, .help = "A name for it."),
    FIELD(
        "memory", F_BOOL, struct take, memory,
        .help =
            "true: keep memory and processes, or refuse. false: files only. Default: what its isolation can keep."),
    FIELD("expires_s", F_INT, struct take, how.expires_s, .min = 1, .max = INT32_MAX,
          .help = "Delete it after so many seconds. Default: never."),
    FIELD("keep_last", F_INT, struct take, how.keep_last, .min = 1, .max = KEEP_MAX,
          .help =
              "Then delete all but so many nameless snapshots of this sandbox. Default: keep all."),
    FIELD("path", F_PATH, struct take, how.path, .max = PARAM_PATH_MAX,
          .help = "Take only this directory."),
};
const struct shape snapshot_body = SHAPE_OF("SnapshotCreate", struct take, take_rows);

static void on_take_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct take g = {.memory = true};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &snapshot_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct snapshot_spec how = g.how;
    how.files_only = !g.memory;
    how.memory_wanted = json_has(j, "memory") && g.memory;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, (how.path ? snapshot_take_tree : snapshot_take)(sb, &how, on_taken, r, &e), &e,
               ABOUT_SNAPSHOT);
}
void snapshots_take(struct http_stream *s, void *a) { api_body(a, s, on_take_body); }

/* ---- look, list, delete ---- */
static const struct field list_rows[] = {
    FIELD("sandbox", F_STR, struct snapshot_filter, sandbox, .max = 63,
          .help = "Only those of this sandbox, by id or name."),
    FIELD("name", F_STR, struct snapshot_filter, name, .max = 63,
          .help = "Only the one with this name."),
    FIELD("limit", F_INT, struct snapshot_filter, limit, .min = 1, .max = LIST_MAX, .def = "100",
          .help = "At most so many."),
    FIELD("cursor", F_STR, struct snapshot_filter, cursor, .max = 200,
          .help = "`next` of the page before."),
};
const struct shape snapshots_query = SHAPE_OF(NULL, struct snapshot_filter, list_rows);

void snapshots_list(struct http_stream *s, void *a)
{
    struct err e = {0};
    struct snapshot_filter q = {0}, f;
    uint64_t bytes = 0;
    bool more = false;
    auto_free struct snapshot **hit = xcalloc(LIST_MAX, sizeof(struct snapshot *));
    struct caller who = api_caller(a, s);
    int bad = native_query(a, s, &snapshots_query, &q, &e);
    f = q;
    f.who = &who;
    if (!bad && f.sandbox) { /* a name stands for the sandbox that has it now */
        struct sandbox *sb = sandbox_find_for(api_core(a), &who, f.sandbox, NULL);
        f.sandbox = sb ? sb->id : f.sandbox;
    }
    size_t n = bad ? 0 : snapshot_list(api_core(a), &f, hit, &more, &e);
    query_free(&snapshots_query, &q);
    if (bad || n > f.limit) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "snapshots");
    for (size_t i = 0; i < n; i++) {
        put_snapshot(w, hit[i]);
        bytes += hit[i]->memory_bytes + hit[i]->disk_bytes;
    }
    jw_end(w);
    char next[24];
    if (more)
        (void)snprintf(next, sizeof next, "%lld", (long long)hit[n - 1]->created_ns);
    jw_kv_str(w, "next", more ? next : NULL);
    jw_kv_u64(w, "bytes", bytes);
    jw_end(w);
    reply_send(s, 200);
}

struct snapshot *path_snapshot(struct api *a, struct http_stream *s)
{
    struct err e;
    struct str id = http_param(s, "snapshot");
    struct snapshot *sn = NULL;
    if (name_ok(id))
        sn = api_snapshot(a, s, id.p, &e);
    else
        err_set(&e, E_NOT_FOUND, "no snapshot has this name or id");
    if (!sn)
        problem_about(s, &e, ABOUT_SNAPSHOT);
    return sn;
}

void snapshots_get(struct http_stream *s, void *a)
{
    struct snapshot *sn = path_snapshot(a, s);
    if (!sn)
        return;
    struct jw *w = reply_begin(s);
    put_snapshot(w, sn);
    reply_send(s, 200);
}

/* ---- what is held ---- */
struct used {
    struct jw *w;
    struct caller who;
};
static void put_usage(void *arg, const struct usage *u)
{
    const struct used *to = arg;
    struct jw *w = to->w;
    if (!caller_sees(&to->who, u->tenant))
        return;
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
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "tenants");
    struct used to = {w, api_caller(a, s)};
    usage_each(api_core(a), put_usage, &to);
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}

static void on_over(void *arg, const struct err *e)
{
    struct req *r = arg;
    req_none(r, e, ABOUT_SNAPSHOT);
}

void snapshots_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct snapshot *sn = path_snapshot(a, s);
    if (!sn)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, snapshot_delete(sn, on_over, r, &e), &e, ABOUT_SNAPSHOT);
}

/* ---- a directory into a sandbox ---- */
struct restore {
    const char *snapshot, *path;
};
static const struct field restore_rows[] = {
    FIELD("snapshot", F_NAME, struct restore, snapshot, .flags = F_REQUIRED,
          .help = "Name or id of a snapshot of a directory."),
    FIELD("path", F_PATH, struct restore, path, .max = PARAM_PATH_MAX,
          .help = "Where to put it. Default: where it was."),
};
const struct shape restore_body = SHAPE_OF("Restore", struct restore, restore_rows);

static void on_restore_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct restore g = {0};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &restore_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct snapshot *sn = api_snapshot(a, s, g.snapshot, &e);
    if (!sn) {
        problem_about(s, &e, ABOUT_SNAPSHOT);
        return;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, snapshot_put_tree(sn, sb, g.path, on_over, r, &e), &e, ABOUT_SNAPSHOT);
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
    struct jw *w = reply_begin(r->s);
    jw_obj(w);
    jw_kv_arr(w, "forks");
    for (unsigned i = 0; i < n; i++)
        put_child(w, r, &child[i]);
    jw_end(w);
    jw_kv_bool(w, "memory", of && of->memory);
    jw_kv_f64(w, "downtime_ms", of ? tenths((double)of->downtime_ns / 1e6) : 0);
    jw_end(w);
    req_send(r, 201);
}

struct fork {
    struct fork_spec how;
    bool memory;
};
static const struct field fork_rows[] = {
    FIELD("count", F_INT, struct fork, how.count, .min = 1, .max = FORK_MAX, .def = "1",
          .help = "How many copies."),
    FIELD_TIMEOUT(struct fork, how.timeout_s, "Their timeout. Default: the sandbox's own."),
    FIELD(
        "memory", F_BOOL, struct fork, memory,
        .help =
            "true: with memory and processes, or refuse. false: files only. Default: what its isolation can copy."),
};
const struct shape fork_body = SHAPE_OF("SandboxFork", struct fork, fork_rows);

static void on_fork_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct fork g = {.memory = true};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &fork_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct fork_spec how = g.how;
    how.files_only = !g.memory;
    how.memory_wanted = json_has(j, "memory") && g.memory;
    struct caller who = api_caller(a, s);
    how.by = &who;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_watch(r);
    req_hold(r);
    req_settle(r, sandbox_fork(sb, &how, on_forked, r, &e), &e, ABOUT_SNAPSHOT);
}
void sandboxes_fork(struct http_stream *s, void *a) { api_body(a, s, on_fork_body); }
