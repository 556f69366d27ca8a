#include "guest/chan.h"
#include "base/enc.h"
#include "guest/agent.h"
#include "wire/msg.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define READS_PER_TURN 64
#define OUT_KEEP       (512u << 10) /* a larger buffer is given back once it is empty */
#define TX_MAX         (1ull << 40)

static void on_chan(struct agent *a, struct io *io, uint32_t events);

void chan_init(struct agent *a, int fd, bool vm)
{
    struct chan *c = &a->chan;
    c->io = (struct io){.fd = fd, .fn = on_chan};
    c->vm = vm;
    list_init(&c->runq);
    for (unsigned i = 0; i < STREAM_HASH; i++)
        list_init(&c->hash[i]);
    io_set(&a->loop, &c->io, EPOLLIN);
}

void chan_fini(struct agent *a)
{
    streams_drop_all(a);
    io_close(&a->loop, &a->chan.io);
    buf_free(&a->chan.out);
    buf_free(&a->chan.scratch);
}

/* ---- output ----------------------------------------------------------------------------------------------------- */

static void put(struct agent *a, enum frame_type type, uint8_t ch, uint32_t id, const void *p, size_t n)
{
    struct chan *c = &a->chan;
    if (!c->rd.epoch)
        return; /* hunting: nobody on the other end can read it, and a takeover would drop it anyway */
    if (c->out_head && c->out.n + n + FRAME_HEAD + FRAME_TAIL >= c->out.cap) { /* compact instead of growing */
        buf_drop(&c->out, c->out_head);
        c->out_head = 0;
    }
    frame_put(&c->out, c->rd.epoch, type, ch, id, p, n);
}

static void chan_arm(struct agent *a)
{
    struct chan *c = &a->chan;
    uint32_t want = (c->stalled ? 0 : EPOLLIN) | (chan_pending(c) ? EPOLLOUT : 0);
    if (c->hup)
        want = EPOLLIN | EPOLLET; /* the port stays "hung up" until the host connects: wake on changes only */
    io_set(&a->loop, &c->io, want);
}

bool chan_flush(struct agent *a)
{
    struct chan *c = &a->chan;
    while (chan_pending(c)) {
        ssize_t n = write(c->io.fd, c->out.p + c->out_head, chan_pending(c));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (n < 0 && errno != EAGAIN && !c->vm)
                return false;
            break;
        }
        c->out_head += (size_t)n;
    }
    if (!chan_pending(c)) {
        c->out.n = c->out_head = 0;
        if (c->out.cap > OUT_KEEP)
            buf_free(&c->out);
    }
    chan_arm(a);
    return true;
}

struct buf *reply_begin(struct agent *a)
{
    a->chan.scratch.n = 0;
    buf_putc(&a->chan.scratch, E_OK);
    return &a->chan.scratch;
}

static void scratch_done(struct agent *a)
{
    if (a->chan.scratch.cap > OUT_KEEP)
        buf_free(&a->chan.scratch);
}

void reply_send(struct agent *a, uint32_t id)
{
    if (a->chan.scratch.n > FRAME_MAX) {
        reply_err(a, id, &(struct err){.code = E_TOO_LARGE, .msg = "the answer does not fit into one frame"});
        return;
    }
    put(a, FR_RES, 0, id, a->chan.scratch.p, a->chan.scratch.n);
    scratch_done(a);
}

void reply_ok(struct agent *a, uint32_t id)
{
    reply_begin(a);
    reply_send(a, id);
}

void reply_err(struct agent *a, uint32_t id, const struct err *e)
{
    struct buf *b = reply_begin(a);
    b->p[0] = (char)(e->code ? e->code : E_INTERNAL);
    rec_put_str(b, T_MESSAGE, e->msg);
    if (e->why)
        rec_put_str(b, T_WHY, err_why_name((enum err_why)e->why));
    reply_send(a, id);
}

struct buf *event_begin(struct agent *a, uint8_t event)
{
    a->chan.scratch.n = 0;
    buf_putc(&a->chan.scratch, (char)event);
    return &a->chan.scratch;
}

void event_send(struct agent *a, uint32_t id)
{
    if (a->chan.scratch.n <= FRAME_MAX) /* writers of events bound them; see entry.c and watch.c */
        put(a, FR_EVENT, 0, id, a->chan.scratch.p, a->chan.scratch.n);
    scratch_done(a);
}

/* ---- streams ---------------------------------------------------------------------------------------------------- */

static struct list *bucket(struct agent *a, uint32_t id) { return &a->chan.hash[(id * 2654435761u) >> 24]; }

struct stream *stream_find(struct agent *a, uint32_t id)
{
    struct stream *s;
    struct list *h = bucket(a, id);
    list_each(s, h, hash)
        if (s->id == id)
            return s;
    return NULL;
}

void *stream_new(const struct req *q, size_t size, const struct stream_ops *ops)
{
    struct agent *a = q->a;
    if (a->chan.nstreams >= STREAMS_MAX) {
        reply_err(a, q->id, &(struct err){.code = E_QUOTA, .msg = "too many open streams (4096)"});
        return NULL;
    }
    struct stream *s = xcalloc(1, size);
    s->id = q->id;
    s->ops = ops;
    s->tx = rec_u64_or(q->rec, T_CREDIT, 0);
    if (s->tx > TX_MAX)
        s->tx = TX_MAX;
    list_add_tail(bucket(a, s->id), &s->hash);
    a->chan.nstreams++;
    return s;
}

void stream_wake(struct agent *a, struct stream *s)
{
    if (!s->run.next && s->hash.next && s->ops->run)
        list_add_tail(&a->chan.runq, &s->run);
}

void stream_data(struct agent *a, struct stream *s, uint8_t ch, const void *p, uint32_t n)
{
    s->tx -= n;
    put(a, FR_DATA, ch, s->id, p, n);
}

void stream_eof(struct agent *a, struct stream *s, uint8_t ch) { put(a, FR_EOF, ch, s->id, NULL, 0); }

static void grant(struct agent *a, struct stream *s, uint32_t n)
{
    unsigned char x[4];
    put_le32(x, n);
    s->rx += n;
    put(a, FR_CREDIT, 0, s->id, x, sizeof x);
}

void stream_window(struct agent *a, struct stream *s, uint32_t n)
{
    s->rx = CREDIT_INITIAL; /* may be used before our grant has arrived */
    grant(a, s, n);
}

void stream_consumed(struct agent *a, struct stream *s, uint32_t n)
{
    s->owed += n;
    if (s->owed >= CREDIT_INITIAL / 2) {
        grant(a, s, s->owed);
        s->owed = 0;
    }
}

void stream_close(struct agent *a, struct stream *s)
{
    if (!s->hash.next)
        return;
    list_del(&s->hash);
    list_del(&s->run);
    a->chan.nstreams--;
    if (s->ops->drop)
        s->ops->drop(a, s);
    loop_bury(&a->loop, s);
}

void stream_end_ok(struct agent *a, struct stream *s)
{
    reply_ok(a, s->id);
    stream_close(a, s);
}

void stream_end_err(struct agent *a, struct stream *s, const struct err *e)
{
    reply_err(a, s->id, e);
    stream_close(a, s);
}

void streams_drop_all(struct agent *a)
{
    for (unsigned i = 0; i < STREAM_HASH; i++)
        while (!list_empty(&a->chan.hash[i]))
            stream_close(a, container_of(a->chan.hash[i].next, struct stream, hash));
}

/* ---- input ------------------------------------------------------------------------------------------------------ */

static void on_sync(struct agent *a)
{
    struct chan *c = &a->chan;
    streams_drop_all(a);
    c->out.n = c->out_head = 0; /* also the tail of a frame already begun: the host discards up to the ack */
    frame_put_sync(&c->out, c->rd.epoch, true, false);
    agent_on_sync(a);
}

static void on_data(struct agent *a, const struct frame *f)
{
    struct stream *s = stream_find(a, f->stream);
    if (!s)
        return; /* ended meanwhile */
    if (!s->ops->data || f->n > s->rx) {
        struct err e = {0};
        err_set(&e, E_INVALID, "%s", s->ops->data ? "more data than the credit granted" : "this stream accepts no data");
        stream_end_err(a, s, &e);
        return;
    }
    s->rx -= f->n;
    s->ops->data(a, s, f->chan, f->p, f->n);
}

/* false: not something a host may send; the channel is out of step */
static bool on_frame(struct agent *a, const struct frame *f)
{
    struct stream *s;
    switch (f->type) {
    case FR_REQ:
        if (!f->stream || !f->n)
            return false;
        if ((s = stream_find(a, f->stream)))
            stream_end_err(a, s, &(struct err){.code = E_INVALID, .msg = "the stream id is in use"});
        else
            agent_request(a, f->stream, f->p[0], (struct rec){f->p + 1, f->n - 1});
        return true;
    case FR_DATA:
        on_data(a, f);
        return true;
    case FR_EOF:
        s = stream_find(a, f->stream);
        if (s && s->ops->eof)
            s->ops->eof(a, s, f->chan);
        return true;
    case FR_CREDIT:
        if (f->n != 4)
            return false;
        if ((s = stream_find(a, f->stream))) {
            s->tx += get_le32(f->p);
            if (s->tx > TX_MAX)
                s->tx = TX_MAX;
            stream_wake(a, s);
        }
        return true;
    case FR_CANCEL:
        if ((s = stream_find(a, f->stream))) {
            if (s->ops->cancel)
                s->ops->cancel(a, s);
            else
                stream_end_err(a, s, &(struct err){.code = E_CANCELED, .msg = "canceled"});
        }
        return true;
    default:
        return false;
    }
}

static void parse(struct agent *a)
{
    struct chan *c = &a->chan;
    size_t at = 0, used;
    struct frame f;
    c->stalled = false;
    for (bool more = true; more && !a->stop;) {
        if (chan_pending(c) > OUT_READ) {
            c->stalled = true;
            break;
        }
        enum frame_result r = frame_next(&c->rd, c->in + at, c->in_n - at, &used, &f);
        at += used;
        switch (r) {
        case FRAME_MORE:
            more = false;
            break;
        case FRAME_BAD:
            break; /* hunting now; go on with the same bytes */
        case FRAME_SYNC:
            on_sync(a);
            break;
        case FRAME_GOT:
            if (!on_frame(a, &f))
                c->rd.epoch = 0;
            break;
        }
    }
    c->in_n -= at;
    if (at && c->in_n)
        memmove(c->in, c->in + at, c->in_n);
}

void chan_resume(struct agent *a)
{
    if (a->chan.stalled && chan_pending(&a->chan) <= OUT_READ / 2)
        parse(a);
}

static void on_chan(struct agent *a, struct io *io, uint32_t events)
{
    struct chan *c = &a->chan;
    if (!(events & ~(uint32_t)EPOLLOUT) || c->stalled)
        return; /* writing happens at the end of the turn */
    for (int i = 0; i < READS_PER_TURN; i++) {
        ssize_t n = read(io->fd, c->in + c->in_n, IN_CAP - c->in_n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            if (!(events & EPOLLHUP))
                c->hup = false;
            return;
        }
        if (n <= 0) {
            /* A virtio port reads 0 while the host side is not connected and recovers; a socket never does. */
            if (c->vm)
                c->hup = true;
            else
                a->stop = true;
            return;
        }
        c->hup = false;
        c->in_n += (size_t)n;
        parse(a);
        if (!c->in_n || c->stalled || a->stop)
            return; /* no half frame: epoll will tell when there is more */
    }
}
