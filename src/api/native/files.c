/* Names rather than bytes: stat, list, make, move, link, remove. */
#include "api/native/native.h"
#include "api/params.h"
#include "core/volume/volume.h"
#include <stdio.h>

#define DEPTH_MAX 64 /* levels of one listing */

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
    struct jw *w = reply_begin(st->r.s);
    put_entry(w, en);
    req_send(&st->r, st->status);
}

static struct one *one_new(struct api *a, struct http_stream *s, int status)
{
    struct one *st = req_new(a, s, sizeof *st, NULL);
    st->status = status;
    req_hold(&st->r);
    return st;
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

/* ---- path= and user= of the query, and what some calls take besides ---- */
#define FOR_USER \
    "Whose home a relative path is below, and who owns what is created. Default: the template's user."
struct where {
    const char *path, *user;
    bool recursive;
    uint32_t mode;
    unsigned depth;
};
#define WHERE FIELD_AT(struct where, path), FIELD_USER(struct where, user, FOR_USER)
static const struct field where_rows[] = {WHERE};
const struct shape where_query = SHAPE_OF(NULL, struct where, where_rows);
static const struct field remove_rows[] = {
    WHERE,
    FIELD("recursive", F_BOOL, struct where, recursive, .def = "false",
          .help = "A directory with all that is in it."),
};
const struct shape remove_query = SHAPE_OF(NULL, struct where, remove_rows);
static const struct field dir_rows[] = {
    WHERE,
    FIELD("mode", F_MODE, struct where, mode, .def = "\"0755\"", .help = "Its permission bits."),
};
const struct shape dir_query = SHAPE_OF(NULL, struct where, dir_rows);
static const struct field list_rows[] = {
    WHERE,
    FIELD("depth", F_INT, struct where, depth, .min = 1, .max = DEPTH_MAX, .def = "1",
          .help = "How many levels of directories."),
};
const struct shape list_dir_query = SHAPE_OF(NULL, struct where, list_rows);

static void where_fini(struct where *w) { query_free(&where_query, w); }
#define auto_where __attribute__((cleanup(where_fini))) struct where

static struct agent *where_read(struct api *a, struct http_stream *s, const struct shape *query,
                                struct where *w) /* NULL: the answer is out */
{
    struct err e;
    struct agent *ag = files_agent(a, s);
    if (ag && native_query(a, s, query, w, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return NULL;
    }
    return ag;
}

void files_stat_get(struct http_stream *s, void *a)
{
    struct err e;
    auto_where w = {0};
    struct agent *ag = where_read(a, s, &where_query, &w);
    if (!ag)
        return;
    struct one *st = one_new(a, s, 200);
    req_settle(&st->r, files_stat_on(ag, w.path, w.user, on_entry, st, &e), &e, ABOUT_SANDBOX);
}

void files_delete(struct http_stream *s, void *a)
{
    struct err e;
    auto_where w = {0};
    struct agent *ag = where_read(a, s, &remove_query, &w);
    if (!ag)
        return;
    struct one *st = one_new(a, s, 204);
    req_settle(&st->r, files_remove_on(ag, w.path, w.user, w.recursive, on_entry, st, &e), &e,
               ABOUT_SANDBOX);
}

void dirs_make(struct http_stream *s, void *a)
{
    struct err e;
    auto_where w = {0};
    struct agent *ag = where_read(a, s, &dir_query, &w);
    if (!ag)
        return;
    struct one *st = one_new(a, s, 201);
    req_settle(&st->r, files_mkdir_on(ag, w.path, w.user, w.mode, true, on_entry, st, &e), &e,
               ABOUT_SANDBOX);
}

#define PATH(name_, struct_, member, help_) \
    FIELD(name_, F_PATH, struct_, member, .flags = F_REQUIRED, .max = PARAM_PATH_MAX, \
          .help = (help_))
struct move {
    const char *from, *to, *user;
};
static const struct field move_rows[] = {
    PATH("from", struct move, from, "The path it has."),
    PATH("to", struct move, to, "The path it gets."),
    FIELD_USER(struct move, user, "Whose home relative paths are below."),
};
const struct shape move_body = SHAPE_OF("FileMove", struct move, move_rows);

static void on_move_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct move g = {0};
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    auto_json j = native_body(a, p, n, &move_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, 200);
    req_settle(&st->r, files_move_on(ag, g.from, g.to, g.user, on_entry, st, &e), &e,
               ABOUT_SANDBOX);
}
void files_move_post(struct http_stream *s, void *a) { api_body(a, s, on_move_body); }

struct attr {
    const char *path, *owner, *group, *user;
    uint32_t mode;
};
static const struct field attr_rows[] = {
    PATH("path", struct attr, path, "Which file."),
    FIELD("mode", F_MODE, struct attr, mode, .help = "Its new permission bits."),
    FIELD("owner", F_STR, struct attr, owner, .max = 64,
          .help = "Its new owner, a name or a number."),
    FIELD("group", F_STR, struct attr, group, .max = 64,
          .help = "Its new group, a name or a number."),
    FIELD_USER(struct attr, user, "Whose home a relative path is below."),
};
const struct shape attr_body = SHAPE_OF("FileAttr", struct attr, attr_rows,
                                        .help = "At least one of `mode`, `owner` and `group`.");

static void on_attr_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct attr g = {0};
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    auto_json j = native_body(a, p, n, &attr_body, &g, &e);
    bool mode = j && json_get(j, "mode"), bad = !j;
    if (j && !mode && !g.owner && !g.group)
        bad = err_set(&e, E_INVALID, "one of mode, owner and group must be given");
    if (bad) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, 200);
    req_settle(&st->r, files_setattr_on(ag, g.path, g.user, mode ? &g.mode : NULL, g.owner, g.group, on_entry, st, &e), &e, ABOUT_SANDBOX);
}
void files_attr_post(struct http_stream *s, void *a) { api_body(a, s, on_attr_body); }

struct link {
    const char *target, *path, *user;
};
static const struct field symlink_rows[] = {
    PATH("target", struct link, target, "Where the link points; it need not exist."),
    PATH("path", struct link, path, "The link itself."),
    FIELD_USER(struct link, user, "Whose home a relative path is below, and who owns the link."),
};
const struct shape symlink_body = SHAPE_OF("FileSymlink", struct link, symlink_rows);

static void on_symlink_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct link g = {0};
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    auto_json j = native_body(a, p, n, &symlink_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct one *st = one_new(a, s, 201);
    req_settle(&st->r, files_symlink_on(ag, g.target, g.path, g.user, on_entry, st, &e), &e,
               ABOUT_SANDBOX);
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
    auto_where w = {0};
    struct agent *ag = where_read(a, s, &list_dir_query, &w);
    if (!ag)
        return;
    struct listing *st = req_new(a, s, sizeof *st, listing_fini);
    jw_init(&st->w, &st->b);
    jw_obj(&st->w);
    jw_kv_arr(&st->w, "entries");
    req_hold(&st->r);
    req_settle(&st->r, files_list_on(ag, w.path, w.user, w.depth, &ops, st, &e), &e, ABOUT_SANDBOX);
}
