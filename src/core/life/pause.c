/* The way to sleep. See pause.h for when it counts. */
#include "core/life/pause.h"
#include "tier/machine.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/code/context.h"
#include "core/volume/volume.h"
#include "core/life/transit.h"
#include "core/life/usage.h"
#include <stdio.h>
#include <stdlib.h>

#define FREEZE_NS (60 * NS_PER_S)

static void pausing_stored(void *arg, const struct err *e)
{
    struct sandbox_ref r = sandbox_ref_take(arg);
    struct sandbox *sb = sandbox_at(r.core, r.id);
    if (!e && sb && sb->state == SB_PAUSING)
        sandbox_announce(sb);
}

/* ---- pause: undone --------------------------------------------------------------------------------------------------- */

static void running_again(void *arg, const struct err *e)
{
    struct transit *t = arg;
    (void)e; /* the row said "pausing" at worst, which a successor reads as running */
    if (transit_back(t))
        transit_end(t, &t->err);
}

static void undone(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    (void)sandbox_advance(sb, SBE_RESUME, NULL);
    sb->life.paused = PAUSE_NONE;
    int64_t left = sb->expires_mono - clock_mono();
    sandbox_arm_expiry(sb, left > NS_PER_S ? left : NS_PER_S);
    activity_begin(sb);
    log_warn("sandbox %s: not paused: %s", sb->id, t->err.msg);
    sandbox_store(sb, running_again, transit_hold(t));
}

static void undo_lost(struct transit *t, const struct err *e)
{
    struct sandbox *sb = transit_owner(t);
    char m[300];
    (void)snprintf(m, sizeof m, "it could not be paused (%s) and did not continue (%s)", t->err.msg,
                   e->msg);
    sandbox_box_ended(sb, END_HOST_FAULT, m, true); /* ends the transition */
}

static void undo_thawed(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    (void)r;
    if (!transit_back(t))
        return;
    timer_stop(&t->deadline);
    if (e)
        undo_lost(t, e);
    else
        undone(t);
}

static void undo_late(void *arg)
{
    struct err e;
    err_set(&e, E_TIMEOUT, "its agent did not go on within %d s", (int)(THAW_NS / NS_PER_S));
    undo_lost(arg, &e);
}

static void undo_thaw(struct transit *t)
{
    static const struct call_ops ops = {.done = undo_thawed};
    struct err e;
    auto_buf rec = {0};
    rec_put_u64(&rec, T_WALL_NS, (uint64_t)clock_wall());
    transit_deadline(t, THAW_NS, undo_late);
    if (transit_call(t, OP_THAW, &rec, &ops, &e))
        undo_lost(t, &e);
}

static void undo_continued(void *arg, struct machine *m, const struct err *e)
{
    struct transit *t = arg;
    (void)m;
    if (t->over)
        return;
    if (e)
        undo_lost(t, e);
    else
        undo_thaw(t);
}

static void standing_again(void *arg, struct machine *m, const struct err *e)
{
    struct transit *t = arg;
    (void)m;
    if (t->over)
        return;
    if (e)
        undo_lost(t, e);
    else
        transit_end(t, &t->err); /* in standby, as before */
}

/* It goes on as if nothing had been. */
static void pause_failed(struct transit *t, const struct err *e)
{
    struct sandbox *sb = transit_owner(t);
    if (t->over || !sb || !sb->box)
        return;
    t->err = *e;
    timer_stop(&t->deadline);
    saving_free(t->saving);
    t->saving = NULL;
    if (t->deepen)
        machine_hold(sb->box->machine, true, standing_again, t);
    else if (!tier_can(sb->tier, TIER_MEMORY))
        undone(t);
    else if (t->stopped)
        machine_hold(sb->box->machine, false, undo_continued, t);
    else if (t->frozen)
        undo_thaw(t);
    else
        undone(t);
}

static void on_deadline(void *arg)
{
    struct transit *t = arg;
    struct err e;
    err_set(&e, E_TIMEOUT, "the sandbox could not be frozen within %d s",
            (int)(FREEZE_NS / NS_PER_S));
    t->frozen = true; /* perhaps; to thaw what is not frozen does no harm */
    pause_failed(t, &e);
}

/* ---- pause: a VM to disk --------------------------------------------------------------------------------------------- */

static void pause_over(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    if (!transit_back(t) || --t->parts || !sb)
        return;
    sandbox_announce(sb);
    usage_measure(sb);
    log_debug("sandbox %s paused in %lld us", sb->id, (long long)(clock_mono() - t->begun) / 1000);
    transit_end(t, NULL);
}
static void pause_stored(void *arg, const struct err *e)
{
    if (e) /* the manifest is what counts; the row follows at the next start */
        log_error("storing a pause: %s", e->msg);
    fault("pause.stored");
    pause_over(arg);
}
static void pause_released(void *arg)
{
    fault("pause.released");
    pause_over(arg);
}

static void now_paused(struct sandbox *sb, enum pause_kind kind, bool memory, uint64_t bytes)
{
    (void)sandbox_advance(sb, SBE_PAUSED,
                          NULL); /* refused for one that was in standby: it is paused already */
    sb->life.paused = kind;
    sb->life.memory = memory;
    sb->life.bytes = bytes;
    sb->life.held = 0;
    sb->life.paused_ns = clock_wall();
}

/* What is on disk is whole: from here on it is paused, whatever happens. */
static void on_disk(struct transit *t, bool memory, uint64_t bytes)
{
    struct sandbox *sb = transit_owner(t);
    struct box *b = sb->box;
    fault("pause.on-disk");
    now_paused(sb, PAUSE_DISK, memory, bytes);
    volumes_disconnect(sb);
    sb->box = NULL;
    t->parts = 2;
    b->keep_files = true;
    sandbox_store(sb, pause_stored, transit_hold(t));
    box_remove(b, pause_released, transit_hold(t));
}

static void published(void *arg, struct saving *s, const struct err *e)
{
    struct transit *t = arg;
    if (t->over)
        return;
    if (e) {
        pause_failed(t, e);
        return;
    }
    on_disk(t, saving_facts(s).memory, saving_facts(s).bytes);
}

static void taken(void *arg, struct saving *s, const struct err *e)
{
    struct transit *t = arg;
    if (t->over)
        return;
    if (e) {
        pause_failed(t, e);
        return;
    }
    fault("pause.taken");
    saving_publish(s, transit_owner(t)->generation, published, t);
}

/* Its memory stays where it is, and nothing of it runs. */
static void in_standby(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    fault("pause.standby");
    now_paused(sb, PAUSE_STANDBY, true, 0);
    t->parts = 1;
    sandbox_store(sb, pause_stored, transit_hold(t));
}

static void stopped(void *arg, struct machine *m, const struct err *e)
{
    struct transit *t = arg;
    (void)m;
    if (t->over)
        return;
    if (e) {
        pause_failed(t, e);
        return;
    }
    fault("pause.stopped");
    t->stopped = true;
    timer_stop(&t->deadline);
    if (t->pause.standby)
        in_standby(t);
    else if (t->pause.files_only)
        saving_publish(t->saving, transit_owner(t)->generation, published, t);
    else
        saving_take(t->saving, taken, t);
}

static void cut_streams(struct sandbox *sb)
{
    struct err why;
    err_set(&why, E_CONFLICT, "sandbox %s was paused", sb->id);
    contexts_drop(sb, &why); /* they are found again in its process list */
    agent_cut(sb->box->agent, &why);
}

static void frozen(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    (void)r;
    if (!transit_back(t) || t->frozen || !sb)
        return;
    if (e) {
        pause_failed(t, e);
        return;
    }
    fault("pause.frozen");
    t->frozen = true;
    cut_streams(sb);
    machine_hold(sb->box->machine, true, stopped, t);
}

static void freeze(struct transit *t)
{
    static const struct call_ops ops = {.done = frozen};
    struct err e;
    auto_buf rec = {0};
    if (t->pause.standby)
        rec_put_u64(&rec, T_FLAGS, FREEZE_QUICK);
    timer_arm(&t->deadline, FREEZE_NS);
    if (transit_call(t, OP_FREEZE, &rec, &ops, &e))
        pause_failed(t, &e);
}

/* From standby to disk: its processor runs again for a moment, its processes do not, and its file systems are frozen too. */
static void deepen_continued(void *arg, struct machine *m, const struct err *e)
{
    struct transit *t = arg;
    (void)m;
    if (t->over)
        return;
    if (e)
        pause_failed(t, e);
    else
        freeze(t);
}

static void deepen_woken(void *arg, struct box *b, const struct err *e)
{
    (void)b;
    if (transit_back(arg))
        deepen_continued(arg, NULL, e);
}

static void deepen(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    if (!sb->box->synced) /* taken over from an earlier daemon: the channel first */
        sandbox_configure(sb, deepen_woken, transit_hold(t));
    else
        machine_hold(sb->box->machine, false, deepen_continued, t);
}

static void saving_ready(void *arg, struct saving *s, const struct err *e)
{
    struct transit *t = arg;
    (void)s;
    if (t->over)
        return;
    if (e)
        pause_failed(t, e);
    else if (t->deepen)
        deepen(t);
    else
        freeze(t);
}

/* ---- pause: a container --------------------------------------------------------------------------------------------- */

static void container_frozen(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    (void)b;
    if (t->over)
        return;
    if (e)
        pause_failed(t, e);
    else
        in_standby(t);
}

static void container_synced(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    (void)e,
        (void)
            r; /* a guest that does not sync is stopped all the same: the unmount writes its files */
    if (!transit_back(t) || t->err.code || !transit_owner(t))
        return; /* … unless its answer comes too late: the pause is being undone */
    timer_stop(&t->deadline);
    cut_streams(transit_owner(t));
    on_disk(t, false, 0);
}

static void container_pause(struct transit *t)
{
    static const struct call_ops ops = {.done = container_synced};
    struct sandbox *sb = transit_owner(t);
    struct err e;
    if (t->pause.standby) {
        cut_streams(sb);
        box_hold(sb->box, true, container_frozen, t);
        return;
    }
    timer_arm(&t->deadline, FREEZE_NS);
    if (transit_call(t, OP_SYNC, NULL, &ops, &e))
        pause_failed(t, &e);
}

/* ---- pause: begin ---------------------------------------------------------------------------------------------------- */

/* What it will be, or a refusal. Nothing is given up silently that was asked for by name. */
static int check(struct sandbox *sb, struct pause_spec *how, struct err *e)
{
    if (!tier_can(sb->tier, TIER_MEMORY) && how->memory_wanted && !how->standby)
        return err_why(
            e, REASON_NO_MEMORY, E_UNSUPPORTED,
            "a container's memory cannot be kept on disk: use standby, keep the files only, or use isolation vm");
    if (!tier_can(sb->tier, TIER_MEMORY) && !how->standby)
        how->files_only = true;
    if (how->standby && how->files_only)
        return err_set(e, E_INVALID,
                       "standby keeps the memory: it cannot be combined with memory: false");
    return 0;
}

int sandbox_pause(struct sandbox *sb, const struct pause_spec *how, sandbox_cb *done, void *arg,
                  struct err *e)
{
    if (sb->transit && sb->transit->kind == PAUSE) {
        transit_wait(sb->transit, done, arg, false);
        return 0;
    }
    if (sb->transit)
        return transit_after(
            sb, (struct transit_again){.kind = PAUSE, .pause = *how, .done = done, .arg = arg});
    struct pause_spec want = *how;
    bool deepen_it = sb->state == SB_PAUSED && sb->life.paused == PAUSE_STANDBY && !how->standby &&
                     tier_can(sb->tier, TIER_MEMORY);
    if (check(sb, &want, e))
        return -1;
    if (sb->core->stopping && sb->core->keep)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping");
    if (want.why == WHY_CALL && !want.standby &&
        usage_check(sb->core, sandbox_tenant(sb), 0,
                    e)) /* a timer's pause is better than its kill */
        return -1;
    if (!deepen_it && sb->state != SB_RUNNING)
        return transit_not_now(sb, "paused", e);
    if (!deepen_it && sandbox_advance(sb, SBE_PAUSE, e))
        return -1;
    struct transit *t = transit_new(sb, PAUSE, on_deadline);
    t->pause = want;
    t->deepen = deepen_it;
    transit_wait(t, done, arg, false);
    timer_stop(&sb->expiry);
    if (!deepen_it) {
        sb->life.paused =
            want.standby ? PAUSE_STANDBY : PAUSE_DISK; /* where it goes, for a successor of ours */
        sb->life.memory = !want.files_only;
        sb->life.why = want.why;
        sandbox_store(sb, pausing_stored, sandbox_ref_new(sb));
    }
    if (!tier_can(sb->tier, TIER_MEMORY))
        container_pause(t);
    else if (want.standby)
        freeze(t);
    else
        t->saving = saving_new(sb->box->machine, NULL, !want.files_only, saving_ready, t);
    return 0;
}
