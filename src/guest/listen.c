/* A stream that follows a process: what OP_START and OP_ATTACH open. */
#include "guest/proc.h"
#include "wire/msg.h"

struct listener {
    struct stream s; /* first */
    struct list node;
    struct proc *p;
    uint64_t pos, seg;
    bool holds; /* was given credit: the ring keeps what it has not got yet */
};

static struct listener *of(struct stream *s) { return container_of(s, struct listener, s); }

uint64_t listen_floor(struct proc *p)
{
    uint64_t floor = UINT64_MAX;
    struct listener *l;
    list_each(l, &p->listeners, node)
        if (l->holds && l->pos < floor)
            floor = l->pos;
    return floor;
}

void listen_wake(struct agent *a, struct proc *p)
{
    struct listener *l;
    list_each(l, &p->listeners, node)
        if (l->s.tx || p->done)
            stream_wake(a, &l->s);
}

static void lost(struct agent *a, struct listener *l, uint64_t n)
{
    rec_put_u64(event_begin(a, EV_LOST), T_SIZE, n);
    event_send(a, l->s.id);
}

static bool listen_run(struct agent *a, struct stream *s)
{
    struct listener *l = of(s);
    struct proc *p = l->p;
    uint32_t left = RUN_CHUNK;
    if (s->tx)
        l->holds = true;
    while (s->tx && left) {
        const unsigned char *b;
        uint8_t chan;
        uint64_t before = l->pos;
        size_t n = ring_peek(&p->ring, &l->pos, &l->seg, &b, &chan);
        if (l->pos > before)
            lost(a, l, l->pos - before);
        if (!n)
            break;
        if (n > left)
            n = left;
        if (n > s->tx)
            n = (size_t)s->tx;
        stream_data(a, s, chan, b, (uint32_t)n);
        l->pos += n, left -= (uint32_t)n;
    }
    if (p->stalled)
        proc_rearm(a, p);
    if (p->done && (l->pos >= p->ring.head || !l->holds)) {
        struct buf *b = event_begin(a, EV_EXIT);
        rec_put_u64(b, T_EXIT_KIND, p->kind);
        rec_put_u64(b, T_EXIT_CODE, (uint64_t)p->code);
        rec_put_u64(b, T_OFFSET, p->ring.head);
        event_send(a, s->id);
        stream_end_ok(a, s);
        return false;
    }
    return s->tx && l->pos < p->ring.head;
}

static void listen_data(struct agent *a, struct stream *s, uint8_t chan, const unsigned char *b, uint32_t n)
{
    (void)chan;
    if (n && proc_input(a, of(s)->p, s->id, b, n, NULL))
        stream_consumed(a, s, n); /* nobody reads it any more: dropped, as a pipe would, but the sender is not held up */
}

static void listen_eof(struct agent *a, struct stream *s, uint8_t chan)
{
    (void)chan;
    proc_input_eof(a, of(s)->p);
}

static void listen_drop(struct agent *a, struct stream *s)
{
    struct listener *l = of(s);
    struct proc *p = l->p;
    list_del(&l->node);
    l->p = NULL;
    if (p->stalled)
        proc_rearm(a, p);
}

static const struct stream_ops listen_ops = {.data = listen_data, .eof = listen_eof, .run = listen_run, .drop = listen_drop};

void listen_new(const struct req *q, struct proc *p, uint64_t offset)
{
    struct agent *a = q->a;
    struct listener *l = stream_new(q, sizeof *l, &listen_ops);
    if (!l)
        return;
    uint64_t asked = offset > p->ring.head ? p->ring.head : offset;
    l->p = p;
    l->pos = asked < p->ring.tail ? p->ring.tail : asked;
    l->holds = l->s.tx > 0;
    list_add_tail(&p->listeners, &l->node);
    struct buf *b = event_begin(a, EV_STARTED);
    rec_put_u64(b, T_PID, (uint64_t)p->pid);
    rec_put_u64(b, T_OFFSET, l->pos);
    event_send(a, l->s.id);
    if (l->pos > asked)
        lost(a, l, l->pos - asked);
    if (!p->done && !p->in_gone)
        stream_window(a, &l->s, INPUT_WINDOW);
    else
        l->s.rx = CREDIT_INITIAL; /* tolerated, and dropped */
    stream_wake(a, &l->s);
}
