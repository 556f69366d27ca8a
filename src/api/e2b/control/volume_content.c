/* /volumecontent/{volume}/path, dir and file: what is in a volume, for whoever
 * has its token. Every call first has the volume's keeper started. */
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/render.h"
#include "api/params.h"
#include "api/transfer.h"
#include "core/volume/volume.h"
#include "crypto/digest.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- rendering ---- */
static void put_stat(struct jw *w, const struct file_entry *en)
{
    jw_obj(w);
    jw_kv_str(w, "name", en->name);
    jw_kv_str(w, "type",
              en->type == 'f'   ? "file"
              : en->type == 'd' ? "directory"
              : en->type == 'l' ? "symlink"
                                : "unknown");
    jw_kv_str(w, "path", en->path);
    jw_kv_u64(w, "size", en->size);
    jw_kv_u64(w, "mode", en->mode & 07777u);
    jw_kv_u64(w, "uid", en->uid);
    jw_kv_u64(w, "gid", en->gid);
    put_time(w, "atime", en->atime_ns > 0 ? en->atime_ns : 1);
    put_time(w, "mtime", en->mtime_ns > 0 ? en->mtime_ns : 1);
    put_time(w, "ctime", en->ctime_ns > 0 ? en->ctime_ns : 1);
    if (en->target)
        jw_kv_str(w, "target", en->target);
    jw_end(w);
}

/* ---- one entry, or nothing ---- */
struct attr {
    bool has_mode;
    uint32_t mode;
    char owner[16], group[16]; /* "": stays as it is */
};
static bool attr_any(const struct attr *at) { return at->has_mode || *at->owner || *at->group; }

struct one {
    struct req r;
    int status;
    char volume[22], *path;
    struct attr want;
};

static void one_fini(void *arg)
{
    struct one *st = arg;
    free(st->path);
}

static void on_entry(void *arg, const struct err *e, const struct file_entry *en);

static struct agent *agent_of(struct api *a, const char *id, struct err *e)
{
    struct volume *v = volume_find(api_core(a), id, e);
    return v ? volume_agent(v, e) : NULL;
}

/* The second half of making something: owner and mode. */
static void set_attr(struct one *st)
{
    struct err e = {0};
    struct attr want = st->want;
    st->want = (struct attr){0};
    req_hold(&st->r);
    struct agent *ag = agent_of(st->r.api, st->volume, &e);
    int rc = files_setattr_on(ag, st->path, NULL, want.has_mode ? &want.mode : NULL,
                              *want.owner ? want.owner : NULL, *want.group ? want.group : NULL,
                              on_entry, st, &e);
    req_settle(&st->r, rc, &e, ABOUT_REQUEST);
}

static void on_entry(void *arg, const struct err *e, const struct file_entry *en)
{
    struct one *st = arg;
    if (!req_back(&st->r))
        return;
    if (e) {
        req_fail(&st->r, e, ABOUT_REQUEST);
    } else if (attr_any(&st->want)) {
        set_attr(st);
    } else if (!en || st->status == 204) {
        reply_none(st->r.s);
        req_end(&st->r);
    } else {
        struct jw *w = reply_begin(st->r.s);
        put_stat(w, en);
        req_send(&st->r, st->status);
    }
}

static struct one *one_new(struct api *a, struct http_stream *s, const struct volume *v,
                           const char *path, int status)
{
    struct one *st = req_new(a, s, sizeof *st, one_fini);
    st->status = status;
    st->path = xstrdup(path);
    memcpy(st->volume, v->id, sizeof st->volume);
    return st;
}

/* ---- what the query says ---- */
static int read_id(struct http_stream *s, const char *key, char out[16], struct err *e)
{
    uint64_t v;
    if (param_u64(s, key, 0, UINT32_MAX - 1, UINT64_MAX, &v, e))
        return -1;
    if (v != UINT64_MAX)
        (void)snprintf(out, 16, "%" PRIu64, v);
    return 0;
}

static int read_attr(struct http_stream *s, struct attr *ret, struct err *e)
{
    uint64_t mode;
    if (read_id(s, "uid", ret->owner, e) || read_id(s, "gid", ret->group, e) ||
        param_u64(s, "mode", 0, 07777, UINT64_MAX, &mode, e))
        return -1;
    ret->has_mode = mode != UINT64_MAX;
    ret->mode = ret->has_mode ? (uint32_t)mode : 0;
    return 0;
}

static int body_attr(struct json *j, struct attr *ret, struct err *e)
{
    int64_t uid, gid, mode;
    if (json_i64(j, "uid", 0, UINT32_MAX - 1, -1, &uid, e) ||
        json_i64(j, "gid", 0, UINT32_MAX - 1, -1, &gid, e) ||
        json_i64(j, "mode", 0, 07777, -1, &mode, e))
        return -1;
    if (uid >= 0)
        (void)snprintf(ret->owner, sizeof ret->owner, "%" PRId64, uid);
    if (gid >= 0)
        (void)snprintf(ret->group, sizeof ret->group, "%" PRId64, gid);
    ret->has_mode = mode >= 0;
    ret->mode = ret->has_mode ? (uint32_t)mode : 0;
    return 0;
}

/* ---- the calls; the keeper runs ---- */
typedef void call(struct api *a, struct http_stream *s, struct volume *v, struct agent *ag,
                  const char *path);

static void path_get(struct api *a, struct http_stream *s, struct volume *v, struct agent *ag,
                     const char *path)
{
    struct err e;
    struct one *st = one_new(a, s, v, path, 200);
    req_hold(&st->r);
    req_settle(&st->r, files_stat_on(ag, path, NULL, on_entry, st, &e), &e, ABOUT_REQUEST);
}

static void path_delete(struct api *a, struct http_stream *s, struct volume *v, struct agent *ag,
                        const char *path)
{
    struct err e;
    struct one *st = one_new(a, s, v, path, 204);
    req_hold(&st->r);
    req_settle(&st->r, files_remove_on(ag, path, NULL, true, on_entry, st, &e), &e, ABOUT_REQUEST);
}

static void on_patch(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct attr want = {0};
    auto_buf path = {0};
    const char *at = param_str(s, "path", &path);
    struct volume *v = api_volume(a, s);
    if (!v)
        return;
    auto_json j = e2b_parse_or_empty(p, n, &e);
    if (!j || body_attr(j, &want, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, v, at ? at : "", 200);
    st->want = want;
    set_attr(st);
}

static void path_patch(struct api *a, struct http_stream *s, struct volume *v, struct agent *ag,
                       const char *path)
{
    (void)v, (void)ag, (void)path;
    api_body(a, s, on_patch);
}

struct listing {
    struct req r;
    struct buf json;
    struct jw w;
};

static void listing_fini(void *arg)
{
    struct listing *st = arg;
    buf_free(&st->json);
}

static void on_entries(void *arg, const struct file_entry *en, size_t n)
{
    struct listing *st = arg;
    for (size_t i = 0; !st->r.over && i < n; i++)
        put_stat(&st->w, &en[i]);
}

static void on_listed(void *arg, const struct err *e)
{
    struct listing *st = arg;
    if (!req_back(&st->r))
        return;
    if (e) {
        req_fail(&st->r, e, ABOUT_REQUEST);
        return;
    }
    jw_end(&st->w);
    req_json(&st->r, 200, &st->json);
}

static void dir_get(struct api *a, struct http_stream *s, struct volume *v, struct agent *ag,
                    const char *path)
{
    static const struct files_list_ops ops = {.entries = on_entries, .done = on_listed};
    struct err e;
    uint64_t depth;
    (void)v;
    if (param_u64(s, "depth", 0, 1000, 1, &depth, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct listing *st = req_new(a, s, sizeof *st, listing_fini);
    jw_init(&st->w, &st->json);
    jw_arr(&st->w);
    req_hold(&st->r);
    req_settle(&st->r, files_list_on(ag, path, NULL, depth ? (unsigned)depth : 1, &ops, st, &e), &e,
               ABOUT_REQUEST);
}

static void dir_post(struct api *a, struct http_stream *s, struct volume *v, struct agent *ag,
                     const char *path)
{
    struct err e;
    struct attr want = {0};
    bool force;
    if (read_attr(s, &want, &e) || param_bool(s, "force", false, &force, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, v, path, 201);
    st->want = want;
    req_hold(&st->r);
    req_settle(&st->r, files_mkdir_on(ag, path, NULL, 0755, force, on_entry, st, &e), &e,
               ABOUT_REQUEST);
}

static void out_fail(struct sending *st, const struct err *e)
{
    req_fail(&st->r, e, ABOUT_REQUEST);
}

static void file_get(struct api *a, struct http_stream *s, struct volume *v, struct agent *ag,
                     const char *path)
{
    struct err e;
    (void)v;
    struct sending *st = sending_new(a, s, sizeof *st, out_fail);
    if (sending_start(st, ag, path, NULL, &e))
        out_fail(st, &e);
}

struct in {
    struct taking t;
    struct attr want;
};

/* The bytes are there: owner and mode remain, a request of its own on the same stream. */
static void in_done(struct taking *t, const struct err *e, const struct file_entry *en)
{
    struct in *st = container_of(t, struct in, t);
    auto_buf path = {0};
    const char *at = param_str(t->r.s, "path", &path);
    if (e) {
        req_fail(&t->r, e, ABOUT_REQUEST);
        return;
    }
    struct volume *v = api_volume(t->r.api, t->r.s);
    req_end(&t->r);
    if (!v)
        return;
    struct one *then = one_new(t->r.api, t->r.s, v, at ? at : "", 201);
    then->want = st->want;
    req_hold(&then->r);
    on_entry(then, NULL, en);
}

static void file_put(struct api *a, struct http_stream *s, struct volume *v, struct agent *ag,
                     const char *path)
{
    struct err e;
    struct attr want = {0};
    bool force;
    (void)v;
    if (read_attr(s, &want, &e) || param_bool(s, "force", false, &force, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    struct in *st = taking_new(a, s, sizeof *st, in_done);
    st->want = want;
    struct file_write_spec spec = {.path = path, .excl = !force, .no_parents = true};
    if (taking_start(&st->t, ag, &spec, &e))
        req_fail(&st->t.r, &e, ABOUT_REQUEST);
}

/* ---- token, keeper, call ---- */
static call *find(struct http_stream *s)
{
    static const struct {
        const char *method, *what;
        call *fn;
    } calls[] = {
        {"GET", "path", path_get}, {"PATCH", "path", path_patch}, {"DELETE", "path", path_delete},
        {"GET", "dir", dir_get},   {"POST", "dir", dir_post},     {"GET", "file", file_get},
        {"PUT", "file", file_put},
    };
    struct str what = http_param(s, "what");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (str_eqz(what, calls[i].what) && http_is(s, calls[i].method))
            return calls[i].fn;
    return NULL;
}

static bool token_ok(struct http_stream *s, const struct volume *v)
{
    struct str t = http_req_header(s, "Authorization");
    size_t n = strlen(v->token);
    return n && t.n == n + 7 && str_ieqz((struct str){t.p, 7}, "Bearer ") &&
           mem_eq_ct(t.p + 7, v->token, n);
}

struct opening {
    struct req r;
    call *fn;
};

static void on_open(void *arg, struct volume *v, struct agent *ag, const struct err *e)
{
    struct opening *st = arg;
    if (!req_back(&st->r))
        return;
    if (e) {
        req_fail(&st->r, e, ABOUT_REQUEST);
        return;
    }
    auto_buf path = {0};
    const char *at = param_str(st->r.s, "path", &path);
    req_end(
        &st->r); /* first: it lets go of the stream's callbacks; the memory lasts for this turn */
    st->fn(st->r.api, st->r.s, v, ag, at ? at : "");
}

void e2b_volume_content(struct http_stream *s, void *a)
{
    auto_buf path = {0};
    const char *at = param_str(s, "path", &path);
    struct err e;
    struct volume *v = e2b_find_volume(a, &caller_daemon, http_param(s, "volume"), &e);
    call *fn = find(s);
    if (!v) {
        api_fail(s, &e, ABOUT_VOLUME);
        return;
    }
    if (!token_ok(s, v)) {
        e2b_problem(s, 401, "this volume's own token is needed, as Authorization: Bearer");
        return;
    }
    if (!fn) {
        e2b_problem(s, 404, "there is no such call on a volume's content");
        return;
    }
    if (!at || !*at) {
        e2b_problem(s, 400, "path: is missing in the query");
        return;
    }
    api_vouch(s); /* the token was the credential: from here on the volume may be found again */
    struct opening *st = req_new(a, s, sizeof *st, NULL);
    st->fn = fn;
    req_hold(&st->r);
    volume_open(v, on_open, st);
}
