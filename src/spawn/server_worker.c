/* The disk workers: processes of the spawner, one that makes writable layers
 * ahead of time and one that deletes the files of removed boxes, and formats and deletes volumes. All of it waits for disks
 * (milliseconds, on some hosts much more), and the spawner must not; nor must who
 * wants a layer wait for what others left. They are forked at start, share our
 * mount namespace, hold only the home directories and their socket, and die with
 * us. Without them everything still works, slower.
 *
 * Messages: struct job to it, struct done back, with the mount beside it; a
 * removed box's layer and mount namespace go the other way, since the last one
 * to let go of them takes their mounts down. That must not be us: they are sent
 * first (JOB_HOLD), we let go, and only then it hears that it may (JOB_REMOVE). */
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/fds.h"
#include "jail/privs.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { JOB_MAKE = 1, JOB_HOLD, JOB_REMOVE, JOB_VOLUME, JOB_SYNC };
struct job { uint32_t op, mib, inodes, slot; uint64_t serial; char id[SP_ID]; };
struct done { struct job job; int32_t rc; struct err err; };

static void work(struct server *s, int sock) __attribute__((noreturn));
static void work(struct server *s, int sock)
{
    struct done d;
    int held[2], n = 0;
    for (;;) {
        memset(&d, 0, sizeof d);
        auto_fd mnt = -1;
        int got[2], ngot = 2;
        if (fd_recv(sock, &d.job, sizeof d.job, got, &ngot, 0) != (ssize_t)sizeof d.job)
            _exit(0);
        if (d.job.op == JOB_HOLD) {
            memcpy(held, got, sizeof held);
            n = ngot;
            continue;
        }
        if (d.job.op == JOB_MAKE)
            d.rc = (mnt = disk_ready_make(s, d.job.serial, d.job.mib, d.job.inodes, &d.err)) < 0 ? -1 : 0;
        else if (d.job.op == JOB_VOLUME)
            d.rc = d.job.mib ? volume_make(s, d.job.id, d.job.mib, d.job.inodes, &d.err) : volume_delete(s, d.job.id, &d.err);
        else if (d.job.op == JOB_SYNC)
            d.rc = disk_upper_sync(s, d.job.id);
        else {
            while (n) /* the namespace before the layer under it */
                (void)close(held[--n]);
            d.rc = box_remove_dir(s, d.job.id);
        }
        if (fd_send(sock, &d, sizeof d, &mnt, mnt >= 0, 0) < 0)
            _exit(1);
    }
}

static void lose(struct server *s, struct worker *k)
{
    log_warn("a disk worker exited: doing its work in this process");
    server_unwatch(s, &k->w);
    cleanup_fd(&k->sock);
    k->sock = -1;
    if (k == &s->maker) {
        disk_worker_lost(s);
        return;
    }
    box_worker_lost(s);
    volume_worker_lost(s);
}

static bool word(struct server *s, struct watch *w)
{
    struct done d;
    int fd = -1, n = 1;
    ssize_t r = fd_recv(w->fd, &d, sizeof d, &fd, &n, MSG_DONTWAIT);
    if (r < 0 && errno == EAGAIN)
        return false;
    if (r != (ssize_t)sizeof d) {
        lose(s, w->arg);
        return false;
    }
    if (d.job.op == JOB_MAKE)
        disk_ready_done(s, d.job.serial, d.job.mib, d.job.inodes, n ? fd : -1, &d.err);
    else if (d.job.op == JOB_VOLUME)
        volume_wait_done(s, (int)d.job.slot, d.rc, &d.err);
    else
        box_files_removed(s, d.job.id);
    return true;
}

/* All that is there: neither side may ever wait for the other to read. */
static void on_worker(struct server *s, struct watch *w)
{
    while (w->fn && word(s, w))
        ;
}

/* of the jailer, besides: where control groups and namespaces are made */
static void keep_for_jails(const struct server *s, struct fd_keep *keep)
{
    for (int i = 0; i < CG_TREES; i++)
        fds_keep(keep, s->cg.tree[i]);
    fds_keep(keep, s->cg.v2);
    fds_keep(keep, s->net.own);
    fds_keep(keep, s->dev_mnt);
}

static int start(struct server *s, struct worker *k, const char *name, void (*body)(struct server *, int), struct err *e)
{
    int sv[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(e, errno, "worker");
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(e, errno, "worker");
    if (!pid) {
        struct fd_keep keep = {0};
        for (int fd = 0; fd < 10; fd++)
            fds_keep(&keep, fd);
        fds_keep(&keep, sv[1]);
        fds_keep(&keep, s->fs_fd);
        if (k == &s->jailer)
            keep_for_jails(s, &keep);
        (void)prctl(PR_SET_NAME, name, 0, 0, 0);
        /* the home again, not our descriptor: that one carries the lock, which must be free the moment we die */
        if (privs_death_signal(e) || fds_close_others(&keep, e) || (s->home_fd = open(s->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
            _exit(1);
        body(s, sv[1]);
    }
    (void)close(sv[1]);
    k->sock = sv[0];
    k->pid = pid;
    return 0;
}

int workers_start(struct server *s, struct err *e)
{
    return start(s, &s->maker, "hutch-disk", work, e) || start(s, &s->worker, "hutch-disk", work, e) || start(s, &s->jailer, "hutch-jailer", jailer_work, e) ? -1 : 0;
}

int workers_watch(struct server *s)
{
    struct worker *k[] = {&s->maker, &s->worker};
    for (int i = 0; i < 2; i++)
        if (k[i]->sock >= 0 && server_watch(s, &k[i]->w, k[i]->sock, on_worker, k[i]) < 0)
            return -1;
    return jailer_watch(s);
}

void workers_end(struct server *s)
{
    struct worker *k[] = {&s->maker, &s->worker, &s->jailer};
    for (int i = 0; i < 3; i++) {
        if (k[i]->sock < 0)
            continue;
        (void)close(k[i]->sock); /* it ends when that closes */
        (void)waitpid(k[i]->pid, NULL, 0);
    }
}

bool worker_make(struct server *s, uint64_t serial, uint32_t mib, uint32_t inodes)
{
    struct job j = {.op = JOB_MAKE, .mib = mib, .inodes = inodes, .serial = serial};
    return s->maker.sock >= 0 && fd_send(s->maker.sock, &j, sizeof j, NULL, 0, MSG_DONTWAIT) > 0;
}

static bool by_id(struct server *s, uint32_t op, const char *id, const int *fds, int nfds, int flags)
{
    struct job j = {.op = op};
    memcpy(j.id, id, SP_ID);
    return s->worker.sock >= 0 && fd_send(s->worker.sock, &j, sizeof j, fds, nfds, flags) > 0;
}

bool worker_remove(struct server *s, const char *id, int *layer, int *mntns)
{
    int fds[2], n = 0;
    if (*layer >= 0)
        fds[n++] = *layer;
    if (*mntns >= 0)
        fds[n++] = *mntns;
    if (n && !by_id(s, JOB_HOLD, id, fds, n, MSG_DONTWAIT))
        return false;
    while (n)
        (void)close(fds[--n]);
    *layer = *mntns = -1;
    return by_id(s, JOB_REMOVE, id, NULL, 0, 0); /* it takes what is queued meanwhile */
}

bool worker_sync(struct server *s, const char *id) { return by_id(s, JOB_SYNC, id, NULL, 0, MSG_DONTWAIT); }

bool worker_volume(struct server *s, const char *id, uint32_t mib, uint32_t inodes, int slot)
{
    struct job j = {.op = JOB_VOLUME, .mib = mib, .inodes = inodes, .slot = (uint32_t)slot};
    memcpy(j.id, id, SP_ID);
    return s->worker.sock >= 0 && fd_send(s->worker.sock, &j, sizeof j, NULL, 0, MSG_DONTWAIT) > 0;
}
