/* Taking a snapshot. The sandbox stands still from the freeze to the thaw, in
 * which a VM's devices, its own pages and its own disk layer are copied (a
 * container's layer: by the spawner). Then it goes on, its transition is over,
 * and the rest (checksums, sync, rename, row) needs nothing of it any more. */
#include "backend/vm/vm.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/agent.h"
#include "core/snapshot.h"
#include "core/transit.h"
#include "core/tree.h"
#include "core/usage.h"
#include "json/write.h"
#include "loop/job.h"
#include "spawn/client.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FREEZE_NS (60 * NS_PER_S)

struct waiter { struct list link; snapshot_cb *done; void *arg; };

struct taking {
    struct core *core;
    char id[22], sandbox[22]; /* of the snapshot; of what it is taken of */
    struct transit *t;        /* until the sandbox goes on; NULL before `free`: it was cut short */
    bool free;                /* the sandbox goes on */
    bool late;                /* user code may have gone on: nobody may join */
    bool busy;                /* a job or request that cannot be called off */
    bool nameless, memory;
    bool standing;            /* of a VM in standby, which stays in it */
    uint32_t keep_last;
    struct vm_saving *saving;
    struct list waiters;
    int64_t stood;            /* since when; 0: it was paused anyway */
    int home, rc;             /* container: of the job under way; home is -1 for a VM */
    struct err err;
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

/* What was begun of a container's goes, on a worker; a VM's is its saving's business. */
static void scrap_work(void *arg)
{
    struct taking *k = arg;
    char tmp[32];
    auto_fd dir = k->home < 0 ? -1 : openat(k->home, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(tmp, sizeof tmp, ".%s.tmp", k->id);
    if (dir >= 0 && tree_remove(dir, tmp, &k->err))
        log_warn("snapshot %s: %s", k->id, k->err.msg); /* the next start sweeps it */
}

static void fail(struct taking *k, const struct err *e)
{
    struct err copy = *e;
    struct snapshot *s = map_get(&k->core->snapshots, k->id);
    log_warn("sandbox %s: no snapshot: %s", k->sandbox, copy.msg);
    vm_saving_free(k->saving);
    k->saving = NULL;
    if (s)
        snapshot_forget(s);
    answer(k, NULL, &copy);
    snapshots_collect(k->core);
    if (!k->busy)
        job_run(k->core->jobs, scrap_work, bury, k);
}

/* A job or request came back: true if it was cut short meanwhile. */
static bool cut_short(struct taking *k)
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
        fail(k, e);
    else
        k->free = true;
}

static void go_free(struct taking *k)
{
    struct snapshot *s = map_get(&k->core->snapshots, k->id);
    if (k->stood && !s->downtime_ns)
        s->downtime_ns = clock_mono() - k->stood;
    transit_end(k->t, NULL);
}

/* ---- the end of both ways ---------------------------------------------------------------------------------------- */

static void stored(void *arg, const struct err *e)
{
    struct taking *k = arg;
    struct snapshot *s = map_get(&k->core->snapshots, k->id);
    struct sandbox *sb = map_get(&k->core->sandboxes, k->sandbox);
    if (e) {
        fail(k, e); /* without a row the next start sweeps the directory */
        return;
    }
    fault("snapshot.stored");
    if (sb && !k->nameless) {
        kv_set(&sb->options, S("snapshot.last"), str_of(k->id));
        sandbox_store(sb, NULL, NULL);
    }
    vm_saving_free(k->saving);
    snapshot_made(s, k->keep_last);
    if (!k->nameless && !snapshot_step(s))
        event_emit(k->core, "snapshot.made", k->sandbox, NULL);
    log_debug("snapshot %s: its sandbox stood still for %lld us", k->id, (long long)s->downtime_ns / 1000);
    answer(k, s, NULL);
    snapshots_collect(k->core); /* one that nobody wanted after all */
    bury(k);
}

/* ---- a VM -------------------------------------------------------------------------------------------------------- */

static void published(void *arg, struct vm_saving *sv, const struct err *e)
{
    struct taking *k = arg;
    struct snapshot *s = map_get(&k->core->snapshots, k->id);
    if (e) {
        fail(k, e);
        return;
    }
    fault("snapshot.published");
    s->memory_bytes = vm_saving_facts(sv)->bytes;
    s->disk_bytes = vm_saving_facts(sv)->disk_bytes;
    snapshot_store(s, stored, k);
}

static void lost(struct transit *t, const struct err *e)
{
    char m[300];
    (void)snprintf(m, sizeof m, "it did not go on after a snapshot: %s", e->msg);
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
    go_free(k);
    vm_saving_publish(k->saving, generation, published, k);
}

static void thawed(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    (void)r;
    if (t->over)
        return;
    if (e)
        lost(t, e);
    else
        as_before(t);
}

static void stands_again(void *arg, struct vm *vm, const struct err *e)
{
    struct transit *t = arg;
    (void)vm;
    if (t->over)
        return;
    if (e)
        lost(t, e);
    else
        as_before(t);
}

static void continued(void *arg, struct vm *vm, const struct err *e)
{
    struct transit *t = arg;
    (void)vm;
    if (!t->over && e)
        lost(t, e);
    /* else the thaw that rides behind answers */
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
            vm_stop(sb->box->vm, stands_again, t);
        return;
    }
    if (t->stopped)
        vm_cont(sb->box->vm, continued, t);
    rec_put_u64(&rec, T_WALL_NS, (uint64_t)clock_wall());
    if (!agent_call(sb->box->agent, OP_THAW, &rec, &ops, t, &e))
        lost(t, &e);
}

static void taken(void *arg, struct vm_saving *sv, const struct err *e)
{
    struct taking *k = arg;
    (void)sv;
    fault("snapshot.copied");
    if (k->t)
        go_on(k->t, e);
}

static void stopped(void *arg, struct vm *vm, const struct err *e)
{
    struct transit *t = arg;
    (void)vm;
    if (t->over)
        return;
    t->stopped = !e;
    if (e)
        go_on(t, e);
    else
        vm_saving_take(t->taking->saving, taken, t->taking);
}

static void frozen(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    (void)r;
    if (t->over || t->taking->late)
        return;
    fault("snapshot.frozen");
    timer_stop(&t->deadline); /* from here on QEMU's own */
    if (e && t->taking->standing)
        go_on(t, e);
    else if (e)
        transit_end(t, e); /* the agent thawed what it had frozen */
    else
        vm_stop(transit_owner(t)->box->vm, stopped, t);
}

static void on_deadline(void *arg)
{
    struct err e;
    err_set(&e, E_TIMEOUT, "the sandbox did not stand still within %d s", (int)(FREEZE_NS / NS_PER_S));
    go_on(arg, &e); /* to thaw what is not frozen does no harm */
}

static int freeze(struct transit *t, struct err *e)
{
    static const struct call_ops ops = {.done = frozen};
    return agent_call(transit_owner(t)->box->agent, OP_FREEZE, NULL, &ops, t, e) ? 0 : -1;
}

static void synced(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    struct err no;
    (void)r;
    if (t->over || t->taking->late)
        return;
    t->taking->stood = clock_mono();
    if (e || freeze(t, &no))
        transit_end(t, e ? e : &no);
}

/* One in standby: its processor runs for a moment, its processes do not, until its file systems are written back and frozen. */
static void standing_moves(void *arg, struct vm *vm, const struct err *e)
{
    struct transit *t = arg;
    struct err no;
    (void)vm;
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

/* Most of what is to be written is written before anything stands still. */
static void sync_first(struct transit *t, const struct call_ops *then)
{
    struct err e;
    timer_arm(&t->deadline, FREEZE_NS);
    if (!agent_call(transit_owner(t)->box->agent, OP_SYNC, NULL, then, t, &e))
        transit_end(t, &e);
}

static void saving_ready(void *arg, struct vm_saving *sv, const struct err *e)
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
        vm_cont(transit_owner(k->t)->box->vm, standing_moves, k->t);
    else
        sync_first(k->t, &ops);
}

/* Of one that is paused on disk: all that is needed of it lies there. */
static void saved_copied(void *arg, struct vm_saving *sv, const struct err *e)
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
    go_free(k);
    vm_saving_publish(sv, generation, published, k);
}

/* ---- a container ------------------------------------------------------------------------------------------------- */

static int tmp_open(const struct taking *k, int *ret_parent, struct err *e)
{
    char tmp[32];
    *ret_parent = openat(k->home, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(tmp, sizeof tmp, ".%s.tmp", k->id);
    int fd = *ret_parent < 0 ? -1 : openat(*ret_parent, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "directory of a snapshot") : fd;
}

static void publish_work(void *arg)
{
    struct taking *k = arg;
    auto_fd parent = -1, dir = tmp_open(k, &parent, &k->err);
    auto_buf text = {0};
    char tmp[32];
    struct jw w;
    (void)snprintf(tmp, sizeof tmp, ".%s.tmp", k->id);
    jw_init(&w, &text);
    jw_obj(&w);
    jw_kv_u64(&w, "format", 1);
    jw_kv_str(&w, "tier", "container");
    jw_kv_str(&w, "sandbox", k->sandbox);
    jw_end(&w);
    if (dir < 0) {
        k->rc = -1;
        return;
    }
    auto_fd man = openat(dir, "manifest.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (man < 0 || !fd_write_all(man, text.p, text.n) || fdatasync(man) || fsync(dir) || renameat(parent, tmp, parent, k->id) || fsync(parent))
        k->rc = err_sys(&k->err, errno, "publishing a snapshot");
}

static void publish_done(void *arg)
{
    struct taking *k = arg;
    k->busy = false;
    fault("snapshot.published");
    if (k->rc)
        fail(k, &k->err);
    else
        snapshot_store(map_get(&k->core->snapshots, k->id), stored, k);
}

static void layer_saved(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct taking *k = arg;
    (void)fds, (void)nfds;
    k->late = true;
    fault("snapshot.copied");
    if (cut_short(k))
        return;
    if (rep->rc) {
        transit_end(k->t, &rep->err);
        return;
    }
    struct snapshot *s = map_get(&k->core->snapshots, k->id);
    s->disk_bytes = rep->u.saved.bytes;
    if (k->stood)
        s->downtime_ns = (int64_t)rep->u.saved.ns;
    go_free(k);
    k->busy = true;
    job_run(k->core->jobs, publish_work, publish_done, k);
}

static void save_layer(struct transit *t)
{
    struct taking *k = t->taking;
    struct sp_req q = {.op = SP_LAYER_SAVE};
    struct err no;
    memcpy(q.u.layer.id, transit_owner(t)->box_id, 22);
    memcpy(q.u.layer.snapshot, k->id, sizeof k->id);
    k->busy = true;
    if (spawn_call(k->core->spawn, &q, NULL, 0, layer_saved, k, &no)) {
        k->busy = false;
        transit_end(t, &no);
    }
}

static void layer_synced(void *arg, const struct err *e, struct rec r)
{
    struct transit *t = arg;
    (void)e, (void)r; /* the spawner writes the layer back itself */
    if (t->over)
        return;
    timer_stop(&t->deadline);
    t->taking->stood = clock_mono();
    save_layer(t);
}

static void dir_work(void *arg)
{
    struct taking *k = arg;
    char path[48];
    (void)snprintf(path, sizeof path, "snapshots/.%s.tmp", k->id);
    k->rc = mkdirat(k->home, path, 0700) ? err_sys(&k->err, errno, "directory of a snapshot") : 0;
}

static void dir_made(void *arg)
{
    static const struct call_ops ops = {.done = layer_synced};
    struct taking *k = arg;
    fault("snapshot.begun");
    if (cut_short(k))
        return;
    if (k->rc)
        transit_end(k->t, &k->err);
    else if (transit_owner(k->t)->state == SB_RUNNING)
        sync_first(k->t, &ops);
    else
        save_layer(k->t);
}

static void container_deadline(void *arg)
{
    struct err e;
    err_set(&e, E_TIMEOUT, "the sandbox did not write its files back within %d s", (int)(FREEZE_NS / NS_PER_S));
    transit_end(arg, &e);
}

/* ---- begin ------------------------------------------------------------------------------------------------------- */

static bool stands_by(const struct sandbox *sb) { return sb->tier == TIER_VM && sb->state == SB_PAUSED && sb->life.paused == PAUSE_STANDBY; }

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
    if (sb->tier == TIER_CONTAINER && how->memory_wanted)
        return err_set(e, E_UNSUPPORTED, "a container's memory cannot be kept: memory: false, or isolation vm");
    if (without && how->memory_wanted)
        return err_set(e, E_CONFLICT, "sandbox %s was paused without its memory: memory: false, or resume it first", sb->id);
    how->files_only |= sb->tier == TIER_CONTAINER || without;
    if (snapshot_name_free(sb->core, how->name, e))
        return -1;
    if (usage_check(sb->core, sandbox_tenant(sb), 0, e))
        return -1;
    if (sb->core->stopping || sb->core->spawn_lost)
        return err_set(e, E_UNAVAILABLE, "the daemon is stopping");
    return can_be_copied(sb) ? 0 : transit_not_now(sb, sb->state == SB_PAUSED ? "copied in standby after a restart of the daemon; resume it, or pause it to disk, first" : "copied", e);
}

static void wait_for(struct taking *k, snapshot_cb *done, void *arg)
{
    struct waiter *w = xcalloc(1, sizeof *w);
    w->done = done, w->arg = arg;
    list_add_tail(&k->waiters, &w->link);
}

/* What is under way first, then this. */
struct later { struct core *core; char id[22]; char *name; struct snapshot_spec how; snapshot_cb *done; void *arg; };

static void try_again(void *arg, struct sandbox *sb, const struct err *e)
{
    struct later l = *(struct later *)arg;
    struct err why;
    (void)e;
    free(arg);
    sb = map_get(&l.core->sandboxes, l.id);
    l.how.name = l.name;
    if (!sb)
        err_set(&why, E_GONE, "sandbox %s ended", l.id);
    if (!sb || snapshot_take(sb, &l.how, l.done, l.arg, &why))
        l.done(l.arg, NULL, &why);
    kv_free(&l.how.options);
    free(l.name);
}

int snapshot_take(struct sandbox *sb, const struct snapshot_spec *asked, snapshot_cb *done, void *arg, struct err *e)
{
    struct snapshot_spec how = *asked;
    struct taking *k = sb->transit ? sb->transit->taking : NULL;
    bool memory = sb->tier == TIER_VM && !how.files_only;
    if (k && k->nameless && how.nameless && !k->late && k->memory == memory) {
        wait_for(k, done, arg); /* one moment for both */
        return 0;
    }
    if (sb->transit) {
        struct later *l = xcalloc(1, sizeof *l);
        *l = (struct later){.core = sb->core, .name = how.name ? xstrdup(how.name) : NULL, .how = how, .done = done, .arg = arg};
        memcpy(l->id, sb->id, sizeof l->id);
        l->how.options = (struct kv){0};
        kv_copy(&l->how.options, &how.options);
        transit_wait(sb->transit, try_again, l, true);
        return 0;
    }
    if (check(sb, &how, e))
        return -1;
    memory = !how.files_only;
    struct snapshot *s = snapshot_new(sb, &how);
    k = xcalloc(1, sizeof *k);
    *k = (struct taking){.core = sb->core, .nameless = how.nameless, .memory = memory, .keep_last = how.keep_last,
                         .home = sb->tier == TIER_VM ? -1 : fcntl(sb->core->home_fd, F_DUPFD_CLOEXEC, 0)};
    list_init(&k->waiters);
    memcpy(k->id, s->id, sizeof k->id);
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    wait_for(k, done, arg);
    k->t = transit_new(sb, SNAPSHOT, sb->tier == TIER_VM ? on_deadline : container_deadline);
    k->t->taking = k;
    k->t->on_end = on_end;
    k->standing = stands_by(sb);
    if (sb->tier == TIER_VM && sb->state == SB_PAUSED && !k->standing) {
        k->saving = vm_saving_of_saved(k->core->vmh, sb->box_id, k->id, memory, saved_copied, k);
    } else if (sb->tier == TIER_VM) {
        k->saving = vm_saving_new(sb->box->vm, k->id, k->memory, saving_ready, k);
    } else {
        k->busy = true;
        job_run(k->core->jobs, dir_work, dir_made, k);
    }
    return 0;
}
