/* SP_PACK: a tar stream becomes templates/<tid>.tmp/rootfs.ext4, in an empty
 * file system or, of a difference, in a copy of another template's. One process
 * walks the steps; only the unpacker, which reads foreign bytes, is jailed: in
 * a user namespace of its own, seeing the new file system and nothing else. */
#include "base/cleanup.h"
#include "base/copy.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/mount.h"
#include "jail/ns.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include "spawn/server_task.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>

#define PACK_MEM_MIB 1024u
#define PACK_PIDS    64u

struct pack {
    struct server *s;
    char bytes[24];
    uint32_t size_mib, slack_mib, uid;
    const char *how; /* option of the unpacker, or NULL */
    int base;        /* the image to begin with, or -1 */
    int in, progress, errs, root, program;
    int dir; /* templates/<tid>.tmp */
};

static void step(struct pack *p, const char *what)
{
    char line[128];
    int n = snprintf(line, sizeof line, "step %s\n", what);
    (void)fd_write_all(p->progress, line, (size_t)n); /* nobody listens any more: go on all the same */
}

static int unpack(struct pack *p, int fs, struct err *e)
{
    char *argv[] = {"hutch-untar", "--max-bytes", p->bytes, (char *)(uintptr_t)p->how, NULL};
    char *envp[] = {"PATH=/usr/bin", "LANG=C.UTF-8", NULL};
    struct jail j = {.kind = JAIL_UNTAR,
                     .attach_at = p->s->attach_at,
                     .cgroup2 = -1,
                     .owner = p->uid,
                     .filter = &p->s->f_untar,
                     .place = {{p->in, 0}, {p->progress, 1}, {p->errs, 2}},
                     .nplace = 3,
                     .exec_fd = p->program,
                     .argv = argv,
                     .envp = envp};
    struct jailed child;
    auto_fd userns = -1;
    bool armed = false;
    if (jail_spawn(&j, &child, e))
        return -1;
    auto_fd sync = child.sync;
    (void)close(child.pidfd);
    /* It hangs in our own mount namespace, which ends with us: before Linux 6.15 what hangs nowhere cannot be cloned. The
     * unpacker was born before and has no copy. */
    if (mount_move(fs, AT_FDCWD, p->s->attach_at, e))
        return err_wrap(e, "location of the new file system");
    auto_fd out = mount_clone(fs, "", false, e);
    if (out < 0 || ns_map_ids(child.pid, jail_first_id(JAIL_UNTAR), j.owner, jail_id_count(JAIL_UNTAR), &userns, NULL, e) ||
        mount_idmap(out, userns, e) || mount_attr(out, MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, false, e) ||
        jail_go(child.sync, p->root, out, -1, e))
        return -1; /* we are its namespace's init and about to exit: it dies with us */
    (void)close(take_fd(&out));
    if (jail_result(sync, &armed, e) < 0)
        return -1;
    int st = task_wait(child.pid);
    if (st < 0 || WIFSIGNALED(st))
        return err_set(e, E_INTERNAL, "the unpacker died of signal %d", st < 0 ? 0 : WTERMSIG(st));
    return WEXITSTATUS(st) ? err_set(e, E_INVALID, "the archive could not be unpacked") : 0;
}

/* A mount goes away some time after its last user; the image is ours again when its loop device can be had alone. */
static int wait_unmounted(dev_t dev, struct err *e)
{
    char path[PATH_LEN];
    (void)snprintf(path, sizeof path, "/dev/loop%u", minor(dev));
    for (int i = 0; i < 6000; i++) {
        auto_fd fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
        if (fd >= 0 || errno != EBUSY)
            return 0;
        (void)nanosleep(&(struct timespec){0, 5 * 1000 * 1000}, NULL);
    }
    return err_set(e, E_TIMEOUT, "the new file system stays busy");
}

static int program2(const char *const *argv, int ok_status, struct err *e)
{
    char text[32];
    (void)snprintf(text, sizeof text, "status %d", ok_status);
    if (!run_program(argv, e))
        return 0;
    return ok_status && strstr(e->msg, text) ? 0 : -1; /* e2fsck: 1 = repaired */
}

static int shrink(struct pack *p, int image, struct err *e)
{
    char path[48], size[24];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), image); /* as in disk_mkfs */
    const char *const fsck[] = {"/usr/sbin/e2fsck", "-fy", path, NULL};
    const char *const min[] = {"/usr/sbin/resize2fs", "-M", path, NULL};
    struct stat st;
    step(p, "checking the image's file system");
    if (program2(fsck, 1, e))
        return -1;
    step(p, "shrinking the image to its contents");
    if (program2(min, 0, e))
        return -1;
    if (fstat(image, &st) < 0)
        return err_sys(e, errno, "image");
    (void)snprintf(size, sizeof size, "%lluK", (unsigned long long)st.st_size / 1024 + (unsigned long long)p->slack_mib * 1024);
    const char *const grow[] = {"/usr/sbin/resize2fs", path, size, NULL};
    if (p->slack_mib && program2(grow, 0, e))
        return -1;
    return 0;
}

/* Only of what root wrote (disk_template_image): a copy of that is as good as a new one. */
static int copy(struct pack *p, int image, struct err *e)
{
    char path[48], size[24];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), image); /* as in disk_mkfs */
    (void)snprintf(size, sizeof size, "%uM", p->size_mib);
    const char *const grow[] = {"/usr/sbin/resize2fs", path, size, NULL};
    step(p, "copying");
    return copy_sparse(p->base, image, e) ? -1 : program2(grow, 0, e);
}

/* An archive of a running system has no mount points, and a jail whose root is read-only cannot make them. */
static int make_mount_points(int top, struct err *e)
{
    static const char *const names[] = {"proc", "sys", "dev", "run"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (mkdirat(top, names[i], 0755) < 0 && errno != EEXIST)
            return err_sys(e, errno, "make /%s", names[i]);
    return 0;
}

static int build(struct pack *p, struct err *e)
{
    struct stat st;
    auto_fd image = openat(p->dir, "rootfs.ext4", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (image < 0)
        return err_sys(e, errno, "image");
    if (image_lock(image, false, e)) /* until it is whole: also while the tools are at it */
        return -1;
    if (p->base < 0)
        step(p, "formatting the image");
    if (p->base < 0 ? disk_mkfs(image, p->size_mib, 0, NULL, e) : copy(p, image, e))
        return -1;
    auto_fd fs = mount_image(image, false, p->s->scratch, e);
    if (fs < 0 || fstat(fs, &st) < 0)
        return -1;
    step(p, "unpacking into the image");
    if (unpack(p, fs, e))
        return -1;
    auto_fd top = openat(fs, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)unlinkat(top, "lost+found", AT_REMOVEDIR); /* not of the archive */
    if (top >= 0 && make_mount_points(top, e))
        return -1;
    if (top < 0 || syncfs(top) < 0)
        return err_sys(e, errno, "writing the image");
    (void)close(take_fd(&top));
    if (fchdir(fs) < 0 || sys_umount2(".", UMOUNT_DETACH) < 0 || chdir("/") < 0) /* the mount itself, not a name */
        return err_sys(e, errno, "the new file system");
    (void)close(take_fd(&fs));
    if (wait_unmounted(st.st_dev, e) || shrink(p, image, e))
        return -1;
    if (fsync(image) < 0 || fchmod(image, 0644) < 0)
        return err_sys(e, errno, "image");
    step(p, "done");
    return 0;
}

static int body(void *arg, struct err *e)
{
    struct pack *p = arg;
    (void)dup2(p->errs, 2); /* mkfs and friends complain there */
    if (!build(p, e))
        return 0;
    char line[320];
    err_of_host(e);
    int n = snprintf(line, sizeof line, "error %s %s\n", err_name(e->code), e->msg);
    (void)fd_write_all(p->progress, line, (size_t)n);
    (void)unlinkat(p->dir, "rootfs.ext4", 0);
    return -1;
}

static int start(struct server *s, struct box *b, const struct sp_pack *q, int in, struct err *e)
{
    static struct pack p; /* one thread; the child has its own copy */
    int pipes[2];
    auto_fd errs = -1;
    struct stat st;
    memset(&p, 0, sizeof p);
    if (fstat(in, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
        return err_set(e, E_INVALID, "the archive is not a file, pipe or socket");
    if (box_take_slot(b, e))
        return -1;
    p.program = server_program(s, "hutch-untar", &s->untar, s->untar_id, e);
    if (p.program < 0)
        return -1;
    char dir[64];
    (void)snprintf(dir, sizeof dir, "templates/%s.tmp", q->template_id);
    (void)mkdirat(s->home_fd, "templates", 0755);
    (void)mkdirat(s->home_fd, dir, 0755); /* both usually there */
    auto_fd made = server_home_open(s, O_RDONLY | O_DIRECTORY, e, "%s", dir);
    if (made < 0)
        return -1;
    (void)unlinkat(made, "rootfs.ext4", 0);
    (void)snprintf(p.bytes, sizeof p.bytes, "%llu", (unsigned long long)q->size_mib << 20);
    p.s = s;
    p.size_mib = q->size_mib;
    p.slack_mib = q->slack_mib;
    p.how = q->mode == SP_PACK_IMAGE ? "--image" : q->mode == SP_PACK_ONTO ? "--onto" : NULL;
    auto_fd base = q->mode == SP_PACK_ONTO ? disk_template_image(s, q->base_id, e) : -1;
    if (q->mode == SP_PACK_ONTO && base < 0)
        return -1;
    p.uid = box_uid(b);
    b->limit =
        (struct cgroup_limit){.memory_bytes = (uint64_t)PACK_MEM_MIB << 20, .pids_max = PACK_PIDS};
    if (cgroup_make(&s->cg, b->id, &b->limit, &b->cg, e))
        return -1;
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    b->start_fds[b->nstart_fds++] = pipes[0];
    auto_fd progress = pipes[1];
    auto_fd root = mount_clone(s->vm_mnt[0], "", true, e);
    if (root < 0 || box_log_pipe(b, p.uid, &errs, e))
        return -1;
    struct fd_keep keep = {0};
    fds_keep(&keep, p.in = in);
    fds_keep(&keep, p.progress = progress);
    fds_keep(&keep, p.errs = errs);
    fds_keep(&keep, p.root = root);
    fds_keep(&keep, p.dir = made);
    fds_keep(&keep, p.program);
    p.base = base;
    if (base >= 0)
        fds_keep(&keep, base);
    return task_start(b, &keep, body, &p, e);
}

int op_pack(struct server *s, struct request *r, struct err *e)
{
    const struct sp_pack *q = &r->q->u.pack;
    if (!sp_id_ok(q->template_id) || r->nfds != 1 || q->mode > SP_PACK_ONTO || (q->mode == SP_PACK_ONTO && !sp_id_ok(q->base_id)))
        return err_set(e, E_INVALID, "pack: an id and one descriptor");
    if (q->size_mib < 64 || q->size_mib > SP_DISK_MAX || q->slack_mib > q->size_mib)
        return err_set(e, E_INVALID, "impossible image size");
    struct box *b = box_new(s, q->template_id, SP_KIND_PACK, e);
    if (!b)
        return -1;
    if (start(s, b, q, r->fds[0], e)) {
        box_discard(b);
        return -1;
    }
    box_answer(b, r->gen, r->q->seq);
    return 0;
}
