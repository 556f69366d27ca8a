/* The way back of what failed. See pause.h. A failed sandbox with its disk is
 * first made a paused one without memory, durably, and then resumed: whatever
 * happens on the way, it is one or the other. Whoever asks while it is under way
 * waits for it and gets the same answer. */
#include "tier/machine.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/life/life_int.h"
#include "core/life/pause.h"
#include "json/write.h"
#include <string.h>

struct waiter {
    struct list link;
    recover_cb *done;
    void *arg;
};
struct rescue {
    struct core *core;
    char id[22];
    struct resume_spec how;
    unsigned lost;
    struct list waiters;
};

void recover_put_lost(struct jw *w, unsigned lost)
{
    if (lost & LOST_MEMORY) {
        jw_strz(w, "memory");
        jw_strz(w, "processes");
    }
    if (lost & LOST_WRITES)
        jw_strz(w, "writes");
    if (lost & LOST_VOLUMES)
        jw_strz(w, "volumes");
}

static void wait_for(struct rescue *r, recover_cb *done, void *arg)
{
    struct waiter *w = xcalloc(1, sizeof *w);
    w->done = done, w->arg = arg;
    list_add_tail(&r->waiters, &w->link);
}

/* Everybody who waits hears the same. */
static void answer(struct rescue *r, struct sandbox *sb, const struct err *e)
{
    struct sandbox *now = sandbox_at(r->core, r->id);
    struct waiter *w;
    if (now && now->rescue == r)
        now->rescue = NULL;
    list_each(w, &r->waiters, link) {
        list_del(&w->link);
        w->done(w->arg, sb, r->lost, e);
        free(w);
    }
    free(r);
}

static void rescue_end(struct rescue *r, struct sandbox *sb, const struct err *e)
{
    if (sb) {
        auto_buf b = {0};
        struct jw w;
        jw_init(&w, &b);
        jw_obj(&w);
        jw_kv_arr(&w, "lost");
        recover_put_lost(&w, r->lost);
        jw_end(&w);
        jw_end(&w);
        event_emit(r->core, "sandbox.recovered", sandbox_tenant(sb), r->id, b.p);
    }
    answer(r, sb, e);
}

static struct sandbox *rescue_find(struct rescue *r)
{
    struct sandbox *sb = sandbox_at(r->core, r->id);
    struct err gone;
    if (sb)
        return sb;
    err_set(&gone, E_GONE, "sandbox %s ended in the meantime", r->id);
    rescue_end(r, NULL, &gone);
    return NULL;
}

static void resumed(void *arg, struct sandbox *sb, const struct err *e);

static void resume(struct rescue *r, struct sandbox *sb)
{
    struct err e;
    if (sandbox_resume(sb, &r->how, resumed, r, &e))
        rescue_end(r, NULL, &e);
}

/* With memory first; if that is no good, without. */
static void resumed(void *arg, struct sandbox *sb, const struct err *e)
{
    struct rescue *r = arg;
    struct sandbox *now = sandbox_at(r->core, r->id);
    bool bad = e && !r->how.cold && now && now->state == SB_PAUSED &&
               now->life.paused == PAUSE_DISK && now->life.memory;
    if (!bad) {
        rescue_end(r, sb, e);
        return;
    }
    log_warn("sandbox %s: discarding its memory: %s", r->id, e->msg);
    r->how.cold = true;
    r->lost |= LOST_MEMORY;
    resume(r, now);
}

static void paused_stored(void *arg, const struct err *e)
{
    struct rescue *r = arg;
    struct sandbox *sb = rescue_find(r);
    if (!sb)
        return;
    if (e) {
        rescue_end(r, NULL, e);
        return;
    }
    fault("recover.stored");
    sandbox_announce(sb);
    resume(r, sb);
}

/* As if it had been paused without memory at the moment it failed. */
static void failed_to_paused(struct rescue *r, struct sandbox *sb)
{
    struct err e;
    if (sandbox_advance(sb, SBE_RECOVER, &e)) {
        rescue_end(r, NULL, &e);
        return;
    }
    sb->life.kept = false;
    sb->life.paused = PAUSE_DISK;
    sb->life.memory = false;
    sb->life.paused_ns = sb->ended_ns;
    sb->generation++; /* what an earlier pause may have left does not fit any more */
    sb->end_reason = END_NONE;
    free(sb->end_message);
    sb->end_message = NULL;
    sb->ended_ns = 0;
    sandbox_enter(sb);
    saved_drop(&sb->core->tiers, sb->tier, sb->box_id);
    sandbox_store_durable(sb, paused_stored, r);
}

static void box_released(void *arg)
{
    struct rescue *r = arg;
    struct sandbox *sb = rescue_find(r);
    if (sb)
        failed_to_paused(r, sb);
}

static int check_failed(const struct sandbox *sb, struct err *e)
{
    struct sandbox *other = sb->name ? sandbox_named(sb->core, sandbox_tenant(sb), sb->name) : NULL;
    if (!sb->life.kept || !sandbox_has_files(sb))
        return err_why(e, REASON_ENDED, E_GONE,
                       "sandbox %s failed and its disk is gone: there is nothing to recover",
                       sb->id);
    if (other && other != sb)
        return err_why(
            e, REASON_NAME_TAKEN, E_CONFLICT,
            "another sandbox is now named '%s': kill it, or rename one of them, then recover",
            sb->name);
    return 0;
}

static void awake_already(void *arg)
{
    struct rescue *r = arg;
    struct sandbox *sb = rescue_find(r);
    if (sb)
        answer(r, sb, NULL); /* nothing happened, so there is no event */
}

int sandbox_recover(struct sandbox *sb, uint32_t timeout_s, recover_cb *done, void *arg,
                    struct err *e)
{
    struct core *c = sb->core;
    bool idle = sb->state == SB_RUNNING && !sb->busy;
    if (c->stopping || c->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping, or is restarting hutch-spawn");
    if (sb->state == SB_FAILED && check_failed(sb, e))
        return -1;
    if (sb->state == SB_GONE || sb->state == SB_STOPPING)
        return sandbox_ended_err(sb, e);
    if (sb->rescue) {
        wait_for(sb->rescue, done, arg);
        return 0;
    }
    struct rescue *r = xcalloc(1, sizeof *r);
    *r = (struct rescue){.core = c, .how.timeout_s = timeout_s};
    memcpy(r->id, sb->id, sizeof r->id);
    list_init(&r->waiters);
    if (idle) {
        loop_defer(c->loop, awake_already, r);
    } else if (sb->state != SB_FAILED) {
        if (sb->state == SB_PAUSED && sb->life.paused == PAUSE_DISK && !sb->life.memory)
            r->lost = LOST_MEMORY;
        if (sandbox_resume(sb, &r->how, resumed, r, e)) {
            free(r);
            return -1;
        }
    } else {
        struct box *old = box_at(c, sb->box_id);
        r->lost = LOST_MEMORY | LOST_WRITES | (sb->volumes_lost ? LOST_VOLUMES : 0);
        if (old)
            box_remove(old, box_released, r); /* its processes are being ended: after that */
        else
            loop_defer(c->loop, box_released, r);
    }
    sb->rescue = r;
    wait_for(r, done, arg);
    return 0;
}
