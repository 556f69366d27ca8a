/* The second channel of a VM: to the process in it that has its volumes
 * mounted (guest/share.c). Opened when the first volume needs it. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/box/box.h"
#include "core/host/ref.h"
#include "spawn/client.h"
#include <string.h>

#define VOLUMES_NS (130 * NS_PER_S) /* a VM that boots from its disk answers late */

struct volumes_wait {
    struct core *core;
    char id[22];
    struct timer deadline;
    void (*cb)(void *arg, struct agent *a, const struct err *e);
    void *arg;
    bool over;
};

static void volumes_end(struct volumes_wait *w, const struct err *e)
{
    struct box *b = box_at(w->core, w->id);
    struct err gone;
    if (w->over)
        return;
    w->over = true;
    timer_stop(&w->deadline);
    if (!e && (!b || b->removing || !b->volumes)) {
        err_set(&gone, E_GONE, "the sandbox ended");
        e = &gone;
    }
    if (e && b && !b->removing && e->code != E_GONE) {
        struct agent *a = b->volumes;
        b->volumes = NULL;
        agent_free(a);
    }
    w->cb(w->arg, e ? NULL : b->volumes, e);
    loop_defer(w->core->loop, free, w);
}

static void volumes_late(void *arg)
{
    struct err e;
    err_set(&e, E_TIMEOUT, "the sandbox's process for volumes does not answer");
    volumes_end(arg, &e);
}

static void volumes_synced(void *arg, const struct err *e) { volumes_end(arg, e); }

static void volumes_broken(void *arg, const struct err *why)
{
    struct box *b = arg;
    struct agent *a = b->volumes;
    if (why->code != E_GONE)
        log_warn("box %s: channel for volumes: %s", b->id, why->msg);
    b->volumes = NULL; /* who used it heard, and asks again */
    agent_free(a);
}

static void volumes_port(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct volumes_wait *w = arg;
    struct box *b = box_at(w->core, w->id);
    struct err e;
    if (rep->rc || nfds < 1 || !b || b->removing) {
        err_set(&e, E_GONE, "the sandbox ended");
        volumes_end(w, rep->rc ? &rep->err : &e);
        return;
    }
    agent_free(b->volumes);
    b->volumes = agent_new(b->core->loop, take_fd(&fds[0]), volumes_broken, b);
    agent_patient(b->volumes);
    timer_init(&w->deadline, b->core->loop, volumes_late, w);
    timer_arm(&w->deadline, VOLUMES_NS);
    agent_sync(
        b->volumes, true, volumes_synced,
        w); /* an earlier daemon, or the VM before it was copied, may have left half a frame */
}

static void volumes_there(void *arg) { volumes_end(arg, NULL); }

void box_volumes(struct box *b, void (*cb)(void *arg, struct agent *a, const struct err *e),
                 void *arg)
{
    struct volumes_wait *w = xcalloc(1, sizeof *w);
    struct sp_req q = {.op = SP_VOLUME_PORT};
    struct err e;
    *w = (struct volumes_wait){.core = b->core, .cb = cb, .arg = arg};
    memcpy(w->id, b->id, sizeof w->id);
    memcpy(q.u.id.id, b->id, sizeof b->id);
    if (b->volumes && agent_synced(b->volumes)) {
        loop_defer(b->core->loop, volumes_there, w);
        return;
    }
    if (spawn_call(b->core->spawn, &q, NULL, 0, volumes_port, w,
                   &e)) /* without the spawner there is no box either */
        loop_defer(b->core->loop, volumes_there, w);
}
