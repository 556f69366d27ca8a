/* The daemon's end of the spawner's socket: asynchronous calls on the loop of
 * the thread that made the client (not thread-safe), answers in order of
 * completion, exits as events.
 *
 * Ownership of descriptors: spawn_call() never takes the caller's `fds`, it
 * has passed copies to the kernel when it returns (or queued duplicates of its
 * own). `done` borrows the reply; a descriptor in its `fds` that it wants to
 * keep it moves out with take_fd(&fds[i]); the rest is closed afterwards.
 *
 * A lost spawner fails every call in flight with E_UNAVAILABLE, then calls
 * on_lost once; spawn_client_again() connects to its successor. Nothing is called from inside spawn_call() or after
 * spawn_client_free(). */
#pragma once
#include "spawn/op.h"
#include <stdint.h>

struct loop;
struct spawn_client;

typedef void spawn_done(void *arg, const struct sp_rep *rep, int *fds, int nfds);
typedef void spawn_on_exit(void *ctx, const struct sp_exit *ex);
typedef void spawn_on_lost(void *ctx, const struct err *why);

/* Connects to the SEQPACKET socket at `path` (at once: it is local). NULL + e on failure. */
struct spawn_client *spawn_client_new(struct loop *l, const char *path, spawn_on_exit *on_exit, spawn_on_lost *on_lost, void *ctx,
                                      struct err *e);
/* After on_lost: connect again, to whoever listens there now. -1 + e: nobody yet. */
int spawn_client_again(struct spawn_client *c, struct err *e) __attribute__((warn_unused_result));
void spawn_client_free(struct spawn_client *c); /* accepts NULL; calls in flight are dropped without their callback */

/* version and seq of the request are filled in. The only immediate failures are a lost connection and a full
 * queue; then -1 + e and `done` is never called. */
int spawn_call(struct spawn_client *c, const struct sp_req *q, const int *fds, int nfds, spawn_done *done, void *arg, struct err *e)
    __attribute__((warn_unused_result));

/* ---- blocking, for tests and tools; no loop ------------------------------------------------------------------ */
int spawn_connect(const char *path, struct err *e); /* -> socket fd */
/* One request, one answer; exit events that arrive meanwhile go to `ev` (may be NULL, then
 * dropped). `ret_fds` receives up to *ret_nfds descriptors, now the caller's. 0, or -1 + e (a refusal of the
 * spawner is -1 with its err). */
struct spawn_events { struct sp_exit item[64]; int n; };
int spawn_call_sync(int sock, const struct sp_req *q, const int *fds, int nfds, struct sp_rep *ret, int *ret_fds, int *ret_nfds,
                    struct spawn_events *ev, int timeout_ms, struct err *e) __attribute__((warn_unused_result));
/* Waits for the exit event of `id`. */
int spawn_wait_exit(int sock, const char *id, struct sp_exit *ret, struct spawn_events *ev, int timeout_ms, struct err *e)
    __attribute__((warn_unused_result));
