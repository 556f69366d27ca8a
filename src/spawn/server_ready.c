/* Jails of containers, made before anybody asks for them: namespaces, mapped
 * ids, the network with its rules, /proc, /sys and /dev with what is hidden of
 * them. That is more than half of a start and depends on nothing that a request
 * says. Each waits as a process of ours for jail_box_go(), has run nothing but
 * jail/jail.c, becomes one box and is never used again. */
#include "base/cleanup.h"
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

static int furnish(struct server *s, struct ready *r, struct err *e)
{
    char name[32];
    int none = -1;
    struct jail j = {.kind = JAIL_BOX, .attach_at = s->attach_at, .run_size = "64m", .filter = &s->f_box, .exec_fd = -1, .argv = argv, .envp = envp};
    (void)snprintf(name, sizeof name, "ready-%llu", (unsigned long long)s->ready_serial++);
    if ((r->slot = slot_take(s, e)) < 0 || cgroup_begin(&s->cg, name, &r->cg, e))
        return -1;
    j.cgroup2 = r->cg.v2;
    uint32_t uid = slot_uid(s, r->slot);
    if (jail_spawn(&j, &r->child, e) || ns_map_ids(r->child.pid, jail_first_id(JAIL_BOX), uid, jail_id_count(JAIL_BOX), &r->userns, &r->mntns, e))
        return -1;
    auto_fd dev = make_dev(s, r->userns, e);
    /* The child goes on meanwhile: it waits for its box before anything of that runs. */
    return dev < 0 || jail_box_ids(r->child.sync, dev, e) || net_furnish(&s->net, NET_BOX, r->child.pidfd, &none, e) ? -1 : 0;
}

static int make(struct server *s, struct ready *r, struct err *e)
{
    *r = (struct ready){.used = true, .child = {.pidfd = -1, .sync = -1}, .userns = -1, .mntns = -1, .slot = -1, .cg = CGROUP_NONE};
    if (!furnish(s, r, e))
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

bool ready_wants(const struct server *s) { return s->ready_wanted && s->nready < READY_DEPTH && !s->nstarting && s->conn.fd >= 0; }

void ready_refill(struct server *s)
{
    struct ready *r = s->ready;
    struct err e;
    while (r->used)
        r++;
    if (make(s, r, &e)) {
        log_warn("a container made ahead: %s", e.msg);
        s->ready_wanted = false;
        return;
    }
    s->nready++;
    if (server_watch(s, &r->w, r->child.sync, on_word, r) < 0) {
        undo(s, r);
        s->nready--;
        s->ready_wanted = false;
    }
}

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
    while (ready_give_up(s))
        ;
}
