/* Taking a snapshot. The sandbox stands still from the freeze to the thaw, in
 * which a VM's devices, its own pages and its own disk layer are copied (a
 * container's layer: by the spawner). Then it goes on, its transition is over,
 * and the rest (checksums, sync, rename, row) needs nothing of it any more.
 * Here its beginning and its end; between them snapshot_take_vm.c or
 * snapshot_take_container.c. */
#include "tier/machine.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/life/snapshot_take_int.h"
#include "core/life/transit.h"
#include "base/tree.h"
#include "core/life/usage.h"
#include "loop/job.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct waiter {
    struct list link;
    snapshot_cb *done;
    void *arg;
};

static void answer(struct taking *k, struct snapshot *s, const struct err *e)
{
    struct waiter *w;
    list_each(w, &k->waiters, link) {
        list_del(&w->link);
        w->done(w->arg, s, e);
        free(w);
    }
}

static void bury(void *arg)
{
    struct taking *k = arg;
    cleanup_fd(&k->home);
    free(k);
}

void taking_tmp(const struct taking *k, char tmp[TAKING_TMP])
{
    (void)snprintf(tmp, TAKING_TMP, ".%s.tmp", k->id);
}

/* What was begun of a container's goes, on a worker; a VM's is its saving's business. */
static void scrap_work(void *arg)
{
    struct taking *k = arg;
    char tmp[TAKING_TMP];
    auto_fd dir =
        k->home < 0 ? -1 : openat(k->home, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    taking_tmp(k, tmp);
    if (dir >= 0 && tree_remove(dir, tmp, &k->err))
        log_warn("snapshot %s: %s", k->id, k->err.msg); /* the next start sweeps it */
}

void taking_fail(struct taking *k, const struct err *e)
{
    struct err copy = *e;
    struct snapshot *s = snapshot_at(k->core, k->id);
    log_warn("sandbox %s: no snapshot: %s", k->sandbox, copy.msg);
    saving_free(k->saving);
    k->saving = NULL;
    if (s)
        snapshot_forget(s);
    answer(k, NULL, &copy);
    snapshots_collect(k->core);
    if (!k->busy)
        job_run(k->core->jobs, scrap_work, bury, k);
}

/* A job or request came back: true if it was cut short meanwhile. */
bool taking_cut_short(struct taking *k)
{
    k->busy = false;
    if (k->t || k->free)
        return false;
    job_run(k->core->jobs, scrap_work, bury, k);
    return true;
}

/* The transition ended: the sandbox goes on, or is gone. */
static void on_end(struct transit *t, const struct err *e)
{
    struct taking *k = t->taking;
    t->taking = NULL;
    k->t = NULL;
    if (e)
        taking_fail(k, e);
    else
        k->free = true;
}

void taking_go_free(struct taking *k)
{
    struct snapshot *s = snapshot_at(k->core, k->id);
    if (k->stood && !s->downtime_ns)
        s->downtime_ns = clock_mono() - k->stood;
    transit_end(k->t, NULL);
}

/* Most of what is to be written is written before anything stands still. */
void taking_sync(struct transit *t, const struct call_ops *then)
{
    struct err e;
    timer_arm(&t->deadline, FREEZE_NS);
    if (transit_call(t, OP_SYNC, NULL, then, &e))
        transit_end(t, &e);
}

/* ---- the end of both ways ---------------------------------------------------------------------------------------- */

void taking_stored(void *arg, const struct err *e)
{
    struct taking *k = arg;
    struct snapshot *s = snapshot_at(k->core, k->id);
    struct sandbox *sb = sandbox_at(k->core, k->sandbox);
    if (e) {
        taking_fail(k, e); /* without a row the next start sweeps the directory */
        return;
    }
    fault("snapshot.stored");
    if (sb && !k->nameless) {
        kept_set(&sb->kept.last, k->id);
        sandbox_store(sb, NULL, NULL);
    }
    saving_free(k->saving);
    snapshot_made(s, k->keep_last);
    if (!k->nameless && !snapshot_step(s))
        event_emit(k->core, "snapshot.made", snapshot_tenant(s), k->sandbox, NULL);
    log_debug("snapshot %s: its sandbox was frozen for %lld us", k->id,
              (long long)s->downtime_ns / 1000);
    answer(k, s, NULL);
    snapshots_collect(k->core); /* one that nobody wanted after all */
    bury(k);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

static bool stands_by(const struct sandbox *sb)
{
    return tier_can(sb->tier, TIER_MEMORY) && sb->state == SB_PAUSED &&
           sb->life.paused == PAUSE_STANDBY;
}

/* Running, asleep with all that is needed of it on disk, or standing by. An agent that another daemon left asleep has not been
 * spoken to yet: a resume does that. */
static bool can_be_copied(const struct sandbox *sb)
{
    if (sb->state == SB_RUNNING)
        return sb->box;
    return sb->state == SB_PAUSED && (!stands_by(sb) || (sb->box && sb->box->synced));
}

static int check(struct sandbox *sb, struct snapshot_spec *how, struct err *e)
{
    bool without = sb->state == SB_PAUSED && !sb->life.memory;
    if (!tier_can(sb->tier, TIER_MEMORY) && how->memory_wanted)
        return err_why(
            e, REASON_NO_MEMORY, E_UNSUPPORTED,
            "a container's memory cannot be kept: keep the files only, or use isolation vm");
    if (without && how->memory_wanted)
        return err_why(
            e, REASON_NO_MEMORY, E_CONFLICT,
            "sandbox %s was paused without its memory: keep the files only, or resume it first",
            sb->id);
    how->files_only |= !tier_can(sb->tier, TIER_MEMORY) || without;
    if (snapshot_name_free(sb->core, sandbox_tenant(sb), how->name, e))
        return -1;
    if (usage_check(sb->core, sandbox_tenant(sb), 0, e))
        return -1;
    if (sb->core->stopping || sb->core->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping");
    return can_be_copied(sb)
               ? 0
               : transit_not_now(
                     sb,
                     sb->state == SB_PAUSED
                         ? "copied in standby after a restart of the daemon; resume it or pause it to disk first"
                         : "copied",
                     e);
}

static void wait_for(struct taking *k, snapshot_cb *done, void *arg)
{
    struct waiter *w = xcalloc(1, sizeof *w);
    w->done = done, w->arg = arg;
    list_add_tail(&k->waiters, &w->link);
}

/* What is under way first, then this. */
struct later {
    struct core *core;
    char id[22];
    char *name;
    struct snapshot_spec how;
    snapshot_cb *done;
    void *arg;
};

static void try_again(void *arg, struct sandbox *sb, const struct err *e)
{
    struct later l = *(struct later *)arg;
    struct err why;
    (void)e;
    free(arg);
    sb = sandbox_at(l.core, l.id);
    l.how.name = l.name;
    if (!sb)
        err_set(&why, E_GONE, "sandbox %s ended", l.id);
    if (!sb || snapshot_take(sb, &l.how, l.done, l.arg, &why))
        l.done(l.arg, NULL, &why);
    kv_free(&l.how.dialect);
    free(l.name);
}

int snapshot_take(struct sandbox *sb, const struct snapshot_spec *asked, snapshot_cb *done,
                  void *arg, struct err *e)
{
    struct snapshot_spec how = *asked;
    struct taking *k = sb->transit ? sb->transit->taking : NULL;
    bool memory = tier_can(sb->tier, TIER_MEMORY) && !how.files_only;
    if (k && k->nameless && how.nameless && !k->late && k->memory == memory) {
        wait_for(k, done, arg); /* one moment for both */
        return 0;
    }
    if (sb->transit) {
        struct later *l = xcalloc(1, sizeof *l);
        *l = (struct later){.core = sb->core,
                            .name = how.name ? xstrdup(how.name) : NULL,
                            .how = how,
                            .done = done,
                            .arg = arg};
        memcpy(l->id, sb->id, sizeof l->id);
        l->how.dialect = (struct kv){0};
        kv_copy(&l->how.dialect, &how.dialect);
        transit_wait(sb->transit, try_again, l, true);
        return 0;
    }
    if (check(sb, &how, e))
        return -1;
    memory = !how.files_only;
    struct snapshot *s = snapshot_new(sb, &how);
    k = xcalloc(1, sizeof *k);
    *k = (struct taking){.core = sb->core,
                         .tier = sb->tier,
                         .nameless = how.nameless,
                         .memory = memory,
                         .keep_last = how.keep_last,
                         .home = tier_can(sb->tier, TIER_CHAINS)
                                     ? -1
                                     : fcntl(sb->core->home_fd, F_DUPFD_CLOEXEC, 0)};
    list_init(&k->waiters);
    memcpy(k->id, s->id, sizeof k->id);
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    wait_for(k, done, arg);
    k->t = transit_new(sb, SNAPSHOT,
                       tier_can(sb->tier, TIER_CHAINS) ? taking_vm_late : taking_container_late);
    k->t->taking = k;
    k->t->on_end = on_end;
    k->standing = stands_by(sb);
    if (tier_can(sb->tier, TIER_CHAINS))
        taking_vm(k, sb);
    else
        taking_container(k);
    return 0;
}
