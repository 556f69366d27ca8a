/* One event loop per thread: timers, fd readiness, signals, and two ways to
 * run something later. Thin over libevent, whose headers stay in the .c files.
 *
 * Everything here belongs to the thread that calls loop_run, except loop_post.
 * struct timer, struct io and struct sig are embedded in the caller's object;
 * the caller stops them before the memory goes away. Stopping is always
 * allowed, also inside the own callback. An object that wants to free itself
 * inside a callback uses loop_defer: the burial happens at the end of the turn,
 * when no callback of this turn can still hold the pointer. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct loop *loop_new(void);
void loop_run(struct loop *l);       /* until loop_stop */
void loop_turn(struct loop *l, bool block); /* one turn: for tests and nested waits at start-up */
void loop_stop(struct loop *l);      /* this turn still ends properly; loop thread only (others: loop_post) */
void loop_free(struct loop *l);      /* runs what is still deferred or posted */

/* End of this turn, in order of the calls. What a deferred function defers
 * runs at the end of the next turn, which then does not wait. */
void loop_defer(struct loop *l, void (*fn)(void *), void *arg);
/* From any thread: fn(arg) runs on the loop thread. Order is kept per caller. */
void loop_post(struct loop *l, void (*fn)(void *), void *arg);

/* Room for libevent's struct event; loop.c asserts that it fits. */
struct loop_event { uint64_t room[16]; };

struct timer { struct loop *loop; void (*fn)(void *); void *arg; int64_t at; bool armed; struct loop_event ev; };
void timer_init(struct timer *t, struct loop *l, void (*fn)(void *), void *arg);
void timer_arm(struct timer *t, int64_t ns_from_now); /* one shot, never early; replaces an earlier arming */
void timer_stop(struct timer *t);                     /* safe on a zeroed or stopped timer */

enum { IO_READ = 1, IO_WRITE = 2 };
struct io { struct loop *loop; int fd, want; void (*fn)(void *, int events); void *arg; struct loop_event ev; };
void io_init(struct io *io, struct loop *l, int fd, void (*fn)(void *, int events), void *arg); /* the fd stays the caller's */
void io_want(struct io *io, int events); /* level-triggered; 0: registered for nothing */
void io_stop(struct io *io);             /* before close(fd); safe on a zeroed one */

struct sig { struct loop *loop; void (*fn)(void *); void *arg; bool on; struct loop_event ev; };
void sig_start(struct sig *s, struct loop *l, int signo, void (*fn)(void *), void *arg);
void sig_stop(struct sig *s);
