#include "guest/loop.h"
#include "base/buf.h"
#include "base/clock.h"
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

int loop_init(struct loop *l)
{
    *l = (struct loop){.ep = epoll_create1(EPOLL_CLOEXEC)};
    return l->ep < 0 ? -1 : 0;
}

void loop_fini(struct loop *l)
{
    loop_funeral(l);
    free(l->heap);
    free(l->dead);
    if (l->ep >= 0)
        close(l->ep);
}

void io_set(struct loop *l, struct io *io, uint32_t events)
{
    if (io->fd < 0 || io->events == events)
        return;
    struct epoll_event ev = {.events = events, .data.ptr = io};
    int op = !io->events ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
    if (epoll_ctl(l->ep, op, io->fd, &ev) == 0)
        io->events = events;
}

void io_close(struct loop *l, struct io *io)
{
    if (io->fd < 0)
        return;
    io_set(l, io, 0); /* explicit: a duplicate of the description may live on in a child */
    close(io->fd);
    io->fd = -1;
    io->events = 0;
}

static void heap_put(struct loop *l, size_t i, struct timer *t)
{
    l->heap[i] = t;
    t->slot = i + 1;
}

static void heap_up(struct loop *l, size_t i, struct timer *t)
{
    while (i && l->heap[(i - 1) / 2]->at > t->at) {
        heap_put(l, i, l->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_put(l, i, t);
}

static void heap_down(struct loop *l, size_t i, struct timer *t)
{
    for (;;) {
        size_t c = 2 * i + 1;
        if (c + 1 < l->nheap && l->heap[c + 1]->at < l->heap[c]->at)
            c++;
        if (c >= l->nheap || l->heap[c]->at >= t->at)
            break;
        heap_put(l, i, l->heap[c]);
        i = c;
    }
    heap_put(l, i, t);
}

void timer_start(struct loop *l, struct timer *t, int64_t at)
{
    timer_stop(l, t);
    t->at = at;
    if (l->nheap == l->heap_cap) {
        l->heap_cap = l->heap_cap ? l->heap_cap * 2 : 16;
        l->heap = xrealloc(l->heap, l->heap_cap * sizeof(*l->heap));
    }
    heap_up(l, l->nheap++, t);
}

void timer_stop(struct loop *l, struct timer *t)
{
    if (!t->slot)
        return;
    size_t i = t->slot - 1;
    t->slot = 0;
    struct timer *last = l->heap[--l->nheap];
    if (last == t)
        return;
    if (i && l->heap[(i - 1) / 2]->at > last->at)
        heap_up(l, i, last);
    else
        heap_down(l, i, last);
}

void loop_timers(struct loop *l, struct agent *a)
{
    if (!l->nheap)
        return;
    int64_t now = clock_mono();
    while (l->nheap && l->heap[0]->at <= now) {
        struct timer *t = l->heap[0];
        timer_stop(l, t);
        t->fn(a, t);
    }
}

int loop_wait_ms(struct loop *l, bool busy)
{
    if (busy)
        return 0;
    if (!l->nheap)
        return -1;
    int64_t left = l->heap[0]->at - clock_mono();
    if (left <= 0)
        return 0;
    left = (left + NS_PER_MS - 1) / NS_PER_MS;
    return left > INT_MAX ? INT_MAX : (int)left;
}

void loop_bury(struct loop *l, void *p)
{
    if (l->ndead == l->dead_cap) {
        l->dead_cap = l->dead_cap ? l->dead_cap * 2 : 16;
        l->dead = xrealloc(l->dead, l->dead_cap * sizeof(*l->dead));
    }
    l->dead[l->ndead++] = p;
}

void loop_funeral(struct loop *l)
{
    while (l->ndead)
        free(l->dead[--l->ndead]);
}
