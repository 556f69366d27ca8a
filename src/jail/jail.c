#include "jail/jail.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "jail/mount.h"
#include "jail/net.h"
#include "jail/ns.h"
#include "jail/privs.h"
#include "jail/sys.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define NS_ALL (NS_USER | NS_PID | NS_MOUNT | NS_NET | NS_IPC | NS_UTS)
#define PTS_MAX \
    "64" /* terminals of a box. Beyond the 1,024 that the host keeps for itself there are 3,072 on a machine */
#define PLAIN_ID 1000u /* of those that are nobody in particular */

static const struct profile {
    uint32_t first_id, id_count, run_as;
    bool no_new_privs;
    bool own_proc_subset; /* /proc shows the process itself and nothing of the kernel */
    uint64_t nofile;
} profiles[] = {
    /* No no_new_privs: sudo must work inside. The filter is installed with the CAP_SYS_ADMIN that the child still has in
     * its own user namespace and that exec takes away. */
    [JAIL_BOX] = {0, 65536, 0, false, false, 65536},
    [JAIL_VM] = {PLAIN_ID, 1, PLAIN_ID, true, true, 4096},
    [JAIL_UNTAR] = {0, 65536, 0, true, true, 1024},
    [JAIL_KEEPER] = {0, 65536, 0, true, true, 65536},
    [JAIL_ISOLATE] = {PLAIN_ID, 1, PLAIN_ID, true, true, 1024},
    /* It mounts a /proc of its own, which the kernel allows only to those who see a whole one. */
    [JAIL_SENTRY] = {0, 65536, 0, true, false, 65536},
};

uint32_t jail_first_id(enum jail_kind k) { return profiles[k].first_id; }
uint32_t jail_id_count(enum jail_kind k) { return profiles[k].id_count; }
static const struct profile *prof(const struct jail *j) { return &profiles[j->kind]; }
static uint64_t bound(const struct jail *j)
{
    static const uint64_t *const caps[sizeof profiles / sizeof *profiles] = {[JAIL_BOX] = &CAPS_BOX, [JAIL_UNTAR] = &CAPS_UNTAR, [JAIL_KEEPER] = &CAPS_KEEPER, [JAIL_SENTRY] = &CAPS_BOX};
    return caps[j->kind] ? *caps[j->kind] : CAPS_NONE;
}

/* ---- the steps ------------------------------------------------------------------------------------------------ */

static int s_close_fds(struct jail *j, struct err *e)
{
    struct fd_keep k = {0};
    fds_keep(&k, j->sync);
    fds_keep(&k, j->exec_fd);
    for (int i = 0; i < j->njoin; i++)
        fds_keep(&k, j->join[i]);
    for (int i = 0; i < j->nplace; i++)
        fds_keep(&k, j->place[i].from);
    for (int i = 0; i < j->nkeep; i++)
        fds_keep(&k, j->keep[i]);
    return fds_close_others(&k, e);
}

static int s_session(struct jail *j, struct err *e)
{
    (void)j;
    (void)umask(022);
    for (int n = 1; n < NSIG; n++)
        (void)signal(n, SIG_DFL); /* what the spawner ignores, or whoever started it, is nobody's business inside */
    if (setsid() < 0)
        return err_sys(e, errno, "setsid");
    return privs_death_signal(e); /* for the time until the ids change; set again afterwards */
}

static int s_cgroup_join(struct jail *j, struct err *e) { return cgroup_join(j->join, j->njoin, e); }

/* do not reorder: a cgroup namespace made before joining would show the host's path as /../.. */
static int s_cgroup_ns(struct jail *j, struct err *e)
{
    (void)j;
    return sys_unshare(NS_CGROUP) < 0 ? err_sys(e, errno, "unshare") : 0;
}

static int s_hostname(struct jail *j, struct err *e) { return ns_hostname(j->kind == JAIL_BOX ? j->box.hostname : j->hostname ? j->hostname : "hutch", e); }

static int s_wait_go(struct jail *j, struct err *e)
{
    int fds[3] = {-1, -1, -1}, n = 3;
    char c;
    if (fd_recv(j->sync, &c, 1, fds, &n, 0) != 1 || n < 1)
        return err_set(e, E_INTERNAL, "the parent gave up");
    j->root = fds[0];
    if (j->kind == JAIL_ISOLATE || j->kind == JAIL_SENTRY)
        j->dev = fds[1];
    else if (j->kind == JAIL_UNTAR)
        j->out = fds[1];
    else if (n == 2 && fds[1] != JAIL_TAP_FD) { /* now, while the number is free */
        if (fds_place(fds[1], JAIL_TAP_FD, e))
            return -1;
        (void)close(fds[1]);
    }
    j->tools = fds[2];
    return 0;
}

/* What only the child's own ids had to be there for. */
static int s_wait_ids(struct jail *j, struct err *e)
{
    int n = 1;
    char c;
    if (fd_recv(j->sync, &c, 1, &j->dev, &n, 0) != 1 || n != 1)
        return err_set(e, E_INTERNAL, "the parent gave up");
    return 0;
}

/* Out of the way of the numbers that descriptors are placed at. */
static int lift(int *fd, struct err *e)
{
    int up = fcntl(*fd, F_DUPFD_CLOEXEC, JAIL_LOW_FDS);
    if (up < 0)
        return err_sys(e, errno, "descriptor %d", *fd);
    (void)close(*fd);
    *fd = up;
    return 0;
}

static int s_wait_box(struct jail *j, struct err *e)
{
    int fds[JAIL_BOX_FDS], n = JAIL_BOX_FDS;
    if (fd_recv(j->sync, &j->box, sizeof j->box, fds, &n, 0) != (ssize_t)sizeof j->box || n != JAIL_BOX_FDS)
        return err_set(e, E_INTERNAL, "the parent gave up");
    j->root = fds[JAIL_BOX_ROOT];
    j->exec_fd = fds[JAIL_BOX_EXEC];
    j->place[0].from = fds[JAIL_BOX_STDERR], j->place[0].to = 2;
    j->place[1].from = fds[JAIL_BOX_CHANNEL], j->place[1].to = JAIL_CHANNEL_FD;
    j->nplace = 2;
    return lift(&j->sync, e) || lift(&j->exec_fd, e) || lift(&j->place[0].from, e) || lift(&j->place[1].from, e) ? -1 : 0;
}

/* do not reorder: new proc and sysfs instances need the old ones still visible; the root must be attached while the
 * process has the outer root's id, because the place is closed to everybody else. */
static int s_make_proc(struct jail *j, struct err *e)
{
    static const char *const subset[] = {"subset", "pid", NULL};
    if (j->kind == JAIL_KEEPER)
        return 0;
    j->proc = mount_fs("proc", prof(j)->own_proc_subset ? subset : NULL, MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, e);
    return j->proc < 0 ? -1 : 0;
}

static int s_net_settings(struct jail *j, struct err *e)
{
    (void)e;
    if (j->kind == JAIL_BOX || j->kind == JAIL_SENTRY)
        net_settings(j->proc);
    return 0;
}

static int s_make_sys(struct jail *j, struct err *e)
{
    j->sys = mount_fs("sysfs", NULL, MATTR_RDONLY | MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, e);
    return j->sys < 0 ? -1 : 0;
}

static int s_pivot(struct jail *j, struct err *e) { return mount_pivot(j->root, j->attach_at, e); }
static int s_ids(struct jail *j, struct err *e) { return privs_ids(prof(j)->run_as, prof(j)->run_as, e); }

/* While we still are the outer root: the place is closed to everybody else. */
static int s_find_place(struct jail *j, struct err *e)
{
    j->at = open(j->attach_at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return j->at < 0 ? err_sys(e, errno, "location of the new root") : 0;
}

static int s_make_pts(struct jail *j, struct err *e)
{
    static const char *const pts[] = {"newinstance", NULL, "ptmxmode", "0666", "mode", "0620", "gid", "5", "max", PTS_MAX, NULL};
    j->pts = mount_fs("devpts", pts, MATTR_NOSUID | MATTR_NOEXEC, e);
    return j->pts < 0 ? -1 : 0;
}

/* Over the host's own in this namespace: what hides parts of them needs them to be in a mount tree. */
static int s_cover(struct jail *j, struct err *e)
{
    return mount_put(j->proc, AT_FDCWD, "proc", e) || mount_put(j->sys, AT_FDCWD, "sys", e) || mount_put(j->dev, AT_FDCWD, "dev", e) ||
           mount_put(j->pts, AT_FDCWD, "dev/pts", e);
}

/* They move with what hides parts of them, before the old tree and everything in it is let go. */
static int s_new_root(struct jail *j, struct err *e)
{
    return mount_move(j->root, j->at, "", e) || mount_put(j->proc, j->root, "proc", e) || mount_put(j->sys, j->root, "sys", e) ||
           mount_put(j->dev, j->root, "dev", e) || mount_enter(j->root, e);
}

static int s_make_tmp(struct jail *j, struct err *e)
{
    const char *const shm[] = {"mode", "1777", "size", j->box.shm_size, "source", "shm", NULL};
    const char *const run[] = {"mode", "0755", "size", j->run_size, "nr_inodes", "16384", "source", "run", NULL};
    auto_fd s = mount_fs("tmpfs", shm, MATTR_NOSUID | MATTR_NODEV, e);
    auto_fd r = s < 0 ? -1 : mount_fs("tmpfs", run, MATTR_NOSUID | MATTR_NODEV, e);
    return r < 0 || mount_put(s, AT_FDCWD, "dev/shm", e) || mount_put(r, AT_FDCWD, "run", e) ? -1 : 0;
}

/* What runsc keeps about its sandbox lies in a small /run, gone with the jail. It believes /proc/meminfo, so the guest is shown
 * the size it was given; a bind of our own, which hides nothing the kernel wants to be seen, so a new /proc may be mounted. Its halves
 * take a copy of this tree: a volume that is mounted here later (SP_VOLUME_LEND) is to appear in theirs. */
static int place_sentry(struct jail *j, struct err *e)
{
    const char *const run[] = {"mode", "0700",   "size", j->run_size, "nr_inodes",
                               "256",  "source", "run",  NULL};
    auto_fd r = mount_fs("tmpfs", run, MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, e);
    if (r < 0 || mount_put(j->dev, AT_FDCWD, "dev", e) ||
        mount_put(j->tools, AT_FDCWD, &SENTRY_ROOTFS[1], e) || mount_put(r, AT_FDCWD, "run", e))
        return -1;
    if (sys_mount("/meminfo", "/proc/meminfo", NULL, MOUNT_BIND, NULL) < 0)
        return err_sys(e, errno, "/proc/meminfo");
    return sys_mount(NULL, "/", NULL, MOUNT_REC | MOUNT_SHARED, NULL) < 0
               ? err_sys(e, errno, "shared mounts")
               : 0;
}

static int s_place_mounts(struct jail *j, struct err *e)
{
    if (j->kind == JAIL_KEEPER)
        return 0;
    if (mount_put(j->proc, AT_FDCWD, "proc", e))
        return -1;
    if (j->kind == JAIL_UNTAR && mount_put(j->out, AT_FDCWD, "out", e))
        return -1;
    if (j->kind == JAIL_ISOLATE && (mount_put(j->dev, AT_FDCWD, "dev", e) || mount_put(j->tools, AT_FDCWD, "run", e)))
        return -1;
    return j->kind == JAIL_SENTRY ? place_sentry(j, e) : 0;
}

/* The kernel keeps one boot id for all; a box reads its own, made per box, through a read-only file bound over it. The
 * file is then unlinked and so out of reach by any name. */
static int s_boot_id(struct jail *j, struct err *e)
{
    static const char tmp[] = "/run/.boot_id";
    auto_fd fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0 || !fd_write_all(fd, j->box.boot_id, strlen(j->box.boot_id)))
        return err_sys(e, errno, "file");
    auto_fd m = mount_clone(AT_FDCWD, tmp, false, e);
    if (m < 0 || mount_attr(m, MATTR_RDONLY | MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, false, e) ||
        mount_move(m, AT_FDCWD, "/proc/sys/kernel/random/boot_id", e))
        return -1;
    return unlink(tmp) < 0 ? err_sys(e, errno, "file") : 0;
}

/* What is the same file for the host and for every box: it tells of others, or lets two boxes talk by what they hold. */
static const char *const masked[] = {
    /* keys, memory, ways to command the kernel */
    "/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/kallsyms", "/proc/sysrq-trigger",
    "/proc/mtrr", "/proc/acpi", "/proc/scsi", "/proc/asound",
    /* how the host was started and what it is made of */
    "/proc/cmdline", "/proc/config.gz", "/proc/modules", "/proc/consoles", "/proc/iomem",
    "/proc/ioports", "/proc/swaps", "/sys/firmware", "/sys/module", "/sys/power", "/sys/hypervisor",
    "/sys/devices/virtual/dmi", "/sys/kernel/boot_params", "/sys/kernel/notes",
    "/sys/kernel/vmcoreinfo", "/sys/kernel/security",
    /* what others do at this moment */
    "/proc/locks", "/proc/timer_list", "/proc/sched_debug", "/proc/schedstat",
    "/proc/latency_stats", "/proc/interrupts", "/proc/softirqs", "/proc/buddyinfo",
    "/proc/pagetypeinfo", "/proc/zoneinfo", "/proc/pressure", "/proc/sys/fs/aio-nr",
    "/proc/sys/fs/dentry-state", "/proc/sys/fs/file-nr", "/proc/sys/fs/inode-nr",
    "/proc/sys/fs/inode-state", "/proc/sys/fs/quota", "/proc/sys/kernel/pty", "/sys/kernel/slab",
    "/sys/kernel/uevent_seqnum",
    /* names and backing paths of every box's disk */
    "/proc/partitions", "/proc/diskstats", "/sys/block", "/sys/class/block", "/sys/dev",
    "/sys/devices/virtual/block", "/sys/fs/ext4"};

static int s_hide(struct jail *j, struct err *e)
{
    static const char *const read_only[] = {"proc/sys", "proc/irq", "proc/bus", "proc/fs"};
    (void)j;
    const char *const o[] = {"size", "4k", "nr_inodes", "1", "mode", "0555", "source", "none", NULL};
    auto_fd empty = mount_fs("tmpfs", o, MATTR_RDONLY | MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, e);
    if (empty < 0)
        return -1;
    /* /proc/driver takes the mount itself, the others are bound to it: one call each, for none of these is anybody's but the kernel's */
    if (mount_put(empty, AT_FDCWD, "proc/driver", e))
        return -1;
    for (unsigned i = 0; i < sizeof masked / sizeof *masked; i++)
        if (mount_mask(masked[i], "/proc/driver", e))
            return -1;
    auto_fd top = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(e, errno, "/");
    for (unsigned i = 0; i < sizeof read_only / sizeof *read_only; i++)
        if (mount_ro(top, read_only[i], e))
            return -1;
    return 0;
}

static int s_limits(struct jail *j, struct err *e) { return privs_limits(prof(j)->nofile, 8u << 20, e); }

static int std_fds(struct err *e)
{
    auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_sys(e, errno, "/dev/null");
    for (int fd = 0; fd < 3; fd++)
        if (null != fd && fds_place(null, fd, e))
            return -1;
    if (null < 3) { /* it is one of the three: stays open over exec */
        if (fds_inherit(null, e))
            return -1;
        null = -1;
    }
    return 0;
}

/* A keeper has no /dev: its 0, 1 and 2 are among the placed ones. */
static int s_place_fds(struct jail *j, struct err *e)
{
    if (j->kind != JAIL_KEEPER && std_fds(e))
        return -1;
    for (int i = 0; i < j->nplace; i++)
        if (fds_place(j->place[i].from, j->place[i].to, e))
            return -1;
    for (int i = 0; i < j->nkeep; i++)
        if (fds_inherit(j->keep[i], e))
            return -1;
    return 0;
}

static int s_bounding(struct jail *j, struct err *e) { return privs_bound(bound(j), e); }

/* Not for a BOX, which keeps what it has until exec: root of a user namespace gets its bounding set then, nothing more. */
static int s_caps(struct jail *j, struct err *e) { return privs_caps(bound(j), e); }
static int s_no_new_privs(struct jail *j, struct err *e) { return prof(j)->no_new_privs ? privs_no_new(e) : 0; }

static int s_death(struct jail *j, struct err *e)
{
    (void)j;
    return privs_death_signal(e);
}

/* The parent may have died before the line above; its end of the socket is the witness. */
static int s_armed(struct jail *j, struct err *e)
{
    return send(j->sync, "X", 1, MSG_NOSIGNAL) != 1 ? err_set(e, E_INTERNAL, "the parent process has exited") : 0;
}

static int s_seccomp(struct jail *j, struct err *e) { return j->filter ? seccomp_install(j->filter, e) : 0; }

static int s_exec(struct jail *j, struct err *e)
{
    if (j->kind == JAIL_UNTAR && chdir("/out") < 0)
        return err_sys(e, errno, "/out");
    (void)sys_execveat(j->exec_fd >= 0 ? j->exec_fd : AT_FDCWD, j->exec_fd >= 0 ? "" : j->path, j->argv, j->envp,
                       j->exec_fd >= 0 ? (int)TREE_EMPTY_PATH : 0);
    return err_sys(e, errno, "execveat");
}

/* The lists. do not reorder without reading the notes at the steps: each line relies on the ones above it. */
struct step { const char *name; int (*fn)(struct jail *, struct err *); };

static const struct step steps[] = {
    {"close descriptors", s_close_fds},
    {"session", s_session},
    {"join cgroups", s_cgroup_join},
    {"cgroup namespace", s_cgroup_ns},
    {"host name", s_hostname},
    {"wait for mounts", s_wait_go},
    {"proc", s_make_proc},
    {"network settings", s_net_settings},
    {"new root", s_pivot},
    {"ids", s_ids},
    {"place mounts", s_place_mounts},
    {"limits", s_limits},
    {"place descriptors", s_place_fds},
    {"bounding set", s_bounding},
    {"capabilities", s_caps},
    {"no_new_privs", s_no_new_privs},
    {"death signal", s_death},
    {"witness", s_armed},
    {"seccomp", s_seccomp},
    {"exec", s_exec},
    {NULL, NULL},
};

/* A container's has the same steps in another order: all that does not depend on which box it becomes comes first, so
 * that it can be done before anybody asks. What waits at "wait for its box" has run no byte of anybody's. */
static const struct step box_steps[] = {
    {"close descriptors", s_close_fds},
    {"session", s_session},
    {"join cgroups", s_cgroup_join},
    {"cgroup namespace", s_cgroup_ns},
    {"wait for ids", s_wait_ids},
    {"proc", s_make_proc},
    {"network settings", s_net_settings},
    {"sys", s_make_sys},
    {"find the place", s_find_place},
    {"ids", s_ids},
    {"death signal", s_death}, /* the ids cleared it, and the wait below may be long */
    {"terminals", s_make_pts},
    {"cover", s_cover},
    {"hide", s_hide},
    {"limits", s_limits},
    {"bounding set", s_bounding},
    {"wait for its box", s_wait_box},
    {"host name", s_hostname},
    {"new root", s_new_root},
    {"temporary file systems", s_make_tmp},
    {"boot id", s_boot_id},
    {"place descriptors", s_place_fds},
    {"death signal", s_death},
    {"witness", s_armed},
    {"seccomp", s_seccomp},
    {"exec", s_exec},
    {NULL, NULL},
};

static void child(struct jail *j) __attribute__((noreturn));
static void child(struct jail *j)
{
    struct err e = {0};
    if (j->kind == JAIL_BOX)
        (void)prctl(PR_SET_NAME, "hutch-ready", 0, 0, 0); /* for whoever looks at the process table; exec ends it */
    for (const struct step *s = j->kind == JAIL_BOX ? box_steps : steps; s->name; s++)
        if (s->fn(j, &e)) {
            (void)err_wrap(&e, "jail: %s", s->name);
            (void)send(j->sync, &e, sizeof e, MSG_NOSIGNAL); /* a dead parent needs no reason */
            break;
        }
    _exit(127);
}

/* ---- parent --------------------------------------------------------------------------------------------------- */

int jail_spawn(struct jail *j, struct jailed *ret, struct err *e)
{
    int sv[2], pidfd = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(e, errno, "jail: socketpair");
    j->sync = sv[1];
    j->root = j->dev = j->out = j->tools = j->proc = j->sys = j->pts = j->at = -1;
    struct ns_birth birth = {
        .namespaces = NS_ALL, .cgroup = j->cgroup2, .owner = j->owner, .sibling = j->sibling};
    pid_t pid = ns_clone(&birth, &pidfd, e);
    if (!pid)
        child(j);
    (void)close(sv[1]);
    j->sync = -1;
    if (pid < 0) {
        (void)close(sv[0]);
        return err_wrap(e, "jail");
    }
    *ret = (struct jailed){pid, pidfd, sv[0]};
    return 0;
}

int jail_go(int sync, int root, int extra, int tools, struct err *e)
{
    int fds[3] = {root, extra, tools};
    if (fd_send(sync, "G", 1, fds, extra < 0 ? 1 : tools < 0 ? 2 : 3, 0) != 1)
        return err_sys(e, errno, "jail: hand over mounts");
    return 0;
}

int jail_box_ids(int sync, int dev, struct err *e)
{
    return fd_send(sync, "I", 1, &dev, 1, MSG_NOSIGNAL) != 1 ? err_sys(e, errno, "jail: hand over /dev") : 0;
}

int jail_box_go(int sync, const struct jail_box *box, const int fds[JAIL_BOX_FDS], struct err *e)
{
    if (fd_send(sync, box, sizeof *box, fds, JAIL_BOX_FDS, MSG_NOSIGNAL) != (ssize_t)sizeof *box)
        return err_sys(e, errno, "jail: hand over the box");
    return 0;
}

int jail_result(int sync, bool *armed, struct err *e)
{
    union { struct err e; char c; } m;
    for (;;) {
        ssize_t n = recv(sync, &m, sizeof m, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (n < 0 && errno != ECONNRESET)
            return err_sys(e, errno, "jail: sync");
        if (n <= 0)
            return *armed ? 1 : err_set(e, E_INTERNAL, "jail: died during set-up");
        if (n == 1) {
            *armed = true;
            continue;
        }
        if (n != (ssize_t)sizeof m.e)
            return err_set(e, E_INTERNAL, "jail: garbled message");
        m.e.msg[sizeof m.e.msg - 1] = 0;
        *e = m.e;
        return -1;
    }
}
