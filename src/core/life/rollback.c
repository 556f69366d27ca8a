/* Back to a snapshot, in place: the same sandbox, its id, name, tokens, network
 * and deadlines, on a machine made of the snapshot.
 *
 * The machine it has goes on, out of reach, until the other one is configured
 * and the row names it; then it is removed. Whoever dies before that row finds
 * the old machine, afterwards the new one, and the one that no row names is
 * swept. If anything fails the sandbox keeps the machine it had. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/code/context.h"
#include "core/agent/prime.h"
#include "core/catalog/snapshot.h"
#include "core/catalog/template.h"
#include "core/life/transit.h"
#include "core/volume/volume.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS (300 * NS_PER_S) /* a boot with a START and a READY */


/* However it ended: of the two machines the one that the sandbox has not goes. */
static void on_end(struct transit *t, const struct err *e)
{
    struct box *b = *t->other ? box_at(t->core, t->other) : NULL;
    if (e)
        log_warn("sandbox %s: not rolled back: %s", t->id, e->msg);
    if (b && !(t->core->stopping &&
               t->core->keep)) { /* then the row may still name it: the next daemon knows */
        b->keep_files = false; /* one that was taken over from an earlier daemon would keep them */
        box_remove(b, NULL, NULL);
    }
    snapshots_collect(t->core);
}

/* Volumes are no part of a snapshot: they are served to whichever machine the sandbox has, as they are now. */
static void change_box(struct transit *t, struct sandbox *sb, struct box *to)
{
    volumes_disconnect(sb);
    sb->box->owner = NULL;
    memcpy(t->other, sb->box->id, sizeof t->other);
    sb->box = to;
    to->owner = sb;
    memcpy(sb->box_id, to->id, sizeof sb->box_id);
}

static void undo(struct transit *t, const struct err *e)
{
    struct sandbox *sb = transit_owner(t);
    struct box *old = box_at(t->core, t->other);
    struct err why = *e;
    char m[300];
    if (!old || old->removing || old->phase != BOX_LIVE) {
        (void)snprintf(m, sizeof m,
                       "it could not be rolled back (%s), and its previous machine has ended",
                       why.msg);
        sandbox_box_ended(sb, END_HOST_FAULT, m, true); /* ends the transition */
        return;
    }
    change_box(t, sb, old);
    volumes_reconnect(sb);
    sb->generation--;
    transit_end(t, &why);
}

static void stored(void *arg, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    if (!transit_back(t) || !sb)
        return;
    if (e) { /* which of the two the row names is not known: none may go on as if it were */
        sandbox_box_ended(sb, END_HOST_FAULT, "its rollback could not be stored", true);
        return;
    }
    fault("rollback.stored");
    event_emit(t->core, "sandbox.rolled-back", sandbox_tenant(sb), sb->id, NULL);
    log_debug("sandbox %s rolled back in %lld us", sb->id,
              (long long)(clock_mono() - t->begun) / 1000);
    transit_end(t, NULL);
}

static void commit(struct transit *t)
{
    struct sandbox *sb = transit_owner(t);
    timer_stop(&t->deadline);
    sandbox_stands_on(sb, snapshot_at(t->core, t->base)); /* there: it is in use */
    free(sb->kernel), free(sb->start_path);
    sb->kernel = xstrdup(sb->box->kernel);
    sb->start_path = xstrdup(t->boots ? "boot" : "snapshot");
    sb->start_ms = (double)(clock_mono() - t->begun) / 1e6;
    sandbox_store_durable(sb, stored, transit_hold(t));
}

static void commands_ready(void *arg, const struct err *e)
{
    struct transit *t = arg;
    t->prime = NULL;
    if (e)
        undo(t, e);
    else
        commit(t);
}

static void configured(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    if (!transit_back(t) || !sb)
        return;
    if (e) {
        undo(t, e);
        return;
    }
    fault("rollback.configured");
    const struct template *tp = template_at(t->core, sb->template_id);
    if (t->boots && tp && (tp->start || tp->ready))
        t->prime = prime_start(t->core->loop, b->agent, tp->start, tp->ready, commands_ready, t);
    else
        commit(t);
}

static void started(void *arg, struct box *b, const struct err *e)
{
    struct transit *t = arg;
    struct sandbox *sb = transit_owner(t);
    struct err why;
    if (!transit_back(t) || !sb)
        return;
    if (e) {
        *t->other = 0; /* it removes itself */
        transit_end(t, e);
        return;
    }
    fault("rollback.started");
    err_set(&why, E_CONFLICT, "sandbox %s is being rolled back to snapshot %s", sb->id, t->base);
    contexts_drop(sb, &why);
    agent_cut(sb->box->agent, &why);
    change_box(t, sb, b);
    t->changed = true;
    sb->generation++;
    sandbox_configure(sb, configured, transit_hold(t));
}

static void on_deadline(void *arg)
{
    struct transit *t = arg;
    struct err e;
    err_set(&e, E_TIMEOUT, "the snapshot's machine was not ready within %d s",
            (int)(LIMIT_NS / NS_PER_S));
    if (t->changed)
        undo(t, &e);
    else
        transit_end(t, &e);
}

int sandbox_rollback(struct sandbox *sb, const struct snapshot *s, bool boot, sandbox_cb *done,
                     void *arg, struct err *e)
{
    struct box_spec spec = sandbox_box_spec(sb);
    if (sb->state != SB_RUNNING || !sb->box)
        return transit_not_now(sb, "rolled back", e);
    if (sb->transit)
        return err_why(e, REASON_BUSY, E_CONFLICT, "sandbox %s is being copied or moved", sb->id);
    if (s->path)
        return err_set(
            e, E_INVALID,
            "snapshot '%s' is of a directory: put it into the sandbox instead (POST …/restore, `hutch snapshot put`)",
            s->name ? s->name : s->id);
    if (strcmp(s->sandbox, sb->id))
        return err_set(
            e, E_INVALID,
            "snapshot '%s' was taken of another sandbox: create a sandbox from it instead",
            s->name ? s->name : s->id);
    if (!boot && s->memory && snapshot_volumes_fit(s, sb, e))
        return -1;
    struct transit *t = transit_new(sb, ROLLBACK, on_deadline);
    t->on_end = on_end;
    t->boots = boot || !s->memory;
    memcpy(t->base, s->id, sizeof t->base);
    sb->coming_base = t->base;
    transit_wait(t, done, arg, false);
    timer_arm(&t->deadline, LIMIT_NS);
    struct box *b = box_start_from(sb->core, &spec, s->id, t->boots, 1, started, transit_hold(t));
    memcpy(t->other, b->id, sizeof t->other);
    return 0;
}
