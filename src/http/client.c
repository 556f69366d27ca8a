/* Blocking exchanges by poll(2) and MSG_DONTWAIT, so that one rule about
 * silence covers sending and receiving. */
#include "http/client.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
#include "http/body.h"
#include "http/ws.h"
#include "loop/sock.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct http_client {
    struct transport *t;
    int64_t timeout_ns;
    char *host;              /* for the Host field */
    struct buf in;           /* received, not yet understood, from in_off on */
    size_t in_off;
    bool eof, head_done, ws;
    struct http_parser parser;
    struct http_body body;
    struct ws_dec dec;
};

static int wait_io(struct http_client *c, short what, struct err *e)
{
    struct pollfd p = {c->t->fd, what, 0};
    for (;;) {
        int r = poll(&p, 1, c->timeout_ns ? (int)(c->timeout_ns / NS_PER_MS) : -1);
        if (r > 0)
            return 0;
        if (!r)
            return err_set(e, E_TIMEOUT, "no answer from %s", c->host);
        if (errno != EINTR)
            return err_sys(e, errno, "poll");
    }
}

static int connect_name(const char *host, const char *port, struct err *e)
{
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM}, *list, *a;
    int r = getaddrinfo(host, port, &hint, &list), fd = -1, sys = 0;
    if (r)
        return err_set(e, E_UNAVAILABLE, "cannot resolve %.100s: %s", host, gai_strerror(r));
    for (a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) {
            sys = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return err_sys(e, sys ? sys : EHOSTUNREACH, "connect to %.100s:%s", host, port);
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* only latency is at stake */
    return fd;
}

/* The name alone, for whoever verifies it, is *ret_name. */
static int open_tcp(const char *addr, const char *def_port, char **ret_host, char **ret_name,
                    struct err *e)
{
    size_t n = strcspn(addr, "/"); /* "host:port/" is what people paste */
    char *hp = xstrndup(addr, n), *port = NULL;
    char *colon = strrchr(hp, ':'), *host = hp;
    if (colon && !strchr(colon, ']')) {
        *colon = 0;
        port = colon + 1;
    }
    size_t hn = strlen(host);
    bool v6 = hn > 2 && host[0] == '[' && host[hn - 1] == ']';
    if (v6) {
        host[hn - 1] = 0;
        host++;
    }
    const char *name = *host ? host : "127.0.0.1";
    int fd = connect_name(name, port ? port : def_port, e);
    if (fd >= 0)
        *ret_host = xstrndup(addr, n), *ret_name = xstrdup(name);
    free(hp);
    return fd;
}

static struct transport *open_plain(const char *addr, char **ret_host, struct err *e)
{
    char *name = NULL;
    int fd = addr[0] == '/' ? sock_connect_unix(addr, e)
                            : open_tcp(strncmp(addr, "http://", 7) ? addr : addr + 7, "80",
                                       ret_host, &name, e);
    free(name);
    if (addr[0] == '/')
        *ret_host = xstrdup("localhost");
    return fd < 0 ? NULL : transport_plain(fd);
}
static struct transport *open_secure(const char *addr, const struct http_secure *secure,
                                     char **ret_host, struct err *e)
{
    char *name = NULL;
    if (!secure) {
        (void)err_set(e, E_UNSUPPORTED, "https://%.100s: this client speaks plain HTTP", addr);
        return NULL;
    }
    int fd = open_tcp(addr, "443", ret_host, &name, e);
    struct transport *t = fd < 0 ? NULL : secure->wrap(secure->arg, fd, name, e);
    free(name);
    return t;
}

struct http_client *http_client_open(const char *addr, const struct http_secure *secure,
                                     struct err *e)
{
    char *host = NULL;
    if (!strncmp(addr, "unix:", 5))
        addr += 5;
    struct transport *t = strncmp(addr, "https://", 8) ? open_plain(addr, &host, e) : open_secure(addr + 8, secure, &host, e);
    if (!t) {
        free(host);
        return NULL;
    }
    struct http_client *c = xcalloc(1, sizeof *c);
    c->t = t;
    c->host = host;
    http_parser_init(&c->parser, HTTP_RESPONSE, 0);
    return c;
}

void http_client_close(struct http_client *c)
{
    if (!c)
        return;
    transport_close(c->t);
    free(c->host);
    buf_free(&c->in);
    http_parser_fini(&c->parser);
    if (c->ws)
        ws_dec_fini(&c->dec);
    free(c);
}
void http_client_timeout(struct http_client *c, int64_t ns) { c->timeout_ns = ns; }
int http_client_fd(const struct http_client *c) { return c->t->fd; }
bool http_client_pending(const struct http_client *c) { return c->in.n > c->in_off; }

/* More bytes into c->in: 1, 0 at the end, 2 none yet, -1. */
static int fill(struct http_client *c, bool block, struct err *e)
{
    if (c->in_off == c->in.n)
        c->in_off = c->in.n = 0;
    else if (c->in_off > 65536)
        buf_drop(&c->in, c->in_off), c->in_off = 0;
    for (;;) {
        buf_reserve(&c->in, TRANSPORT_READ);
        ssize_t r = transport_recv(c->t, c->in.p + c->in.n, TRANSPORT_READ);
        if (r > 0) {
            c->in.n += (size_t)r;
            return 1;
        }
        if (!r) {
            c->eof = true;
            return 0;
        }
        if (errno != EAGAIN)
            return err_sys(e, errno, "receive from %s", c->host);
        if (!block)
            return 2;
        if (wait_io(c, POLLIN, e))
            return -1;
    }
}
bool http_client_arrived(struct http_client *c)
{
    return c->eof || http_client_pending(c) || fill(c, false, NULL) != 2;
}

/* early: may the server answer before it has taken everything (a refused upload)? Then 1 says that it did, or that it
 * hung up, and the answer tells why. */
static int put_some(struct http_client *c, const void *p, size_t n, bool early, struct err *e)
{
    while (n) {
        ssize_t w = transport_send(c->t, p, n);
        if (w > 0) {
            p = (const char *)p + w, n -= (size_t)w;
        } else if (w < 0 && errno == EAGAIN) {
            struct pollfd now = {c->t->fd, POLLIN, 0};
            if (wait_io(c, (short)(POLLOUT | (early ? POLLIN : 0)), e))
                return -1;
            if (early && poll(&now, 1, 0) == 1 && (now.revents & POLLIN) && http_client_arrived(c))
                return 1;
        } else if (w < 0 && early && (errno == EPIPE || errno == ECONNRESET)) {
            return 1;
        } else if (w < 0) {
            return err_sys(e, errno, "send to %s", c->host);
        }
    }
    return 0;
}
static int put(struct http_client *c, const void *p, size_t n, struct err *e)
{
    return put_some(c, p, n, false, e);
}

static int start(struct http_client *c, const char *method, const char *target, const char *const *headers, const char *framing,
                 struct buf *b, struct err *e)
{
    if (!http_token_ok(str_of(method)) || !*target || strpbrk(target, " \r\n\t"))
        return err_set(e, E_INVALID, "malformed request %.40s %.100s", method, target);
    http_parser_reset(&c->parser);
    c->parser.flags = !strcmp(method, "HEAD") ? HTTP_NO_BODY : 0;
    c->head_done = false;
    buf_printf(b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, c->host);
    for (; headers && *headers; headers++) {
        if (!http_value_ok(str_of(*headers)) || !strchr(*headers, ':'))
            return err_set(e, E_INVALID, "malformed header %.60s", *headers);
        buf_printf(b, "%s\r\n", *headers);
    }
    buf_printf(b, "%s\r\n", framing);
    return 0;
}

int http_client_send(struct http_client *c, const char *method, const char *target, const char *const *headers, const void *body,
                     size_t n, struct err *e)
{
    auto_buf b = {0};
    char framing[48] = "";
    if (n || !strcmp(method, "POST") || !strcmp(method, "PUT") || !strcmp(method, "PATCH"))
        snprintf(framing, sizeof framing, "Content-Length: %zu\r\n", n);
    if (start(c, method, target, headers, framing, &b, e))
        return -1;
    if (n < 65536) { /* one packet where it fits */
        buf_put(&b, body, n);
        n = 0;
    }
    return put(c, b.p, b.n, e) || put_some(c, body, n, true, e) < 0 ? -1 : 0;
}

int http_client_send_stream(struct http_client *c, const char *method, const char *target, const char *const *headers,
                            http_client_source *src, void *arg, struct err *e)
{
    auto_buf b = {0};
    if (start(c, method, target, headers, "Transfer-Encoding: chunked\r\n", &b, e) || put(c, b.p, b.n, e))
        return -1;
    for (;;) {
        char head[HTTP_CHUNK_HEAD_MAX];
        b.n = 0;
        buf_reserve(&b, 65536 + HTTP_CHUNK_HEAD_MAX + 2);
        ssize_t r = src(arg, b.p + HTTP_CHUNK_HEAD_MAX, 65536, e);
        if (r < 0)
            return -1;
        if (!r)
            return put(c, "0\r\n\r\n", 5, e);
        size_t nh = http_chunk_head(head, (size_t)r), at = HTTP_CHUNK_HEAD_MAX - nh;
        memcpy(b.p + at, head, nh);
        memcpy(b.p + HTTP_CHUNK_HEAD_MAX + r, "\r\n", 2);
        int w = put_some(c, b.p + at, nh + (size_t)r + 2, true, e);
        if (w)
            return w < 0 ? -1 : 0;
    }
}

static ssize_t fd_source(void *arg, char *p, size_t cap, struct err *e)
{
    ssize_t r;
    do
        r = read(*(int *)arg, p, cap);
    while (r < 0 && errno == EINTR);
    return r < 0 ? err_sys(e, errno, "read the input") : r;
}
int http_client_send_fd(struct http_client *c, const char *method, const char *target, const char *const *headers, int fd,
                        int64_t len, struct err *e)
{
    if (len < 0)
        return http_client_send_stream(c, method, target, headers, fd_source, &fd, e);
    auto_buf b = {0};
    char framing[64];
    snprintf(framing, sizeof framing, "Content-Length: %lld\r\n", (long long)len);
    if (start(c, method, target, headers, framing, &b, e) || put(c, b.p, b.n, e))
        return -1;
    buf_reserve(&b, 65536);
    while (len) {
        ssize_t r = fd_source(&fd, b.p, len < 65536 ? (size_t)len : 65536, e);
        if (r < 0)
            return -1;
        if (!r)
            return err_set(e, E_INVALID, "the input is %lld bytes shorter than announced", (long long)len);
        int w = put_some(c, b.p, (size_t)r, true, e);
        if (w)
            return w < 0 ? -1 : 0;
        len -= r;
    }
    return 0;
}

const struct http_head *http_client_head(struct http_client *c, struct err *e)
{
    while (!c->head_done) {
        size_t used;
        enum http_parse r = http_parse_push(&c->parser, c->in.p ? c->in.p + c->in_off : "", c->in.n - c->in_off, &used);
        c->in_off += used;
        if (r == HTTP_PARSE_ERROR) {
            err_set(e, E_UNAVAILABLE, "%s does not speak HTTP as expected: %s", c->host, c->parser.why);
            return NULL;
        }
        if (r == HTTP_PARSE_DONE) {
            if (c->parser.head.status < 200 && c->parser.head.status != 101) {
                http_parser_reset(&c->parser);
                continue;
            }
            c->head_done = true;
            http_body_init(&c->body, c->parser.head.framing, c->parser.head.length);
            break;
        }
        int f = fill(c, true, e);
        if (f < 0)
            return NULL;
        if (!f) {
            err_set(e, E_UNAVAILABLE, "%s closed the connection without an answer", c->host);
            return NULL;
        }
    }
    return &c->parser.head;
}

ssize_t http_client_read(struct http_client *c, void *p, size_t cap, struct err *e)
{
    if (!http_client_head(c, e))
        return -1;
    for (;;) {
        size_t used, have = c->in.n - c->in_off;
        struct str d;
        /* Never offer more than fits: what is decoded must go to the caller now. */
        enum http_body_state r = http_body_push(&c->body, c->in.p ? c->in.p + c->in_off : "", have < cap ? have : cap, &used, &d);
        c->in_off += used;
        if (r == HTTP_BODY_DATA) {
            memcpy(p, d.p, d.n);
            return (ssize_t)d.n;
        }
        if (r == HTTP_BODY_DONE)
            return 0;
        if (r == HTTP_BODY_ERROR)
            return err_set(e, E_UNAVAILABLE, "broken answer from %s: %s", c->host, c->body.why);
        if (used)
            continue;
        int f = c->eof ? 0 : fill(c, true, e);
        if (f < 0)
            return -1;
        if (!f)
            return http_body_eof(&c->body) ? 0 : err_set(e, E_UNAVAILABLE, "%s closed the connection in the middle of its answer", c->host);
    }
}

int http_client_body(struct http_client *c, size_t max, struct buf *out, struct err *e)
{
    size_t start_n = out->n;
    for (;;) {
        buf_reserve(out, 65536);
        ssize_t r = http_client_read(c, out->p + out->n, 65536, e);
        if (r <= 0) {
            out->p[out->n] = 0;
            return (int)r;
        }
        out->n += (size_t)r;
        if (out->n - start_n > max)
            return err_set(e, E_TOO_LARGE, "the answer is larger than %zu bytes", max);
    }
}

int http_client_call(struct http_client *c, const char *method, const char *target, const char *const *headers, const void *body,
                     size_t n, struct buf *out, struct err *e)
{
    if (http_client_send(c, method, target, headers, body, n, e))
        return -1;
    const struct http_head *h = http_client_head(c, e);
    if (!h || http_client_body(c, 64u << 20, out, e))
        return -1;
    return h->status;
}

/* ---- WebSocket ---- */
int http_client_ws(struct http_client *c, const char *target, const char *const *headers, struct err *e)
{
    unsigned char nonce[16];
    auto_buf key = {0}, b = {0}, framing = {0};
    random_bytes(nonce, sizeof nonce);
    base64_encode(nonce, sizeof nonce, &key);
    buf_printf(&framing, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n", key.p);
    if (start(c, "GET", target, headers, framing.p, &b, e) || put(c, b.p, b.n, e))
        return -1;
    const struct http_head *h = http_client_head(c, e);
    if (!h)
        return -1;
    if (h->status != 101) {
        auto_buf body = {0};
        int status = h->status;
        struct err ignored;
        if (http_client_body(c, 4096, &body, &ignored))
            body.n = 0;
        enum err_code code = status == 401 ? E_UNAUTHENTICATED : status == 403 ? E_DENIED : status == 404 ? E_NOT_FOUND : E_UNAVAILABLE;
        return err_set(e, code, "%s refused the upgrade with %d: %.*s", c->host, status, (int)(body.n < 120 ? body.n : 120), body.n ? body.p : "");
    }
    char want[29];
    ws_accept_key((struct str){key.p, key.n}, want);
    if (!str_eqz(http_head_get(h, "sec-websocket-accept"), want) || !http_head_has_token(h, "upgrade", "websocket") || !h->upgrade)
        return err_set(e, E_UNAVAILABLE, "%s answered the upgrade wrongly", c->host);
    c->ws = true;
    ws_dec_init(&c->dec, false, WS_MESSAGE_MAX);
    return 0;
}

int http_client_ws_recv(struct http_client *c, bool block, int *ret_op, struct str *ret_data, int *ret_code, struct err *e)
{
    for (;;) {
        struct ws_event ev;
        size_t used;
        enum ws_dec_state r = ws_dec_push(&c->dec, c->in.p ? c->in.p + c->in_off : "", c->in.n - c->in_off, &used, &ev);
        c->in_off += used;
        if (r == WS_DEC_ERROR)
            return err_set(e, E_UNAVAILABLE, "broken WebSocket from %s: %s", c->host, c->dec.why);
        if (r == WS_DEC_EVENT) {
            if (ev.op == WS_PONG)
                continue;
            if (ev.op == WS_PING) {
                if (http_client_ws_send(c, WS_PONG, ev.data.p, ev.data.n, e))
                    return -1;
                continue;
            }
            *ret_op = ev.op;
            *ret_data = ev.data;
            if (ret_code)
                *ret_code = ev.code;
            return 1;
        }
        int f = c->eof ? 0 : fill(c, block, e);
        if (f < 0)
            return -1;
        if (f == 2)
            return 0;
        if (!f)
            return err_set(e, E_UNAVAILABLE, "%s closed the connection", c->host);
    }
}
int http_client_ws_send(struct http_client *c, int op, const void *p, size_t n, struct err *e)
{
    auto_buf b = {0};
    ws_frame(&b, (enum ws_op)op, p, n, true);
    return put(c, b.p, b.n, e);
}
