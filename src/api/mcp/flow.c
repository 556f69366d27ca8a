/* An answer as server-sent events. In the legacy era its events have ids, and the last of them are
 * kept, so that a client whose connection broke takes the stream up again where it was. */
#include "api/mcp/mcp.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>

#define QUEUE_MAX (1u << 20) /* what a client that does not read may have waiting */

struct said {
    struct list link;
    uint64_t n;
    struct buf json;
};
struct flow {
    struct list link; /* in its session */
    struct mcp *m;
    struct http_stream *s; /* NULL: nobody listens */
    unsigned number;
    uint64_t last;
    struct list events; /* kept */
    size_t count, bytes;
    bool over;
    int64_t ended;
};

struct list *flow_link(struct flow *f) { return &f->link; }
struct flow *flow_of_link(struct list *l) { return container_of(l, struct flow, link); }
bool flow_over(const struct flow *f) { return f->over; }
bool flow_attached(const struct flow *f) { return f->s != NULL; }
unsigned flow_number(const struct flow *f) { return f->number; }
int64_t flow_ended_at(const struct flow *f) { return f->ended; }

/* ---- the client's side ---- */
void flow_detach(struct flow *f)
{
    if (f->s) {
        http_on_cancel(f->s, NULL, NULL);
        http_unref(f->s);
    }
    f->s = NULL;
}

static void flow_left(struct http_stream *s, void *arg)
{
    (void)s;
    flow_detach(arg);
}

static void attach(struct flow *f, struct http_stream *s)
{
    f->s = http_ref(s);
    (void)sse_start(s, 15);
}

static void write_event(struct flow *f, uint64_t n, struct str json)
{
    char id[40];
    (void)snprintf(id, sizeof id, "s%u_%llu", f->number, (unsigned long long)n);
    if (f->s) /* fails only when the client left, which comes by itself */
        (void)sse_event_id(f->s, f->number ? id : NULL, "message", json);
}

static void write_primer(struct flow *f)
{
    auto_buf b = {0};
    buf_printf(&b, "id: s%u_0\nretry: 1000\ndata:\n\n", f->number);
    (void)http_write(f->s, b.p, b.n); /* as above */
}

/* ---- what is kept ---- */
static void event_free(struct flow *f, struct said *ev)
{
    list_del(&ev->link);
    f->bytes -= ev->json.n, f->count--;
    buf_free(&ev->json);
    free(ev);
}

static void keep(struct flow *f, uint64_t n, struct str json)
{
    struct said *ev = xcalloc(1, sizeof *ev);
    ev->n = n;
    buf_put(&ev->json, json.p, json.n);
    list_add_tail(&f->events, &ev->link);
    f->count++, f->bytes += json.n;
    while (f->count > FLOW_EVENTS || (f->bytes > FLOW_BYTES && f->count > 1))
        event_free(f, container_of(f->events.next, struct said, link));
}

/* ---- life ---- */
struct flow *flow_open(struct mcp *m, struct http_stream *s, unsigned number, bool primer)
{
    struct flow *f = xcalloc(1, sizeof *f);
    f->m = m, f->number = number;
    list_init(&f->events);
    attach(f, s);
    if (number) /* without a number the owner watches the client */
        http_on_cancel(s, flow_left, f);
    if (number && primer)
        write_primer(f);
    return f;
}

void flow_send(struct flow *f, struct str json, bool dispensable)
{
    if (f->s && http_pending(f->s) > QUEUE_MAX) {
        if (dispensable)
            return;
        struct http_stream *s = http_ref(f->s);
        if (f->number)
            flow_detach(f);
        http_abort(s);
        http_unref(s);
    }
    uint64_t n = ++f->last;
    if (f->number)
        keep(f, n, json);
    write_event(f, n, json);
}

void flow_end(struct flow *f)
{
    struct http_stream *s = f->s;
    f->over = true;
    f->ended = clock_mono();
    if (!s)
        return;
    http_on_cancel(s, NULL, NULL);
    f->s = NULL;
    http_end(s);
    http_unref(s);
}

bool flow_resume(struct flow *f, struct http_stream *s, uint64_t after)
{
    struct said *ev;
    if (f->over && after >= f->last)
        return false;
    flow_detach(f); /* the earlier connection is dead, or will be */
    attach(f, s);
    http_on_cancel(s, flow_left, f);
    list_each(ev, &f->events, link)
        if (ev->n > after)
            write_event(f, ev->n, (struct str){ev->json.p, ev->json.n});
    if (f->over)
        flow_end(f);
    return true;
}

void flow_free(struct flow *f)
{
    if (!f)
        return;
    if (!f->over)
        flow_end(f);
    list_del(&f->link);
    while (!list_empty(&f->events))
        event_free(f, container_of(f->events.next, struct said, link));
    free(f);
}
