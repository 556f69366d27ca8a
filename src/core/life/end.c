/* How a sandbox ends: by request, by its own doing, by a fault of the host. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/box/box.h"
#include "core/code/context.h"
#include "core/life/life_int.h"
#include "core/network/network.h"
#include "core/life/pause.h"
#include "core/agent/prime.h"
#include "core/sandbox/sandbox.h"
#include "core/catalog/snapshot.h"
#include "core/volume/volume.h"
#include "core/catalog/template.h"
#include <stdlib.h>

struct waiter {
    struct list link;
    sandbox_cb *done;
    void *arg;
};

static void tell_waiters(struct sandbox *sb)
{
    struct waiter *w;
    struct list all;
    list_init(&all);
    list_each(w, &sb->waiters, link) {
        list_del(&w->link);
        list_add_tail(&all, &w->link);
    }
    list_each(w, &all, link) {
        list_del(&w->link);
        w->done(w->arg, sb, NULL);
        free(w);
    }
}

static void end_stored(void *arg, const struct err *e)
{
    struct sandbox_ref s = sandbox_ref_take(arg);
    if (e)
        log_error("sandbox %s: storing its end: %s", s.id, e->msg);
    struct sandbox *sb = sandbox_at(s.core, s.id);
    if (!sb ||
        sb->state ==
            SB_STOPPING) /* it failed, and is being ended for good by now: whoever asked for that waits for that */
        return;
    fault("ended.stored");
    sandbox_announce(sb);
    tell_waiters(sb);
}

static void box_gone(void *arg)
{
    struct sandbox_ref s = sandbox_ref_take(arg);
    struct sandbox *sb = sandbox_at(s.core, s.id);
    if (!sb || sb->state != SB_STOPPING)
        return;
    (void)sandbox_advance(sb, SBE_ENDED, NULL);
    fault("delete.removed");
    if (!sb->ended_ns)
        sb->ended_ns = clock_wall();
    volumes_detach(sb);
    snapshots_collect(sb->core);
    sandbox_store(sb, end_stored, sandbox_ref_new(sb));
}

void sandbox_release(struct sandbox *sb)
{
    timer_stop(&sb->expiry);
    timer_stop(&sb->net_later);
    sandbox_free_name(sb);
}

static void cut_off(struct sandbox *sb)
{
    struct err gone;
    volumes_disconnect(sb);
    err_set(&gone, E_GONE, "sandbox %s is %s%s%.120s", sb->id, state_name(sb->state),
            sb->end_message ? ": " : "", sb->end_message ? sb->end_message : "");
    contexts_drop(sb, &gone);
}

void sandbox_drop_box(struct sandbox *sb, bool keep, void (*done)(void *arg), void *arg)
{
    struct box *b = sb->box;
    bool files = sb->life.paused == PAUSE_DISK || sb->life.kept;
    struct err gone;
    cut_off(sb);
    sb->box = NULL;
    if (sb->prime) {
        err_set(&gone, E_CANCELED, "sandbox %s was killed while it was being created", sb->id);
        prime_fail(sb->prime, &gone);
        sb->prime = NULL;
    }
    template_use(sb, keep ? 1 : -1);
    sb->life.kept = keep;
    if (b) {
        b->keep_files = keep;
        box_remove(b, done, arg);
    } else if (files && !keep) {
        box_remove_files(sb->core, sb->box_id, done, arg);
    } else if (done) {
        loop_defer(sb->core->loop, done, arg);
    }
}

/* Its row says so before anything of it goes: a successor finishes the end, and finds no half of a sandbox. */
static void stopping_stored(void *arg, const struct err *e)
{
    struct sandbox_ref s = sandbox_ref_take(arg);
    struct sandbox *sb = sandbox_at(s.core, s.id);
    if (e)
        log_error("sandbox %s: storing its end: %s", s.id, e->msg);
    if (!sb || sb->state != SB_STOPPING)
        return;
    fault("delete.begun");
    sandbox_drop_box(sb, false, box_gone, sandbox_ref_new(sb));
}

int sandbox_kill(struct sandbox *sb, enum end_reason why, const char *message, sandbox_cb *done,
                 void *arg, struct err *e)
{
    if (sb->state == SB_GONE)
        return err_set(e, E_NOT_FOUND, "sandbox '%s' no longer exists", sb->id);
    if (done) {
        struct waiter *w = xcalloc(1, sizeof *w);
        w->done = done, w->arg = arg;
        list_add_tail(&sb->waiters, &w->link);
    }
    bool has_row = sb->state != SB_CREATING;
    if (sb->state == SB_STOPPING)
        return 0;
    if (sandbox_advance(sb, SBE_KILL, e))
        return -1;
    struct err ended;
    err_set(&ended, E_GONE, "sandbox %s ended in the meantime: %s", sb->id, message);
    transit_abort(sb, &ended);
    sandbox_set_end(sb, why, message);
    sb->ended_ns = clock_wall();
    sandbox_release(sb);
    network_ended(sb);
    sandbox_announce(sb);
    if (has_row) {
        cut_off(sb);
        if (sb->box)
            box_silence(
                sb->box); /* what is under way with it ends with the transition that asked for it */
        sandbox_store(sb, stopping_stored, sandbox_ref_new(sb));
    } else
        sandbox_drop_box(sb, false, box_gone, sandbox_ref_new(sb));
    return 0;
}

/* Its machine is gone or useless: a guest's own doing ends it, a fault of the host leaves it `failed`, without processes but
 * with its disk, to be seen and recovered. */
void sandbox_box_ended(struct sandbox *sb, enum end_reason why, const char *message,
                       bool host_fault)
{
    struct err ended;
    if (transit_box_lost(sb, message))
        return;
    if (!host_fault) {
        (void)sandbox_kill(sb, why, message, NULL, NULL,
                           NULL); /* refused only when it is ending already */
        return;
    }
    if (sandbox_advance(sb, SBE_FAIL, NULL))
        return;
    err_set(&ended, E_GONE, "sandbox %s failed: %s", sb->id, message);
    transit_abort(sb, &ended);
    sandbox_set_end(sb, why, message);
    sb->ended_ns = clock_wall();
    sandbox_release(sb);
    sandbox_drop_box(sb, sb->core->cfg.failed_keep_s && sandbox_has_files(sb), NULL, NULL);
    sb->life.paused = PAUSE_NONE;
    sandbox_store(sb, end_stored, sandbox_ref_new(sb));
    log_warn("sandbox %s failed: %s", sb->id, message);
}

void sandbox_lost(struct sandbox *sb, enum end_reason why, const char *message)
{
    if (sb->state == SB_STOPPING) { /* its end was under way: finish it */
        box_gone(sandbox_ref_new(sb));
        return;
    }
    sandbox_box_ended(sb, why, message, true);
}
