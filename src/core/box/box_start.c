/* How a box comes to be: started from a template or a snapshot, resumed from its
 * files, or adopted from an earlier daemon; then its agent's channel is open. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/box/box_int.h"
#include "spawn/client.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The exit event follows the end of the channel at once; a spawner that hangs is not waited for longer. */
#define EXIT_NS (5 * NS_PER_S)

static struct box *box_new(struct core *c, const struct box_spec *spec)
{
    struct box *b = xcalloc(1, sizeof *b);
    b->core = c, b->spec = *spec;
    list_init(&b->removers);
    timer_init(&b->deadline, c->loop, box_overdue, b);
    b->started_mono = clock_mono();
    return b;
}

static void on_broken(void *arg, const struct err *why)
{
    struct box *b = arg;
    if (why->code == E_GONE)
        return; /* the process ended; its exit event says how */
    box_ended(b, END_HOST_FAULT, why->msg, false);
}

static void open_channel(struct box *b, int fd)
{
    b->agent = agent_new(b->core->loop, fd, on_broken, b);
    agent_silence(b->agent, b->core->cfg.agent_silent_s * NS_PER_S);
    agent_hold(b->agent, EXIT_NS);
}

static void machine_lost(void *arg, const struct err *e)
{
    struct box *b = arg;
    if (e && e->code == E_GONE)
        return; /* likewise */
    log_warn("box %s: %s", b->id, e ? e->msg : "lost");
}

static void take_machine(struct box *b, struct machine *m, enum box_phase phase)
{
    b->machine = m;
    m->lost = machine_lost, m->lost_arg = b;
    open_channel(b, machine_chan(m));
    b->phase = phase;
    box_finish(b, NULL);
}

/* ---- start ---- */
static void start_failed(struct box *b, const struct err *e)
{
    struct err copy = *e;
    box_finish(b, &copy);
    box_remove(b, NULL, NULL);
}

static void machine_started(void *arg, struct machine *m, const struct err *e)
{
    struct ref r = ref_take(arg);
    struct box *b = box_at(r.core, r.id);
    if (!b || !b->start) { /* removed, or left, before anything of it was on the host */
        machine_drop(m);
        return;
    }
    b->start = NULL;
    if (b->removing) {
        machine_drop(m);
        box_remove_now(b);
    } else if (e)
        start_failed(b, e);
    else
        take_machine(b, m, BOX_WAITING);
}

static void start_later(void *arg)
{
    struct box *b = box_take(arg);
    if (!b)
        return;
    struct machine_start s = {.memory_mib = b->spec.memory_mib,
                              .cpu_millis = b->spec.cpu_millis,
                              .disk_mib = b->spec.disk_mib,
                              .low_priority = b->low_priority,
                              .own_files = b->keep_files,
                              .boot = b->booting,
                              .copies = b->copies};
    memcpy(s.id, b->id, sizeof s.id);
    memcpy(s.template_id, b->spec.template_id, sizeof s.template_id);
    memcpy(s.snapshot, b->from, sizeof s.snapshot);
    b->start = machine_start(&b->core->tiers, b->spec.tier, &s, machine_started, box_ref(b));
}

struct box *box_resume(struct core *c, const char *id, const struct box_spec *spec, bool boot,
                       box_cb *cb, void *arg)
{
    struct box *b = box_new(c, spec);
    (void)snprintf(b->id, sizeof b->id, "%s", id);
    b->keep_files = true;
    b->torn = !boot;
    b->booting = boot;
    b->cb = cb, b->cb_arg = arg;
    box_enter(b);
    loop_defer(c->loop, start_later, box_ref(b));
    return b;
}

struct box *box_start(struct core *c, const struct box_spec *spec, bool low_priority, box_cb *cb,
                      void *arg)
{
    struct box *b = box_new(c, spec);
    id_make('b', b->id);
    b->low_priority = low_priority;
    b->cb = cb, b->cb_arg = arg;
    box_enter(b);
    loop_defer(c->loop, start_later, box_ref(b));
    return b;
}

struct box *box_start_from(struct core *c, const struct box_spec *spec, const char *snapshot,
                           bool boot, unsigned copies, box_cb *cb, void *arg)
{
    struct box *b = box_start(c, spec, false, cb, arg);
    (void)snprintf(b->from, sizeof b->from, "%s", snapshot);
    b->booting = boot;
    b->copies = copies;
    b->torn = !boot && tier_can(spec->tier, TIER_MEMORY);
    return b;
}

/* ---- adopt ---- */
static void machine_adopted(void *arg, struct machine *m, const struct err *e)
{
    struct box *b = box_take(arg);
    if (!b) {
        machine_drop(m);
        return;
    }
    if (e) {
        start_failed(b, e);
        return;
    }
    b->restored = machine_running(m);
    take_machine(b, m, BOX_LIVE);
}

static void attached(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct box *b = box_take(arg);
    struct err e;
    if (!b)
        return;
    if (rep->rc) {
        start_failed(b, &rep->err);
    } else if (!rep->u.info.alive) {
        err_set(&e, E_GONE, "its process has ended");
        start_failed(b, &e);
    } else
        machine_adopt(&b->core->tiers, b->spec.tier, b->id, fds, nfds, machine_adopted, box_ref(b));
}

void box_adopt(struct core *c, const char *id, const struct box_spec *spec, box_cb *cb, void *arg)
{
    struct box *b = box_new(c, spec);
    struct err e;
    (void)snprintf(b->id, sizeof b->id, "%s", id);
    b->keep_files = true; /* who ends it decides */
    b->cb = cb, b->cb_arg = arg;
    box_enter(b);
    struct sp_req q = {.op = SP_ATTACH};
    memcpy(q.u.id.id, b->id, sizeof b->id);
    struct ref *r = box_ref(b);
    if (spawn_call(c->spawn, &q, NULL, 0, attached, r, &e)) {
        (void)ref_take(r);
        start_failed(b, &e);
    }
}
