/* A snapshot of a VM: freeze, stop, copy, go on, publish; of one in standby
 * likewise, of one on disk from its files. */
#include "tier/machine.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "core/agent/agent.h"
#include "core/life/snapshot_take_int.h"
#include "core/life/transit.h"
#include <stdio.h>

static void published(void *arg, struct saving *sv, const struct err *e)
{
    struct taking *k = arg;
    struct snapshot *s = snapshot_at(k->core, k->id);
    if (e) {
        taking_fail(k, e);
        return;
    }
    fault("snapshot.published");
    s->memory_bytes = saving_facts(sv).bytes;
    s->disk_bytes = saving_facts(sv).disk_bytes;
    snapshot_store(s, taking_stored, k);
}

static void lost(struct transit *t, const struct err *e)
{
    char m[300];
    (void)snprintf(m, sizeof m, "it did not continue after a snapshot: %s", e->msg);
    sandbox_box_ended(transit_owner(t), END_HOST_FAULT, m, true); /* ends the transition */
}

/* The sandbox is as it was before. */
static void as_before(struct transit *t)
{
    struct taking *k = t->taking;
    if (t->err.code) { /* it was not to be, but the sandbox is none the worse */
        transit_end(t, &t->err);
        return;
    }
    fault("snapshot.thawed");
    uint64_t generation = transit_owner(t)->generation;
    taking_go_free(k);
    saving_publish(k->saving, generation, published, k);
}

static void settled(struct transit *t, const struct err *e)
{
    if (t->over)
        return;
    if (e)
        lost(t, e);
    else
        as_before(t);
}

static void thawed(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    if (transit_back(arg))
        settled(arg, e);
}

static void stands_again(void *arg, struct machine *m, const struct err *e)
{
    (void)m;
    settled(arg, e);
}

static void continued(void *arg, struct machine *m, const struct err *e)
{
    struct transit *t = arg;
    (void)m;
    if (!t->over && e)
        lost(t, e);
    /* else the thaw that rides behind answers */
}

static void thaw_late(void *arg)
{
    struct err e;
    err_set(&e, E_TIMEOUT, "its agent did not go on within %d s", (int)(THAW_NS / NS_PER_S));
    lost(arg, &e);
}

/* From here on user code may run. why: NULL, or what went wrong. */
static void go_on(struct transit *t, const struct err *why)
{
    static const struct call_ops ops = {.done = thawed};
    struct sandbox *sb = transit_owner(t);
    struct err e;
    auto_buf rec = {0};
    timer_stop(&t->deadline);
    t->taking->late = true;
    if (why)
        t->err = *why;
    if (t->taking->standing) { /* in standby: its processes do not go on */
        if (t->stopped)
            as_before(t);
        else
            machine_hold(sb->box->machine, true, stands_again, t);
        return;
    }
    if (t->stopped)
        machine_hold(sb->box->machine, false, continued, t);
    rec_put_u64(&rec, T_WALL_NS, (uint64_t)clock_wall());
    transit_deadline(t, THAW_NS, thaw_late);
    if (transit_call(t, OP_THAW, &rec, &ops, &e))
        lost(t, &e);
}

static void taken(void *arg, struct saving *sv, const struct err *e)
{
    struct taking *k = arg;
    (void)sv;
    fault("snapshot.copied");
    if (k->t)
        go_on(k->t, e);
}

static void stopped(void *arg, struct machine *m, const struct err *e)
{
    struct transit *t = arg;
    (void)m;
    if (t->over)
        return;
    t->stopped = !e;
    if (e)
        go_on(t, e);
    else
        saving_take(t->taking->saving, taken, t->taking);
}

static void frozen(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    (void)r;
    if (!transit_back(t) || t->taking->late)
        return;
    fault("snapshot.frozen");
    timer_stop(&t->deadline); /* from here on QEMU's own */
    if (e && t->taking->standing)
        go_on(t, e);
    else if (e)
        transit_end(t, e); /* the agent thawed what it had frozen */
    else
        machine_hold(transit_owner(t)->box->machine, true, stopped, t);
}

void taking_vm_late(void *arg)
{
    struct err e;
    err_set(&e, E_TIMEOUT, "the sandbox could not be frozen within %d s",
            (int)(FREEZE_NS / NS_PER_S));
    go_on(arg, &e); /* to thaw what is not frozen does no harm */
}

static int freeze(struct transit *t, struct err *e)
{
    static const struct call_ops ops = {.done = frozen};
    return transit_call(t, OP_FREEZE, NULL, &ops, e);
}

static void synced(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    struct err no;
    (void)r;
    if (!transit_back(t) || t->taking->late)
        return;
    t->taking->stood = clock_mono();
    if (e || freeze(t, &no))
        transit_end(t, e ? e : &no);
}

/* One in standby: its processor runs for a moment, its processes do not, until its file systems are written back and frozen. */
static void standing_moves(void *arg, struct machine *m, const struct err *e)
{
    struct transit *t = arg;
    struct err no;
    (void)m;
    if (t->over)
        return;
    if (e) {
        lost(t, e);
        return;
    }
    timer_arm(&t->deadline, FREEZE_NS);
    if (freeze(t, &no))
        go_on(t, &no);
}

static void saving_ready(void *arg, struct saving *sv, const struct err *e)
{
    static const struct call_ops ops = {.done = synced};
    struct taking *k = arg;
    (void)sv;
    if (!k->t)
        return;
    fault("snapshot.begun");
    if (e)
        transit_end(k->t, e);
    else if (k->standing)
        machine_hold(transit_owner(k->t)->box->machine, false, standing_moves, k->t);
    else
        taking_sync(k->t, &ops);
}

/* Of one that is paused on disk: all that is needed of it lies there. */
static void saved_copied(void *arg, struct saving *sv, const struct err *e)
{
    struct taking *k = arg;
    if (!k->t)
        return;
    fault("snapshot.copied");
    if (e) {
        transit_end(k->t, e);
        return;
    }
    uint64_t generation = transit_owner(k->t)->generation;
    k->late = true;
    taking_go_free(k);
    saving_publish(sv, generation, published, k);
}

void taking_vm(struct taking *k, struct sandbox *sb)
{
    if (sb->state == SB_PAUSED && !k->standing)
        k->saving = saving_of_saved(&k->core->tiers, sb->tier, sb->box_id, k->id, k->memory,
                                    saved_copied, k);
    else
        k->saving = saving_new(sb->box->machine, k->id, k->memory, saving_ready, k);
}
