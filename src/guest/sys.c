#include "guest/sys.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest/identity.h"
#include "guest/proc.h"
#include "guest/spawn.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifndef FIFREEZE
#define FIFREEZE _IOWR('X', 119, int)
#define FITHAW   _IOWR('X', 120, int)
#endif
#define EXT4_IOC_RESIZE_FS _IOW('f', 16, uint64_t)
#define CGROUP_ROOT "/sys/fs/cgroup"
#define FREEZE_NS   (2 * NS_PER_S)

void sys_console(const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n >= (int)sizeof line)
        n = sizeof line - 1;
    auto_fd fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);
    if (n > 0)
        (void)!write(getpid() == 1 && fd >= 0 ? fd : 2, line, (size_t)n);
}

bool sys_write_file(const char *path, const char *text)
{
    auto_fd fd = open(path, O_WRONLY | O_CLOEXEC);
    size_t n = strlen(text);
    return fd >= 0 && write(fd, text, n) == (ssize_t)n;
}

static uint64_t oom_count(void)
{
    uint64_t v = 0;
    size_t n;
    auto_free char *s = fd_slurp_at(AT_FDCWD, "/proc/vmstat", 64 << 10, &n);
    char *at = s ? strstr(s, "\noom_kill ") : NULL;
    if (at)
        v = strtoull(at + 10, NULL, 10);
    return v;
}

bool sys_oom_happened(struct agent *a)
{
    uint64_t now = oom_count();
    bool yes = now > a->oom_seen;
    a->oom_seen = now;
    return yes;
}

void sys_init(struct agent *a)
{
    struct rlimit none = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &none); /* inherited by everything we start */
    if (a->role != ROLE_INIT)
        return;
    launch_limit_caps(a->vm);
    if (!a->vm)
        return;
    if (!mkdir(CGROUP_ROOT "/user", 0755) || errno == EEXIST)
        a->cg_user = open(CGROUP_ROOT "/user", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->cg_user >= 0) { /* kept open: a clone writes and reads them before it may answer */
        a->cg_freeze = openat(a->cg_user, "cgroup.freeze", O_WRONLY | O_CLOEXEC);
        a->cg_events = openat(a->cg_user, "cgroup.events", O_RDONLY | O_CLOEXEC);
    }
    a->urandom = open("/dev/urandom", O_WRONLY | O_CLOEXEC); /* missing: the first configure says so */
    a->root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    a->oom_seen = oom_count();
}

/* ---- freeze, thaw, grow, sync ----------------------------------------------------------------------------------- */

static int set_frozen(struct agent *a, bool on) { return pwrite(a->cg_freeze, on ? "1" : "0", 1, 0) == 1 ? 0 : -1; }

static int ioctl_root(struct agent *a, unsigned long request, const char *what, struct err *e)
{
    return ioctl(a->root, request, 0) ? err_sys(e, errno, "%s the root file system", what) : 0;
}

static int vm_only(struct agent *a, const char *what, struct err *e)
{
    return a->vm ? 0 : err_set(e, E_UNSUPPORTED, "%s is for virtual machines; a container's host does it", what);
}

/* cgroup.freeze is asynchronous: cgroup.events tells when the last task has stopped. */
static int freeze_user(struct agent *a, struct err *e)
{
    char buf[256];
    int64_t deadline = clock_mono() + FREEZE_NS;
    if (a->cg_freeze < 0)
        return err_set(e, E_UNSUPPORTED, "the guest has no cgroup2 to freeze");
    if (set_frozen(a, true))
        return err_sys(e, errno, "freeze user processes");
    do {
        ssize_t n = pread(a->cg_events, buf, sizeof buf - 1, 0);
        if (n <= 0)
            break;
        buf[n] = 0;
        if (strstr(buf, "frozen 1") || strstr(buf, "populated 0"))
            return 0;
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS / 4}, NULL);
    } while (clock_mono() < deadline);
    (void)set_frozen(a, false);
    return err_set(e, E_TIMEOUT, "user processes did not freeze in time");
}

int sys_thaw_user(struct agent *a, struct err *e)
{
    if (a->cg_freeze >= 0 && set_frozen(a, false))
        return err_sys(e, errno, "thaw user processes");
    a->frozen = false;
    return 0;
}

int sys_thaw_fs(struct agent *a, struct err *e)
{
    if (!a->fs_frozen)
        return 0;
    if (ioctl_root(a, FITHAW, "thaw", e) && !(e && e->sys == EINVAL)) /* EINVAL: was not frozen */
        return -1;
    a->fs_frozen = false;
    return 0;
}

static void answer(const struct req *q, int rc, const struct err *e)
{
    if (rc)
        reply_err(q->a, q->id, e);
    else
        reply_ok(q->a, q->id);
}

/* With memory saved beside the disk a sync is enough, and the clone need not write its superblock before it may answer. */
static int freeze(struct agent *a, uint64_t flags, struct err *e)
{
    if (vm_only(a, "freeze", e))
        return -1;
    if (a->fs_frozen || (a->frozen && flags))
        return 0;
    if (freeze_user(a, e))
        return -1;
    a->frozen = true;
    if (flags & FREEZE_QUICK)
        return 0;
    identity_keep();
    (void)access(HOOKS_DIR, F_OK); /* clones then need not ask their disk whether there are any */
    sync();
    if (flags & FREEZE_USER_ONLY)
        return 0;
    if (ioctl_root(a, FIFREEZE, "freeze", e)) {
        (void)sys_thaw_user(a, NULL);
        return -1;
    }
    a->fs_frozen = true;
    return 0;
}

void op_freeze(const struct req *q)
{
    struct err e = {0};
    answer(q, freeze(q->a, rec_u64_or(q->rec, T_FLAGS, 0), &e), &e);
}

void op_sync(const struct req *q)
{
    if (q->a->role == ROLE_KEEPER) { /* its own file system; sync() would be every one of the host's */
        struct err e = {0};
        auto_fd root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root < 0 || syncfs(root)) {
            err_sys(&e, errno, "writing the volume back");
            reply_err(q->a, q->id, &e);
        } else
            reply_ok(q->a, q->id);
        return;
    }
    identity_keep();
    sync();
    if (rec_u64_or(q->rec, T_FLAGS, 0) & SYNC_DROP)
        (void)sys_write_file("/proc/sys/vm/drop_caches", "3"); /* only root of a real kernel may; nothing depends on it */
    reply_ok(q->a, q->id);
}

static int grow(struct agent *a, uint64_t *ret, struct err *e)
{
    struct stat st;
    struct statvfs v;
    uint64_t bytes, blocks;
    char path[64];
    if (vm_only(a, "grow", e))
        return -1;
    if (stat("/", &st) || statvfs("/", &v))
        return err_sys(e, errno, "/");
    (void)snprintf(path, sizeof path, "/dev/block/%u:%u", major(st.st_dev), minor(st.st_dev));
    auto_fd dev = open(path, O_RDONLY | O_CLOEXEC);
    if (dev < 0)
        dev = open("/dev/vda", O_RDONLY | O_CLOEXEC);
    auto_fd root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dev < 0 || root < 0 || ioctl(dev, BLKGETSIZE64, &bytes))
        return err_sys(e, errno, "size of the root disk");
    blocks = bytes / v.f_bsize;
    if (ioctl(root, EXT4_IOC_RESIZE_FS, &blocks))
        return err_sys(e, errno, "grow the root file system");
    if (statvfs("/", &v))
        return err_sys(e, errno, "/");
    *ret = (uint64_t)v.f_blocks * v.f_frsize;
    return 0;
}

void op_grow(const struct req *q)
{
    struct err e = {0};
    uint64_t bytes = 0;
    if (grow(q->a, &bytes, &e)) {
        reply_err(q->a, q->id, &e);
        return;
    }
    rec_put_u64(reply_begin(q->a), T_DISK_BYTES, bytes);
    reply_send(q->a, q->id);
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

void op_shutdown(const struct req *q)
{
    reply_ok(q->a, q->id);
    q->a->stop = true; /* the turn flushes the answer, then sys_end runs */
}

void sys_power_off(void)
{
    identity_keep();
    sync();
    (void)reboot(RB_POWER_OFF);
    (void)reboot(RB_AUTOBOOT); /* a machine that cannot switch itself off ends by -no-reboot */
    for (;;)
        pause();
}

void sys_end(struct agent *a)
{
    int64_t deadline = clock_mono() + NS_PER_S / 5;
    while (chan_pending(&a->chan) && clock_mono() < deadline) { /* the answer may need a moment if the host is slow */
        if (!chan_flush(a))
            break;
        if (chan_pending(&a->chan))
            nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
    }
    if (getpid() != 1 || a->role != ROLE_INIT)
        return; /* a test runs us as an ordinary process: kill(-1) would be everybody */
    (void)sys_thaw_fs(a, NULL);
    (void)kill(-1, SIGKILL);
    (void)sys_thaw_user(a, NULL);
    deadline = clock_mono() + NS_PER_S;
    for (;;) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG)) /* ECHILD: nobody is left */
            break;
        if (!si.si_pid) {
            if (clock_mono() >= deadline)
                break;
            nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
        }
    }
    if (!a->vm)
        return;
    sync();
    (void)mount(NULL, "/", NULL, MS_REMOUNT | MS_RDONLY, NULL);
    sys_power_off();
}
