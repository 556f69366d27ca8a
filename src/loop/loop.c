/* The loop drives libevent one turn at a time (EVLOOP_ONCE) so that the end of
 * a turn is ours: deferred calls run there, after every callback of the turn.
 * Posts from other threads go through a locked list and an eventfd; libevent
 * itself is never touched off-thread and needs no locking. */
#include "loop/loop.h"
#include "base/buf.h"
#include "base/clock.h"
#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

_Static_assert(sizeof(struct event) <= sizeof(struct loop_event), "struct loop_event is too small for libevent");
static struct event *ev_of(struct loop_event *e) { return (struct event *)(void *)e; }

struct call { void (*fn)(void *); void *arg; };
struct calls { struct call *p; size_t n, cap; };

static void calls_add(struct calls *c, void (*fn)(void *), void *arg)
{
    if (c->n == c->cap)
        c->cap = c->cap ? 2 * c->cap : 32, c->p = xrealloc(c->p, c->cap * sizeof *c->p);
    c->p[c->n++] = (struct call){fn, arg};
}

struct loop {
    struct event_base *base;
    bool stop;
    struct calls deferred, running; /* swapped at the end of a turn, so that the memory is reused */
    pthread_mutex_t lock;           /* guards posted */
    struct calls posted, taken;
    int wake_fd;
    struct io wake;
};

static void run_posted(void *arg, int events)
{
    struct loop *l = arg;
    uint64_t count;
    (void)events;
    if (read(l->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
        abort(); /* an eventfd has no other failures */
    pthread_mutex_lock(&l->lock);
    struct calls c = l->posted;
    l->posted = l->taken;
    l->posted.n = 0;
    pthread_mutex_unlock(&l->lock);
    for (size_t i = 0; i < c.n; i++)
        c.p[i].fn(c.p[i].arg);
    c.n = 0;
    l->taken = c;
}

struct loop *loop_new(void)
{
    struct loop *l = xcalloc(1, sizeof *l);
    struct event_config *cfg = event_config_new();
    if (!cfg || event_config_set_flag(cfg, EVENT_BASE_FLAG_NOLOCK) || !(l->base = event_base_new_with_config(cfg)))
        abort();
    event_config_free(cfg);
    pthread_mutex_init(&l->lock, NULL);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->wake_fd < 0)
        abort();
    io_init(&l->wake, l, l->wake_fd, run_posted, l);
    io_want(&l->wake, IO_READ);
    return l;
}

static void run_deferred(struct loop *l)
{
    struct calls c = l->deferred;
    l->deferred = l->running;
    l->deferred.n = 0;
    l->running = (struct calls){0};
    for (size_t i = 0; i < c.n; i++)
        c.p[i].fn(c.p[i].arg);
    c.n = 0;
    l->running = c;
}

void loop_turn(struct loop *l, bool block)
{
    int flags = EVLOOP_ONCE | (block && !l->deferred.n ? 0 : EVLOOP_NONBLOCK);
    if (event_base_loop(l->base, flags) < 0)
        abort();
    run_deferred(l);
}

void loop_run(struct loop *l)
{
    l->stop = false;
    while (!l->stop)
        loop_turn(l, true);
}
void loop_stop(struct loop *l) { l->stop = true; }

void loop_free(struct loop *l)
{
    if (!l)
        return;
    while (l->deferred.n || l->posted.n) { /* nobody else posts any more, or he would have to a loop that is gone */
        run_posted(l, 0);
        run_deferred(l);
    }
    io_stop(&l->wake);
    close(l->wake_fd);
    event_base_free(l->base);
    pthread_mutex_destroy(&l->lock);
    free(l->deferred.p);
    free(l->running.p);
    free(l->posted.p);
    free(l->taken.p);
    free(l);
}

void loop_defer(struct loop *l, void (*fn)(void *), void *arg) { calls_add(&l->deferred, fn, arg); }

void loop_post(struct loop *l, void (*fn)(void *), void *arg)
{
    uint64_t one = 1;
    pthread_mutex_lock(&l->lock);
    bool first = !l->posted.n;
    calls_add(&l->posted, fn, arg);
    /* Written under the lock: once the loop thread has run fn it may free the loop, and the fd with it. */
    if (first && write(l->wake_fd, &one, sizeof one) < 0 && errno != EAGAIN)
        abort();
    pthread_mutex_unlock(&l->lock);
}

/* ---- timers ---- */
static void timer_fire(evutil_socket_t fd, short what, void *arg)
{
    struct timer *t = arg;
    (void)fd, (void)what;
    t->armed = false;
    int64_t early = t->at - clock_mono(); /* libevent goes by the coarse clock, up to a tick behind */
    if (early > 0)
        timer_arm(t, early);
    else
        t->fn(t->arg);
}
void timer_init(struct timer *t, struct loop *l, void (*fn)(void *), void *arg)
{
    *t = (struct timer){.loop = l, .fn = fn, .arg = arg};
    if (event_assign(ev_of(&t->ev), l->base, -1, 0, timer_fire, t))
        abort();
}
void timer_arm(struct timer *t, int64_t ns)
{
    if (ns < 0)
        ns = 0;
    if (ns > 100LL * 365 * 86400 * NS_PER_S)
        ns = 100LL * 365 * 86400 * NS_PER_S; /* far enough, and no sum overflows */
    t->at = clock_mono() + ns;
    int64_t us = ns / 1000 + (ns % 1000 != 0);
    struct timeval tv = {.tv_sec = us / 1000000, .tv_usec = us % 1000000};
    if (event_add(ev_of(&t->ev), &tv))
        abort();
    t->armed = true;
}
void timer_stop(struct timer *t)
{
    if (t->armed)
        event_del(ev_of(&t->ev));
    t->armed = false;
}

/* ---- fds ---- */
static void io_fire(evutil_socket_t fd, short what, void *arg)
{
    struct io *io = arg;
    (void)fd;
    int events = ((what & EV_READ) ? IO_READ : 0) | ((what & EV_WRITE) ? IO_WRITE : 0);
    io->fn(io->arg, events);
}
void io_init(struct io *io, struct loop *l, int fd, void (*fn)(void *, int), void *arg)
{
    *io = (struct io){.loop = l, .fd = fd, .fn = fn, .arg = arg};
}
void io_want(struct io *io, int events)
{
    if (events == io->want)
        return;
    struct event *ev = ev_of(&io->ev);
    if (io->want)
        event_del(ev);
    io->want = events;
    if (!events)
        return;
    short what = (short)(EV_PERSIST | ((events & IO_READ) ? EV_READ : 0) | ((events & IO_WRITE) ? EV_WRITE : 0));
    if (event_assign(ev, io->loop->base, io->fd, what, io_fire, io) || event_add(ev, NULL))
        abort();
}
void io_stop(struct io *io)
{
    if (io->loop)
        io_want(io, 0);
}

/* ---- signals ---- */
static void sig_fire(evutil_socket_t fd, short what, void *arg)
{
    struct sig *s = arg;
    (void)fd, (void)what;
    s->fn(s->arg);
}
void sig_start(struct sig *s, struct loop *l, int signo, void (*fn)(void *), void *arg)
{
    *s = (struct sig){.loop = l, .fn = fn, .arg = arg, .on = true};
    if (event_assign(ev_of(&s->ev), l->base, signo, EV_SIGNAL | EV_PERSIST, sig_fire, s) || event_add(ev_of(&s->ev), NULL))
        abort();
}
void sig_stop(struct sig *s)
{
    if (s->on)
        event_del(ev_of(&s->ev));
    s->on = false;
}
