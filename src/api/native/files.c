/* Names rather than bytes: stat, list, make, move, link, remove. */
#include "api/native/native.h"
#include "api/params.h"
#include "core/volume.h"
#include <stdio.h>

void put_entry(struct jw *w, const struct file_entry *en)
{
    char mode[8];
    (void)snprintf(mode, sizeof mode, "%04o", en->mode & 07777u);
    jw_obj(w);
    jw_kv_str(w, "name", en->name);
    jw_kv_str(w, "path", en->path);
    jw_kv_str(w, "type", en->type == 'f' ? "file" : en->type == 'd' ? "dir" : en->type == 'l' ? "symlink" : "other");
    jw_kv_u64(w, "size", en->size);
    jw_kv_str(w, "mode", mode);
    jw_kv_u64(w, "uid", en->uid);
    jw_kv_u64(w, "gid", en->gid);
    jw_kv_str(w, "owner", en->owner && *en->owner ? en->owner : NULL);
    jw_kv_str(w, "group", en->group && *en->group ? en->group : NULL);
    put_time(w, "modified_at", en->mtime_ns > 0 ? en->mtime_ns : 1);
    jw_kv_str(w, "target", en->target);
    jw_end(w);
}

/* ---- calls that answer with one entry, or with nothing ---- */
struct one { struct req r; int status; };

static void on_entry(void *arg, const struct err *e, const struct file_entry *en)
{
    struct one *st = arg;
    struct err none;
    if (!req_back(&st->r))
        return;
    if (!e && !en && st->status != 204)
        err_set(&none, E_GUEST, "the sandbox answered without an entry"), e = &none;
    if (e) {
        req_fail(&st->r, e, ABOUT_FILE);
        return;
    }
    if (st->status == 204) {
        reply_none(st->r.s);
        req_end(&st->r);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_entry(&w, en);
    req_json(&st->r, st->status, &b);
}

static struct one *one_new(struct api *a, struct http_stream *s, int status)
{
    struct one *st = req_new(a, s, sizeof *st, NULL);
    st->status = status;
    req_hold(&st->r);
    return st;
}

static void settle(struct one *st, int failed, const struct err *e)
{
    if (failed) {
        (void)req_back(&st->r); /* it will not come */
        req_fail(&st->r, e, ABOUT_SANDBOX);
    }
}

/* Whose files: the sandbox's of {id}, or the volume's of {volume}, whose keeper volumes.c has started before. */
struct agent *files_agent(struct api *a, struct http_stream *s)
{
    struct err e;
    struct agent *ag = NULL;
    if (http_param(s, "volume").p) {
        struct volume *v = api_volume(a, s);
        if (v && !(ag = volume_agent(v, &e)))
            problem_about(s, &e, ABOUT_VOLUME);
        return ag;
    }
    struct sandbox *sb = api_sandbox(a, s);
    if (sb && !(ag = sandbox_agent(sb, &e)))
        problem_about(s, &e, ABOUT_SANDBOX);
    return ag;
}

/* Files, path= and user= of the query. NULL: the answer is out. */
struct where { struct buf path_buf, user_buf; const char *path, *user; };
static void where_fini(struct where *w)
{
    buf_free(&w->path_buf);
    buf_free(&w->user_buf);
}
#define auto_where __attribute__((cleanup(where_fini))) struct where

static struct agent *where_read(struct api *a, struct http_stream *s, struct where *w)
{
    struct err e;
    struct agent *ag = files_agent(a, s);
    if (ag && (param_path(s, "path", &w->path_buf, &w->path, &e) || param_text(s, "user", 64, &w->user_buf, &w->user, &e))) {
        problem_about(s, &e, ABOUT_REQUEST);
        return NULL;
    }
    return ag;
}

void files_stat_get(struct http_stream *s, void *a)
{
    struct err e;
    auto_where w = {0};
    struct agent *ag = where_read(a, s, &w);
    if (!ag)
        return;
    struct one *st = one_new(a, s, 200);
    settle(st, files_stat_on(ag, w.path, w.user, on_entry, st, &e), &e);
}

void files_delete(struct http_stream *s, void *a)
{
    struct err e;
    bool recursive;
    auto_where w = {0};
    struct agent *ag = where_read(a, s, &w);
    if (!ag)
        return;
    if (param_bool(s, "recursive", false, &recursive, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, 204);
    settle(st, files_remove_on(ag, w.path, w.user, recursive, on_entry, st, &e), &e);
}

void dirs_make(struct http_stream *s, void *a)
{
    struct err e;
    uint32_t mode;
    auto_where w = {0};
    struct agent *ag = where_read(a, s, &w);
    if (!ag)
        return;
    if (param_mode(s, "mode", 0755, &mode, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, 201);
    settle(st, files_mkdir_on(ag, w.path, w.user, mode, true, on_entry, st, &e), &e);
}

static void on_move_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    const char *from, *to, *user;
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    auto_json j = body_parse(p, n, "FileMove", &e);
    if (!j || body_text(j, "from", PARAM_PATH_MAX, &from, true, &e) || body_text(j, "to", PARAM_PATH_MAX, &to, true, &e) ||
        body_text(j, "user", 64, &user, false, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, 200);
    settle(st, files_move_on(ag, from, to, user, on_entry, st, &e), &e);
}
void files_move_post(struct http_stream *s, void *a) { api_body(a, s, on_move_body); }

static void on_attr_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    const char *path, *mode, *owner, *group, *user;
    uint32_t bits = 0;
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    auto_json j = body_parse(p, n, "FileAttr", &e);
    int bad = !j || body_text(j, "path", PARAM_PATH_MAX, &path, true, &e) || body_text(j, "mode", 5, &mode, false, &e) ||
              body_text(j, "owner", 64, &owner, false, &e) || body_text(j, "group", 64, &group, false, &e) ||
              body_text(j, "user", 64, &user, false, &e);
    if (!bad && mode && mode_parse(str_of(mode), &bits))
        bad = err_set(&e, E_INVALID, "mode: must be octal text, \"0\" … \"7777\"");
    if (!bad && !mode && !owner && !group)
        bad = err_set(&e, E_INVALID, "one of mode, owner and group must be given");
    if (bad) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, 200);
    settle(st, files_setattr_on(ag, path, user, mode ? &bits : NULL, owner, group, on_entry, st, &e), &e);
}
void files_attr_post(struct http_stream *s, void *a) { api_body(a, s, on_attr_body); }

static void on_symlink_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    const char *target, *path, *user;
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    auto_json j = body_parse(p, n, "FileSymlink", &e);
    if (!j || body_text(j, "target", PARAM_PATH_MAX, &target, true, &e) || body_text(j, "path", PARAM_PATH_MAX, &path, true, &e) ||
        body_text(j, "user", 64, &user, false, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, 201);
    settle(st, files_symlink_on(ag, target, path, user, on_entry, st, &e), &e);
}
void files_symlink_post(struct http_stream *s, void *a) { api_body(a, s, on_symlink_body); }

/* ---- a directory ---- */
#define LIST_BYTES_MAX (64u << 20) /* of JSON; the agent decides how much there is */

struct listing { struct req r; struct buf b; struct jw w; bool over; };

static void listing_fini(void *arg)
{
    struct listing *st = arg;
    buf_free(&st->b);
}

static void on_entries(void *arg, const struct file_entry *en, size_t n)
{
    struct listing *st = arg;
    if (st->r.over || st->over)
        return;
    for (size_t i = 0; i < n; i++)
        put_entry(&st->w, &en[i]);
    st->over = st->b.n > LIST_BYTES_MAX;
}

static void on_listed(void *arg, const struct err *e)
{
    struct listing *st = arg;
    struct err none;
    if (!req_back(&st->r))
        return;
    if (!e && st->over)
        err_set(&none, E_TOO_LARGE, "the listing has more than %u MiB; list with a smaller depth", LIST_BYTES_MAX >> 20), e = &none;
    if (e) {
        req_fail(&st->r, e, ABOUT_FILE);
        return;
    }
    jw_end(&st->w);
    jw_end(&st->w);
    req_json(&st->r, 200, &st->b);
}

void dirs_list(struct http_stream *s, void *a)
{
    static const struct files_list_ops ops = {.entries = on_entries, .done = on_listed};
    struct err e;
    uint64_t depth;
    auto_where w = {0};
    struct agent *ag = where_read(a, s, &w);
    if (!ag)
        return;
    if (param_u64(s, "depth", 1, 64, 1, &depth, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct listing *st = req_new(a, s, sizeof *st, listing_fini);
    jw_init(&st->w, &st->b);
    jw_obj(&st->w);
    jw_kv_arr(&st->w, "entries");
    req_hold(&st->r);
    if (files_list_on(ag, w.path, w.user, (unsigned)depth, &ops, st, &e)) {
        (void)req_back(&st->r); /* it will not come */
        req_fail(&st->r, &e, ABOUT_SANDBOX);
    }
}
