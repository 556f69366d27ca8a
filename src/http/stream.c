/* The handler's view of a request: see stream.h for the contract. */
#include "http/stream.h"
#include "base/clock.h"
#include "http/conn.h"
#include "http/uri.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */
struct http_stream *stream_new(struct http_conn *c)
{
    struct http_stream *s = xcalloc(1, sizeof *s);
    s->refs = 1; /* the connection's */
    s->srv = c->srv;
    s->loop = c->srv->loop;
    s->conn = c;
    s->nseg = -1;
    s->peer = c->peer;
    http_parser_init(&s->parser, HTTP_REQUEST, c->srv->cfg.parse_flags);
    s->parser.limits = c->srv->cfg.limits;
    return s;
}

void stream_begin(struct http_stream *s)
{
    const struct http_head *h = &s->parser.head;
    http_body_init(&s->body, h->framing, h->length);
    s->keep = h->keep_alive && h->minor == 1;
    s->no_body = str_eqz(h->method, "HEAD");
    s->id = server_slot_take(s->srv, s);
    s->srv->cfg.handler(s, s->srv->cfg.arg);
}

static void bury(void *arg)
{
    struct http_stream *s = arg;
    if (s->free_fn)
        s->free_fn(s->data);
    http_parser_fini(&s->parser);
    free(s->seg);
    buf_free(&s->seg_store);
    buf_free(&s->cap_store);
    buf_free(&s->collect);
    buf_free(&s->extra);
    free(s);
}
struct http_stream *http_ref(struct http_stream *s)
{
    s->refs++;
    return s;
}
void http_unref(struct http_stream *s)
{
    if (s && !--s->refs)
        loop_defer(s->loop, bury, s);
}

void stream_detach(struct http_stream *s, bool cancel)
{
    if (s->id) {
        server_slot_drop(s->srv, s->id);
        if (s->srv->cfg.on_done)
            s->srv->cfg.on_done(s, s->srv->cfg.arg);
    }
    s->conn = NULL;
    if (s->gone_fn)
        s->gone_fn(s);
    if (cancel && s->cancel_fn) {
        void (*fn)(struct http_stream *, void *) = s->cancel_fn;
        s->cancel_fn = NULL;
        fn(s, s->cancel_arg);
    }
    s->srv = NULL;
    http_unref(s);
}

bool http_alive(const struct http_stream *s) { return s->conn && s->reply != REPLY_DONE; }
uint64_t http_id(const struct http_stream *s) { return s->id; }
void http_on_cancel(struct http_stream *s, void (*fn)(struct http_stream *, void *), void *arg)
{
    s->cancel_fn = fn;
    s->cancel_arg = arg;
    if (s->conn && s->conn->eof)
        conn_kick(s->conn); /* it left already */
}
void http_set_data(struct http_stream *s, void *data) { s->data = data; }
void *http_data(const struct http_stream *s) { return s->data; }
void http_on_free(struct http_stream *s, void (*fn)(void *)) { s->free_fn = fn; }

/* ---- the request ---- */
struct str http_method(const struct http_stream *s) { return s->parser.head.method; }
bool http_is(const struct http_stream *s, const char *method) { return str_eqz(s->parser.head.method, method); }
const struct http_head *http_head(const struct http_stream *s) { return &s->parser.head; }
struct str http_req_header(const struct http_stream *s, const char *name) { return http_head_get(&s->parser.head, name); }
struct str http_path(const struct http_stream *s) { return s->parser.head.path; }
struct str http_query(const struct http_stream *s) { return s->parser.head.query; }
bool http_query_get(const struct http_stream *s, const char *key, struct buf *out) { return query_get(s->parser.head.query, key, out); }
const struct sock_peer *http_peer(const struct http_stream *s) { return &s->peer; }
bool http_is_unix(const struct http_stream *s) { return s->peer.is_unix; }
uint64_t http_body_length(const struct http_stream *s)
{
    const struct http_head *h = &s->parser.head;
    return h->framing == HTTP_BODY_CHUNKED ? UINT64_MAX : h->length;
}
bool http_has_body(const struct http_stream *s) { return s->parser.head.framing != HTTP_BODY_NONE; }
struct loop *http_loop(const struct http_stream *s) { return s->loop; }
struct http_server *http_server_of(const struct http_stream *s) { return s->srv; }

int http_nsegments(const struct http_stream *cs)
{
    struct http_stream *s = (struct http_stream *)(uintptr_t)cs; /* a cache: the answer never changes */
    if (s->nseg == -1) {
        struct str seg[HTTP_SEGMENTS_MAX];
        int n = uri_split(s->parser.head.path, &s->seg_store, seg);
        s->nseg = n < 0 ? -2 : n;
        if (n > 0) {
            s->seg = xcalloc((size_t)n, sizeof *seg);
            memcpy(s->seg, seg, (size_t)n * sizeof *seg);
        }
    }
    return s->nseg < 0 ? -1 : s->nseg;
}
struct str http_segment(const struct http_stream *s, int i)
{
    return i >= 0 && i < http_nsegments(s) ? s->seg[i] : (struct str){0};
}
struct str http_param(const struct http_stream *s, const char *name)
{
    for (int i = 0; i < s->ncap; i++) {
        const char *n = s->cap[i].name; /* "id}/exec": into the pattern */
        size_t len = strlen(name);
        if (!strncmp(n, name, len) && (n[len] == '}' || n[len] == '*'))
            return s->cap[i].value;
    }
    return (struct str){0};
}
const char *http_request_id(const struct http_stream *cs)
{
    struct http_stream *s = (struct http_stream *)(uintptr_t)cs; /* made on first use */
    if (!s->request_id[0])
        id_make('r', s->request_id);
    return s->request_id;
}

/* ---- the reply ---- */
int http_header(struct http_stream *s, const char *name, const char *value)
{
    static const char *const ours[] = {"content-length", "transfer-encoding", "connection", "date", "content-type"};
    struct str n = str_of(name), v = str_of(value);
    if (!s->conn || s->reply != REPLY_NONE || !http_token_ok(n) || !http_value_ok(v))
        return -1;
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (str_ieqz(n, ours[i]))
            return -1;
    buf_put(&s->extra, n.p, n.n);
    buf_put(&s->extra, ": ", 2);
    buf_put(&s->extra, v.p, v.n);
    buf_put(&s->extra, "\r\n", 2);
    return 0;
}
int http_headerf(struct http_stream *s, const char *name, const char *fmt, ...)
{
    auto_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return http_header(s, name, b.p ? b.p : "");
}

bool stream_drainable(const struct http_stream *s)
{
    return s->body.done || (s->body.framing == HTTP_BODY_LENGTH && s->body.left <= DROP_MAX && !s->parser.head.expect_continue);
}

static char *put_u64(char *end, uint64_t v) /* writes backwards, returns the first digit */
{
    do
        *--end = (char)('0' + v % 10);
    while (v /= 10);
    return end;
}

/* The head, with one framing field that is ours. len: of LENGTH. */
static void put_head(struct http_stream *s, int status, const char *ct, enum reply_mode mode, uint64_t len)
{
    struct http_conn *c = s->conn;
    struct buf b = {0};
    char num[24];
    buf_reserve(&b, 256 + s->extra.n);
    buf_put(&b, "HTTP/1.1 ", 9);
    char *d = put_u64(num + sizeof num, (uint64_t)status);
    buf_put(&b, d, (size_t)(num + sizeof num - d));
    buf_putc(&b, ' ');
    buf_puts(&b, http_reason(status));
    buf_put(&b, "\r\n", 2);
    if (mode != REPLY_RAW) {
        buf_puts(&b, "Date: ");
        buf_puts(&b, server_date(s->srv));
        buf_put(&b, "\r\n", 2);
    }
    if (s->srv->cfg.server_name) {
        buf_puts(&b, "Server: ");
        buf_puts(&b, s->srv->cfg.server_name);
        buf_put(&b, "\r\n", 2);
    }
    if (ct && http_value_ok(str_of(ct))) {
        buf_puts(&b, "Content-Type: ");
        buf_puts(&b, ct);
        buf_put(&b, "\r\n", 2);
    }
    if (s->request_id[0]) {
        buf_puts(&b, "X-Request-Id: ");
        buf_puts(&b, s->request_id);
        buf_put(&b, "\r\n", 2);
    }
    buf_put(&b, s->extra.p, s->extra.n);
    if (mode == REPLY_LENGTH && status != 204 && status >= 200) {
        d = put_u64(num + sizeof num, len);
        buf_puts(&b, "Content-Length: ");
        buf_put(&b, d, (size_t)(num + sizeof num - d));
        buf_put(&b, "\r\n", 2);
    } else if (mode == REPLY_CHUNKED) {
        buf_puts(&b, "Transfer-Encoding: chunked\r\n");
    }
    if (mode == REPLY_RAW)
        buf_puts(&b, status == 101 ? "Connection: Upgrade\r\n" : "");
    else if (!s->keep)
        buf_puts(&b, "Connection: close\r\n");
    buf_put(&b, "\r\n", 2);
    conn_put(c, b.p, b.n);
    buf_free(&b);
    buf_free(&s->extra);
}

static int start(struct http_stream *s, int status, const char *ct, enum reply_mode mode, uint64_t len)
{
    if (!s->conn || s->reply != REPLY_NONE)
        return -1;
    if (status < 200 || status > 999)
        status = 500;
    if (s->srv->stopping || (!s->body.done && (s->mode == BODY_STREAM || s->mode == BODY_COLLECT || !stream_drainable(s))))
        s->keep = false;
    if (mode == REPLY_CHUNKED && s->parser.head.minor == 0)
        mode = REPLY_CLOSE;
    if (status == 204 || status == 304)
        s->no_body = true;
    if (status == 204 && mode == REPLY_CHUNKED)
        mode = REPLY_LENGTH, len = 0; /* no framing field goes with it */
    s->status = status;
    s->reply = mode;
    s->left = len;
    put_head(s, status, ct, mode, len);
    conn_kick(s->conn);
    return 0;
}

int http_reply_start(struct http_stream *s, int status, const char *ct) { return start(s, status, ct, REPLY_CHUNKED, 0); }
int http_reply_start_len(struct http_stream *s, int status, const char *ct, uint64_t len)
{
    return start(s, status, ct, REPLY_LENGTH, len);
}

void http_reply(struct http_stream *s, int status, const char *ct, const void *p, size_t n)
{
    if (start(s, status, ct, REPLY_LENGTH, n))
        return;
    s->sent = n;
    if (!s->no_body && n)
        conn_put(s->conn, p, n);
    s->reply = REPLY_DONE;
}
void http_reply_buf(struct http_stream *s, int status, const char *ct, struct buf *b)
{
    http_reply(s, status, ct, b->p ? b->p : "", b->n);
    buf_free(b);
}

int http_write(struct http_stream *s, const void *p, size_t n)
{
    struct http_conn *c = s->conn;
    if (!c || s->reply == REPLY_NONE || s->reply == REPLY_DONE)
        return -1;
    if (!n)
        return 0; /* an empty chunk would be the last one */
    if (conn_pending(c) + n > OUT_MAX || (s->reply == REPLY_LENGTH && !s->no_body && n > s->left)) {
        http_abort(s);
        return -1;
    }
    s->sent += n;
    if (s->no_body)
        return 0;
    if (s->reply == REPLY_CHUNKED) {
        char head[HTTP_CHUNK_HEAD_MAX];
        conn_put(c, head, http_chunk_head(head, n));
    }
    conn_put(c, p, n);
    if (s->reply == REPLY_CHUNKED)
        conn_put(c, "\r\n", 2);
    if (s->reply == REPLY_LENGTH)
        s->left -= n;
    if (conn_pending(c) >= OUT_HIGH)
        s->full = true;
    conn_kick(c);
    return 0;
}
bool http_writable(struct http_stream *s)
{
    if (!s->conn)
        return false;
    if (conn_pending(s->conn) < OUT_HIGH)
        return true;
    s->full = true;
    return false;
}
size_t http_pending(const struct http_stream *s) { return s->conn ? conn_pending(s->conn) : 0; }
void http_on_drain(struct http_stream *s, void (*fn)(struct http_stream *, void *), void *arg)
{
    s->drain_fn = fn;
    s->drain_arg = arg;
}

void http_end(struct http_stream *s)
{
    if (!s->conn || s->reply == REPLY_NONE || s->reply == REPLY_DONE)
        return;
    if (s->reply == REPLY_LENGTH && s->left && !s->no_body) {
        http_abort(s);
        return;
    }
    if (s->reply == REPLY_CHUNKED && !s->no_body)
        conn_put(s->conn, "0\r\n\r\n", 5);
    if (s->reply == REPLY_CLOSE)
        s->keep = false;
    s->reply = REPLY_DONE;
    conn_kick(s->conn);
}
void http_abort(struct http_stream *s)
{
    if (!s->conn || s->conn->cut)
        return;
    s->reply = REPLY_DONE;
    s->conn->cut = true;
    conn_kick(s->conn);
}
bool http_started(const struct http_stream *s) { return s->reply != REPLY_NONE; }
int http_status(const struct http_stream *s) { return s->status; }
uint64_t http_sent(const struct http_stream *s) { return s->sent; }

void stream_problem(struct http_stream *s, int status, const char *message)
{
    const char *code = status == 404   ? "not_found"
                       : status == 405 ? "method_not_allowed"
                       : status == 408 ? "timeout"
                       : status == 413 ? "too_large"
                                       : "invalid";
    char body[320]; /* our own literals: nothing to escape */
    int n = snprintf(body, sizeof body, "{\"error\":{\"code\":\"%s\",\"message\":\"%s\"}}", code, message);
    http_reply(s, status, "application/json", body, n < 0 ? 0 : (size_t)n);
}

/* ---- the request body ---- */
static bool want_body(struct http_stream *s, enum body_mode mode)
{
    if (!s->conn || s->reply == REPLY_DONE || s->mode != BODY_UNDECIDED)
        return false;
    s->mode = mode;
    struct http_conn *c = s->conn;
    if (!s->body.done && s->parser.head.expect_continue && s->reply == REPLY_NONE && !c->in.n) {
        static const char go[] = "HTTP/1.1 100 Continue\r\n\r\n";
        conn_put(c, go, sizeof go - 1);
    }
    s->parser.head.expect_continue = false;
    c->in_at = clock_mono();
    conn_kick(c);
    return true;
}
void http_body_collect(struct http_stream *s, size_t max, void (*fn)(struct http_stream *, void *, const char *, size_t), void *arg)
{
    if (!s->conn || s->mode != BODY_UNDECIDED || s->reply == REPLY_DONE)
        return;
    if (s->body.framing == HTTP_BODY_LENGTH && s->body.left > max) {
        stream_problem(s, 413, "the body is larger than allowed here");
        return;
    }
    s->on_whole = fn;
    s->body_arg = arg;
    s->collect_max = max;
    (void)want_body(s, BODY_COLLECT); /* checked above */
}
void http_body_stream(struct http_stream *s, void (*on_data)(struct http_stream *, void *, const char *, size_t),
                      void (*on_end)(struct http_stream *, void *), void *arg)
{
    if (!want_body(s, BODY_STREAM))
        return;
    s->on_data = on_data;
    s->on_end = on_end;
    s->body_arg = arg;
}
void http_body_pause(struct http_stream *s) { s->paused++; }
void http_body_resume(struct http_stream *s)
{
    if (!s->paused || --s->paused || !s->conn)
        return;
    s->conn->in_at = clock_mono(); /* the wait was ours, not the peer's */
    conn_kick(s->conn);
}

int http_tunnel(struct http_stream *s, int status, void (*on_data)(struct http_stream *, void *, const char *, size_t),
                void (*on_eof)(struct http_stream *, void *), void *arg)
{
    /* A body in flight would be read as tunnel bytes by one side and as a body by the other. */
    if (!s->conn || s->reply != REPLY_NONE || !s->body.done)
        return -1;
    s->status = status;
    s->reply = REPLY_RAW;
    s->no_body = false;
    s->mode = BODY_TUNNEL;
    s->on_data = on_data;
    s->on_end = on_eof;
    s->body_arg = arg;
    put_head(s, status, NULL, REPLY_RAW, 0);
    conn_kick(s->conn);
    return 0;
}
