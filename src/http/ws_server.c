/* The server side of WebSocket: a raw tunnel with the frame codec on top.
 * Closing (RFC 6455 7): each side sends one close frame; whoever sent first
 * waits for the other's, at most CLOSE_WAIT. on_close is called exactly once:
 * when the peer's close frame came, or when the connection is gone. */
#include "base/clock.h"
#include "base/enc.h"
#include "http/conn.h"
#include "http/ws.h"
#include <stdlib.h>
#include <string.h>

#define CLOSE_WAIT (5 * NS_PER_S)

struct ws {
    struct http_stream *s;
    struct ws_dec dec;
    ws_on_msg *on_msg;
    ws_on_close *on_close;
    void *arg;
    bool close_sent, told;
    int unanswered;     /* pings */
    int64_t every_ns;   /* 0: no keepalive */
    struct timer timer; /* keepalive; after close_sent: patience */
};

static void tell(struct ws *w, int code, struct str reason)
{
    if (w->told)
        return;
    w->told = true;
    w->on_close(w->s, w->arg, code, reason);
}

static void bury(void *arg)
{
    struct ws *w = arg;
    ws_dec_fini(&w->dec);
    free(w);
}
static void gone(struct http_stream *s)
{
    struct ws *w = s->gone_data;
    timer_stop(&w->timer);
    tell(w, WS_ABNORMAL, (struct str){0});
    s->gone_data = NULL;
    s->gone_fn = NULL;
    loop_defer(s->loop, bury, w); /* the decoder may be above us on the stack */
}

static int send_frame(struct ws *w, enum ws_op op, const void *p, size_t n)
{
    if (w->close_sent)
        return -1;
    auto_buf b = {0};
    ws_frame(&b, op, p, n, false);
    return http_write(w->s, b.p, b.n);
}
static void send_close(struct ws *w, int code, const char *reason)
{
    char p[125];
    size_t n = strlen(reason);
    if (w->close_sent)
        return;
    if (n > sizeof p - 2)
        n = 0; /* cutting could split a character */
    p[0] = (char)(code >> 8), p[1] = (char)code;
    memcpy(p + 2, reason, n);
    (void)send_frame(w, WS_CLOSE, p, code == WS_NO_STATUS ? 0 : n + 2); /* if it is gone, gone() follows */
    w->close_sent = true;
}

static void end(struct ws *w)
{
    timer_stop(&w->timer);
    w->s->hang_up = true;
    http_end(w->s);
}

static void on_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct ws *w = arg;
    struct ws_event ev;
    size_t used;
    while (s->gone_data == w && s->reply != REPLY_DONE) {
        enum ws_dec_state r = ws_dec_push(&w->dec, p, n, &used, &ev);
        p += used, n -= used;
        if (r == WS_DEC_MORE)
            return;
        if (r == WS_DEC_ERROR) {
            send_close(w, w->dec.close_code, w->dec.why);
            tell(w, w->dec.close_code, str_of(w->dec.why));
            end(w);
            return;
        }
        switch (ev.op) {
        case WS_TEXT:
        case WS_BINARY:
            if (!w->close_sent)
                w->on_msg(s, w->arg, ev.op == WS_TEXT, ev.data.p, ev.data.n);
            break;
        case WS_PING:
            if (http_pending(s) < OUT_HIGH) /* a peer that pings but never reads is not answered */
                (void)send_frame(w, WS_PONG, ev.data.p, ev.data.n);
            break;
        case WS_PONG:
            w->unanswered = 0;
            break;
        default: /* WS_CLOSE */
            send_close(w, ev.code, "");
            tell(w, ev.code, ev.data);
            end(w);
        }
    }
}
static void on_eof(struct http_stream *s, void *arg)
{
    struct ws *w = arg;
    (void)s;
    end(w); /* without a close frame: gone() reports it as abnormal */
}

static void on_timer(void *arg)
{
    struct ws *w = arg;
    if (w->close_sent || w->unanswered >= 2) {
        http_abort(w->s);
        return;
    }
    w->unanswered++;
    (void)ws_ping(w->s);
    timer_arm(&w->timer, w->every_ns);
}

bool http_is_ws(const struct http_stream *s)
{
    const struct http_head *h = http_head(s);
    return str_eqz(h->method, "GET") && h->minor == 1 && h->upgrade && http_head_has_token(h, "upgrade", "websocket");
}

int http_ws_accept(struct http_stream *s, const char *protocol, ws_on_msg *on_msg, ws_on_close *on_close, void *arg)
{
    const struct http_head *h = http_head(s);
    if (!http_is_ws(s)) {
        (void)http_header(s, "Upgrade", "websocket");
        stream_problem(s, 426, "this path only supports WebSocket");
        return -1;
    }
    struct str key = http_head_get(h, "sec-websocket-key");
    auto_buf raw = {0};
    if (http_head_count(h, "sec-websocket-key") != 1 || key.n != 24 || !base64_decode(key.p, key.n, &raw) || raw.n != 16) {
        stream_problem(s, 400, "malformed Sec-WebSocket-Key");
        return -1;
    }
    if (!str_eqz(http_head_get(h, "sec-websocket-version"), "13")) {
        (void)http_header(s, "Sec-WebSocket-Version", "13");
        stream_problem(s, 426, "WebSocket version 13 only");
        return -1;
    }
    char accept[29];
    ws_accept_key(key, accept);
    (void)http_header(s, "Upgrade", "websocket"); /* the tunnel below fails if these would */
    (void)http_header(s, "Sec-WebSocket-Accept", accept);
    if (protocol)
        (void)http_header(s, "Sec-WebSocket-Protocol", protocol);
    struct ws *w = xcalloc(1, sizeof *w);
    *w = (struct ws){.s = s, .on_msg = on_msg, .on_close = on_close, .arg = arg};
    if (http_tunnel(s, 101, on_data, on_eof, w)) {
        free(w);
        stream_problem(s, 400, "an upgrade request carries no body");
        return -1;
    }
    ws_dec_init(&w->dec, true, WS_MESSAGE_MAX);
    timer_init(&w->timer, s->loop, on_timer, w);
    s->gone_data = w;
    s->gone_fn = gone;
    return 0;
}

static struct ws *ws_of(struct http_stream *s) { return s->gone_fn == gone ? s->gone_data : NULL; }

int ws_send_text(struct http_stream *s, const void *p, size_t n) { return ws_of(s) ? send_frame(ws_of(s), WS_TEXT, p, n) : -1; }
int ws_send_binary(struct http_stream *s, const void *p, size_t n) { return ws_of(s) ? send_frame(ws_of(s), WS_BINARY, p, n) : -1; }
int ws_ping(struct http_stream *s) { return ws_of(s) ? send_frame(ws_of(s), WS_PING, "", 0) : -1; }
void ws_keepalive(struct http_stream *s, int seconds)
{
    struct ws *w = ws_of(s);
    if (!w || w->close_sent)
        return;
    w->every_ns = seconds * NS_PER_S;
    timer_stop(&w->timer);
    if (seconds > 0)
        timer_arm(&w->timer, w->every_ns);
}
void ws_close(struct http_stream *s, int code, const char *reason)
{
    struct ws *w = ws_of(s);
    if (!w || w->close_sent)
        return;
    send_close(w, code, reason ? reason : "");
    timer_arm(&w->timer, CLOSE_WAIT);
}
