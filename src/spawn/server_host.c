/* What the spawner makes once: its private mount namespace, control groups,
 * the template of /dev, the root QEMU lives in, seccomp programs, the socket.
 * What of the host is its alone, and the sweep, are in server_own.c. */
#include "base/cleanup.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/ours.h"
#include "jail/mount.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#define MFD_CLOEXEC_    1u
#define MFD_SEALING_    2u
#define MFD_EXEC_       0x10u

int server_home_open(struct server *s, int flags, struct err *e, const char *fmt, ...)
{
    char path[128];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(path, sizeof path, fmt, ap);
    va_end(ap);
    /* the daemon writes to much of the home: a pipe put there must not make us wait for somebody to open its other end */
    int fd = sys_openat2(s->home_fd, path, (uint64_t)(unsigned)(flags | O_NONBLOCK), RESOLVE_BENEATH_ | RESOLVE_NO_SYMLINKS_);
    struct stat st;
    if (fd < 0)
        return err_sys(e, errno, "%s", path);
    if (fstat(fd, &st) < 0 || (!(flags & O_DIRECTORY) && !S_ISREG(st.st_mode))) {
        (void)close(fd);
        return err_set(e, E_INVALID, "%s is not a regular file", path);
    }
    return fd;
}

/* A copy in memory that nobody can change any more, so that what runs is what was checked. */
int server_program(struct server *s, const char *name, int *memfd, int64_t id[3], struct err *e)
{
    char path[PATH_LEN];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", s->bin, name);
    if (stat(path, &st) < 0)
        return err_sys(e, errno, "program %s", name);
    int64_t now[3] = {st.st_size, st.st_mtim.tv_sec * 1000000000LL + st.st_mtim.tv_nsec, (int64_t)st.st_ino};
    if (*memfd >= 0 && !memcmp(now, id, sizeof now))
        return *memfd;
    auto_fd from = open(path, O_RDONLY | O_CLOEXEC);
    auto_fd to = (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC_ | MFD_SEALING_ | MFD_EXEC_);
    if (to < 0 && errno == EINVAL) /* before 6.3 every memfd is executable */
        to = (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC_ | MFD_SEALING_);
    if (from < 0 || to < 0)
        return err_sys(e, errno, "program %s", name);
    char t[65536];
    for (ssize_t n; (n = read(from, t, sizeof t)) != 0;)
        if (n < 0 || !fd_write_all(to, t, (size_t)n))
            return err_sys(e, errno, "program %s", name);
    if (fcntl(to, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_sys(e, errno, "seal %s", name);
    /* executed by descriptor: no writer may be left, so open it again read-only */
    char self[40];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", to);
    int ro = open(self, O_RDONLY | O_CLOEXEC);
    if (ro < 0)
        return err_sys(e, errno, "program %s", name);
    if (*memfd >= 0)
        (void)close(*memfd);
    memcpy(id, now, sizeof now);
    return *memfd = ro;
}

/* ---- start-up ------------------------------------------------------------------------------------------------- */

static const struct owner roots = {0, 0, 0700};

/* RUN/spawn and what hangs in it. It is root's alone, so that its names may be used as such from then on. */
static int make_scratch(struct server *s, struct err *e)
{
    static const char *const names[] = {"root", "dev", "vm0", "vm1"};
    auto_fd scratch = ours_dir(s->run_fd, "spawn", &roots, 0, e);
    if (scratch < 0)
        return -1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        auto_fd fd = ours_dir(scratch, names[i], &roots, 0, e);
        if (fd < 0)
            return -1;
    }
    (void)snprintf(s->scratch, sizeof s->scratch, "%s/spawn", s->run);
    (void)snprintf(s->attach_at, sizeof s->attach_at, "%s/root", s->scratch);
    (void)snprintf(s->dev_dir, sizeof s->dev_dir, "%s/dev", s->scratch);
    for (int kvm = 0; kvm < 2; kvm++)
        (void)snprintf(s->vm_root[kvm], sizeof s->vm_root[kvm], "%s/vm%d", s->scratch, kvm);
    return 0;
}

static const struct { const char *name; unsigned major, minor; } dev_nodes[] = {
    {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}, {"kvm", 10, 232},
};

static int put_node(int dir, unsigned i, struct err *e)
{
    if (mknodat(dir, dev_nodes[i].name, S_IFCHR | 0666, makedev(dev_nodes[i].major, dev_nodes[i].minor)) < 0 ||
        fchmodat(dir, dev_nodes[i].name, 0666, 0) < 0)
        return err_sys(e, errno, "device node %s", dev_nodes[i].name);
    return 0;
}

/* One /dev for all containers, read-only there. */
static int make_dev(struct server *s, struct err *e)
{
    static const char *const links[][2] = {{"/proc/self/fd", "fd"},         {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"}, {"pts/ptmx", "ptmx"},         {"/proc/kcore", "core"}};
    auto_fd m = mount_tmpfs("64k", "0755", e);
    if (m < 0 || mount_move(m, AT_FDCWD, s->dev_dir, e))
        return -1;
    auto_fd dir = open(s->dev_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; i < 6; i++)
        if (put_node(dir, i, e))
            return -1;
    for (unsigned i = 0; i < 5; i++)
        if (symlinkat(links[i][0], dir, links[i][1]) < 0)
            return err_sys(e, errno, "/dev/%s", links[i][1]);
    if (mkdirat(dir, "pts", 0755) < 0 || mkdirat(dir, "shm", 0755) < 0 || mkdirat(dir, "mqueue", 0755) < 0)
        return err_sys(e, errno, "/dev");
    s->dev_mnt = take_fd(&dir);
    return 0;
}

static int bind_ro(const char *from, int root, const char *to, struct err *e)
{
    auto_fd m = mount_clone(AT_FDCWD, from, true, e);
    if (m < 0 || mount_attr(m, MATTR_RDONLY | MATTR_NOSUID | MATTR_NODEV, true, e) || mount_move(m, root, to, e))
        return err_wrap(e, "%s", to);
    return 0;
}

/* The host's /lib and friends as they are: a symlink stays one, a directory is bound. */
static int bind_like(const char *path, int root, struct err *e)
{
    struct stat st;
    char to[128];
    if (lstat(path, &st) < 0)
        return 0;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(path, to, sizeof to - 1);
        if (n <= 0)
            return err_sys(e, errno, "%s", path);
        to[n] = 0;
        return symlinkat(to, root, path + 1) < 0 ? err_sys(e, errno, "%s", path) : 0;
    }
    if (mkdirat(root, path + 1, 0755) < 0)
        return err_sys(e, errno, "%s", path);
    return bind_ro(path, root, path + 1, e);
}

/* Root of QEMU and of the unpacker: their program and libraries, three devices (and /dev/kvm for those who
 * may), an empty /proc to fill. */
static int make_vm_root(const char *at, bool kvm, int *ret, struct err *e)
{
    static const char *const trees[] = {"/usr", "/lib", "/lib64", "/lib32", "/libx32", "/bin", "/sbin"};
    auto_fd m = mount_tmpfs("64k", "0755", e);
    if (m < 0 || mount_move(m, AT_FDCWD, at, e))
        return -1;
    auto_fd root = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || mkdirat(root, "proc", 0755) < 0 || mkdirat(root, "out", 0755) < 0 || mkdirat(root, "tmp", 0755) < 0 ||
        mkdirat(root, "etc", 0755) < 0 || mkdirat(root, "dev", 0755) < 0)
        return err_sys(e, errno, "directories");
    for (unsigned i = 0; i < sizeof trees / sizeof *trees; i++)
        if (bind_like(trees[i], root, e))
            return -1;
    if (!access("/etc/ld.so.cache", R_OK)) {
        auto_fd f = openat(root, "etc/ld.so.cache", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
        if (f < 0 || bind_ro("/etc/ld.so.cache", root, "etc/ld.so.cache", e))
            return -1;
    }
    auto_fd dev = openat(root, "dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dev < 0 || put_node(dev, 0, e) || put_node(dev, 1, e) || put_node(dev, 4, e) || (kvm && put_node(dev, 6, e)))
        return -1;
    struct mattr ro = {.set = MATTR_RDONLY | MATTR_NOSUID};
    if (sys_mount_setattr(AT_FDCWD, at, 0, &ro) < 0)
        return err_sys(e, errno, "read-only root");
    *ret = take_fd(&root);
    return 0;
}

static void sweep_files(struct server *s)
{
    struct err e;
    int fd = server_home_open(s, O_RDONLY | O_DIRECTORY, &e, "fs"), boxes = 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *t; d && (t = readdir(d));)
        if (!strncmp(t->d_name, "ready-", 6) || t->d_name[0] == '.')
            (void)unlinkat(dirfd(d), t->d_name, 0); /* "." and ".." are refused by the kernel */
    if (d)
        (void)closedir(d);
    fd = server_home_open(s, O_RDONLY | O_DIRECTORY, &e, "boxes");
    d = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *t; d && (t = readdir(d));)
        boxes += t->d_name[0] != '.';
    if (d)
        (void)closedir(d);
    if (boxes)
        log_info("%d box directories of an earlier run are kept until they are removed by request", boxes);
}

/* Under another name until it is the daemon's and listens: whoever sees the socket can connect. */
static int open_socket(struct server *s, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (snprintf(a.sun_path, sizeof a.sun_path, "%s/spawn/new", s->run) >= (int)sizeof a.sun_path - 1)
        return err_set(e, E_INVALID, "run directory: path too long for a socket");
    (void)unlink(a.sun_path); /* of one that was killed */
    s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t old = umask(0177);
    int rc = s->listener < 0 ? -1 : bind(s->listener, (struct sockaddr *)&a, sizeof a);
    (void)umask(old);
    if (rc < 0)
        return err_sys(e, errno, "socket");
    if (s->allow_uid && ours_give_socket(s->run_fd, "spawn/new", s->allow_uid, e))
        return -1;
    if (listen(s->listener, 8) < 0 || renameat(s->run_fd, "spawn/new", s->run_fd, "spawn.sock") < 0)
        return err_sys(e, errno, "socket");
    return 0;
}

static int load_filters(struct server *s, struct err *e)
{
    const struct { const char *name; struct seccomp_prog *p; } f[] = {{"container", &s->f_box}, {"gvisor", &s->f_gvisor}, {"vm", &s->f_vm}, {"untar", &s->f_untar}, {"keeper", &s->f_keeper}, {"isolate", &s->f_isolate}, {"isolate-call", &s->f_call}};
    for (unsigned i = 0; i < sizeof f / sizeof *f; i++) {
        char path[PATH_LEN];
        (void)snprintf(path, sizeof path, "%s/seccomp/%s.profile", s->share, f[i].name);
        if (seccomp_load(path, f[i].p, e))
            return -1;
    }
    return 0;
}

static int start_signals(struct server *s, struct err *e)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would make children unwaitable */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || (s->sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return err_sys(e, errno, "signalfd");
    return 0;
}

static int private_mounts(struct err *e)
{
    if (sys_unshare(NS_MOUNT) < 0)
        return err_sys(e, errno, "private mount namespace");
    if (!sys_mount(NULL, "/", NULL, MOUNT_REC | MOUNT_PRIVATE, NULL))
        return 0;
    if (errno == EINVAL)
        return err_set(e, E_UNSUPPORTED, "its root directory is not a mount point, as in a plain chroot, so it cannot have private mounts: "
                                         "bind-mount that directory onto itself before chroot, or use pivot_root");
    return err_sys(e, errno, "private mount namespace");
}

int server_init(struct server *s, struct err *e)
{
    struct rlimit nofile;
    (void)umask(022);
    s->home_fd = s->fs_fd = s->run_fd = s->listener = s->lock = s->sigfd = s->uid_lock = s->uid_claim = s->epoll = s->conn.fd = s->dev_mnt = s->vm_mnt[0] = s->vm_mnt[1] = s->agent = s->untar = s->maker.sock = s->worker.sock = s->jailer.sock = -1;
    s->cg = CGROUP_HOST_NONE;
    s->shelf = SHELF_NONE;
    list_init(&s->graves);
    list_init(&s->conn.queue);
    /* 3..9 are numbers that children get descriptors under: ours start above */
    for (int fd; (fd = open("/dev/null", O_RDWR | O_CLOEXEC)) < 9;)
        if (fd < 0)
            return err_sys(e, errno, "/dev/null");
    if (!getrlimit(RLIMIT_NOFILE, &nofile)) {
        nofile.rlim_cur = nofile.rlim_max; /* up to 10 descriptors a box; the hard limit is not ours to raise */
        (void)setrlimit(RLIMIT_NOFILE, &nofile);
    }
    s->home_fd = open(s->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->home_fd < 0)
        return err_sys(e, errno, "home");
    /* do not reorder: what is locked first, and what can fail without a trace, comes before anything is swept */
    if (net_host_open(&s->net, e) || own_home(s, e) || start_signals(s, e) || load_filters(s, e) || private_mounts(e) || own_cgroups(s, e) || own_ids(s, e))
        return -1;
    if (make_scratch(s, e) || (s->fs_fd = ours_dir(s->home_fd, "fs", &roots, 0, e)) < 0)
        return -1;
    if (shelf_open(&s->shelf, getenv("HUTCH_SHELF") != NULL, e)) /* microVMs need none; `hutch doctor` tries it again and tells */
        log_warn("%s: containers, isolates and building templates will not work", e->msg);
    if (make_dev(s, e))
        return err_wrap(e, "template of /dev");
    if (make_vm_root(s->vm_root[0], false, &s->vm_mnt[0], e) || make_vm_root(s->vm_root[1], true, &s->vm_mnt[1], e))
        return err_wrap(e, "root for QEMU");
    sweep_files(s);
    (void)snprintf(s->note, sizeof s->note, "%s", s->cg.note);
    if (workers_start(s, e))
        return -1;
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0)
        return err_sys(e, errno, "epoll");
    return open_socket(s, e);
}

void server_unlisten(struct server *s)
{
    (void)unlinkat(s->run_fd, "spawn.sock", 0); /* gone already: fine */
}

void server_abandon(struct server *s)
{
    workers_end(s);
    cgroup_host_close(&s->cg, true); /* a tree with a box in it stays: nobody has swept it yet */
    if (s->listener >= 0)
        server_unlisten(s);
}

void server_fini(struct server *s)
{
    size_t i = 0;
    for (struct map_entry *m; (m = map_next(&s->boxes, &i));)
        box_kill(m->value);
    ready_fini(s);
    workers_end(s); /* what they were making must not outlive the sweep below */
    i = 0;
    for (struct map_entry *m; (m = map_next(&s->boxes, &i));) {
        const struct box *b = m->value;
        if (b->files_leaving) /* answered already, so nobody asks again */
            (void)box_remove_dir(s, b->id);
    }
    disk_fini(s);
    volumes_fini(s);
    shelf_close(&s->shelf);
    sweep_files(s);
    struct err e;
    if (cgroup_host_sweep(&s->cg, &e) < 0)
        log_warn("%s", e.msg);
    cgroup_host_close(&s->cg, true);
    net_host_close(&s->net);
    (void)unlinkat(s->run_fd, "egress.sock", 0); /* its process was killed with the rest */
    server_unlisten(s);
    seccomp_free(&s->f_box);
    seccomp_free(&s->f_gvisor);
    seccomp_free(&s->f_vm);
    seccomp_free(&s->f_untar);
    seccomp_free(&s->f_keeper);
    seccomp_free(&s->f_isolate);
    seccomp_free(&s->f_call);
}
