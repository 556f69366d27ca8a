/* Snapshots and forks as E2B has them. A snapshot has a reference like a
 * template's, [namespace/]name[:tag], and is used in its place; one without a
 * name goes by our id. */
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/life/fork.h"
#include "core/catalog/snapshot.h"
#include <stdio.h>
#include <stdlib.h>

#define OPT_NAME "e2b.name"
#define OPT_TAG  "e2b.tag"
#define PAGE_MAX 100

/* ---- references ---- */
static const char *name_of(const struct snapshot *s)
{
    const char *name = kv_get(&s->dialect, OPT_NAME);
    return name ? name : s->name;
}
static const char *tag_of(const struct snapshot *s)
{
    const char *tag = kv_get(&s->dialect, OPT_TAG);
    return tag ? tag : "default";
}

/* A name is one's own: who sees all must not be given another's for it. */
struct wanted {
    struct e2b_ref ref;
    const char *tenant;
};
static bool refers(const struct snapshot *s, void *arg)
{
    const struct wanted *w = arg;
    const struct e2b_ref *r = &w->ref;
    const char *name = name_of(s);
    if (!strcmp(s->id, r->name))
        return !*r->tag || !strcmp(r->tag, "default");
    return name && !strcmp(name, r->name) && !strcmp(snapshot_tenant(s), w->tenant) &&
           (!*r->tag || !strcmp(r->tag, tag_of(s)));
}

struct snapshot *e2b_snapshot_find(struct api *a, const struct caller *who, const char *text)
{
    struct wanted w = {.tenant = who->tenant};
    struct snapshot *hit;
    bool more;
    struct snapshot_filter f = {.who = who, .whole = true, .match = refers, .arg = &w, .limit = 1};
    if (e2b_ref_parse(text, &w.ref, NULL))
        return NULL;
    return snapshot_list(api_core(a), &f, &hit, &more, NULL) == 1 ? hit : NULL;
}

bool e2b_snapshot_named(struct api *a, const struct caller *who, const char *text,
                        struct e2b_ref *ret)
{
    struct snapshot *hit;
    struct wanted any = {.tenant = who->tenant};
    bool more;
    struct snapshot_filter f = {
        .who = who, .whole = true, .match = refers, .arg = &any, .limit = 1};
    if (e2b_ref_parse(text, ret, NULL) || !*ret->tag)
        return false;
    any.ref = *ret, *any.ref.tag = 0;
    return snapshot_list(api_core(a), &f, &hit, &more, NULL) == 1;
}

void e2b_snapshot_found(const struct snapshot *s, struct e2b_found *ret)
{
    const char *name = name_of(s);
    *ret = (struct e2b_found){0};
    memcpy(ret->core_id, s->template_id, sizeof ret->core_id);
    memcpy(ret->template_id, s->id, sizeof ret->template_id);
    (void)snprintf(ret->alias, sizeof ret->alias, "%s", name ? name : s->template_name);
    build_uuid(s->id, ret->build_id);
}

static void put_snapshot(struct jw *w, const struct snapshot *s)
{
    const char *name = name_of(s);
    auto_buf id = {0}, full = {0};
    if (name) {
        buf_printf(&full, E2B_NAMESPACE "/%s", name);
        buf_printf(&id, "%s:%s", full.p, tag_of(s));
    } else {
        buf_printf(&id, "%s:default", s->id);
    }
    jw_obj(w);
    jw_kv_strn(w, "snapshotID", (struct str){id.p, id.n});
    jw_kv_arr(w, "names");
    if (name)
        jw_str(w, (struct str){full.p, full.n});
    jw_end(w);
    jw_end(w);
}

/* ---- take ---- */
/* The same name again is a new build of the same: the one before cannot be reached any more. */
static void drop_older(struct api *a, const struct snapshot *s)
{
    struct wanted w = {.tenant = snapshot_tenant(s)};
    struct snapshot *hit[2];
    struct snapshot_filter f = {.whole = true, .match = refers, .arg = &w, .limit = 2};
    bool more;
    if (!name_of(s))
        return;
    (void)snprintf(w.ref.name, sizeof w.ref.name, "%s", name_of(s));
    (void)snprintf(w.ref.tag, sizeof w.ref.tag, "%s", tag_of(s));
    if (snapshot_list(api_core(a), &f, hit, &more, NULL) == 2)
        (void)snapshot_delete(hit[1], NULL, NULL, NULL); /* it was in the list: not refused */
}

static void on_taken(void *arg, struct snapshot *sn, const struct err *e)
{
    struct req *r = arg;
    struct api *a = r->api;
    if (sn)
        drop_older(a, sn);
    if (!req_back(r))
        return;
    if (!sn) {
        req_fail(r, e, ABOUT_REQUEST);
        return;
    }
    struct jw *w = reply_begin(r->s);
    put_snapshot(w, sn);
    req_send(r, 201);
}

static void on_take(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct snapshot_spec how = {0};
    struct str name = {0};
    struct e2b_ref ref = {0};
    bool memory;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = e2b_parse_or_empty(p, n, &e);
    if (!j || json_bool(j, "memory", true, &memory, &e) || json_str(j, "name", &name, false, &e) ||
        (name.p && e2b_ref_parse(name.p, &ref, &e))) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    how.files_only = !memory;
    if (*ref.name) {
        kv_set(&how.dialect, S(OPT_NAME), str_of(ref.name));
        kv_set(&how.dialect, S(OPT_TAG), str_of(*ref.tag ? ref.tag : "default"));
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, snapshot_take(sb, &how, on_taken, r, &e), &e, ABOUT_REQUEST);
    kv_free(&how.dialect);
}
void e2b_snapshot_take(struct http_stream *s, void *a) { api_body(a, s, on_take); }

/* ---- list ---- */
void e2b_snapshots(struct http_stream *s, void *a)
{
    struct err e = {0};
    struct caller who = api_caller(a, s);
    struct wanted asked = {.tenant = who.tenant};
    struct snapshot_filter f = {.who = &who, .whole = true};
    struct snapshot *hit[PAGE_MAX];
    auto_buf sandbox = {0}, name = {0}, cursor = {0};
    const char *text = NULL;
    uint64_t limit = PAGE_MAX;
    bool more = false;
    size_t n = 0;
    int bad = param_text(s, "sandboxID", 63, &sandbox, &f.sandbox, &e) ||
              param_text(s, "name", E2B_NAME_MAX, &name, &text, &e) ||
              param_text(s, "nextToken", 40, &cursor, &f.cursor, &e) ||
              param_u64(s, "limit", 1, PAGE_MAX, PAGE_MAX, &limit, &e);
    bool unknown = !bad && text && e2b_ref_parse(text, &asked.ref, NULL);
    if (text && !unknown)
        f.match = refers, f.arg = &asked;
    f.limit = limit;
    if (!bad && !unknown)
        n = snapshot_list(api_core(a), &f, hit, &more, &e);
    if (bad || n > limit) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct jw *w = reply_begin(s);
    jw_arr(w);
    for (size_t i = 0; i < n; i++)
        put_snapshot(w, hit[i]);
    jw_end(w);
    if (more)
        (void)http_headerf(s, "X-Next-Token", "%lld",
                           (long long)hit[n - 1]->created_ns); /* nothing is sent yet */
    reply_send(s, 200);
}

/* ---- delete ---- */
static void on_deleted(void *arg, const struct err *e)
{
    struct req *r = arg;
    req_none(r, e, ABOUT_REQUEST);
}

bool e2b_snapshot_delete(struct http_stream *s, struct api *a, const char *text)
{
    struct err e;
    struct caller who = api_caller(a, s);
    struct snapshot *sn = e2b_snapshot_find(a, &who, text);
    if (!sn)
        return false;
    if (api_may_change(a, s, "snapshot", snapshot_tenant(sn), &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return true;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, snapshot_delete(sn, on_deleted, r, &e), &e, ABOUT_REQUEST);
    return true;
}

/* ---- fork ---- */
static void put_child(struct jw *w, struct http_stream *s, struct api *a,
                      const struct fork_child *c)
{
    struct err e = c->err;
    struct sandbox *sb = *c->id ? sandbox_find(api_core(a), c->id, &e) : NULL;
    jw_obj(w);
    if (sb) {
        jw_key(w, "sandbox");
        e2b_put_sandbox(w, s, a, sb);
    } else {
        jw_kv_obj(w, "error");
        jw_kv_i64(w, "code", err_http(e.code));
        jw_kv_str(w, "message", e.msg);
        jw_end(w);
    }
    jw_end(w);
}

static void on_forked(void *arg, const struct snapshot *of, const struct fork_child *child,
                      unsigned n, const struct err *e)
{
    struct req *r = arg;
    struct api *a = r->api;
    (void)of;
    if (!req_back(r)) {
        fork_undo(api_core(a), child, n); /* nobody knows their ids */
        return;
    }
    if (e) {
        req_fail(r, e, ABOUT_REQUEST);
        return;
    }
    struct jw *w = reply_begin(r->s);
    jw_arr(w);
    for (unsigned i = 0; i < n; i++)
        put_child(w, r->s, a, &child[i]);
    jw_end(w);
    req_send(r, 201);
}

static void on_fork(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct fork_spec how = {0};
    int64_t count;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = e2b_parse_or_empty(p, n, &e);
    if (!j || json_i64(j, "count", 1, FORK_MAX, 1, &count, &e) ||
        e2b_read_timeout(a, j, "timeout", 300, &how.timeout_s, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    if (sb->state == SB_PAUSED) { /* E2B forks what runs */
        err_set(&e, E_CONFLICT, "sandbox %s is paused: connect to it first", sb->id);
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct caller who = api_caller(a, s);
    how.by = &who;
    how.count = (unsigned)count;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_watch(r);
    req_hold(r);
    req_settle(r, sandbox_fork(sb, &how, on_forked, r, &e), &e, ABOUT_REQUEST);
}
void e2b_fork(struct http_stream *s, void *a) { api_body(a, s, on_fork); }
