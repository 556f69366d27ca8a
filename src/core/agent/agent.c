#include "core/agent/agent.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/list.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define BUCKETS  64
#define IN_CHUNK (128 * 1024)
#define IN_BUDGET \
    (512 * 1024)        /* per loop turn, so that one loud guest does not starve the others */
#define SEND_MAX  32768 /* bytes per DATA frame towards the agent */
#define SILENT_NS (40 * NS_PER_S)
#define PINGS     4 /* looks within that time */

struct call {
    struct list link;
    struct agent *agent;
    uint32_t stream;
    struct call_ops ops;
    void *arg;
    size_t room; /* what we may still send on it */
    uint64_t
        granted; /* what the agent may still send: more is a breach, so nobody's memory is at a guest's mercy */
    bool cancelled;
};

struct agent {
    struct loop *loop;
    int fd;
    struct io io;
    struct frame_reader rd;
    uint32_t epoch, next_stream;
    struct buf in, out;
    size_t in_at, out_at;
    struct list bucket[BUCKETS];
    size_t open;
    void (*broken_fn)(void *arg, const struct err *why);
    void (*sync_fn)(void *arg, const struct err *e);
    void *broken_arg, *sync_arg;
    struct timer ping, held;
    int64_t heard_ns, silent_ns, hold_ns;
    struct err end; /* of the channel, while calls are held */
    uint64_t bytes_in;
    bool broken, freed, reading, pinging, patient;
};

static void on_io(void *arg, int events);
static void on_ping(void *arg);
static void on_held(void *arg);

static struct call *find(struct agent *a, uint32_t stream)
{
    struct call *c;
    list_each(c, &a->bucket[stream % BUCKETS], link)
        if (c->stream == stream)
            return c;
    return NULL;
}

struct agent *agent_new(struct loop *l, int fd, void (*broken)(void *arg, const struct err *why),
                        void *arg)
{
    struct agent *a = xcalloc(1, sizeof *a);
    a->loop = l, a->fd = fd, a->broken_fn = broken, a->broken_arg = arg, a->next_stream = 1;
    a->rd.want_ack = true;
    for (int i = 0; i < BUCKETS; i++)
        list_init(&a->bucket[i]);
    (void)fd_nonblock(fd);
    io_init(&a->io, l, fd, on_io, a);
    timer_init(&a->ping, l, on_ping, a);
    timer_init(&a->held, l, on_held, a);
    a->heard_ns = clock_mono();
    a->silent_ns = SILENT_NS;
    return a;
}

static void end_call(struct call *c, const struct err *e, struct rec r)
{
    list_del(&c->link);
    c->agent->open--;
    if (!c->cancelled)
        c->ops.done(c->arg, e, r);
    free(c);
}

static void fail_calls(struct agent *a, const struct err *e)
{
    for (int i = 0; i < BUCKETS; i++)
        while (!list_empty(&a->bucket[i]))
            end_call(container_of(a->bucket[i].next, struct call, link), e, (struct rec){0});
}

static void on_held(void *arg)
{
    struct agent *a = arg;
    fail_calls(a, &a->end);
}
void agent_hold(struct agent *a, int64_t ns) { a->hold_ns = ns; }

static void bury(void *arg)
{
    struct agent *a = arg;
    buf_free(&a->in), buf_free(&a->out);
    free(a);
}

void agent_free(struct agent *a)
{
    if (!a || a->freed)
        return;
    a->freed = true;
    a->broken = true;
    io_stop(&a->io);
    timer_stop(&a->ping), timer_stop(&a->held);
    (void)close(a->fd);
    struct err e;
    err_set(&e, E_GONE, "the sandbox ended");
    if (a->sync_fn) {
        void (*fn)(void *, const struct err *) = a->sync_fn;
        a->sync_fn = NULL;
        fn(a->sync_arg, &e);
    }
    fail_calls(a, &e);
    loop_defer(a->loop, bury, a);
}

static void break_channel(struct agent *a, const struct err *why)
{
    if (a->broken)
        return;
    a->broken = true;
    io_stop(&a->io);
    timer_stop(&a->ping);
    if (a->sync_fn) {
        void (*fn)(void *, const struct err *) = a->sync_fn;
        a->sync_fn = NULL;
        fn(a->sync_arg, why);
    }
    if (a->hold_ns && why->code == E_GONE) {
        a->end = *why;
        timer_arm(&a->held, a->hold_ns);
    } else {
        fail_calls(a, why);
    }
    if (!a->freed)
        a->broken_fn(a->broken_arg, why);
}

static void flush(struct agent *a)
{
    while (a->out_at < a->out.n) {
        ssize_t w = write(a->fd, a->out.p + a->out_at, a->out.n - a->out_at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0 && errno == EAGAIN)
            break;
        if (w <= 0) {
            /* the read side will report the end; do not call back from inside a send */
            a->out_at = a->out.n;
            break;
        }
        a->out_at += (size_t)w;
    }
    if (a->out_at == a->out.n)
        a->out.n = a->out_at = 0;
    else if (a->out_at > 65536 && a->out_at > a->out.n / 2) {
        buf_drop(&a->out, a->out_at);
        a->out_at = 0;
    }
    io_want(&a->io, IO_READ | (a->out.n ? IO_WRITE : 0));
}

static void send_frame(struct agent *a, enum frame_type t, uint8_t chan, uint32_t stream,
                       const void *p, size_t n)
{
    frame_put(&a->out, a->epoch, t, chan, stream, p, n);
    flush(a);
}

void agent_sync(struct agent *a, bool torn, void (*done)(void *arg, const struct err *e), void *arg)
{
    do
        random_bytes(&a->epoch, sizeof a->epoch);
    while (!a->epoch);
    a->rd.epoch = 0;
    a->rd.want_epoch = a->epoch;
    a->sync_fn = done, a->sync_arg = arg;
    a->heard_ns = clock_mono();
    frame_put_sync(&a->out, a->epoch, false, torn);
    flush(a);
}

void agent_silence(struct agent *a, int64_t ns) { a->silent_ns = ns; }
void agent_patient(struct agent *a) { a->patient = true; }
bool agent_synced(const struct agent *a) { return a->rd.epoch != 0; }
bool agent_broken(const struct agent *a) { return a->broken; }
struct loop *agent_loop(const struct agent *a) { return a->loop; }
size_t agent_open(const struct agent *a) { return a->open; }
uint64_t agent_bytes_in(const struct agent *a) { return a->bytes_in; }

struct call *agent_call(struct agent *a, enum agent_op op, const struct buf *body,
                        const struct call_ops *ops, void *arg, struct err *e)
{
    if (a->broken || !a->epoch) {
        err_set(e, E_UNAVAILABLE, "the sandbox's agent cannot be reached");
        return NULL;
    }
    size_t n = body ? body->n : 0;
    if (n + 1 > FRAME_MAX) {
        err_set(e, E_TOO_LARGE, "the request to the sandbox is %zu bytes, the limit is %d", n,
                FRAME_MAX - 1);
        return NULL;
    }
    struct call *c = xcalloc(1, sizeof *c);
    c->agent = a, c->ops = *ops, c->arg = arg;
    c->granted =
        body ? rec_u64_or((struct rec){(const unsigned char *)body->p, n}, T_CREDIT, 0) : 0;
    if (op == OP_START || op == OP_ATTACH || op == OP_WRITE)
        c->room =
            CREDIT_INITIAL; /* needs no grant: what follows at once travels with the request */
    do
        c->stream = a->next_stream++;
    while (!c->stream || find(a, c->stream));
    list_add_tail(&a->bucket[c->stream % BUCKETS], &c->link);
    a->open++;
    if (!a->ping.armed && !a->patient)
        timer_arm(&a->ping, a->silent_ns / PINGS);

    auto_buf b = {0};
    buf_reserve(&b, n + 1);
    buf_putc(&b, (char)op);
    if (n)
        buf_put(&b, body->p, n);
    send_frame(a, FR_REQ, 0, c->stream, b.p, b.n);
    return c;
}

size_t call_room(const struct call *c) { return c->room; }

size_t call_send(struct call *c, uint8_t chan, const void *p, size_t n)
{
    size_t sent = 0;
    while (sent < n && c->room && !c->agent->broken) {
        size_t k = n - sent;
        if (k > c->room)
            k = c->room;
        if (k > SEND_MAX)
            k = SEND_MAX;
        frame_put(&c->agent->out, c->agent->epoch, FR_DATA, chan, c->stream, (const char *)p + sent,
                  k);
        c->room -= k, sent += k;
    }
    if (sent)
        flush(c->agent);
    return sent;
}

void call_eof(struct call *c, uint8_t chan)
{
    if (!c->agent->broken)
        send_frame(c->agent, FR_EOF, chan, c->stream, NULL, 0);
}

void call_credit(struct call *c, size_t n)
{
    if (!n || c->agent->broken)
        return;
    unsigned char x[4];
    put_le32(x, (uint32_t)n);
    c->granted += n;
    send_frame(c->agent, FR_CREDIT, 0, c->stream, x, sizeof x);
}

void call_cancel(struct call *c)
{
    if (c->cancelled)
        return;
    c->cancelled = true; /* the stream id stays ours until the agent answers */
    if (!c->agent->broken)
        send_frame(c->agent, FR_CANCEL, 0, c->stream, NULL, 0);
}

void agent_cut(struct agent *a, const struct err *why)
{
    for (int i = 0; i < BUCKETS; i++)
        while (!list_empty(&a->bucket[i])) {
            struct call *c = container_of(a->bucket[i].next, struct call, link);
            if (!a->broken && !c->cancelled)
                send_frame(a, FR_CANCEL, 0, c->stream, NULL, 0); /* its answer will find nobody */
            end_call(c, why, (struct rec){0});
        }
}

/* Only what the inside may know: it must not send its user to another place. */
static enum err_why guest_why(struct rec r)
{
    struct str s;
    char name[32];
    if (!rec_get(r, T_WHY, &s) || s.n >= sizeof name)
        return REASON_NONE;
    memcpy(name, s.p, s.n);
    name[s.n] = 0;
    enum err_why why = err_why_from_name(name);
    return why == REASON_PROGRAM_MISSING || why == REASON_PROGRAM_DENIED ||
                   why == REASON_CWD_MISSING
               ? why
               : REASON_NONE;
}

static void on_response(struct call *c, const struct frame *f)
{
    if (!f->n) {
        struct err e;
        err_set(&e, E_GUEST, "the agent sent an empty answer");
        end_call(c, &e, (struct rec){0});
        return;
    }
    struct rec r = {f->p + 1, f->n - 1};
    unsigned code = f->p[0];
    if (!code) {
        end_call(c, NULL, r);
        return;
    }
    struct err e;
    struct str m;
    if (code >= E_CODE_MAX)
        code = E_GUEST;
    if (!rec_get(r, T_MESSAGE, &m) || !str_utf8(m))
        m = S("the agent gave no reason");
    err_set(&e, (enum err_code)code, "%.*s", (int)(m.n > 200 ? 200 : m.n), m.p);
    (void)err_because(&e, guest_why(r));
    end_call(c, &e, r);
}

static void on_data(struct agent *a, struct call *c, const struct frame *f)
{
    if (f->n > c->granted) {
        struct err e;
        err_set(&e, E_GUEST, "the sandbox's agent sent more than its flow-control credit");
        break_channel(a, &e);
        return;
    }
    c->granted -= f->n;
    if (!c->cancelled && c->ops.data)
        c->ops.data(c->arg, f->chan, f->p, f->n);
    else
        call_credit(c, f->n);
}

static void on_frame(struct agent *a, const struct frame *f)
{
    struct call *c = find(a, f->stream);
    if (!c)
        return; /* a late frame of a stream that ended: harmless */
    switch (f->type) {
    case FR_RES: on_response(c, f); break;
    case FR_EVENT:
        if (f->n && !c->cancelled && c->ops.event)
            c->ops.event(c->arg, f->p[0], (struct rec){f->p + 1, f->n - 1});
        break;
    case FR_DATA: on_data(a, c, f); break;
    case FR_EOF:
        if (!c->cancelled && c->ops.eof)
            c->ops.eof(c->arg, f->chan);
        break;
    case FR_CREDIT:
        if (f->n == 4) {
            size_t room = c->room + get_le32(f->p);
            c->room = room > (64u << 20) ? (64u << 20) : room;
            if (!c->cancelled && c->ops.room)
                c->ops.room(c->arg);
        }
        break;
    default: break;
    }
}

static void parse(struct agent *a)
{
    for (;;) {
        struct frame f;
        size_t used = 0;
        enum frame_result r =
            frame_next(&a->rd, (unsigned char *)a->in.p + a->in_at, a->in.n - a->in_at, &used, &f);
        a->in_at += used;
        if (r == FRAME_MORE)
            break;
        if (r == FRAME_BAD) {
            struct err e;
            err_set(&e, E_GUEST, "the sandbox's agent broke the protocol");
            break_channel(a, &e);
            return;
        }
        if (r == FRAME_SYNC) {
            if (a->sync_fn) {
                void (*fn)(void *, const struct err *) = a->sync_fn;
                a->sync_fn = NULL;
                fn(a->sync_arg, NULL);
            }
        } else {
            on_frame(a, &f);
        }
        if (a->broken)
            return;
    }
    if (a->in_at == a->in.n)
        a->in.n = a->in_at = 0;
    else if (a->in_at) {
        buf_drop(&a->in, a->in_at);
        a->in_at = 0;
    }
}

static void on_io(void *arg, int events)
{
    struct agent *a = arg;
    if (events & IO_WRITE)
        flush(a);
    if (!(events & IO_READ))
        return;
    for (size_t got = 0; got < IN_BUDGET && !a->broken;) {
        buf_reserve(&a->in, IN_CHUNK);
        ssize_t n = read(a->fd, a->in.p + a->in.n, IN_CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            struct err e;
            err_set(&e, E_GONE, "the sandbox's agent closed its channel");
            break_channel(a, &e);
            return;
        }
        a->in.n += (size_t)n, got += (size_t)n, a->bytes_in += (size_t)n;
        a->heard_ns = clock_mono();
        parse(a);
        if (n < IN_CHUNK)
            return;
    }
}

/* While requests are open the agent must show life now and then. */
static void ping_done(void *arg, const struct err *e, struct rec r)
{
    (void)e, (void)r;
    ((struct agent *)arg)->pinging = false;
}

static void on_ping(void *arg)
{
    struct agent *a = arg;
    if (a->broken)
        return;
    int64_t silent = clock_mono() - a->heard_ns;
    if (silent > a->silent_ns && a->pinging) {
        struct err e;
        err_why(&e, REASON_AGENT_SILENT, E_GUEST, "the sandbox's agent has not answered for %d s",
                (int)(silent / NS_PER_S));
        break_channel(a, &e);
        return;
    }
    if (!a->open)
        return;
    if (silent >= a->silent_ns / PINGS && !a->pinging) {
        static const struct call_ops ops = {.done = ping_done};
        a->pinging = agent_call(a, OP_PING, NULL, &ops, a, NULL) != NULL;
    }
    timer_arm(&a->ping, a->silent_ns / PINGS);
}
