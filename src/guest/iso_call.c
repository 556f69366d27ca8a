/* One call. A `struct call` is the process and its pipes; the stream it
 * answers is apart, because the host may lose interest before the process can
 * be waited for. Ends when the process was reaped and its pipes are empty. */
#include "base/clock.h"
#include "base/fd.h"
#include "guest/isolate.h"
#include "wire/isolate.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MS_MAX      (24ull * 3600 * 1000)
#define BYTES_MAX   (1ull << 40)
#define CPU_GRACE_S 2 /* the kernel's own limit, in whole seconds, behind ours */

struct call;
struct tap { struct io io; struct call *c; int i; };
struct call {
    struct list link;
    struct owner *stream;        /* NULL: nobody asks any more */
    struct agent *a;
    uint64_t id;
    int in;                      /* memfd: the payload; -1 once handed over */
    uint64_t total, got;         /* of the payload */
    struct tap pipe[3];          /* stdout, stderr, result: our ends */
    uint64_t left[3];            /* bytes it may still write there */
    int far[3];                  /* its ends, until handed over */
    bool sent, ended;
    pid_t pid;                   /* 0: not known yet; -1: reaped */
    int64_t wall_ns, cpu_limit_ns, t0;
    uint64_t mem;
    struct timer wall, cpu;
    enum iso_cut cut;
    struct iso_early end;
};
struct owner { struct stream s; struct call *c; };

static const uint8_t channel[3] = {CH_STDOUT, CH_STDERR, CH_FILE};
static struct call *call_of(struct timer *t, size_t offset) { return (struct call *)(void *)((char *)t - offset); }

static void close_far(struct call *c)
{
    for (int i = 0; i < 3; i++)
        if (c->far[i] >= 0) {
            (void)close(c->far[i]);
            c->far[i] = -1;
        }
    if (c->in >= 0)
        (void)close(c->in);
    c->in = -1;
}

static void call_free(struct call *c)
{
    struct agent *a = c->a;
    if (c->pid > 0)
        (void)kill(c->pid, SIGKILL);
    timer_stop(&a->loop, &c->wall);
    timer_stop(&a->loop, &c->cpu);
    for (int i = 0; i < 3; i++)
        io_close(&a->loop, &c->pipe[i].io);
    close_far(c);
    list_del(&c->link);
    a->iso->ncalls--;
    if (c->stream)
        c->stream->c = NULL;
    loop_bury(&a->loop, c);
}

static void call_fail(struct call *c, const struct err *e)
{
    struct owner *o = c->stream;
    call_free(c);
    if (o)
        stream_end_err(c->a, &o->s, e); /* c is buried, not gone */
}

static void cut(struct call *c, enum iso_cut why)
{
    if (!c->cut)
        c->cut = why;
    if (c->pid > 0)
        (void)kill(c->pid, SIGKILL);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void maybe_done(struct call *c)
{
    struct agent *a = c->a;
    struct owner *o = c->stream;
    if (c->pid != -1 || c->pipe[0].io.fd >= 0 || c->pipe[1].io.fd >= 0 || c->pipe[2].io.fd >= 0 || c->ended)
        return;
    c->ended = true;
    if (o) {
        struct buf *b = reply_begin(a);
        uint64_t own = a->iso->rss;
        rec_put_u64(b, TI_STATUS, (uint64_t)(uint32_t)c->end.status);
        rec_put_u64(b, TI_CUT, c->cut);
        rec_put_u64(b, TI_CPU_NS, (uint64_t)c->end.cpu_ns);
        rec_put_u64(b, TI_WALL_NS, (uint64_t)(clock_mono() - c->t0));
        rec_put_u64(b, TI_RSS_BYTES, c->end.rss > own ? c->end.rss - own : 0);
        rec_put_u64(b, TI_OWN_BYTES, a->iso->data);
        reply_send(a, o->s.id);
    }
    call_free(c);
    if (o)
        stream_close(a, &o->s);
}

bool iso_call_exited(struct agent *a, const struct iso_early *x)
{
    struct call *c;
    list_each(c, &a->iso->calls, link) {
        if (c->pid != x->pid)
            continue;
        c->pid = -1;
        c->end = *x;
        timer_stop(&a->loop, &c->wall);
        timer_stop(&a->loop, &c->cpu);
        maybe_done(c);
        return true;
    }
    return false;
}

void iso_calls_fail(struct agent *a, const struct err *e)
{
    struct call *c;
    list_each(c, &a->iso->calls, link)
        call_fail(c, e);
}

bool iso_calls_nameless(struct agent *a)
{
    struct call *c;
    list_each(c, &a->iso->calls, link)
        if (c->sent && !c->pid)
            return true;
    return false;
}

/* ---- pipes ------------------------------------------------------------------------------------------------------ */

static void on_pipe(struct agent *a, struct io *io, uint32_t events)
{
    struct tap *tap = (struct tap *)(void *)io;
    struct call *c = tap->c;
    int i = tap->i;
    (void)events;
    char t[RUN_CHUNK];
    ssize_t n = read(io->fd, t, sizeof t);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        io_close(&a->loop, io);
        maybe_done(c);
        return;
    }
    uint64_t take = (uint64_t)n < c->left[i] ? (uint64_t)n : c->left[i];
    c->left[i] -= take;
    if (c->stream && take) /* the credit covers what may be left, see setup() */
        stream_data(a, &c->stream->s, channel[i], t, (uint32_t)take);
    if ((uint64_t)n > take)
        cut(c, i == 2 ? ISO_CUT_RESULT : ISO_CUT_OUTPUT);
}

static int make_pipes(struct call *c, struct err *e)
{
    for (int i = 0; i < 3; i++) {
        int p[2];
        if (pipe2(p, O_CLOEXEC) < 0)
            return err_sys(e, errno, "pipe");
        c->pipe[i] = (struct tap){{.fd = p[0], .fn = on_pipe}, c, i};
        c->far[i] = p[1];
        (void)fd_nonblock(p[0]);
        io_set(&c->a->loop, &c->pipe[i].io, EPOLLIN);
    }
    return 0;
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

static void on_wall(struct agent *a, struct timer *t)
{
    (void)a;
    cut(call_of(t, offsetof(struct call, wall)), ISO_CUT_WALL);
}

/* The kernel's clock of that process: exact to the tick, whatever the process does. Looked at again when the rest could
 * be used up at the earliest. */
static void on_cpu(struct agent *a, struct timer *t)
{
    struct call *c = call_of(t, offsetof(struct call, cpu));
    struct timespec ts;
    if (c->pid <= 0 || clock_gettime((clockid_t)(~(unsigned)c->pid << 3 | 2), &ts) < 0)
        return; /* ended: the reaper comes */
    int64_t left = c->cpu_limit_ns - ((int64_t)ts.tv_sec * NS_PER_S + ts.tv_nsec);
    if (left <= 0)
        cut(c, ISO_CUT_CPU);
    else
        timer_start(&a->loop, t, clock_mono() + (left < NS_PER_MS ? NS_PER_MS : left));
}

/* ---- the beginning ---------------------------------------------------------------------------------------------- */

static void hand_over(struct call *c)
{
    struct agent *a = c->a;
    struct err e = {0};
    const struct iso_lang *l = a->iso->lang;
    struct zy_call m = {.id = c->id, .data_bytes = c->mem, .space_bytes = c->mem + l->space};
    m.cpu_s = (uint64_t)(c->cpu_limit_ns / NS_PER_S) + CPU_GRACE_S;
    int fds[ZY_FDS] = {c->in, c->far[0], c->far[1], c->far[2]};
    if (fd_send(a->iso->sock.fd, &m, sizeof m, fds, ZY_FDS, MSG_DONTWAIT) < 0) {
        err_sys(&e, errno, "handing a call to %s", l->name);
        call_fail(c, &e);
        return;
    }
    c->sent = true;
    c->t0 = clock_mono();
    close_far(c);
}

static void go(struct call *c)
{
    struct agent *a = c->a;
    if (!c->sent && a->iso->ready && c->got == c->total)
        hand_over(c);
}

void iso_call_ready(struct agent *a)
{
    struct call *c;
    list_each(c, &a->iso->calls, link)
        go(c);
}

void iso_call_started(struct agent *a, const struct zy_note *n)
{
    struct iso *x = a->iso;
    struct call *c, *it;
    struct err e;
    c = NULL;
    list_each(it, &x->calls, link)
        if (it->id == n->id && !it->pid)
            c = it;
    if (!c)
        return;
    if (n->kind != ZY_STARTED) {
        err_sys(&e, n->sys, "no process for the call");
        call_fail(c, &e);
        return;
    }
    c->pid = n->pid;
    for (unsigned i = 0; i < x->nearly; i++)
        if (x->early[i].pid == n->pid) {
            struct iso_early r = x->early[i];
            x->early[i] = x->early[--x->nearly];
            (void)iso_call_exited(a, &r);
            return;
        }
    if (!c->stream || c->cut) { /* nobody waits any more, or it wrote too much before we knew its name */
        (void)kill(c->pid, SIGKILL);
        return;
    }
    timer_start(&a->loop, &c->wall, c->t0 + c->wall_ns);
    if (c->cpu_limit_ns < c->wall_ns)
        timer_start(&a->loop, &c->cpu, c->t0 + c->cpu_limit_ns);
}

/* The payload in memory that the process can read and nothing more: not grow, not change. */
static int payload_put(struct call *c, const void *p, size_t n, struct err *e)
{
    if (n > c->total - c->got)
        return err_set(e, E_INVALID, "more payload than announced");
    if (!fd_write_all(c->in, p, n))
        return err_sys(e, errno, "payload");
    c->got += n;
    if (c->got == c->total &&
        (lseek(c->in, 0, SEEK_SET) < 0 || fcntl(c->in, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0))
        return err_sys(e, errno, "payload");
    return 0;
}

static void s_data(struct agent *a, struct stream *s, uint8_t chan, const unsigned char *p, uint32_t n)
{
    struct call *c = ((struct owner *)(void *)s)->c;
    struct err e;
    (void)chan;
    if (!c || c->in < 0)
        return;
    if (payload_put(c, p, n, &e)) {
        call_fail(c, &e);
        return;
    }
    stream_consumed(a, s, n);
    go(c);
}

static void s_drop(struct agent *a, struct stream *s)
{
    struct call *c = ((struct owner *)(void *)s)->c;
    (void)a;
    if (!c)
        return;
    c->stream = NULL;
    if (!c->sent)
        call_free(c);
    else if (c->pid > 0)
        (void)kill(c->pid, SIGKILL);
}

static const struct stream_ops ops = {.data = s_data, .drop = s_drop};

static int setup(struct call *c, struct rec r, struct err *e)
{
    struct str first = {0};
    uint64_t wall = rec_u64_or(r, TI_WALL_MS, 0), cpu = rec_u64_or(r, TI_CPU_MS, 0), out = rec_u64_or(r, TI_OUT_BYTES, 0),
             res = rec_u64_or(r, TI_RESULT_BYTES, 0);
    c->total = rec_u64_or(r, TI_TOTAL, 0);
    c->mem = rec_u64_or(r, TI_MEM_BYTES, 0);
    if (!wall || wall > MS_MAX || !cpu || cpu > MS_MAX || !c->mem || c->mem > BYTES_MAX || out > BYTES_MAX || !res || res > BYTES_MAX || !c->total ||
        c->total > ISO_TOTAL_MAX || !rec_get(r, TI_BYTES, &first))
        return err_set(e, E_INVALID, "impossible limits");
    if (c->stream->s.tx < 2 * out + res)
        return err_set(e, E_INVALID, "too little credit for the output");
    c->wall_ns = (int64_t)wall * NS_PER_MS;
    c->cpu_limit_ns = (int64_t)cpu * NS_PER_MS;
    c->left[0] = c->left[1] = out;
    c->left[2] = res;
    c->in = (int)syscall(SYS_memfd_create, "call", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (c->in < 0)
        return err_sys(e, errno, "payload");
    return make_pipes(c, e) || payload_put(c, first.p, first.n, e) ? -1 : 0;
}

void iso_call(const struct req *q)
{
    struct agent *a = q->a;
    struct err e = {0};
    struct owner *o = stream_new(q, sizeof *o, &ops);
    if (!o)
        return;
    struct call *c = xcalloc(1, sizeof *c);
    c->a = a;
    c->stream = o, o->c = c;
    c->id = ++a->iso->next_id;
    c->in = -1;
    c->wall.fn = on_wall, c->cpu.fn = on_cpu;
    for (int i = 0; i < 3; i++)
        c->pipe[i].io.fd = c->far[i] = -1;
    list_add_tail(&a->iso->calls, &c->link);
    a->iso->ncalls++;
    if (setup(c, q->rec, &e)) {
        call_fail(c, &e);
        return;
    }
    if (c->got < c->total)
        stream_window(a, &o->s, (uint32_t)(c->total - c->got));
    go(c);
}
