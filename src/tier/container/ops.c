/* Containers as a tier: jails that hutch-spawn makes and holds. */
#include "tier/container/container.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "loop/loop.h"
#include "spawn/client.h"
#include "spawn/op.h"
#include "tier/machine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A freeze or thaw that the spawner was asked for; m is NULL once the machine was dropped. */
struct asked {
    struct flight flight;
    struct machine_container *m;
    machine_cb *cb;
    void *arg;
};

struct machine_container {
    struct machine m;
    int pidfd, chan;
    struct asked *asked;
};
static struct machine_container *of(const struct machine *m)
{
    return (struct machine_container *)(uintptr_t)m;
}

static struct machine *machine_of(struct tier_host *h, const struct tier *t, const char *id,
                                  int *fds)
{
    struct machine_container *c = xcalloc(1, sizeof *c);
    c->m = (struct machine){.tier = t, .host = h};
    (void)snprintf(c->m.id, sizeof c->m.id, "%s", id);
    c->pidfd = take_fd(&fds[0]);
    c->chan = take_fd(&fds[1]);
    return &c->m;
}

/* ---- start ---- */
static void started(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct start *st = arg;
    struct err e;
    if (!rep->rc && nfds >= 2) {
        start_end(st, machine_of(st->host, st->tier, st->spec.id, fds), NULL);
        return;
    }
    err_set(&e, E_INTERNAL, "hutch-spawn returned no channel");
    start_end(st, NULL, rep->rc ? &rep->err : &e);
}

static void start_failed(void *arg)
{
    struct start *st = arg;
    struct err e = st->err;
    start_end(st, NULL, &e);
}

static void start_box(struct start *st)
{
    struct sp_req q = {.op = st->tier->ops->box_op};
    memcpy(q.u.box.id, st->spec.id, sizeof st->spec.id);
    memcpy(q.u.box.template_id, st->spec.template_id, sizeof st->spec.template_id);
    q.u.box.limit = start_limit(st);
    q.u.box.disk_mib = st->spec.disk_mib;
    (void)snprintf(q.u.box.hostname, sizeof q.u.box.hostname, "hutch");
    if (spawn_call(st->host->spawn, &q, NULL, 0, started, st, &st->err))
        loop_defer(st->host->loop, start_failed, st);
}

static void layer_seeded(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct start *st = arg;
    (void)fds, (void)nfds;
    if (!start_over(st, rep->rc ? &rep->err : NULL))
        start_box(st);
}

void container_start(struct start *st)
{
    const struct machine_start *s = &st->spec;
    st->on_host = true;
    struct sp_req q = {.op = SP_LAYER_SEED};
    if (!*s->snapshot) {
        start_box(st); /* on its own files, if it has some: boxes/<id> is where its layer is */
        return;
    }
    memcpy(q.u.layer.id, s->id, sizeof s->id);
    memcpy(q.u.layer.snapshot, s->snapshot, sizeof s->snapshot);
    if (spawn_call(st->host->spawn, &q, NULL, 0, layer_seeded, st, &st->err))
        loop_defer(st->host->loop, start_failed, st);
}

void container_adopt(struct tier_host *h, const struct tier *t, const char *id, int *fds, int nfds,
                     machine_cb *cb, void *arg)
{
    struct err e;
    if (nfds >= 2) {
        cb(arg, machine_of(h, t, id, fds), NULL);
        return;
    }
    err_set(&e, E_GONE, "its process has ended");
    cb(arg, NULL, &e);
}

/* ---- run states: it runs from the start, unless the host's freezer holds it ---- */
int container_chan(const struct machine *m) { return take_fd(&of(m)->chan); }
bool container_wake(struct machine *m, machine_cb *cb, void *arg)
{
    (void)m, (void)cb, (void)arg;
    return false;
}
bool container_waking(const struct machine *m)
{
    (void)m;
    return false;
}
bool container_running(const struct machine *m)
{
    (void)m;
    return true;
}

static void held(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct asked a = *(struct asked *)arg;
    (void)fds, (void)nfds;
    flight_end(arg);
    free(arg);
    if (!a.m)
        return;
    a.m->asked = NULL;
    a.cb(a.arg, &a.m->m, rep->rc ? &rep->err : NULL);
}

void container_hold(struct machine *m, bool on, machine_cb *cb, void *arg)
{
    struct machine_container *c = of(m);
    struct sp_req q = {.op = on ? SP_FREEZE : SP_THAW};
    struct asked *a = xcalloc(1, sizeof *a);
    struct sp_rep no = {.rc = -1};
    *a = (struct asked){.m = c, .cb = cb, .arg = arg};
    memcpy(q.u.id.id, m->id, sizeof m->id);
    flight_begin(m->host, &a->flight);
    c->asked = a;
    if (spawn_call(m->host->spawn, &q, NULL, 0, held, a, &no.err))
        held(a, &no, NULL, 0);
}

void container_drop(struct machine *m)
{
    struct machine_container *c = of(m);
    if (c->asked)
        c->asked->m = NULL;
    if (c->pidfd >= 0)
        (void)close(c->pidfd);
    if (c->chan >= 0)
        (void)close(c->chan);
    free(c);
}

const struct machine_ops container_ops = {
    .box_op = SP_BOX_START,
    .start = container_start,
    .adopt = container_adopt,
    .chan = container_chan,
    .wake = container_wake,
    .waking = container_waking,
    .running = container_running,
    .hold = container_hold,
    .drop = container_drop,
};
