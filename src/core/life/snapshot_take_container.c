/* A snapshot of a container: the spawner copies its layer. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "core/life/snapshot_take_int.h"
#include "core/life/transit.h"
#include "json/write.h"
#include "loop/job.h"
#include "spawn/client.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int tmp_open(const struct taking *k, int *ret_parent, struct err *e)
{
    char tmp[TAKING_TMP];
    *ret_parent = openat(k->home, "snapshots", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    taking_tmp(k, tmp);
    int fd = *ret_parent < 0
                 ? -1
                 : openat(*ret_parent, tmp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "directory of a snapshot") : fd;
}

static void publish_work(void *arg)
{
    struct taking *k = arg;
    auto_fd parent = -1, dir = tmp_open(k, &parent, &k->err);
    auto_buf text = {0};
    char tmp[TAKING_TMP];
    struct jw w;
    taking_tmp(k, tmp);
    jw_init(&w, &text);
    jw_obj(&w);
    jw_kv_u64(&w, "format", 1);
    jw_kv_str(&w, "tier", k->tier->name);
    jw_kv_str(&w, "sandbox", k->sandbox);
    jw_end(&w);
    if (dir < 0) {
        k->rc = -1;
        return;
    }
    auto_fd man = openat(dir, "manifest.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (man < 0 || !fd_write_all(man, text.p, text.n) || fdatasync(man) || fsync(dir) ||
        renameat(parent, tmp, parent, k->id) || fsync(parent))
        k->rc = err_sys(&k->err, errno, "publishing a snapshot");
}

static void publish_done(void *arg)
{
    struct taking *k = arg;
    k->busy = false;
    fault("snapshot.published");
    if (k->rc)
        taking_fail(k, &k->err);
    else
        snapshot_store(snapshot_at(k->core, k->id), taking_stored, k);
}

static void layer_saved(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct taking *k = arg;
    (void)fds, (void)nfds;
    k->late = true;
    fault("snapshot.copied");
    if (taking_cut_short(k))
        return;
    if (rep->rc) {
        transit_end(k->t, &rep->err);
        return;
    }
    struct snapshot *s = snapshot_at(k->core, k->id);
    s->disk_bytes = rep->u.saved.bytes;
    if (k->stood)
        s->downtime_ns = (int64_t)rep->u.saved.ns;
    taking_go_free(k);
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
    if (!transit_back(t))
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
    if (taking_cut_short(k))
        return;
    if (k->rc)
        transit_end(k->t, &k->err);
    else if (transit_owner(k->t)->state == SB_RUNNING)
        taking_sync(k->t, &ops);
    else
        save_layer(k->t);
}

void taking_container_late(void *arg)
{
    struct err e;
    err_set(&e, E_TIMEOUT, "the sandbox did not write its files back within %d s",
            (int)(FREEZE_NS / NS_PER_S));
    transit_end(arg, &e);
}

void taking_container(struct taking *k)
{
    k->busy = true;
    job_run(k->core->jobs, dir_work, dir_made, k);
}
