#include "api/ndjson.h"
#include "base/clock.h"

static void on_quiet(void *arg)
{
    struct ndjson *n = arg;
    timer_arm(&n->quiet, n->quiet_ns);
    if (http_writable(n->s)) { /* a peer that does not read needs no more to read */
        (void)nd_event(n, "keepalive");
        nd_send(n);
    }
}

void nd_start(struct ndjson *n, struct http_stream *s)
{
    n->s = s;
    n->quiet_ns = NDJSON_QUIET_S * NS_PER_S;
    (void)http_header(s, "Cache-Control", "no-store");
    (void)http_header(s, "X-Accel-Buffering", "no"); /* proxies: pass lines on as they come */
    (void)http_reply_start(s, 200, "application/x-ndjson"); /* fails only when the client left; the cancel is under way */
    timer_init(&n->quiet, http_loop(s), on_quiet, n);
    timer_arm(&n->quiet, n->quiet_ns);
}

struct jw *nd_event(struct ndjson *n, const char *event)
{
    n->line.n = 0;
    jw_init(&n->w, &n->line);
    jw_obj(&n->w);
    jw_kv_str(&n->w, "event", event);
    return &n->w;
}

void nd_send(struct ndjson *n)
{
    jw_end(&n->w);
    buf_putc(&n->line, '\n');
    (void)http_write(n->s, n->line.p, n->line.n); /* as above */
    timer_arm(&n->quiet, n->quiet_ns);
    if (n->line.cap > 64 * 1024)
        buf_free(&n->line);
}

void nd_end(struct ndjson *n)
{
    timer_stop(&n->quiet);
    http_end(n->s);
}

void nd_fini(struct ndjson *n)
{
    timer_stop(&n->quiet);
    buf_free(&n->line);
}
