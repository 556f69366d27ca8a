/* File contents in and out, at the pace of the slower side.
 *
 * Out: a regular file of known size is sent with Content-Length; if it turns
 * out shorter, the connection is cut, so a client can never take a part for
 * the whole. A file that says size 0 may still have content (/proc): then the
 * first bytes decide, and the reply is chunked. */
#include "api/native/native.h"
#include "api/params.h"

/* ---- out ---- */
struct out {
    struct req r;
    struct file_read *f;
    uint64_t offset, length, left;
    size_t owed;
    bool known; /* the length was promised */
};

static void out_fini(void *arg)
{
    struct out *st = arg;
    if (st->f)
        file_read_cancel(st->f);
}

static void out_drain(struct http_stream *s, void *arg)
{
    struct out *st = arg;
    (void)s;
    size_t n = st->owed;
    st->owed = 0;
    if (st->f && n)
        file_read_consumed(st->f, n);
}

static void out_headers(struct out *st)
{
    (void)http_header(st->r.s, "X-Content-Type-Options", "nosniff");
    (void)http_header(st->r.s, "Cache-Control", "no-store");
}

static void out_opened(void *arg, const struct file_entry *en)
{
    struct out *st = arg;
    struct err e;
    if (en->type == 'd') {
        err_set(&e, E_INVALID, "'%.120s' is a directory", en->path);
        req_fail(&st->r, &e, ABOUT_FILE);
        return;
    }
    if (en->type == 'f' && en->size > 0) {
        uint64_t rest = en->size > st->offset ? en->size - st->offset : 0;
        st->known = true;
        st->left = rest < st->length ? rest : st->length;
        out_headers(st);
        (void)http_reply_start_len(st->r.s, 200, "application/octet-stream", st->left); /* fails only when the client left */
    }
    if (http_is(st->r.s, "HEAD") || (st->known && !st->left)) {
        if (!st->known) {
            out_headers(st);
            (void)http_reply_start_len(st->r.s, 200, "application/octet-stream", 0); /* as above */
        }
        http_end(st->r.s);
        req_end(&st->r);
    }
}

static void out_data(void *arg, const unsigned char *p, size_t n)
{
    struct out *st = arg;
    size_t want = n;
    if (st->r.over)
        return;
    if (st->known && want > st->left)
        want = (size_t)st->left; /* it grew while we read: the promise stands */
    if (!http_started(st->r.s)) {
        out_headers(st);
        (void)http_reply_start(st->r.s, 200, "application/octet-stream"); /* as above */
    }
    (void)http_write(st->r.s, p, want); /* as above */
    st->left -= st->known ? want : 0;
    if (st->known && !st->left) {
        http_end(st->r.s);
        req_end(&st->r);
    } else if (http_writable(st->r.s)) {
        file_read_consumed(st->f, n);
    } else {
        st->owed += n;
    }
}

static void out_done(void *arg, const struct err *e, uint64_t sent)
{
    struct out *st = arg;
    (void)sent;
    st->f = NULL;
    if (st->r.over)
        return;
    if (!http_started(st->r.s) && e) {
        req_fail(&st->r, e, ABOUT_FILE);
        return;
    }
    if (e || st->left) {
        http_abort(st->r.s);
    } else if (!http_started(st->r.s)) {
        out_headers(st);
        http_reply(st->r.s, 200, "application/octet-stream", NULL, 0);
    } else {
        http_end(st->r.s);
    }
    req_end(&st->r);
}

void files_get(struct http_stream *s, void *a)
{
    static const struct file_read_ops ops = {.opened = out_opened, .data = out_data, .done = out_done};
    struct err e;
    auto_buf path_buf = {0}, user_buf = {0};
    const char *path, *user;
    uint64_t offset, length;
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    if (param_path(s, "path", &path_buf, &path, &e) || param_text(s, "user", 64, &user_buf, &user, &e) ||
        param_u64(s, "offset", 0, INT64_MAX, 0, &offset, &e) || param_u64(s, "length", 0, UINT64_MAX, UINT64_MAX, &length, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct out *st = req_new(a, s, sizeof *st, out_fini);
    st->offset = offset;
    st->length = length;
    http_on_drain(s, out_drain, st);
    st->f = file_read_start_on(ag, path, user, offset, length, &ops, st, &e);
    if (!st->f) {
        req_fail(&st->r, &e, ABOUT_SANDBOX);
        return;
    }
    req_watch(&st->r);
}

/* ---- in ---- */
struct in {
    struct req r;
    struct file_write *f;
    struct buf rest; /* read from the client, not yet taken */
    bool paused, ended;
};

static void in_fini(void *arg)
{
    struct in *st = arg;
    if (st->f)
        file_write_cancel(st->f);
    buf_free(&st->rest);
}

static void in_push(struct in *st)
{
    while (st->f && st->rest.n) {
        size_t took = file_write_send(st->f, st->rest.p, st->rest.n);
        if (!took)
            break;
        buf_drop(&st->rest, took);
    }
    bool full = st->rest.n > 0;
    if (full && !st->paused)
        http_body_pause(st->r.s);
    else if (!full && st->paused)
        http_body_resume(st->r.s);
    st->paused = full;
    if (st->f && !full && st->ended) {
        st->ended = false;
        file_write_eof(st->f);
    }
}

static void in_room(void *arg)
{
    struct in *st = arg;
    if (!st->r.over)
        in_push(st);
}

/* May come long before the body ends (disk full, no permission): the answer goes out at once, the http layer sees to the rest. */
static void in_done(void *arg, const struct err *e, const struct file_entry *en)
{
    struct in *st = arg;
    st->f = NULL;
    if (st->r.over)
        return;
    if (e) {
        req_fail(&st->r, e, ABOUT_FILE);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_entry(&w, en);
    req_json(&st->r, 201, &b);
}

static void in_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct in *st = arg;
    (void)s;
    if (st->r.over)
        return;
    size_t took = 0;
    while (!st->rest.n && took < n) {
        size_t k = file_write_send(st->f, p + took, n - took);
        if (!k)
            break;
        took += k;
    }
    buf_put(&st->rest, p + took, n - took);
    in_push(st);
}

static void in_end(struct http_stream *s, void *arg)
{
    struct in *st = arg;
    (void)s;
    if (st->r.over)
        return;
    st->ended = true;
    in_push(st);
}

void files_put(struct http_stream *s, void *a)
{
    static const struct file_write_ops ops = {.room = in_room, .done = in_done};
    struct err e;
    auto_buf path_buf = {0}, user_buf = {0};
    struct file_write_spec spec = {0};
    struct agent *ag = files_agent(a, s);
    if (!ag)
        return;
    if (param_path(s, "path", &path_buf, &spec.path, &e) || param_text(s, "user", 64, &user_buf, &spec.user, &e) ||
        param_mode(s, "mode", 0, &spec.mode, &e) || param_bool(s, "append", false, &spec.append, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct in *st = req_new(a, s, sizeof *st, in_fini);
    st->f = file_write_start_on(ag, &spec, &ops, st, &e);
    if (!st->f) {
        req_fail(&st->r, &e, ABOUT_SANDBOX);
        return;
    }
    req_watch(&st->r);
    http_body_stream(s, in_data, in_end, st);
}
