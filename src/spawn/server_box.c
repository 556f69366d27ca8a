/* A box from its clone to its removal. States: STARTING (cloned, the jail is
 * being built) -> ALIVE (exec succeeded, the start was answered) -> DEAD (waited
 * for; kept with its status until SP_REMOVE). */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define WAIT_PIDFD 3 /* P_PIDFD */

static void close_fd(int *fd)
{
    cleanup_fd(fd);
    *fd = -1;
}

struct box *box_find(struct server *s, const char *id) { return map_get(&s->boxes, id); }

struct box *box_new(struct server *s, const char *id, enum sp_kind kind, struct err *e)
{
    if (box_find(s, id)) {
        (void)err_set(e, E_CONFLICT, "%s exists already", id);
        return NULL;
    }
    struct box *b = xcalloc(1, sizeof *b);
    b->srv = s;
    memcpy(b->id, id, strlen(id) + 1);
    b->kind = kind;
    b->pidfd = b->sync = b->chan = b->volumes = b->qmp = b->errpipe = b->upper = b->mntns = b->disk = b->slot = -1;
    b->start_fds[0] = b->start_fds[1] = b->start_fds[2] = -1;
    b->cg = CGROUP_NONE;
    b->started = clock_mono();
    (void)map_set(&s->boxes, b->id, b);
    return b;
}

int slot_spare(struct server *s)
{
    for (int i = 0; i < SLOTS; i++) { /* round robin: a range rests as long as possible before it is used again */
        int k = (s->slot_next + i) % SLOTS;
        if (s->slot_used[k])
            continue;
        s->slot_used[k] = true;
        s->slot_next = (k + 1) % SLOTS;
        return k;
    }
    return -1;
}

int slot_take(struct server *s, struct err *e)
{
    int k = slot_spare(s);
    if (k < 0 && ready_give_up(s))
        k = slot_spare(s);
    return k < 0 ? err_set(e, E_QUOTA, "all %d slots are in use", SLOTS) : k;
}

uint32_t slot_uid(const struct server *s, int slot) { return s->uid_base + (uint32_t)slot * SLOT_IDS; }
int box_take_slot(struct box *b, struct err *e) { return (b->slot = slot_take(b->srv, e)) < 0 ? -1 : 0; }
uint32_t box_uid(const struct box *b) { return slot_uid(b->srv, b->slot); }

/* ---- death ---------------------------------------------------------------------------------------------------- */

static void box_free(struct box *b)
{
    struct server *s = b->srv;
    (void)map_del(&s->boxes, b->id);
    server_unwatch(s, &b->w_pid);
    server_unwatch(s, &b->w_sync);
    server_unwatch(s, &b->w_err);
    if (b->sync >= 0)
        s->nstarting--;
    int *fd[] = {&b->pidfd, &b->sync, &b->chan, &b->volumes, &b->qmp, &b->errpipe, &b->upper, &b->mntns, &b->disk, &b->start_fds[0], &b->start_fds[1], &b->start_fds[2]};
    for (unsigned i = 0; i < sizeof fd / sizeof *fd; i++)
        close_fd(fd[i]);
    if (b->slot >= 0)
        s->slot_used[b->slot] = false;
    if (b->retry_at)
        s->nretry--;
    free(b->tail);
    b->tail = NULL;
    list_add_tail(&s->graves, &b->grave);
}

static int rm_entries(int dir, int depth)
{
    int rc = 0;
    DIR *d = fdopendir(dir);
    if (!d)
        return -1;
    for (struct dirent *t; (t = readdir(d));) {
        if (!strcmp(t->d_name, ".") || !strcmp(t->d_name, ".."))
            continue;
        if (!unlinkat(dirfd(d), t->d_name, 0))
            continue;
        int sub = errno == EISDIR && depth ? openat(dirfd(d), t->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (sub < 0 || rm_entries(sub, depth - 1) || unlinkat(dirfd(d), t->d_name, AT_REMOVEDIR) < 0)
            rc = -1;
    }
    (void)closedir(d);
    return rc;
}

int box_remove_dir(struct server *s, const char *id)
{
    struct err e;
    auto_fd boxes = server_home_open(s, O_RDONLY | O_DIRECTORY, &e, "boxes");
    int dir = boxes < 0 ? -1 : openat(boxes, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return 0; /* nothing there: fine, removal is idempotent */
    if (rm_entries(dir, 4) || unlinkat(boxes, id, AT_REMOVEDIR) < 0) {
        log_warn("boxes/%s: cannot be removed completely", id);
        return -1;
    }
    return 0;
}

static void answer_removers(struct box *b)
{
    for (int i = 0; i < b->nremovers; i++)
        server_ok(b->srv, b->remover[i].gen, b->remover[i].seq);
    b->nremovers = 0;
}

static void remove_done(struct box *b)
{
    answer_removers(b);
    box_free(b);
}

static void remove_files(struct box *b)
{
    bool files = (b->kind == SP_KIND_BOX || b->kind == SP_KIND_VM) && !b->keep_files;
    if (b->files_leaving)
        return;
    bool leaving = files && worker_remove(b->srv, b->id, &b->upper, &b->mntns);
    close_fd(&b->mntns);
    close_fd(&b->upper);
    if (b->keep_files && b->kind == SP_KIND_BOX && !b->synced) { /* what a paused container left must survive a power cut */
        b->synced = true;
        if (worker_sync(b->srv, b->id)) {
            b->files_leaving = true;
            return;
        }
        (void)disk_upper_sync(b->srv, b->id); /* logged there */
    }
    if (leaving) {
        b->files_leaving = true; /* nothing of it runs any more: nobody need wait for the disk */
        answer_removers(b);
        return;
    }
    if (files)
        (void)box_remove_dir(b->srv, b->id); /* logged there */
    remove_done(b);
}

void box_files_removed(struct server *s, const char *id)
{
    struct box *b = box_find(s, id);
    if (!b || !b->files_leaving)
        return;
    if (b->synced && !b->keep_files) { /* it was only synced, and a removal came meanwhile */
        b->synced = b->files_leaving = false;
        remove_files(b);
        return;
    }
    remove_done(b);
}

void box_worker_lost(struct server *s)
{
    size_t i = 0;
    for (struct map_entry *m; (m = map_next(&s->boxes, &i));) {
        struct box *b = m->value;
        if (!b->files_leaving)
            continue;
        b->files_leaving = false;
        remove_files(b);
    }
}

/* Control groups may stay busy for a moment after the last process was waited for. */
static void try_remove(struct box *b)
{
    struct server *s = b->srv;
    if (b->retry_at)
        s->nretry--;
    b->retry_at = 0;
    if (b->cg.live && cgroup_remove(&s->cg, &b->cg) && b->tries++ < 200) {
        b->retry_at = clock_mono() + (b->tries < 10 ? 2 : 50) * NS_PER_MS;
        s->nretry++;
        return;
    }
    if (b->cg.live)
        log_warn("%s: could not remove the control group; the next start will", b->id);
    if (b->keep_files)
        close_fd(&b->upper);
    if (b->removing && b->keep_files && b->kind == SP_KIND_BOX && !b->synced && disk_upper_busy(s, b->id) && b->tries++ < 400) {
        b->retry_at = clock_mono() + (b->tries < 20 ? 2 : 50) * NS_PER_MS; /* the last process is gone, its mounts are going */
        s->nretry++;
        return;
    }
    if (b->removing)
        remove_files(b);
}

int box_retry(struct server *s, int64_t now)
{
    int64_t next = -1;
    size_t i = 0;
    if (!s->nretry)
        return -1;
    for (struct map_entry *m; (m = map_next(&s->boxes, &i));) {
        struct box *b = m->value;
        if (b->retry_at && b->retry_at <= now)
            try_remove(b);
        else if (b->retry_at && (next < 0 || b->retry_at < next))
            next = b->retry_at;
    }
    return s->nretry && next < 0 ? 2 : next < 0 ? -1 : (int)((next - now) / NS_PER_MS) + 1;
}

/* Waits for the process (it is dead or dying) and settles everything but the record. */
static void settle(struct box *b)
{
    struct server *s = b->srv;
    siginfo_t si;
    memset(&si, 0, sizeof si);
    while (waitid((idtype_t)WAIT_PIDFD, (id_t)b->pidfd, &si, WEXITED) < 0 && errno == EINTR)
        ;
    console_catch_up(b);
    if (!b->removing) { /* else nobody asks for its figures any more, and the worker takes its mounts down */
        cgroup_usage(&s->cg, &b->cg, &b->last);
        close_fd(&b->mntns);
    }
    memcpy(b->exit.id, b->id, sizeof b->exit.id);
    b->exit.kind = b->kind;
    b->exit.code = si.si_status;
    b->exit.signaled = si.si_code != CLD_EXITED;
    b->exit.oom_kills = (uint32_t)b->last.oom_kills;
    b->state = BX_DEAD;
    server_unwatch(s, &b->w_pid);
    server_unwatch(s, &b->w_err);
    close_fd(&b->pidfd);
    close_fd(&b->chan);
    close_fd(&b->volumes);
    close_fd(&b->qmp);
    close_fd(&b->errpipe);
    if (b->slot >= 0)
        s->slot_used[b->slot] = false;
    b->slot = -1;
}

void box_answer(struct box *b, uint64_t gen, uint64_t seq)
{
    struct sp_rep rep = {0};
    int fds[3], n = box_fds(b, fds);
    box_info(b, &rep.u.info);
    server_reply(b->srv, gen, seq, &rep, fds, n);
    for (int i = 0; i < 3; i++)
        close_fd(&b->start_fds[i]);
    b->nstart_fds = 0;
}

static void start_over(struct box *b, const struct err *e)
{
    struct server *s = b->srv;
    server_unwatch(s, &b->w_sync);
    if (b->sync >= 0)
        s->nstarting--;
    close_fd(&b->sync);
    if (e) {
        log_warn("%s: start failed: %s", b->id, e->msg);
        if (b->start_seq)
            server_fail(s, b->start_gen, b->start_seq, e);
        b->start_seq = 0;
        b->removing = true; /* nothing to come back to */
        box_kill(b);
        return;
    }
    b->state = BX_ALIVE;
    log_debug("%s started in %lld us", b->id, (long long)((clock_mono() - b->started) / 1000));
    box_answer(b, b->start_gen, b->start_seq);
    b->start_seq = 0;
}

static void on_sync(struct server *s, struct watch *w)
{
    struct box *b = w->arg;
    struct err e;
    (void)s;
    int r = jail_result(b->sync, &b->armed, &e);
    if (r)
        start_over(b, r < 0 ? &e : NULL);
}

static void on_exit_fd(struct server *s, struct watch *w)
{
    struct box *b = w->arg;
    if (b->state == BX_STARTING && b->sync >= 0)
        on_sync(s, &b->w_sync); /* the reason may be in the socket */
    bool failed = b->state == BX_STARTING;
    settle(b);
    if (!failed) {
        console_log_end(b);
        server_event(s, &b->exit);
    }
    try_remove(b);
}

void box_started(struct box *b, const struct jailed *j)
{
    b->pid = j->pid;
    b->pidfd = j->pidfd;
    b->sync = j->sync;
    b->state = BX_STARTING;
    b->srv->nstarting += b->sync >= 0;
    /* epoll only fails for lack of memory or watches: then the box would be deaf, so give up on it */
    if (server_watch(b->srv, &b->w_pid, b->pidfd, on_exit_fd, b) < 0 ||
        (b->sync >= 0 && (fd_nonblock(b->sync) < 0 || server_watch(b->srv, &b->w_sync, b->sync, on_sync, b) < 0)))
        abort();
}

int box_fds(const struct box *b, int *fds)
{
    int n = 0;
    if (b->kind == SP_KIND_PACK || b->kind == SP_KIND_TOOL) {
        for (; n < b->nstart_fds; n++)
            fds[n] = b->start_fds[n];
        return n;
    }
    fds[n++] = b->pidfd;
    fds[n++] = b->chan;
    if (b->kind == SP_KIND_VM)
        fds[n++] = b->qmp;
    return n;
}

void box_info(const struct box *b, struct sp_info *ret)
{
    *ret = (struct sp_info){.kind = b->kind,
                            .alive = b->state != BX_DEAD,
                            .uid_base = b->slot >= 0 ? box_uid(b) : 0,
                            .pid = b->state == BX_DEAD ? 0 : b->pid,
                            .started_mono_ns = (uint64_t)b->started};
    memcpy(ret->id, b->id, sizeof ret->id);
}

void box_kill(struct box *b)
{
    struct err e;
    if (b->state == BX_DEAD)
        return;
    (void)sys_pidfd_signal(b->pidfd, SIGKILL);           /* init: its pid namespace dies with it */
    if (b->cg.live && cgroup_kill(&b->srv->cg, &b->cg, &e)) /* and whatever is frozen or was never in it */
        log_warn("%s: kill: %s", b->id, e.msg);
}

void box_discard(struct box *b)
{
    struct server *s = b->srv;
    if (b->pidfd >= 0) {
        (void)sys_pidfd_signal(b->pidfd, SIGKILL);
        settle(b);
    }
    b->state = BX_DEAD;
    b->removing = true;
    if (b->upper >= 0)
        disk_abandon(b->upper);
    close_fd(&b->mntns);
    close_fd(&b->upper);
    if (!b->has_dir) { /* a VM's directory is the daemon's until the VM exists */
        b->kind = SP_KIND_TOOL;
    }
    (void)s;
    try_remove(b);
}

/* A release that meets a removal under way is one: who wants the files gone has the last word. */
void box_remove(struct box *b, bool keep_files, uint64_t gen, uint64_t seq)
{
    int room = (int)(sizeof b->remover / sizeof *b->remover);
    if (b->nremovers < room) {
        b->remover[b->nremovers].seq = seq;
        b->remover[b->nremovers++].gen = gen;
    } else {
        server_ok(b->srv, gen, seq); /* a fifth caller hears that it is under way */
    }
    bool first = !b->removing;
    b->keep_files = keep_files && (first || b->keep_files);
    b->removing = true;
    if (b->state == BX_DEAD) {
        if (first && !b->retry_at)
            try_remove(b);
        return; /* else: under way already, the answer comes with the first one's */
    }
    if (b->upper >= 0 && !b->keep_files)
        disk_abandon(b->upper);
    if (b->keep_files) { /* before the kill: the dying init, not we, unmounts and writes it */
        close_fd(&b->mntns);
        close_fd(&b->upper);
    }
    box_kill(b);
}
