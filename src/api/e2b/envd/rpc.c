#include "api/e2b/envd/rpc.h"
#include "api/params.h"
#include "base/clock.h"
#include "base/enc.h"
#include <stdio.h>

#define BODY_MAX       (16u << 20) /* stdin comes through here, as base64 */
#define KEEPALIVE_S    90
#define TIMEOUT_MAX_MS (30ULL * 86400 * 1000)
enum { ENVELOPE_COMPRESSED = 1, ENVELOPE_END = 2, ENVELOPE_HEAD = 5 };

/* ---- codes ---- */
static const struct {
    const char *name;
    int http;
} codes[RPC_CODE_MAX] = {
    [RPC_CANCELED] = {"canceled", 499},
    [RPC_UNKNOWN] = {"unknown", 500},
    [RPC_INVALID_ARGUMENT] = {"invalid_argument", 400},
    [RPC_DEADLINE_EXCEEDED] = {"deadline_exceeded", 504},
    [RPC_NOT_FOUND] = {"not_found", 404},
    [RPC_ALREADY_EXISTS] = {"already_exists", 409},
    [RPC_PERMISSION_DENIED] = {"permission_denied", 403},
    [RPC_RESOURCE_EXHAUSTED] = {"resource_exhausted", 429},
    [RPC_FAILED_PRECONDITION] = {"failed_precondition", 400},
    [RPC_UNIMPLEMENTED] = {"unimplemented", 501},
    [RPC_INTERNAL] = {"internal", 500},
    [RPC_UNAVAILABLE] = {"unavailable", 503},
    [RPC_UNAUTHENTICATED] = {"unauthenticated", 401},
};
const char *rpc_code_name(enum rpc_code c) { return codes[c].name; }
int rpc_code_http(enum rpc_code c) { return codes[c].http; }

enum rpc_code rpc_code_of(const struct err *e)
{
    static const unsigned char by[E_CODE_MAX] = {
        [E_OK] = RPC_INTERNAL,
        [E_INVALID] = RPC_INVALID_ARGUMENT,
        [E_UNAUTHENTICATED] = RPC_UNAUTHENTICATED,
        [E_DENIED] = RPC_PERMISSION_DENIED,
        [E_NOT_FOUND] = RPC_NOT_FOUND,
        [E_CONFLICT] = RPC_ALREADY_EXISTS,
        [E_GONE] = RPC_NOT_FOUND,
        [E_TOO_LARGE] = RPC_RESOURCE_EXHAUSTED,
        [E_QUOTA] = RPC_RESOURCE_EXHAUSTED,
        [E_RATE] = RPC_RESOURCE_EXHAUSTED,
        [E_TIMEOUT] = RPC_DEADLINE_EXCEEDED,
        [E_CANCELED] = RPC_CANCELED,
        [E_UNAVAILABLE] = RPC_UNAVAILABLE,
        [E_UNSUPPORTED] = RPC_UNIMPLEMENTED,
        [E_GUEST] = RPC_INTERNAL,
        [E_INTERNAL] = RPC_INTERNAL,
        [E_FORBIDDEN] = RPC_PERMISSION_DENIED,
    };
    if (envd_no_user(e))
        return RPC_UNAUTHENTICATED;
    if (e->code == E_INVALID && strstr(e->msg, "too many symbolic links"))
        return RPC_FAILED_PRECONDITION;
    return e->code < E_CODE_MAX ? (enum rpc_code)by[e->code] : RPC_INTERNAL;
}

/* ---- bytes ---- */
void rpc_envelope(struct buf *out, unsigned char flags, const void *p, size_t n)
{
    unsigned char head[ENVELOPE_HEAD] = {flags};
    put_be32(head + 1, (uint32_t)n);
    buf_put(out, head, sizeof head);
    buf_put(out, p, n);
}

int rpc_next_envelope(const char *p, size_t n, size_t max, struct str *ret, size_t *ret_used,
                      struct err *e)
{
    const unsigned char *h = (const unsigned char *)p;
    if (n && h[0] & ENVELOPE_COMPRESSED)
        return err_set(e, E_INVALID, "compressed messages are not supported");
    if (n && h[0])
        return err_set(e, E_INVALID, "the request has an envelope that is not a message");
    if (n < ENVELOPE_HEAD)
        return 0;
    uint32_t len = (uint32_t)h[1] << 24 | (uint32_t)h[2] << 16 | (uint32_t)h[3] << 8 | h[4];
    if (len > max)
        return err_set(e, E_TOO_LARGE, "a message is longer than %zu bytes", max);
    if (n - ENVELOPE_HEAD < len)
        return 0;
    *ret = (struct str){p + ENVELOPE_HEAD, len};
    *ret_used = ENVELOPE_HEAD + (size_t)len;
    return 1;
}

int rpc_open_envelope(const char *p, size_t n, struct str *ret, struct err *e)
{
    size_t used = 0;
    if (n < ENVELOPE_HEAD)
        return err_set(e, E_INVALID, "the request is not an envelope");
    int got = rpc_next_envelope(p, n, BODY_MAX, ret, &used, e);
    if (got < 0)
        return -1;
    return got && used == n ? 0 : err_set(e, E_INVALID, "the request must be exactly one message");
}

bool rpc_basic_user(struct str h, char out[65])
{
    auto_buf b = {0};
    if (h.n < 6 || !str_ieqz((struct str){h.p, 6}, "Basic "))
        return false;
    h = str_trim((struct str){h.p + 6, h.n - 6});
    if (!base64_decode(h.p, h.n, &b))
        return false;
    const char *colon = b.n ? memchr(b.p, ':', b.n) : NULL;
    size_t n = colon ? (size_t)(colon - b.p) : 0;
    if (!colon || n > 64 || !str_utf8((struct str){b.p, n}))
        return false;
    memcpy(out, b.p ? b.p : "", n);
    out[n] = 0;
    return true;
}

int rpc_text(struct json *obj, const char *key, const char **ret, struct err *e)
{
    struct str s = S("");
    if (json_str(obj, key, &s, false, e))
        return -1;
    *ret = s.p;
    return 0;
}

static void put_error(struct jw *w, enum rpc_code c, const char *msg)
{
    jw_obj(w);
    jw_kv_str(w, "code", rpc_code_name(c));
    jw_kv_str(w, "message", msg);
    jw_end(w);
}

static void unary_error(struct http_stream *s, enum rpc_code c, const char *msg)
{
    struct jw *w = reply_begin(s);
    put_error(w, c, msg);
    reply_send(s, rpc_code_http(c));
}

static void end_payload(struct buf *out, enum rpc_code c, const char *msg /* NULL: no error */)
{
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    if (msg) {
        jw_key(&w, "error");
        put_error(&w, c, msg);
    }
    jw_end(&w);
    rpc_envelope(out, ENVELOPE_END, b.p, b.n);
}

void rpc_refuse(const struct rpc_in *in, enum rpc_code c, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    if (!in->stream) {
        unary_error(in->s, c, msg);
        return;
    }
    struct buf b = {0};
    end_payload(&b, c, msg);
    http_reply_buf(in->s, 200, "application/connect+json", &b);
    buf_free(&b); /* empty unless the stream was already over */
}

/* ---- unary ---- */
static void call_init(struct rpc_call *c, const struct rpc_in *in)
{
    memcpy(c->id, in->sb->id, sizeof c->id);
    (void)snprintf(c->user, sizeof c->user, "%s", in->user ? in->user : "");
}

void *rpc_call_new(const struct rpc_in *in, size_t size, void (*fini)(void *))
{
    struct rpc_call *c = req_new(in->api, in->s, size, fini);
    call_init(c, in);
    return c;
}

void rpc_reply(struct rpc_call *c, struct buf *json) { req_json(&c->r, 200, json); }

void rpc_reply_empty(struct rpc_call *c)
{
    http_reply(c->r.s, 200, "application/json", "{}", 2);
    req_end(&c->r);
}

void rpc_fail(struct rpc_call *c, enum rpc_code code, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    unary_error(c->r.s, code, msg);
    req_end(&c->r);
}

void rpc_fail_err(struct rpc_call *c, const struct err *e)
{
    if (!envd_alive(c->r.api, c->id)) {
        envd_gone(c->r.s, c->id);
        req_end(&c->r);
    } else if (envd_no_user(e)) {
        rpc_fail(c, RPC_UNAUTHENTICATED, "invalid username: '%s'", c->user);
    } else {
        rpc_fail(c, rpc_code_of(e), "%s", e->msg);
    }
}

void rpc_settle(struct rpc_call *c, int failed, const struct err *e)
{
    if (failed) {
        (void)req_back(&c->r); /* the callback will not fire */
        rpc_fail_err(c, e);
    }
}

/* ---- streams ---- */
static void write_envelope(struct rpc_stream *st, unsigned char flags)
{
    auto_buf b = {0};
    if (!st->begun) {
        st->begun = true;
        (void)http_header(st->c.r.s, "Cache-Control", "no-store");
        (void)http_header(st->c.r.s, "X-Accel-Buffering", "no");
        (void)http_reply_start(
            st->c.r.s, 200,
            "application/connect+json"); /* fails only when the client left; the cancel is under way */
    }
    rpc_envelope(&b, flags, st->out.p, st->out.n);
    (void)http_write(st->c.r.s, b.p, b.n); /* as above */
    if (st->out.cap > 64 * 1024)
        buf_free(&st->out);
}

static void on_quiet(void *arg)
{
    struct rpc_stream *st = arg;
    timer_arm(&st->quiet, st->quiet_ns);
    if (http_writable(st->c.r.s)) { /* a peer that does not read needs no more to read */
        st->keepalive(rpc_msg(st));
        rpc_send(st);
    }
}

static void on_deadline(void *arg)
{
    struct rpc_stream *st = arg;
    st->expired(st);
}

void *rpc_stream_new(const struct rpc_in *in, size_t size, void (*fini)(void *))
{
    struct rpc_stream *st = req_new(in->api, in->s, size, fini);
    call_init(&st->c, in);
    timer_init(&st->quiet, http_loop(in->s), on_quiet, st);
    timer_init(&st->deadline, http_loop(in->s), on_deadline, st);
    st->quiet_ns = (int64_t)(in->keepalive_s ? in->keepalive_s : KEEPALIVE_S) * NS_PER_S;
    return st;
}

void rpc_stream_fini(struct rpc_stream *st)
{
    timer_stop(&st->quiet);
    timer_stop(&st->deadline);
    buf_free(&st->out);
}

void rpc_deadline(struct rpc_stream *st, uint64_t ms, void (*expired)(void *))
{
    st->expired = expired;
    if (ms)
        timer_arm(&st->deadline, (int64_t)ms * NS_PER_MS);
}

struct jw *rpc_msg(struct rpc_stream *st)
{
    st->out.n = 0;
    jw_init(&st->w, &st->out);
    jw_obj(&st->w);
    return &st->w;
}

void rpc_send(struct rpc_stream *st)
{
    jw_end(&st->w);
    write_envelope(st, 0);
    timer_arm(&st->quiet, st->quiet_ns);
}

static void finish(struct rpc_stream *st, enum rpc_code c, const char *msg)
{
    auto_buf b = {0};
    if (!st->begun)
        (void)http_reply_start(st->c.r.s, 200,
                               "application/connect+json"); /* fails only when the client left */
    st->begun = true;
    end_payload(&b, c, msg);
    (void)http_write(st->c.r.s, b.p, b.n); /* as above */
    http_end(st->c.r.s);
    req_end(&st->c.r);
}

void rpc_finish(struct rpc_stream *st) { finish(st, RPC_INTERNAL, NULL); }

void rpc_finish_error(struct rpc_stream *st, enum rpc_code code, const char *fmt, ...)
{
    char msg[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    finish(st, code, msg);
}

void rpc_cut(struct rpc_stream *st)
{
    http_abort(st->c.r.s);
    req_end(&st->c.r);
}

void rpc_finish_err(struct rpc_stream *st, const struct err *e)
{
    if (!envd_alive(st->c.r.api, st->c.id))
        rpc_cut(st);
    else if (envd_no_user(e))
        rpc_finish_error(st, RPC_UNAUTHENTICATED, "invalid username: '%s'", st->c.user);
    else
        rpc_finish_error(st, rpc_code_of(e), "%s", e->msg);
}

/* ---- requests ---- */
static const struct method {
    const char *path;
    rpc_method *fn;
    bool stream;
} methods[] = {
    {"/process.Process/Start", rpc_process_start, true},
    {"/process.Process/Connect", rpc_process_connect, true},
    {"/process.Process/List", rpc_process_list, false},
    {"/process.Process/SendInput", rpc_process_input, false},
    {"/process.Process/CloseStdin", rpc_process_close_stdin, false},
    {"/process.Process/SendSignal", rpc_process_signal, false},
    {"/process.Process/Update", rpc_process_update, false},
    {"/process.Process/StreamInput", rpc_process_pour, true},
    {"/filesystem.Filesystem/Stat", rpc_fs_stat, false},
    {"/filesystem.Filesystem/MakeDir", rpc_fs_make_dir, false},
    {"/filesystem.Filesystem/Move", rpc_fs_move, false},
    {"/filesystem.Filesystem/ListDir", rpc_fs_list_dir, false},
    {"/filesystem.Filesystem/Remove", rpc_fs_remove, false},
    {"/filesystem.Filesystem/WatchDir", rpc_fs_watch_dir, true},
    {"/filesystem.Filesystem/CreateWatcher", rpc_fs_create_watcher, false},
    {"/filesystem.Filesystem/GetWatcherEvents", rpc_fs_get_watcher_events, false},
    {"/filesystem.Filesystem/RemoveWatcher", rpc_fs_remove_watcher, false},
};

static const struct method *method_of(struct http_stream *s)
{
    struct str path = http_path(s);
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (str_eqz(path, methods[i].path))
            return &methods[i];
    return NULL;
}

static uint64_t number_header(struct http_stream *s, const char *name, uint64_t max)
{
    uint64_t v;
    struct str t = http_req_header(s, name);
    return t.p && str_u64(t, &v) ? (v < max ? v : max) : 0;
}

struct reading {
    struct req r;
    char id[22];
};

static void on_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct reading *rd = arg;
    struct api *a = rd->r.api;
    const struct method *m = method_of(s);
    struct err e = {0};
    char user[65], id[22];
    struct str msg = {p, n}, auth = http_req_header(s, "Authorization");
    memcpy(id, rd->id, sizeof id);
    req_end(&rd->r); /* the method has its own state, and its own cancel */
    struct rpc_in in = {.api = a, .s = s, .stream = m->stream};
    in.sb = sandbox_find(api_core(a), id, NULL);
    if (!in.sb || in.sb->state != SB_RUNNING) {
        envd_gone(s, id);
        return;
    }
    if (auth.p && str_ieqz((struct str){auth.p, auth.n < 6 ? auth.n : 6}, "Basic ")) {
        if (!rpc_basic_user(auth, user)) {
            rpc_refuse(&in, RPC_UNAUTHENTICATED, "the Authorization header is not usable");
            return;
        }
        in.user = *user ? user : NULL;
    }
    in.timeout_ms = number_header(s, "Connect-Timeout-Ms", TIMEOUT_MAX_MS);
    in.keepalive_s = number_header(s, "Keepalive-Ping-Interval", 3600);
    if (m->stream && rpc_open_envelope(p, n, &msg, &e)) {
        rpc_refuse(&in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return;
    }
    auto_json j = msg.n ? json_parse_obj(msg.p, msg.n, &e) : json_parse_obj("{}", 2, &e);
    if (!j) {
        rpc_refuse(&in, RPC_INVALID_ARGUMENT, "the message is not valid JSON: %s", e.msg);
        return;
    }
    in.msg = j;
    m->fn(&in);
}

static bool type_is(struct http_stream *s, const char *want)
{
    struct str t = http_req_header(s, "Content-Type");
    const char *semi = t.n ? memchr(t.p, ';', t.n) : NULL;
    return str_ieqz(str_trim((struct str){t.p, semi ? (size_t)(semi - t.p) : t.n}), want);
}

bool e2b_rpc(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    struct str path = http_path(s);
    const struct method *m = method_of(s);
    if (!str_starts(path, "/process.Process/") && !str_starts(path, "/filesystem.Filesystem/"))
        return false;
    if (!m) {
        unary_error(s, RPC_UNIMPLEMENTED, "no such method");
        return true;
    }
    const char *want = m->stream ? "application/connect+json" : "application/json";
    if (!http_is(s, "POST")) {
        (void)http_header(s, "Allow", "POST");
        http_reply(s, 405, NULL, NULL, 0);
        return true;
    }
    if (!type_is(s, want)) {
        (void)http_header(s, "Accept-Post", want);
        http_reply(s, 415, NULL, NULL, 0);
        return true;
    }
    if (m->fn == rpc_process_pour) { /* reads its body as it comes */
        m->fn(
            &(struct rpc_in){.api = a,
                             .s = s,
                             .sb = sb,
                             .stream = true,
                             .timeout_ms = number_header(s, "Connect-Timeout-Ms", TIMEOUT_MAX_MS)});
        return true;
    }
    struct reading *rd = req_new(a, s, sizeof *rd, NULL);
    memcpy(rd->id, sb->id, sizeof rd->id);
    req_watch(&rd->r);
    http_body_collect(s, BODY_MAX, on_body, rd);
    return true;
}
