#include "api/transfer.h"
#include "api/gzip.h"

/* ---- out ---- */
static void out_fini(void *arg)
{
    struct sending *st = arg;
    if (st->f)
        file_read_cancel(st->f);
    gzip_free(st->pack);
}

void *sending_new(struct api *a, struct http_stream *s, size_t size, void (*fail)(struct sending *st, const struct err *e))
{
    struct sending *st = req_new(a, s, size, out_fini);
    st->fail = fail;
    st->length = UINT64_MAX;
    return st;
}

static void out_drain(struct http_stream *s, void *arg)
{
    struct sending *st = arg;
    (void)s;
    size_t n = st->owed;
    st->owed = 0;
    if (st->f && n)
        file_read_consumed(st->f, n);
}

static void out_begin(struct sending *st) /* fails only when the client left */
{
    if (st->pack)
        (void)http_header(st->r.s, "Content-Encoding", "gzip"); /* nothing is sent yet */
    if (st->known && !st->pack)
        (void)http_reply_start_len(st->r.s, 200, "application/octet-stream", st->left);
    else
        (void)http_reply_start(st->r.s, 200, "application/octet-stream");
}

static void out_write(struct sending *st, const void *p, size_t n, bool last) /* as above */
{
    auto_buf packed = {0};
    if (st->pack) {
        gzip_push(st->pack, p, n, last, &packed);
        p = packed.p, n = packed.n;
    }
    if (n)
        (void)http_write(st->r.s, p, n);
    if (last)
        http_end(st->r.s);
}

static void out_opened(void *arg, const struct file_entry *en)
{
    struct sending *st = arg;
    struct err e;
    if (en->type == 'd') {
        err_set(&e, E_INVALID, "path '%.190s' is a directory", en->path);
        st->fail(st, &e);
        return;
    }
    (void)http_header(st->r.s, "Cache-Control", "no-store"); /* nothing is sent yet: it cannot be too late */
    if (en->type == 'f' && en->size > 0) {
        uint64_t rest = en->size > st->offset ? en->size - st->offset : 0;
        st->known = true;
        st->left = rest < st->length ? rest : st->length;
        out_begin(st);
    }
    if (http_is(st->r.s, "HEAD") || (st->known && !st->left)) {
        if (!st->known)
            (void)http_reply_start_len(st->r.s, 200, "application/octet-stream", 0); /* fails only when the client left */
        out_write(st, NULL, 0, true);
        req_end(&st->r);
    }
}

static void out_data(void *arg, const unsigned char *p, size_t n)
{
    struct sending *st = arg;
    size_t want = n;
    if (st->r.over)
        return;
    if (st->known && want > st->left)
        want = (size_t)st->left; /* it grew while we read: the promise stands */
    if (!http_started(st->r.s))
        out_begin(st);
    st->left -= st->known ? want : 0;
    bool last = st->known && !st->left;
    out_write(st, p, want, last);
    if (last) {
        req_end(&st->r);
    } else if (http_writable(st->r.s)) {
        file_read_consumed(st->f, n);
    } else {
        st->owed += n;
    }
}

static void out_done(void *arg, const struct err *e, uint64_t sent)
{
    struct sending *st = arg;
    (void)sent;
    st->f = NULL;
    if (st->r.over)
        return;
    if (!http_started(st->r.s) && e) {
        st->fail(st, e);
        return;
    }
    if (e || st->left)
        http_abort(st->r.s);
    else if (!http_started(st->r.s))
        http_reply(st->r.s, 200, "application/octet-stream", NULL, 0);
    else
        out_write(st, NULL, 0, true);
    req_end(&st->r);
}

int sending_start(struct sending *st, struct agent *ag, const char *path, const char *user, struct err *e)
{
    static const struct file_read_ops ops = {.opened = out_opened, .data = out_data, .done = out_done};
    http_on_drain(st->r.s, out_drain, st);
    st->f = file_read_start_on(ag, path, user, st->offset, st->length, &ops, st, e);
    if (!st->f)
        return -1;
    req_watch(&st->r);
    return 0;
}

/* ---- in ---- */
static void in_fini(void *arg)
{
    struct taking *st = arg;
    if (st->f)
        file_write_cancel(st->f);
    buf_free(&st->rest);
}

void *taking_new(struct api *a, struct http_stream *s, size_t size, void (*done)(struct taking *st, const struct err *e, const struct file_entry *en))
{
    struct taking *st = req_new(a, s, size, in_fini);
    st->done = done;
    return st;
}

static void in_push(struct taking *st)
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
    struct taking *st = arg;
    if (!st->r.over)
        in_push(st);
}

/* May come long before the body ends (disk full, no permission): the answer goes out at once, the http layer sees to the rest. */
static void in_done(void *arg, const struct err *e, const struct file_entry *en)
{
    struct taking *st = arg;
    st->f = NULL;
    if (!st->r.over)
        st->done(st, e, en);
}

static void in_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct taking *st = arg;
    (void)s;
    if (st->r.over)
        return;
    size_t took = 0;
    while (st->f && !st->rest.n && took < n) {
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
    struct taking *st = arg;
    (void)s;
    if (st->r.over)
        return;
    st->ended = true;
    in_push(st);
}

int taking_start(struct taking *st, struct agent *ag, const struct file_write_spec *spec, struct err *e)
{
    static const struct file_write_ops ops = {.room = in_room, .done = in_done};
    st->f = file_write_start_on(ag, spec, &ops, st, e);
    if (!st->f)
        return -1;
    req_watch(&st->r);
    http_body_stream(st->r.s, in_data, in_end, st);
    return 0;
}
