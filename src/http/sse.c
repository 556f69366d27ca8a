/* Server-sent events (WHATWG HTML 9.2.6): lines "event:", "id:", "data:", an
 * empty line ends the event; a line that starts with ':' is a comment and
 * keeps proxies from closing an idle stream. */
#include "base/clock.h"
#include "http/conn.h"
#include <stdlib.h>
#include <string.h>

struct sse { struct http_stream *s; struct timer timer; int64_t every_ns; uint64_t sent; };

static void keepalive(void *arg)
{
    struct sse *e = arg;
    static const char line[] = ": keepalive\n\n";
    /* Nothing was said since the last look, and the peer reads. */
    if (http_sent(e->s) == e->sent && http_writable(e->s))
        (void)http_write(e->s, line, sizeof line - 1); /* a broken stream is cancelled elsewhere */
    e->sent = http_sent(e->s);
    timer_arm(&e->timer, e->every_ns);
}
static void gone(struct http_stream *s)
{
    struct sse *e = s->gone_data;
    timer_stop(&e->timer);
    free(e);
    s->gone_data = NULL;
}

int sse_start(struct http_stream *s, int keepalive_s)
{
    (void)http_header(s, "Cache-Control",
                      "no-cache, no-transform"); /* fails only when the start below does */
    (void)http_header(s, "X-Accel-Buffering", "no");
    if (http_reply_start(s, 200, "text/event-stream"))
        return -1;
    if (keepalive_s <= 0)
        return 0;
    struct sse *e = xcalloc(1, sizeof *e);
    e->s = s;
    e->every_ns = keepalive_s * NS_PER_S;
    e->sent = http_sent(s);
    timer_init(&e->timer, s->loop, keepalive, e);
    timer_arm(&e->timer, e->every_ns);
    s->gone_data = e;
    s->gone_fn = gone;
    return 0;
}

static bool one_line(const char *z) { return !strpbrk(z, "\r\n"); }

int sse_event_id(struct http_stream *s, const char *id, const char *event, struct str data)
{
    if ((id && !one_line(id)) || (event && !one_line(event)))
        return -1;
    auto_buf b = {0};
    buf_reserve(&b, data.n + 64);
    if (id)
        buf_puts(&b, "id: "), buf_puts(&b, id), buf_putc(&b, '\n');
    if (event)
        buf_puts(&b, "event: "), buf_puts(&b, event), buf_putc(&b, '\n');
    /* CR, LF and CRLF all end a line for the reader, so each starts a new data line. */
    for (;;) {
        size_t n = 0;
        while (n < data.n && data.p[n] != '\n' && data.p[n] != '\r')
            n++;
        buf_puts(&b, "data: ");
        buf_put(&b, data.p, n);
        buf_putc(&b, '\n');
        if (n == data.n)
            break;
        n += data.p[n] == '\r' && n + 1 < data.n && data.p[n + 1] == '\n' ? 2 : 1;
        data.p += n, data.n -= n;
    }
    buf_putc(&b, '\n');
    return http_write(s, b.p, b.n);
}
int sse_event(struct http_stream *s, const char *event, struct str data) { return sse_event_id(s, NULL, event, data); }
