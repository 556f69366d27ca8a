/* Jails of containers, made before anybody asks for them: namespaces, mapped
 * ids, the network with its rules, /proc, /sys and /dev with what is hidden of
 * them. That is more than half of a start and depends on nothing that a request
 * says. Each waits as a process of ours for jail_box_go(), has run nothing but
 * jail/jail.c, becomes one box and is never used again.
 *
 * They are made by the jailer, a process beside us as the disk workers are
 * (server_worker.c), since it takes milliseconds for which nobody could be
 * answered; but they are our children from birth, and die with us, not with it.
 * Without it we make them ourselves, when nothing is to be done. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/mount.h"
#include "jail/ns.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define WAIT_PIDFD 3 /* P_PIDFD */

/* To the jailer, and back with the descriptors that `have` names. */
struct order { uint64_t serial; int32_t slot; };
struct made { struct order order; int32_t rc; uint32_t have; pid_t pid; struct cgroup cg; struct err err; };
#define PARTS (5 + CG_TREES)

static void parts_of(struct ready *r, int *fd[PARTS])
{
    int *some[] = {&r->child.pidfd, &r->child.sync, &r->userns, &r->mntns, &r->cg.v2};
    memcpy(fd, some, sizeof some);
    for (int i = 0; i < CG_TREES; i++)
        fd[5 + i] = &r->cg.tree[i];
}

static char *const argv[] = {"hutch-agent", "--container", "--fd", "3", NULL};
static char *const envp[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8", NULL};
_Static_assert(JAIL_CHANNEL_FD == 3, "argv above says so");

static void undo(struct server *s, struct ready *r)
{
    siginfo_t si;
    server_unwatch(s, &r->w);
    if (r->child.pidfd >= 0) {
        (void)sys_pidfd_signal(r->child.pidfd, SIGKILL);
        while (waitid((idtype_t)WAIT_PIDFD, (id_t)r->child.pidfd, &si, WEXITED) < 0 && errno == EINTR)
            ;
    }
    int *fd[] = {&r->child.pidfd, &r->child.sync, &r->userns, &r->mntns};
    for (unsigned i = 0; i < sizeof fd / sizeof *fd; i++)
        cleanup_fd(fd[i]);
    /* it may stay busy for a moment; this is rare, and what is left the next start sweeps */
    for (int i = 0; i < 20 && r->cg.live && cgroup_remove(&s->cg, &r->cg); i++)
        (void)nanosleep(&(struct timespec){0, 1000 * 1000}, NULL);
    if (r->slot >= 0)
        s->slot_used[r->slot] = false;
    r->used = false;
}

/* -> /dev of the box, owned */
static int make_dev(struct server *s, int userns, struct err *e)
{
    auto_fd dev = mount_clone(s->dev_mnt, "", false, e);
    if (dev < 0)
        return -1;
    int looks = mount_idmap(dev, userns, NULL); /* so that owners read "root"; tmpfs cannot before 6.3: then they do not */
    (void)looks;
    return mount_attr(dev, MATTR_RDONLY | MATTR_NOSUID | MATTR_NOEXEC, false, e) ? -1 : take_fd(&dev);
}

static int furnish(struct server *s, struct ready *r, const struct order *o, bool sibling, struct err *e)
{
    char name[32];
    int none = -1;
    struct jail j = {.kind = JAIL_BOX, .owner = slot_uid(s, o->slot), .attach_at = s->attach_at, .run_size = "64m", .filter = &s->f_box, .exec_fd = -1, .argv = argv, .envp = envp, .sibling = sibling};
    (void)snprintf(name, sizeof name, "ready-%llu", (unsigned long long)o->serial);
    if (cgroup_begin(&s->cg, name, &r->cg, e) || (j.njoin = cgroup_join_fds(&r->cg, j.join, e)) < 0)
        return -1;
    j.cgroup2 = r->cg.v2;
    int rc = jail_spawn(&j, &r->child, e);
    for (int i = 0; i < j.njoin; i++)
        (void)close(j.join[i]);
    if (rc || ns_map_ids(r->child.pid, jail_first_id(JAIL_BOX), j.owner, jail_id_count(JAIL_BOX), &r->userns, &r->mntns, e))
        return -1;
    auto_fd dev = make_dev(s, r->userns, e);
    /* The child goes on meanwhile: it waits for its box before anything of that runs. */
    return dev < 0 || jail_box_ids(r->child.sync, dev, e) || net_furnish(&s->net, NET_BOX, r->child.pidfd, &none, e) ? -1 : 0;
}

static const struct ready nothing = {.used = true, .child = {.pidfd = -1, .sync = -1}, .userns = -1, .mntns = -1, .slot = -1, .cg = {.tree = {-1, -1, -1, -1, -1}, .v2 = -1}};

static int make(struct server *s, struct ready *r, struct err *e)
{
    struct order o = {.serial = s->ready_serial++, .slot = slot_take(s, e)};
    *r = nothing;
    if ((r->slot = o.slot) >= 0 && !furnish(s, r, &o, false, e))
        return 0;
    undo(s, r);
    return -1;
}

/* It says nothing while it waits, unless it failed or was killed. */
static void on_word(struct server *s, struct watch *w)
{
    struct ready *r = w->arg;
    struct err e = {0};
    bool armed = false;
    if (jail_result(r->child.sync, &armed, &e) < 0)
        log_warn("a container made ahead: %s", e.msg);
    undo(s, r);
    s->nready--;
    s->ready_wanted = false; /* a start will meet the same and tell its caller */
}

/* ---- by the jailer -------------------------------------------------------------------------------------------- */

void jailer_work(struct server *s, int sock)
{
    struct order o;
    int *fd[PARTS], send[PARTS], n;
    for (;;) {
        struct ready r = nothing;
        struct made m = {0};
        n = 0;
        if (fd_recv(sock, &o, sizeof o, NULL, &n, 0) != (ssize_t)sizeof o)
            _exit(0);
        m.rc = furnish(s, &r, &o, true, &m.err);
        m.order = o;
        m.pid = r.child.pid;
        m.cg = r.cg;
        parts_of(&r, fd);
        for (int i = 0; i < PARTS; i++)
            if (*fd[i] >= 0) {
                m.have |= 1u << i;
                send[n++] = *fd[i];
            }
        if (fd_send(sock, &m, sizeof m, send, n, 0) < 0)
            _exit(1);
        while (n)
            (void)close(send[--n]);
    }
}

static void lost(struct server *s)
{
    log_warn("the jailer exited: doing its work in this process");
    server_unwatch(s, &s->jailer.w);
    cleanup_fd(&s->jailer.sock);
    s->jailer.sock = -1;
    while (s->nordered)
        s->slot_used[s->ordered[--s->nordered]] = false;
}

static void keep(struct server *s, struct ready *r)
{
    s->nready++;
    if (server_watch(s, &r->w, r->child.sync, on_word, r) < 0) {
        undo(s, r);
        s->nready--;
        s->ready_wanted = false;
    }
}

static struct ready *place(struct server *s)
{
    struct ready *r = s->ready;
    while (r->used)
        r++;
    return r;
}

/* One that was made. false: there is none, or never will be. */
static bool delivered(struct server *s, int flags)
{
    struct made m;
    int got[PARTS], n = PARTS, *fd[PARTS];
    ssize_t len = fd_recv(s->jailer.sock, &m, sizeof m, got, &n, flags);
    if (len < 0 && errno == EAGAIN)
        return false;
    if (len != (ssize_t)sizeof m || n != __builtin_popcount(m.have)) {
        lost(s);
        return false;
    }
    for (int i = 0; i < s->nordered; i++)
        if (s->ordered[i] == m.order.slot) {
            s->ordered[i] = s->ordered[--s->nordered];
            break;
        }
    struct ready *r = place(s);
    *r = nothing;
    r->slot = m.order.slot;
    r->child.pid = m.pid;
    r->cg = m.cg;
    parts_of(r, fd);
    for (int i = 0, at = 0; i < PARTS; i++)
        *fd[i] = m.have >> i & 1 ? got[at++] : -1;
    if (!m.rc) {
        keep(s, r);
        return true;
    }
    log_warn("a container made ahead: %s", m.err.msg);
    undo(s, r);
    s->ready_wanted = false;
    return true;
}

static void on_made(struct server *s, struct watch *w)
{
    (void)w;
    while (s->jailer.sock >= 0 && delivered(s, MSG_DONTWAIT))
        ;
}

int jailer_watch(struct server *s) { return s->jailer.sock < 0 ? 0 : server_watch(s, &s->jailer.w, s->jailer.sock, on_made, NULL); }

static bool few(const struct server *s, int depth) { return s->ready_wanted && s->nready + s->nordered < depth && s->conn.fd >= 0; }

/* While a box is being started only if they run out: the two would fight for the processors. */
void ready_order(struct server *s)
{
    while (s->jailer.sock >= 0 && few(s, s->nstarting ? READY_DEPTH / 2 : READY_DEPTH)) {
        struct order o = {.serial = s->ready_serial, .slot = slot_spare(s)};
        if (o.slot < 0)
            return;
        if (fd_send(s->jailer.sock, &o, sizeof o, NULL, 0, MSG_DONTWAIT) < 0) {
            s->slot_used[o.slot] = false;
            return;
        }
        s->ready_serial++;
        s->ordered[s->nordered++] = o.slot;
    }
}

/* ---- by ourselves --------------------------------------------------------------------------------------------- */

bool ready_wants(const struct server *s) { return s->jailer.sock < 0 && few(s, READY_DEPTH) && !s->nstarting; }

void ready_refill(struct server *s)
{
    struct ready *r = place(s);
    struct err e;
    if (make(s, r, &e)) {
        log_warn("a container made ahead: %s", e.msg);
        s->ready_wanted = false;
        return;
    }
    keep(s, r);
}

/* ---- use ------------------------------------------------------------------------------------------------------ */

static struct ready *any(struct server *s)
{
    for (int i = 0; i < READY_DEPTH; i++)
        if (s->ready[i].used)
            return &s->ready[i];
    return NULL;
}

int ready_take(struct box *b, struct jailed *ret, int *ret_userns, struct err *e)
{
    struct server *s = b->srv;
    struct ready *r = any(s), fresh;
    char word;
    while (r && (recv(r->child.sync, &word, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN)) {
        on_word(s, &r->w); /* it died a moment ago */
        r = any(s);
    }
    s->ready_wanted = true;
    if (r) {
        server_unwatch(s, &r->w);
        s->nready--;
        r->used = false;
    } else if (make(s, r = &fresh, e)) {
        return -1;
    }
    b->slot = r->slot;
    b->cg = r->cg;
    b->mntns = r->mntns;
    *ret = r->child;
    *ret_userns = r->userns;
    box_started(b, ret);
    return 0;
}

bool ready_give_up(struct server *s)
{
    struct ready *r = any(s);
    if (!r)
        return false;
    undo(s, r);
    s->nready--;
    return true;
}

void ready_fini(struct server *s)
{
    while (s->nordered && s->jailer.sock >= 0) /* under way: nobody else would know of it */
        (void)delivered(s, 0);
    while (ready_give_up(s))
        ;
}
