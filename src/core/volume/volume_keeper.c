/* A volume's keeper: the jailed process that has the volume as its root and
 * serves its files over an agent channel. Started when somebody needs it,
 * stopped (and the volume unmounted) some time after nobody does.
 *
 *   NONE -> STARTING -> READY -> STOPPING -> NONE
 *
 * STARTING may take a few tries: an image that was just let go is refused
 * until the kernel has unmounted it. A keeper that dies goes through STOPPING
 * and comes back if it is still needed; the mount stays, so containers that
 * have it notice nothing. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/volume/volume_int.h"
#include "spawn/client.h"
#include <string.h>

#define IDLE_NS  (20 * NS_PER_S)
#define RETRY_NS (50 * NS_PER_MS)
#define START_NS (20 * NS_PER_S)

enum phase { K_NONE, K_STARTING, K_READY, K_STOPPING };
typedef void open_cb(void *arg, struct volume *v, struct agent *a, const struct err *e);
struct waiter {
    struct list link;
    open_cb *cb;
    void *arg;
};
struct stopper {
    struct list link;
    void (*done)(void *arg);
    void *arg;
};

struct keeper {
    struct volume *v;
    enum phase phase;
    char box[22];
    bool started;  /* the spawner knows `box` */
    bool close;    /* STOPPING: unmount as well */
    bool flushing; /* a flush is deferred */
    bool dead;     /* freed; the memory goes when nothing deferred can hold it */
    struct agent *agent;
    struct list waiters, stoppers;
    struct err why;     /* of the failed start, for waiters */
    int64_t give_up;    /* STARTING */
    struct timer timer; /* STARTING: try again; READY: idle */
};

static void start(struct keeper *k);
static void stop(struct keeper *k, bool unmount);

static void flush(void *arg)
{
    struct keeper *k = arg;
    struct waiter *w;
    struct list all;
    k->flushing = false;
    if (k->dead)
        return;
    if (k->phase == K_STARTING || k->phase == K_STOPPING)
        return; /* its end flushes again */
    list_init(&all);
    list_each(w, &k->waiters, link) {
        list_del(&w->link);
        list_add_tail(&all, &w->link);
    }
    struct err why = k->why;
    if (k->phase == K_READY)
        timer_arm(&k->timer, IDLE_NS);
    list_each(w, &all, link) {
        bool ready = k->phase == K_READY; /* the one before may have broken it */
        list_del(&w->link);
        w->cb(w->arg, k->v, ready ? k->agent : NULL, ready ? NULL : &why);
        free(w);
    }
}

static void flush_later(struct keeper *k)
{
    if (!k->flushing)
        loop_defer(k->v->core->loop, flush, k);
    k->flushing = true;
}

static void failed(struct keeper *k, const struct err *e)
{
    log_warn("volume %s: keeper: %s", k->v->id, e->msg);
    k->why = *e;
    timer_stop(&k->timer);
    stop(k, !volume_in_use(k->v));
}

/* ---- stop ---- */
static void stopped(struct keeper *k)
{
    struct stopper *t;
    struct list all;
    k->phase = K_NONE;
    k->started = false;
    list_init(&all);
    list_each(t, &k->stoppers, link) {
        list_del(&t->link);
        list_add_tail(&all, &t->link);
    }
    list_each(t, &all, link) {
        list_del(&t->link);
        if (t->done)
            t->done(t->arg);
        free(t);
    }
    if (k->why.code) {
        flush_later(k); /* waiters of a start that failed hear why */
        return;
    }
    if (!list_empty(&k->waiters))
        start(k);
    else if (k->v->state == VOL_READY && volume_in_use(k->v))
        volumes_keeper_lost(k->v);
}

static void closed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct keeper *k = arg;
    (void)fds, (void)nfds;
    if (rep->rc)
        log_warn("volume %s: unmount: %s", k->v->id, rep->err.msg);
    stopped(k);
}

static void unmount(struct keeper *k)
{
    struct sp_req q = {.op = SP_VOLUME_CLOSE};
    struct err e;
    memcpy(q.u.id.id, k->v->id, sizeof k->v->id);
    if (!k->close || spawn_call(k->v->core->spawn, &q, NULL, 0, closed, k, &e))
        stopped(k);
}

static void removed(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct keeper *k = arg;
    (void)fds, (void)nfds;
    if (rep->rc)
        log_warn("volume %s: removing its keeper: %s", k->v->id, rep->err.msg);
    unmount(k);
}

static void stop_later(void *arg)
{
    struct keeper *k = arg;
    struct sp_req q = {.op = SP_REMOVE};
    struct err e;
    if (k->dead)
        return;
    memcpy(q.u.id.id, k->box, sizeof k->box);
    if (!k->started || spawn_call(k->v->core->spawn, &q, NULL, 0, removed, k, &e))
        unmount(k);
}

static void stop(struct keeper *k, bool close)
{
    timer_stop(&k->timer);
    agent_free(k->agent);
    k->agent = NULL;
    if (k->phase == K_STOPPING) {
        k->close |= close;
        return;
    }
    k->close = close;
    k->phase = K_STOPPING;
    loop_defer(k->v->core->loop, stop_later, k);
}

void keeper_stop(struct volume *v, void (*done)(void *arg), void *arg)
{
    struct keeper *k = v->keeper;
    struct stopper *t = xcalloc(1, sizeof *t);
    t->done = done, t->arg = arg;
    list_add_tail(&k->stoppers, &t->link);
    if (!list_empty(&k->waiters)) {
        err_set(&k->why, E_GONE, "volume '%s' is being deleted", v->name);
    }
    if (k->phase != K_STARTING) /* a start under way sees the stopper when it is over */
        stop(k, true);
}

/* ---- start ---- */
static void on_broken(void *arg, const struct err *why)
{
    struct keeper *k = arg;
    log_warn("volume %s: its keeper ended: %s", k->v->id, why->msg);
    stop(k, !volume_in_use(k->v));
}

static void on_timer(void *arg);

static void synced(void *arg, const struct err *e)
{
    struct keeper *k = arg;
    if (k->phase != K_STARTING)
        return;
    if (e) {
        failed(k, e);
        return;
    }
    if (!list_empty(&k->stoppers)) {
        stop(k, true);
        return;
    }
    k->phase = K_READY;
    timer_arm(&k->timer, IDLE_NS);
    flush_later(k);
}

static void on_started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct keeper *k = arg;
    struct err e;
    if (!rep->rc && nfds >= 2) {
        k->agent = agent_new(k->v->core->loop, take_fd(&fds[1]), on_broken, k);
        agent_sync(k->agent, false, synced, k);
        return;
    }
    k->started = false;
    if (rep->rc && rep->err.code == E_UNAVAILABLE && clock_mono() < k->give_up &&
        list_empty(&k->stoppers)) {
        timer_arm(&k->timer, RETRY_NS);
        return;
    }
    err_set(&e, E_INTERNAL, "hutch-spawn returned no channel");
    failed(k, rep->rc ? &rep->err : &e);
}

static void try_start(struct keeper *k)
{
    struct sp_req q = {.op = SP_KEEPER_START};
    struct err e;
    id_make('b', k->box);
    memcpy(q.u.keeper.id, k->box, sizeof k->box);
    memcpy(q.u.keeper.volume, k->v->id, sizeof k->v->id);
    k->started = true;
    if (spawn_call(k->v->core->spawn, &q, NULL, 0, on_started, k, &e)) {
        k->started = false;
        failed(k, &e);
    }
}

static void start(struct keeper *k)
{
    k->phase = K_STARTING;
    k->why = (struct err){0};
    k->give_up = clock_mono() + START_NS;
    try_start(k);
}

static void on_timer(void *arg)
{
    struct keeper *k = arg;
    if (k->phase == K_STARTING && !k->agent) {
        try_start(k);
        return;
    }
    if (k->phase != K_READY)
        return;
    if (volume_in_use(k->v) || agent_open(k->agent) || !list_empty(&k->waiters))
        timer_arm(&k->timer, IDLE_NS);
    else
        stop(k, true);
}

/* ---- for the other files ---- */
struct keeper *keeper_new(struct volume *v)
{
    struct keeper *k = xcalloc(1, sizeof *k);
    k->v = v;
    list_init(&k->waiters), list_init(&k->stoppers);
    timer_init(&k->timer, v->core->loop, on_timer, k);
    return k;
}

void keeper_get(struct volume *v, open_cb *cb, void *arg)
{
    struct keeper *k = v->keeper;
    struct waiter *w = xcalloc(1, sizeof *w);
    w->cb = cb, w->arg = arg;
    list_add_tail(&k->waiters, &w->link);
    if (k->phase == K_READY)
        flush_later(k);
    else if (k->phase == K_NONE && !k->flushing)
        start(k);
    /* else: comes with the start, or after the stop; a flush under way may fail it with the last start's reason */
}

struct agent *keeper_agent(struct volume *v)
{
    return v->keeper->phase == K_READY ? v->keeper->agent : NULL;
}

void keeper_touch(struct volume *v)
{
    if (v->keeper->phase == K_READY)
        timer_arm(&v->keeper->timer, IDLE_NS);
}

bool keeper_exited(struct volume *v, const struct sp_exit *ex)
{
    struct keeper *k = v->keeper;
    if (!k->started || strcmp(k->box, ex->id))
        return false;
    struct err e;
    err_set(&e, E_INTERNAL, "it ended with %s %d", ex->signaled ? "signal" : "status", ex->code);
    if (k->phase == K_READY)
        on_broken(k, &e);
    else if (k->phase == K_STARTING)
        failed(k, &e);
    return true;
}

/* No callback comes after this. */
void keeper_free(struct keeper *k)
{
    struct waiter *w;
    struct stopper *t;
    k->dead = true;
    timer_stop(&k->timer);
    agent_free(k->agent);
    list_each(w, &k->waiters, link) {
        list_del(&w->link);
        free(w);
    }
    list_each(t, &k->stoppers, link) {
        list_del(&t->link);
        free(t);
    }
    loop_defer(k->v->core->loop, free, k);
}
