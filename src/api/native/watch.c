/* GET …/watch: changes below a path as server-sent events. The agent's events
 * have no flow control, so a client that does not keep up loses some and is
 * told to look for itself ("overflow"). */
#include "api/native/native.h"
#include "api/params.h"

struct watching { struct req r; struct watch *w; bool begun, behind; };

static void watching_fini(void *arg)
{
    struct watching *st = arg;
    if (st->w)
        watch_cancel(st->w);
}

static void tell(struct watching *st, const char *event, struct str data)
{
    (void)sse_event(st->r.s, event, data); /* fails only when the client left */
}

static void on_drain(struct http_stream *s, void *arg)
{
    struct watching *st = arg;
    (void)s;
    if (st->behind)
        tell(st, "overflow", S("{}"));
    st->behind = false;
}

static void on_ready(void *arg)
{
    struct watching *st = arg;
    if (st->begun)
        return;
    st->begun = true;
    http_on_drain(st->r.s, on_drain, st);
    (void)sse_start(st->r.s, 15); /* as above */
    tell(st, "ready", S("{}"));
}

static void on_change(void *arg, char type, const char *name, uint64_t seq, const struct file_entry *en)
{
    struct watching *st = arg;
    (void)en;
    if (!st->begun || st->behind)
        return;
    if (!http_writable(st->r.s)) {
        st->behind = true;
        return;
    }
    const char *word = type == 'c' ? "create" : type == 'w' ? "write" : type == 'd' ? "remove" : type == 'r' ? "rename" : type == 'a' ? "attr" : NULL;
    if (!word) {
        tell(st, "overflow", S("{}"));
        return;
    }
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "type", word);
    jw_kv_str(&w, "name", name);
    jw_kv_u64(&w, "seq", seq);
    jw_end(&w);
    tell(st, "change", (struct str){b.p, b.n});
}

static void on_done(void *arg, const struct err *e)
{
    struct watching *st = arg;
    struct err none;
    st->w = NULL;
    if (!e)
        err_set(&none, E_GONE, "the watched path no longer exists"), e = &none;
    if (!st->begun) {
        req_fail(&st->r, e, ABOUT_FILE);
        return;
    }
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "reason", err_name(e->code));
    jw_kv_str(&w, "message", e->msg);
    jw_end(&w);
    tell(st, "end", (struct str){b.p, b.n});
    http_end(st->r.s);
    req_end(&st->r);
}

struct place {
    const char *path, *user;
    bool recursive;
};
static const struct field watch_rows[] = {
    FIELD_AT(struct place, path),
    FIELD_USER(struct place, user, "Whose home a relative path is below."),
    FIELD("recursive", F_BOOL, struct place, recursive, .def = "false",
          .help = "Directories below it, too."),
};
const struct shape watch_query = SHAPE_OF(NULL, struct place, watch_rows);

void watch_open(struct http_stream *s, void *a)
{
    static const struct watch_ops ops = {.ready = on_ready, .change = on_change, .done = on_done};
    struct err e;
    struct place q = {0};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    if (native_query(a, s, &watch_query, &q, &e)) {
        query_free(&watch_query, &q);
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct watching *st = req_new(a, s, sizeof *st, watching_fini);
    st->w = watch_start(sb, q.path, q.user, q.recursive, false, &ops, st, &e);
    query_free(&watch_query, &q);
    if (!st->w) {
        req_fail(&st->r, &e, ABOUT_SANDBOX);
        return;
    }
    req_watch(&st->r);
}
