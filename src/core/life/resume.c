/* The way back. See pause.h for when it counts. */
#include "tier/machine.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/network/network.h"
#include "core/agent/prime.h"
#include "core/life/quota.h"
#include "core/catalog/template.h"
#include "core/life/transit.h"
#include "core/volume/volume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- resume ---------------------------------------------------------------------------------------------------------- */

static void resume_undone(void *arg)
{
    struct transit *t = arg;
    if (transit_back(t))
        transit_end(t, &t->err);
}

/* It stays paused; its machine, if one was started, goes first: whoever hears of it may try again at once. */
static void resume_failed(struct transit *t, const struct err *e)
{
    struct sandbox *sb = transit_owner(t);
    struct box *b = sb ? box_at(t->core, sb->box_id) : NULL;
    if (t->over || t->failing)
        return;
    log_warn("sandbox %s: not resumed: %s", t->id, e->msg);
    t->failing = true;
    t->err = *e;
    if (sb && t->bumped)
        sb->generation--;
    t->bumped = false;
    if (sb && sb->box) {
        volumes_disconnect(sb);
        sb->box = NULL;
    }
    if (b)
        box_remove(b, resume_undone, transit_hold(t));
    else
        transit_end(t, &t->err);
}

bool transit_box_lost(struct sandbox *sb, const char *message)
{
    struct transit *t = sb->transit;
    struct err e;
    if (!t || t->kind != RESUME || t->committed)
        return false;
    err_set(&e, E_INTERNAL, "%s", message);
    resume_failed(t, &e);
    return true;
}

static void resume_stored(void *arg, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    if (!transit_back(t) || !sb)
        return;
    if (e)
        log_error("sandbox %s: storing its resume: %s", sb->id, e->msg);
    fault("resume.stored");
    sandbox_announce(sb);
    log_debug("sandbox %s resumed in %lld us", sb->id, (long long)(clock_mono() - t->begun) / 1000);
    transit_end(t, NULL);
}

static void brought_in(void *arg)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    if (transit_back(t) && sb)
        sandbox_store(sb, resume_stored, transit_hold(t));
}

/* User code runs. */
static void awake(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    uint32_t s = t->resume.timeout_s ? t->resume.timeout_s : sb->timeout_s;
    const char *path = sb->life.paused == PAUSE_STANDBY ? "standby"
                       : sb->life.memory                ? "resume"
                                                        : "boot";
    bool saved = sb->life.paused == PAUSE_DISK && tier_can(sb->tier, TIER_MEMORY);
    fault("resume.awake");
    sb->box->phase = BOX_LIVE;
    sb->life.paused = PAUSE_NONE;
    sb->life.bytes = 0;
    sb->timeout_s = s;
    sandbox_arm_expiry(sb, (int64_t)s * NS_PER_S);
    activity_begin(sb);
    free(sb->start_path);
    sb->start_path = xstrdup(path);
    sb->start_ms = (double)(clock_mono() - t->begun) / 1e6;
    if (saved)
        saved_drop(&sb->core->tiers, sb->tier, sb->box_id);
    if (!network_wake(sb, brought_in, transit_hold(t)))
        brought_in(t);
}

static void thawed(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    (void)r;
    if (!transit_back(t) || !sb)
        return;
    timer_stop(&t->deadline);
    if (e) {
        char m[300];
        (void)snprintf(m, sizeof m, "it did not resume: %s", e->msg);
        sandbox_box_ended(sb, END_HOST_FAULT, m, true); /* ends the transition */
        return;
    }
    awake(t);
}

static void thaw_late(void *arg)
{
    struct err e;
    err_set(&e, E_TIMEOUT, "its agent did not go on within %d s", (int)(THAW_NS / NS_PER_S));
    thawed(transit_hold(arg), &e, (struct rec){0});
}

static void thaw(struct transit *t)
{
    static const struct call_ops ops = {.done = thawed};
    struct sandbox *sb = transit_owner(t);
    struct err e;
    auto_buf rec = {0};
    rec_put_u64(&rec, T_WALL_NS, (uint64_t)clock_wall());
    if (sb->life.paused == PAUSE_DISK)
        rec_put_u64(&rec, T_FLAGS, THAW_HOOKS);
    transit_deadline(t, THAW_NS, thaw_late);
    if (transit_call(t, OP_THAW, &rec, &ops, &e))
        thawed(transit_hold(t), &e, (struct rec){0});
}

/* The row says that it runs, under the next generation: the saved machine is void, its disk may be written. */
static void committed(void *arg, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    if (!transit_back(t) || !sb)
        return;
    if (e) {
        sb->state = SB_PAUSED;
        t->committed = false;
        resume_failed(t, e);
        return;
    }
    fault("resume.committed");
    sb->box->keep_files = false;
    thaw(t);
}

static void restored(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    (void)b;
    if (!transit_back(t) || !sb)
        return;
    if (e) {
        resume_failed(t, e);
        return;
    }
    fault("resume.restored");
    (void)sandbox_advance(sb, SBE_RESUME, NULL);
    t->committed = true;
    sandbox_store_durable(sb, committed, transit_hold(t));
}

/* ---- resume: from standby ---------------------------------------------------------------------------------------------- */

static void standby_failed(struct transit *t, const struct err *e)
{
    struct sandbox *sb = transit_owner(t);
    char m[300];
    (void)snprintf(m, sizeof m, "it did not resume: %s", e->msg);
    sandbox_box_ended(sb, END_HOST_FAULT, m,
                      true); /* ends the transition: there is nothing to go back to */
}

static void standby_continued(void *arg, struct machine *m, const struct err *e)
{
    struct transit *t = arg;
    (void)m;
    if (t->over || !transit_owner(t))
        return;
    if (e)
        standby_failed(t, e);
    /* else the thaw that rides behind answers */
}

static void standby_configured(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    (void)b;
    if (!transit_back(t) || !sb)
        return;
    if (e)
        standby_failed(t, e);
    else if (tier_can(sb->tier, TIER_MEMORY))
        thaw(t);
    else
        awake(t);
}

static void standby_thawed(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    if (t->over || !sb)
        return;
    if (e)
        standby_failed(t, e);
    else if (!b->synced)
        sandbox_configure(sb, standby_configured, transit_hold(t));
    else
        awake(t);
}

static void from_standby(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    (void)sandbox_advance(sb, SBE_RESUME, NULL); /* nothing was saved that could stop fitting */
    t->committed = true;
    if (tier_can(sb->tier, TIER_FREEZER)) {
        box_hold(sb->box, false, standby_thawed, t);
    } else if (!sb->box->synced) { /* taken over from an earlier daemon */
        sandbox_configure(sb, standby_configured, transit_hold(t));
    } else {
        machine_hold(sb->box->machine, false, standby_continued, t);
        thaw(t);
    }
}

/* ---- resume: from disk ----------------------------------------------------------------------------------------------- */

static void resume_started(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    (void)b;
    if (t->over || !sb)
        return; /* whoever ended it removed the box */
    if (e) {
        sb->box = NULL; /* it removes itself */
        resume_failed(t, e);
        return;
    }
    fault("resume.started");
    sb->generation++;
    t->bumped = true;
    sandbox_configure(sb, restored, transit_hold(t));
}

/* ---- resume: from the files alone -------------------------------------------------------------------------------------- */

static void cold_ready(void *arg, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    t->prime = NULL;
    if (t->over || !sb)
        return;
    if (e) {
        resume_failed(t, e);
        return;
    }
    (void)sandbox_advance(sb, SBE_RESUME, NULL);
    t->committed = true;
    sb->box->keep_files = false;
    awake(t);
}

static void cold_configured(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    if (!transit_back(t) || !sb)
        return;
    if (e) {
        resume_failed(t, e);
        return;
    }
    /* as a machine that starts: the template's own command comes up again */
    struct template *tp = template_at(sb->core, sb->template_id);
    if (tp && (tp->start || tp->ready))
        t->prime = prime_start(sb->core->loop, b->agent, tp->start, tp->ready, cold_ready, t);
    else
        cold_ready(t, NULL);
}

static void cold_started(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    (void)b;
    if (t->over || !sb)
        return;
    if (e) {
        sb->box = NULL; /* it removes itself */
        resume_failed(t, e);
        return;
    }
    fault("resume.booted");
    sandbox_configure(sb, cold_configured, transit_hold(t));
}

static void cold_start(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    struct box_spec spec = sandbox_box_spec(sb);
    sb->box = box_resume(sb->core, sb->box_id, &spec, true, cold_started, t);
    sb->box->owner = sb;
}

/* Its memory does not fit its disk once that has been written: first it is forgotten, durably. */
static void memory_forgotten(void *arg, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    if (!transit_back(t) || !sb)
        return;
    if (e) {
        sb->life.memory = true;
        resume_failed(t, e);
        return;
    }
    t->bumped = false; /* that stays, also if the boot fails */
    fault("resume.forgotten");
    saved_drop(&sb->core->tiers, sb->tier, sb->box_id);
    cold_start(t);
}

static void forget_memory(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    sb->life.memory = false;
    sb->generation++;
    t->bumped = true;
    sandbox_store_durable(sb, memory_forgotten, transit_hold(t));
}

int sandbox_resume(struct sandbox *sb, const struct resume_spec *how, sandbox_cb *done, void *arg,
                   struct err *e)
{
    if (sb->transit && sb->transit->kind == RESUME) {
        transit_wait(sb->transit, done, arg, false);
        return 0;
    }
    if (sb->transit)
        return transit_after(
            sb, (struct transit_again){.kind = RESUME, .resume = *how, .done = done, .arg = arg});
    if (sb->state != SB_PAUSED)
        return transit_not_now(sb, "resumed", e);
    if (sb->core->stopping || sb->core->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping");
    if (quota_admit(sb->core, sandbox_tenant(sb), sb->memory_mib, sb, e))
        return -1;
    struct transit *t = transit_new(sb, RESUME, NULL);
    t->resume = *how;
    transit_wait(t, done, arg, false);
    if (sb->life.paused == PAUSE_STANDBY) {
        from_standby(t);
    } else if (sb->life.memory && how->cold) {
        forget_memory(t);
    } else if (!sb->life.memory) {
        cold_start(t);
    } else {
        struct box_spec spec = sandbox_box_spec(sb);
        sb->box = box_resume(sb->core, sb->box_id, &spec, false, resume_started, t);
        sb->box->owner = sb;
    }
    return 0;
}
