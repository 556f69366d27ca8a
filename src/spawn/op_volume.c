/* SP_VOLUME_* and SP_KEEPER_START. A volume is mounted once on the host, by
 * server_volume.c. A container gets a clone of that mount, a keeper has one as
 * its root. Virtual machines get neither: they reach files through a keeper. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/mount.h"
#include "jail/ns.h"
#include "jail/privs.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define KEEPER_MEM_MIB 512u
#define KEEPER_PIDS    8u
#define KEEPER_CPU     1000u
#define LEND_SECONDS   5
#define RESOLVE_NO_MAGICLINKS_ 0x02ull
#define RESOLVE_IN_ROOT_       0x10ull

/* ---- making, deleting, closing ---- */

static int make(struct server *s, struct request *r, struct err *e)
{
    const struct sp_volume *q = &r->q->u.volume;
    bool create = r->q->op == SP_VOLUME_MAKE;
    if (create && (q->size_mib < SP_VOLUME_MIN || q->size_mib > SP_DISK_MAX))
        return err_set(e, E_INVALID, "a volume has %u to %u MiB", SP_VOLUME_MIN, SP_DISK_MAX);
    if (create && q->inodes && (q->inodes < 64 || q->inodes > 1u << 28))
        return err_set(e, E_INVALID, "inodes must be at least 64");
    uint32_t mib = create ? q->size_mib : 0, inodes = create ? q->inodes : 0;
    if (!create)
        volume_close(s, q->id);
    if (s->worker.sock >= 0) {
        int slot = volume_wait_slot(s, r->gen, r->q->seq);
        if (slot < 0)
            return err_set(e, E_UNAVAILABLE, "other volumes are being made; try again");
        if (worker_volume(s, q->id, mib, inodes, slot))
            return 0;
        struct err busy;
        (void)err_set(&busy, E_UNAVAILABLE, "the disk worker is busy; try again");
        volume_wait_done(s, slot, -1, &busy);
        return 0;
    }
    if (create ? volume_make(s, q->id, mib, inodes, e) : volume_delete(s, q->id, e))
        return -1;
    server_ok(s, r->gen, r->q->seq);
    return 0;
}

static int volume_stat(struct server *s, struct request *r, struct err *e)
{
    struct sp_rep rep = {0};
    if (volume_usage(s, r->q->u.id.id, &rep.u.stat.disk_bytes, &rep.u.stat.disk_used, e))
        return -1;
    server_reply(s, r->gen, r->q->seq, &rep, NULL, 0);
    return 0;
}

/* ---- keepers ---- */

static int keeper_root(const struct server *s, int volume, int userns, int *ret, struct err *e)
{
    auto_fd m = shelf_clone(&s->shelf, volume, e);
    if (m < 0 || mount_idmap(m, userns, e) || mount_attr(m, MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, false, e))
        return -1;
    *ret = take_fd(&m);
    return 0;
}

static int keeper_start(struct server *s, struct box *b, const struct sp_keeper *q, struct err *e)
{
    int volume = volume_open(s, q->volume, e);
    if (volume < 0)
        return -1;
    int agent = server_program(s, "hutch-agent", &s->agent, s->agent_id, e);
    struct cgroup_limit limit = {.memory_bytes = (uint64_t)KEEPER_MEM_MIB << 20,
                                 .cpu_millis = KEEPER_CPU,
                                 .pids_max = KEEPER_PIDS};
    if (agent < 0 || box_cage(b, &limit, e))
        return -1;
    auto_fd inner = -1, err_end = -1;
    if (box_channel(&b->chan, &inner, e) || box_log_pipe(b, box_uid(b), &err_end, e))
        return -1;
    auto_fd null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0)
        return err_sys(e, errno, "/dev/null");

    char *argv[] = {"hutch-agent", "--keeper", "--fd", "3", NULL};
    char *envp[] = {NULL};
    struct jail j = {.kind = JAIL_KEEPER,
                     .hostname = "keeper",
                     .filter = &s->f_keeper,
                     .place = {{null, 0}, {null, 1}, {err_end, 2}, {inner, 3}},
                     .nplace = 4,
                     .exec_fd = agent,
                     .argv = argv,
                     .envp = envp};
    struct jailed child;
    auto_fd userns = -1, root = -1;
    if (box_jail(b, &j, &child, &userns, e) || keeper_root(s, volume, userns, &root, e))
        return -1;
    return jail_go(child.sync, root, -1, -1, e);
}

static int keeper(struct server *s, struct request *r, struct err *e)
{
    const struct sp_keeper *q = &r->q->u.keeper;
    if (!sp_id_ok(q->volume))
        return err_set(e, E_INVALID, "not an id");
    struct box *b = box_begin(s, r, q->id, SP_KIND_KEEPER, e);
    return b ? box_begun(b, keeper_start(s, b, q, e)) : -1;
}

/* ---- lending to a container ---- */

bool sp_place_ok(const char *p)
{
    static const char *const kernel[] = {"/proc", "/sys", "/dev"};
    size_t n = strnlen(p, SP_PLACE);
    if (n < 2 || n >= SP_PLACE || p[0] != '/' || p[n - 1] == '/')
        return false;
    for (unsigned i = 0; i < sizeof kernel / sizeof *kernel; i++) {
        size_t k = strlen(kernel[i]);
        if (!strncmp(p, kernel[i], k) && (!p[k] || p[k] == '/'))
            return false;
    }
    for (const char *part = p; *part; part += 1 + strcspn(part + 1, "/")) {
        size_t k = strcspn(part + 1, "/");
        if (!k || k > 255 || (k == 1 && part[1] == '.') || (k == 2 && part[1] == '.' && part[2] == '.'))
            return false;
        for (size_t i = 1; i <= k; i++)
            if ((unsigned char)part[i] < ' ' || part[i] == 0x7f)
                return false;
    }
    return true;
}

/* One part after the other, made if missing; links of the template are followed, but never out of the box's root. */
static int open_place(const char *place, struct err *e)
{
    char at[SP_PLACE];
    auto_fd root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = -1;
    for (size_t n = 0; place[n];) {
        n += 1 + strcspn(place + n + 1, "/");
        memcpy(at, place, n);
        at[n] = 0;
        cleanup_fd(&fd);
        uint64_t how = O_PATH | O_DIRECTORY, resolve = RESOLVE_IN_ROOT_ | RESOLVE_NO_MAGICLINKS_;
        fd = sys_openat2(root, at, how, resolve);
        if (fd < 0 && errno == ENOENT && !mkdir(at, 0755))
            fd = sys_openat2(root, at, how, resolve);
        if (fd < 0)
            return err_sys(e, errno, "location of the volume in the sandbox");
    }
    return fd;
}

/* In a child of ours that becomes a process of the box, with the box's rights and no more. */
static int lend_inside(int userns, int mntns, const char *root, int mnt, const char *place,
                       struct err *e)
{
    if (syscall(SYS_setns, userns, (int)NS_USER) < 0 || syscall(SYS_setns, mntns, (int)NS_MOUNT) < 0)
        return err_sys(e, errno, "entering the sandbox");
    if (privs_ids(0, 0, e))
        return -1;
    (void)umask(022);
    if (chroot(root) < 0 || chdir("/") < 0)
        return err_sys(e, errno, "root of the sandbox");
    auto_fd to = open_place(place, e);
    if (to < 0)
        return -1;
    return mount_move(mnt, to, "", e);
}

static int ns_open(pid_t pid, const char *which)
{
    char path[48];
    (void)snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, which);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int lend_run(struct box *b, int mnt, const char *place, struct err *e)
{
    int sv[2];
    auto_fd userns = ns_open(b->pid, "user"), mntns = ns_open(b->pid, "mnt"); /* our child, not yet waited for: the pid is its own */
    if (userns < 0 || mntns < 0)
        return err_sys(e, errno, "namespaces of the sandbox");
    if (mount_idmap(mnt, userns, e))
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(e, errno, "socketpair");
    pid_t pid = fork();
    if (!pid) {
        struct fd_keep k = {0};
        struct err why = {0};
        fds_keep(&k, sv[1]);
        fds_keep(&k, userns);
        fds_keep(&k, mntns);
        fds_keep(&k, mnt);
        (void)signal(SIGALRM, SIG_DFL);
        (void)alarm(LEND_SECONDS);
        if (fds_close_others(&k, &why) ||
            lend_inside(userns, mntns, b->gvisor ? SENTRY_ROOTFS : "/", mnt, place, &why))
            (void)send(sv[1], &why, sizeof why, MSG_NOSIGNAL);
        else
            (void)send(sv[1], "", 1, MSG_NOSIGNAL);
        _exit(0);
    }
    (void)close(sv[1]);
    auto_fd from = sv[0];
    struct err why = {0};
    ssize_t n = pid < 0 ? -1 : fd_recv(from, &why, sizeof why, NULL, NULL, 0); /* a child that dies ends this too */
    if (pid > 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    if (n == 1)
        return 0;
    if (n != (ssize_t)sizeof why)
        return err_set(e, E_INTERNAL, "the volume could not be mounted in the sandbox");
    why.msg[sizeof why.msg - 1] = 0;
    *e = why;
    return -1;
}

static int lend(struct server *s, struct request *r, struct err *e)
{
    const struct sp_lend *q = &r->q->u.lend;
    if (!sp_id_ok(q->volume) || q->read_only > 1 || !memchr(q->place, 0, sizeof q->place) || !sp_place_ok(q->place))
        return err_set(e, E_INVALID, "not a valid location for a volume");
    struct box *b = box_find(s, q->box);
    if (!b || b->kind != SP_KIND_BOX || b->state != BX_ALIVE)
        return err_set(e, E_NOT_FOUND, "no running container %s", q->box);
    int volume = volume_find(s, q->volume);
    if (volume < 0)
        return err_set(e, E_CONFLICT, "volume %s is not open", q->volume);
    cleanup_fd(&b->mntns); /* a volume is let go when the box ends, not when somebody gets round to its mounts */
    b->mntns = -1;
    auto_fd m = shelf_clone(&s->shelf, volume, e);
    if (m < 0 || mount_attr(m, MATTR_NOSUID | MATTR_NODEV | (q->read_only ? MATTR_RDONLY : 0), false, e) || lend_run(b, m, q->place, e))
        return -1;
    server_ok(s, r->gen, r->q->seq);
    return 0;
}

static int port(struct server *s, struct request *r, struct err *e)
{
    struct sp_rep rep = {0};
    struct box *b = box_find(s, r->q->u.id.id);
    if (!b || b->kind != SP_KIND_VM || b->state != BX_ALIVE || b->volumes < 0)
        return err_set(e, E_NOT_FOUND, "no running VM %s", r->q->u.id.id);
    server_reply(s, r->gen, r->q->seq, &rep, &b->volumes, 1);
    return 0;
}

int op_volume(struct server *s, struct request *r, struct err *e)
{
    if (!sp_id_ok(r->q->u.id.id)) /* all of these begin with one */
        return err_set(e, E_INVALID, "not an id");
    switch (r->q->op) {
    case SP_VOLUME_MAKE:
    case SP_VOLUME_DELETE:
        return make(s, r, e);
    case SP_VOLUME_STAT:
        return volume_stat(s, r, e);
    case SP_KEEPER_START:
        return keeper(s, r, e);
    case SP_VOLUME_PORT:
        return port(s, r, e);
    case SP_VOLUME_LEND:
        return lend(s, r, e);
    default:
        volume_close(s, r->q->u.id.id);
        server_ok(s, r->gen, r->q->seq);
        return 0;
    }
}
