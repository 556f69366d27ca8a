/* The agent's event loop: epoll, a timer heap, and memory that dies at the end
 * of the turn. One thread; nothing here knows about frames or processes.
 *
 * A `struct io` or `struct timer` is embedded in its owner. An owner that goes
 * away inside a turn calls io_close/timer_stop and hands itself to loop_bury:
 * events already fetched for it are then skipped, and the memory is released
 * only when no pointer of this turn can reach it any more. */
#pragma once
#include "base/list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent;
struct io {
    int fd;          /* -1: none */
    uint32_t events; /* what epoll was told; 0: not registered */
    void (*fn)(struct agent *a, struct io *io, uint32_t events);
};
struct timer {
    int64_t at;  /* monotonic ns */
    size_t slot; /* heap index + 1; 0: not armed */
    void (*fn)(struct agent *a, struct timer *t);
};
struct loop {
    int ep;
    struct timer **heap;
    size_t nheap, heap_cap;
    void **dead;
    size_t ndead, dead_cap;
};

int loop_init(struct loop *l);
void loop_fini(struct loop *l);
/* events == 0 removes the fd from epoll; the fd stays open */
void io_set(struct loop *l, struct io *io, uint32_t events);
void io_close(struct loop *l, struct io *io);
void timer_start(struct loop *l, struct timer *t, int64_t at);
void timer_stop(struct loop *l, struct timer *t);
void loop_bury(struct loop *l, void *p); /* free(p) at the end of the turn */
void loop_funeral(struct loop *l);
int loop_wait_ms(struct loop *l, bool busy); /* epoll timeout */
void loop_timers(struct loop *l, struct agent *a);
