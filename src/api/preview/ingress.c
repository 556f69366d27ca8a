/* HTTP and WebSocket to a port of the guest. A request is parsed on our side and
 * written anew for the guest, its answer parsed and written anew for the client:
 * nothing that one side could read differently passes. One guest connection per
 * request. Back-pressure both ways; a client that leaves takes the guest's
 * connection with it, a sandbox that ends cuts the client's. */
#include "api/preview/preview.h"
#include "api/req.h"
#include "base/clock.h"
#include "core/sandbox/tunnel.h"
#include "http/body.h"
#include <stdio.h>

#define RETRY_NS   (100 * NS_PER_MS)
#define GIVE_UP_NS (1 * NS_PER_S)
#define OUT_MAX    (256u << 10) /* request bytes waiting for the guest before the client is held */

struct ingress {
    struct req r;
    char id[22];
    unsigned port;
    int64_t begun;
    struct timer retry;
    struct tunnel *t;
    struct buf out; /* to the guest */
    size_t out_at;
    bool up, body_done, chunked, eof_sent, held, upgrade;
    struct http_parser head;
    bool head_init, head_done, raw /* after 101 */, client_eof;
    struct http_body body;
    size_t owed; /* bytes the guest may not replace yet */
};

static void fini(void *arg)
{
    struct ingress *g = arg;
    timer_stop(&g->retry);
    if (g->t)
        tunnel_close(g->t);
    g->t = NULL;
    buf_free(&g->out);
    if (g->head_init)
        http_parser_fini(&g->head);
}

/* ---- failures ---- */
static void fail_page(struct ingress *g, const char *message, unsigned port)
{
    if (http_started(g->r.s))
        http_abort(g->r.s);
    else
        preview_refuse(g->r.s, 502, g->id, port, message);
    req_end(&g->r);
}
static void fail_closed(struct ingress *g)
{
    fail_page(g, "The sandbox is running but port is not open", g->port);
}
static void fail_gone(struct ingress *g) { fail_page(g, "The sandbox was not found", 0); }
static void fail_broken(struct ingress *g)
{
    fail_page(g, "The service inside the sandbox gave no proper answer", g->port);
}

/* ---- towards the guest ---- */
static bool is_hop(struct str name, const struct http_head *h)
{
    static const char *const hop[] = {"connection",
                                      "keep-alive",
                                      "proxy-connection",
                                      "proxy-authenticate",
                                      "proxy-authorization",
                                      "te",
                                      "trailer",
                                      "transfer-encoding",
                                      "upgrade",
                                      "content-length",
                                      "expect"};
    char low[64];
    for (size_t i = 0; i < sizeof hop / sizeof *hop; i++)
        if (str_ieqz(name, hop[i]))
            return true;
    if (name.n >= sizeof low)
        return false;
    (void)snprintf(low, sizeof low, "%.*s", (int)name.n, name.p);
    return http_head_has_token(h, "Connection", low); /* named as meant for one hop only */
}

static void flush(struct ingress *g)
{
    while (g->t && g->up && g->out_at < g->out.n && tunnel_room(g->t))
        g->out_at += tunnel_send(g->t, g->out.p + g->out_at, g->out.n - g->out_at);
    if (g->out_at == g->out.n) {
        g->out.n = g->out_at = 0;
        if (g->t && g->up && g->raw && g->client_eof && !g->eof_sent) {
            g->eof_sent = true;
            tunnel_eof(g->t);
        }
    }
    if (g->held && g->out.n - g->out_at < OUT_MAX / 2) {
        g->held = false;
        http_body_resume(g->r.s);
    }
}

static void push(struct ingress *g, const char *p, size_t n)
{
    if (g->out_at > OUT_MAX) {
        buf_drop(&g->out, g->out_at);
        g->out_at = 0;
    }
    buf_put(&g->out, p, n);
    if (!g->held && g->out.n - g->out_at > OUT_MAX) {
        g->held = true;
        http_body_pause(g->r.s);
    }
    flush(g);
}

static void on_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct ingress *g = arg;
    char head[HTTP_CHUNK_HEAD_MAX];
    (void)s;
    if (g->r.over || !n)
        return;
    if (g->chunked)
        buf_put(&g->out, head, http_chunk_head(head, n));
    push(g, p, n);
    if (g->chunked && !g->r.over)
        push(g, "\r\n", 2);
}

static void on_body_end(struct http_stream *s, void *arg)
{
    struct ingress *g = arg;
    (void)s;
    if (g->r.over)
        return;
    if (g->chunked)
        push(g, "0\r\n\r\n", 5);
    g->body_done = true;
}

static void put_host(struct ingress *g, const struct http_head *h, const char *mask)
{
    if (!mask) {
        buf_printf(&g->out, "Host: %.*s\r\n", (int)h->host.n, h->host.p);
        return;
    }
    buf_puts(&g->out, "Host: ");
    for (const char *p = mask; *p;) {
        if (!strncmp(p, "${PORT}", 7)) {
            buf_printf(&g->out, "%u", g->port);
            p += 7;
        } else {
            buf_putc(&g->out, *p++);
        }
    }
    buf_printf(&g->out, "\r\nX-Forwarded-Host: %.*s\r\n", (int)h->host.n, h->host.p);
}

static void put_request(struct ingress *g, const char *mask)
{
    const struct http_head *h = http_head(g->r.s);
    uint64_t len = http_body_length(g->r.s);
    struct str up = http_req_header(g->r.s, "Upgrade");
    buf_printf(&g->out, "%.*s %.*s", (int)h->method.n, h->method.p, (int)h->path.n, h->path.p);
    if (h->query.p)
        buf_printf(&g->out, "?%.*s", (int)h->query.n, h->query.p);
    buf_puts(&g->out, " HTTP/1.1\r\n");
    put_host(g, h, mask);
    bool secure = *core_config(api_core(g->r.api))->tls_cert && !http_is_unix(g->r.s);
    if (secure) /* for links and cookies that the server inside makes */
        buf_puts(&g->out, "X-Forwarded-Proto: https\r\n");
    for (uint32_t i = 0; i < h->nfields; i++) {
        const struct http_field *f = &h->fields[i];
        if (str_ieqz(f->name, "Host") || is_hop(f->name, h) || preview_keeps(g->r.api, f) ||
            (mask && str_ieqz(f->name, "X-Forwarded-Host")) ||
            (secure && str_ieqz(f->name, "X-Forwarded-Proto")))
            continue;
        buf_printf(&g->out, "%.*s: %.*s\r\n", (int)f->name.n, f->name.p, (int)f->value.n,
                   f->value.p);
    }
    g->upgrade = h->upgrade && up.p && !http_has_body(g->r.s);
    if (g->upgrade) {
        buf_printf(&g->out, "Connection: Upgrade\r\nUpgrade: %.*s\r\n", (int)up.n, up.p);
    } else {
        g->chunked = http_has_body(g->r.s) && len == UINT64_MAX;
        if (g->chunked)
            buf_puts(&g->out, "Transfer-Encoding: chunked\r\n");
        else if (http_has_body(g->r.s) || http_head_get(h, "Content-Length").p)
            buf_printf(&g->out, "Content-Length: %llu\r\n", (unsigned long long)len);
        buf_puts(&g->out, "Connection: close\r\n");
    }
    buf_puts(&g->out, "\r\n");
}

/* ---- towards the client ---- */
static void settle(struct ingress *g, size_t n)
{
    if (!g->t)
        return;
    if (http_writable(g->r.s))
        tunnel_consumed(g->t, n);
    else
        g->owed += n;
}

static void on_drain(struct http_stream *s, void *arg)
{
    struct ingress *g = arg;
    size_t n = g->owed;
    (void)s;
    g->owed = 0;
    if (g->t && n)
        tunnel_consumed(g->t, n);
}

static void on_raw(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct ingress *g = arg;
    (void)s;
    if (!g->r.over)
        push(g, p, n);
}
static void on_raw_eof(struct http_stream *s, void *arg)
{
    struct ingress *g = arg;
    (void)s;
    if (g->r.over)
        return;
    g->client_eof = true;
    flush(g);
}

static void finish(struct ingress *g)
{
    http_end(g->r.s);
    req_end(&g->r);
}

static bool no_body(struct ingress *g)
{
    return http_is(g->r.s, "HEAD") || g->head.head.status == 204 || g->head.head.status == 304;
}

void preview_cookie_own(struct str v, struct buf *out)
{
    for (bool first = true; v.n; first = false) {
        const char *semi = memchr(v.p, ';', v.n);
        struct str part = {v.p, semi ? (size_t)(semi - v.p) : v.n}, name = part;
        v.p += part.n + (semi != NULL), v.n -= part.n + (semi != NULL);
        while (name.n && (*name.p == ' ' || *name.p == '\t'))
            name.p++, name.n--;
        const char *eq = name.n ? memchr(name.p, '=', name.n) : NULL;
        name.n = eq ? (size_t)(eq - name.p) : name.n;
        while (name.n && (name.p[name.n - 1] == ' ' || name.p[name.n - 1] == '\t'))
            name.n--;
        if (!first && str_ieqz(name, "Domain"))
            continue;
        if (!first)
            buf_putc(out, ';');
        buf_put(out, part.p, part.n);
    }
    buf_put(out, "", 0);
}

/* The guest's head is complete: 0, or -1 after which g is over. */
static int answer(struct ingress *g)
{
    const struct http_head *h = &g->head.head;
    struct http_stream *s = g->r.s;
    auto_buf type = {0}, name = {0}, value = {0};
    for (uint32_t i = 0; i < h->nfields; i++) {
        const struct http_field *f = &h->fields[i];
        if (str_ieqz(f->name, "Content-Type")) {
            type.n = 0;
            buf_put(&type, f->value.p, f->value.n);
            buf_put(&type, "", 0);
            continue;
        }
        if (is_hop(f->name, h) || str_ieqz(f->name, "Date") || str_ieqz(f->name, "Server"))
            continue;
        name.n = value.n = 0;
        buf_put(&name, f->name.p, f->name.n);
        if (str_ieqz(f->name, "Set-Cookie"))
            preview_cookie_own(f->value, &value);
        else
            buf_put(&value, f->value.p, f->value.n);
        (void)http_header(s, name.p,
                          value.p ? value.p : ""); /* refused: one of those our side writes */
    }
    if (h->status == 101) {
        struct str up = http_head_get(h, "Upgrade");
        if (!g->upgrade || !up.p) {
            fail_broken(g);
            return -1;
        }
        value.n = 0;
        buf_put(&value, up.p, up.n);
        (void)http_header(s, "Upgrade", value.p);
        g->raw = true;
        if (http_tunnel(s, 101, on_raw, on_raw_eof, g)) {
            fail_broken(g);
            return -1;
        }
        return 0;
    }
    if (no_body(g)) {
        struct str len = http_head_get(h, "Content-Length");
        uint64_t n = 0;
        if (http_is(s, "HEAD") && !str_u64(len, &n))
            (void)http_reply_start(s, h->status,
                                   type.n ? type.p : NULL); /* fails only when the client left */
        else
            (void)http_reply_start_len(s, h->status, type.n ? type.p : NULL, n);
        finish(g);
        return -1;
    }
    http_body_init(&g->body, h->framing, h->length);
    if (h->framing == HTTP_BODY_LENGTH || h->framing == HTTP_BODY_NONE)
        (void)http_reply_start_len(s, h->status, type.n ? type.p : NULL,
                                   h->framing == HTTP_BODY_LENGTH ? h->length : 0);
    else
        (void)http_reply_start(s, h->status, type.n ? type.p : NULL);
    if (h->framing == HTTP_BODY_NONE || (h->framing == HTTP_BODY_LENGTH && !h->length)) {
        finish(g);
        return -1;
    }
    return 0;
}

/* false: over */
static bool take_body(struct ingress *g, const char *p, size_t n)
{
    while (n) {
        size_t used = 0;
        struct str data = {0};
        enum http_body_state st = http_body_push(&g->body, p, n, &used, &data);
        if (data.n && st == HTTP_BODY_DATA)
            (void)http_write(g->r.s, data.p, data.n); /* fails only when the client left */
        p += used, n -= used;
        if (st == HTTP_BODY_DONE || g->body.done) {
            finish(g);
            return false;
        }
        if (st == HTTP_BODY_ERROR) {
            fail_broken(g);
            return false;
        }
        if (st == HTTP_BODY_MORE && !used)
            break;
    }
    return true;
}

static bool take(struct ingress *g, const char *p, size_t n)
{
    while (n && !g->head_done) {
        size_t used = 0;
        enum http_parse st = http_parse_push(&g->head, p, n, &used);
        p += used, n -= used;
        if (st == HTTP_PARSE_ERROR) {
            fail_broken(g);
            return false;
        }
        if (st == HTTP_PARSE_MORE)
            return true;
        if (g->head.head.status < 200 && g->head.head.status != 101) {
            http_parser_reset(&g->head); /* 100, 103: not passed on */
            continue;
        }
        g->head_done = true;
        if (answer(g))
            return false;
    }
    if (!n)
        return true;
    if (g->raw) {
        (void)http_write(g->r.s, p, n); /* fails only when the client left */
        return true;
    }
    return take_body(g, p, n);
}

/* ---- the tunnel ---- */
static void dial(struct ingress *g);

static void on_up(void *arg)
{
    struct ingress *g = arg;
    const struct sandbox *sb = sandbox_find(api_core(g->r.api), g->id, NULL);
    g->up = true;
    if (!sb) {
        fail_gone(g);
        return;
    }
    put_request(g, sb->kept.preview_mask_host);
    http_parser_init(&g->head, HTTP_RESPONSE, http_is(g->r.s, "HEAD") ? HTTP_NO_BODY : 0);
    g->head_init = true;
    flush(g);
    if (!g->upgrade && http_has_body(g->r.s))
        http_body_stream(g->r.s, on_body, on_body_end, g);
    else
        g->body_done = true;
}

static void on_data(void *arg, const unsigned char *p, size_t n)
{
    struct ingress *g = arg;
    if (take(g, (const char *)p, n))
        settle(g, n);
}

static void on_eof(void *arg)
{
    struct ingress *g = arg;
    if (g->raw) {
        http_end(g->r.s); /* half-closed; the other half ends with the client or with done */
        return;
    }
    if (g->head_done && http_body_eof(&g->body))
        finish(g);
    else
        fail_broken(g);
}

static void on_room(void *arg) { flush(arg); }

static void on_done(void *arg, const struct err *e)
{
    struct ingress *g = arg;
    g->t = NULL;
    if (e && !g->up && (e->code == E_UNAVAILABLE || e->code == E_NOT_FOUND)) {
        if (clock_mono() - g->begun < GIVE_UP_NS)
            timer_arm(&g->retry, RETRY_NS); /* servers are still starting */
        else
            fail_closed(g);
        return;
    }
    if (!e && g->raw) {
        finish(g);
        return;
    }
    if (e && (e->code == E_GONE || e->code == E_CANCELED))
        fail_gone(g);
    else if (g->head_done && !g->raw && http_body_eof(&g->body))
        finish(g);
    else
        fail_broken(g);
}

static void dial(struct ingress *g)
{
    static const struct tunnel_ops ops = {
        .up = on_up, .data = on_data, .eof = on_eof, .room = on_room, .done = on_done};
    struct err e;
    struct sandbox *sb = sandbox_find(api_core(g->r.api), g->id, NULL);
    g->t = sb ? tunnel_open(sb, g->port, &ops, g, &e) : NULL;
    if (!g->t)
        fail_gone(g);
}
static void on_retry(void *arg) { dial(arg); }

void preview_ingress(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port)
{
    if (!preview_reachable(s, sb))
        return;
    struct ingress *g = req_new(a, s, sizeof *g, fini);
    memcpy(g->id, sb->id, sizeof g->id);
    g->port = port;
    timer_init(&g->retry, core_loop(api_core(a)), on_retry, g);
    req_watch(&g->r);
    http_on_drain(s, on_drain, g);
    g->begun = clock_mono();
    dial(g);
}
