/* Root file systems of containers: template images mounted once, read-only and
 * for cloning; writable layers as small ext4 images on loop devices, because that
 * caps bytes and inodes on every host and is deleted as one file. A few layers
 * are kept ready (copied, attached, mounted), since that is half of a start. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/mount.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define TEMPLATES_MAX 128
#define EXT4_SHUTDOWN _IOR('X', 125, uint32_t) /* EXT4_IOC_SHUTDOWN */
#define EXT4_NO_FLUSH 2u
#define ABANDON_MIN   (32u << 20)

int run_program(const char *const *argv, struct err *e)
{
    static char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(e, errno, "fork");
    if (!pid) {
        sigset_t none;
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, 0);
        (void)dup2(null, 1);
        (void)sys_close_range(3, ~0u);
        (void)execve(argv[0], (char *const *)(uintptr_t)argv, env);
        _exit(127);
    }
    int st = 0;
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    const char *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];
    if (!WIFEXITED(st))
        return err_set(e, E_INTERNAL, "%s died of signal %d", name, WTERMSIG(st));
    return WEXITSTATUS(st) ? err_set(e, E_INTERNAL, "%s failed with status %d", name, WEXITSTATUS(st)) : 0;
}

/* By descriptor, named through /proc: no directory of the home is walked again, so nothing can be swapped under us. */
static int mkfs(int image, uint32_t mib, uint32_t inodes, const char *from_dir, unsigned owner, struct err *e)
{
    char size[24], count[24], path[48], extended[96];
    (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), image);
    /* a new sparse file is all zeros: nothing to write, nothing left for a kernel thread to do */
    (void)snprintf(extended, sizeof extended, "assume_storage_prezeroed=1,nodiscard,root_owner=%u:%u", owner, owner);
    const char *argv[24] = {"/usr/sbin/mkfs.ext4", "-q", "-F", "-m", "0", "-b", "4096", "-E", extended};
    int n = 9;
    (void)snprintf(size, sizeof size, "%um", mib);
    if (inodes) {
        (void)snprintf(count, sizeof count, "%u", inodes);
        argv[n++] = "-N";
        argv[n++] = count;
    }
    if (from_dir) { /* a writable layer: small journal, never grown */
        argv[n++] = "-J";
        argv[n++] = "size=8";
        argv[n++] = "-O";
        argv[n++] = "^resize_inode";
        argv[n++] = "-d";
        argv[n++] = from_dir;
    }
    argv[n++] = path;
    argv[n++] = size;
    if (access(argv[0], X_OK) < 0)
        argv[0] = "/sbin/mkfs.ext4";
    return run_program(argv, e);
}

int disk_mkfs(int image, uint32_t mib, uint32_t inodes, const char *from_dir, struct err *e) { return mkfs(image, mib, inodes, from_dir, 0, e); }
int disk_mkfs_for(int image, uint32_t mib, uint32_t inodes, unsigned owner, struct err *e) { return mkfs(image, mib, inodes, NULL, owner, e); }

/* ---- templates ------------------------------------------------------------------------------------------------ */

static void shelf_name(const char *id, char out[SHELF_NAME]) { (void)snprintf(out, SHELF_NAME, "template-%s", id); }

/* Running boxes hold their own references. */
static void forget_template(struct server *s, int i)
{
    char name[SHELF_NAME];
    shelf_name(s->tmpl[i].id, name);
    (void)close(s->tmpl[i].mnt);
    shelf_drop(&s->shelf, name);
    memmove(s->tmpl + i, s->tmpl + i + 1, sizeof *s->tmpl * (size_t)(--s->ntmpl - i));
}

int disk_template_image(struct server *s, const char *id, struct err *e)
{
    struct err why;
    auto_fd image = server_home_open(s, O_RDONLY, e, "templates/%s/rootfs.ext4", id);
    if (image < 0)
        return err_wrap(e, "template %s", id);
    if (!image_check(image, true, &why))
        return take_fd(&image);
    struct stat st;
    if (!fstat(image, &st) && st.st_uid && st.st_uid == s->allow_uid) /* it came in a pack */
        return err_set(
            e, E_UNSUPPORTED,
            "template %s was imported with the snapshot of a VM and cannot be used for containers; use isolation vm",
            id);
    *e = why;
    return err_wrap(e, "template %s", id);
}

int disk_template(struct server *s, const char *id, struct err *e)
{
    for (int i = 0; i < s->ntmpl; i++)
        if (!strcmp(s->tmpl[i].id, id))
            return s->tmpl[i].mnt;
    auto_fd image = disk_template_image(s, id, e);
    if (image < 0)
        return -1;
    char name[SHELF_NAME];
    shelf_name(id, name);
    auto_fd m = mount_image(image, true, s->scratch, e);
    if (m < 0 || shelf_keep(&s->shelf, m, name, e))
        return err_wrap(e, "template %s", id);
    if (s->ntmpl == TEMPLATES_MAX)
        forget_template(s, 0); /* the oldest */
    s->tmpl = xrealloc(s->tmpl, sizeof *s->tmpl * (size_t)(s->ntmpl + 1));
    struct template *t = &s->tmpl[s->ntmpl++];
    memset(t, 0, sizeof *t);
    memcpy(t->id, id, strlen(id) + 1);
    return t->mnt = take_fd(&m);
}

void disk_template_drop(struct server *s, const char *id)
{
    for (int i = 0; i < s->ntmpl; i++)
        if (!strcmp(s->tmpl[i].id, id)) {
            forget_template(s, i);
            return;
        }
}

/* ---- writable layers ------------------------------------------------------------------------------------------ */

static void blank_name(uint32_t mib, uint32_t inodes, char *out, size_t size)
{
    if (inodes)
        (void)snprintf(out, size, "%u-%u.ext4", mib, inodes);
    else
        (void)snprintf(out, size, "%u.ext4", mib);
}

/* fs/<mib>.ext4, made once per size. Blocks some 10 ms that one time. */
static int blank_open(struct server *s, uint32_t mib, uint32_t inodes, struct err *e)
{
    static const char tmp[] = ".new.ext4";
    char name[48], dir[PATH_LEN + 16], sub[PATH_LEN + 32];
    blank_name(mib, inodes, name, sizeof name);
    auto_fd have = openat(s->fs_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (have >= 0 && !image_check(have, true, e))
        return take_fd(&have);
    if (have < 0 && errno != ENOENT && errno != ELOOP)
        return err_sys(e, errno, "empty disk");
    if (have >= 0 || errno == ELOOP)
        log_warn("fs/%s was not written by root: making it anew",
                 name); /* of a time when the folder was the daemon's */
    (void)snprintf(dir, sizeof dir, "%s/blank", s->scratch);
    (void)mkdir(dir, 0755); /* the two directories overlay needs, put in by mkfs */
    (void)snprintf(sub, sizeof sub, "%s/upper", dir);
    (void)mkdir(sub, 0755);
    (void)snprintf(sub, sizeof sub, "%s/work", dir);
    (void)mkdir(sub, 0755);
    (void)unlinkat(s->fs_fd, tmp, 0);
    auto_fd made = openat(s->fs_fd, tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (made < 0)
        return err_sys(e, errno, "empty disk");
    if (disk_mkfs(made, mib, inodes, dir, e))
        return err_wrap(e, "empty disk of %u MiB", mib);
    if (renameat(s->fs_fd, tmp, s->fs_fd, name) < 0)
        return err_sys(e, errno, "empty disk");
    log_info("made fs/%s", name);
    return take_fd(&made);
}

static struct pool *pool_of(struct server *s, uint32_t mib, uint32_t inodes)
{
    struct pool *oldest = &s->pool[0];
    for (int i = 0; i < POOL_KINDS; i++) {
        struct pool *p = &s->pool[i];
        if (p->mib == mib && p->inodes == inodes)
            return p;
        if (p->used < oldest->used)
            oldest = p;
    }
    while (oldest->n) {
        struct upper *u = &oldest->item[--oldest->n];
        disk_abandon(u->mnt);
        (void)close(u->mnt);
        (void)unlinkat(s->fs_fd, u->name, 0);
    }
    oldest->mib = mib;
    oldest->inodes = inodes;
    oldest->ordered = 0;
    return oldest;
}

bool disk_upper_exists(struct server *s, const char *box)
{
    struct err e;
    struct stat st;
    auto_fd dir = server_home_open(s, O_RDONLY | O_DIRECTORY, &e, "boxes/%s", box);
    return dir >= 0 && !fstatat(dir, "upper.ext4", &st,
                                AT_SYMLINK_NOFOLLOW); /* whatever it is: it is not ours to remove */
}

/* Detached mounts are in no mount table. A lock says which images are in use: it is taken before the image is attached, by the open file that
 * the loop device then keeps, and so ends with that, whatever the image is called by now (as with volumes). */
static int take(int image, struct err *e)
{
    return flock(image, LOCK_EX | LOCK_NB) < 0 ? err_set(e, E_CONFLICT, "it is still in use") : 0;
}

bool disk_upper_busy(struct server *s, const char *box)
{
    struct err e;
    auto_fd fd = server_home_open(s, O_RDONLY, &e, "boxes/%s/upper.ext4", box);
    return fd >= 0 && take(fd, &e);
}

int disk_upper_sync(struct server *s, const char *box)
{
    struct err e;
    auto_fd fd = server_home_open(s, O_RDONLY, &e, "boxes/%s/upper.ext4", box);
    if (fd >= 0 && !fsync(fd))
        return 0;
    log_warn("boxes/%s: its layer could not be synced", box);
    return -1;
}

static int upper_make(struct server *s, int dir, const char *name, uint32_t mib, uint32_t inodes,
                      struct err *e)
{
    auto_fd from = blank_open(s, mib, inodes, e);
    if (from < 0)
        return -1;
    auto_fd to = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return err_sys(e, errno, "disk");
    int m = take(to, e) ? -1 : mount_image_copy(to, from, s->scratch, e);
    if (m < 0)
        (void)unlinkat(dir, name, 0);
    return m;
}

int disk_upper(struct server *s, const char *box, uint32_t mib, uint32_t inodes, struct err *e)
{
    mib = (mib + 63) / 64 * 64; /* few different sizes */
    if ((mkdirat(s->home_fd, "boxes", 0711) < 0 && errno != EEXIST))
        return err_sys(e, errno, "boxes");
    auto_fd boxes = server_home_open(s, O_RDONLY | O_DIRECTORY, e, "boxes");
    if (boxes < 0)
        return -1;
    if (mkdirat(boxes, box, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "box directory");
    auto_fd dir = openat(boxes, box, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_sys(e, errno, "box directory");
    auto_fd old = openat(dir, "upper.ext4", O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); /* a stopped box starts again on its disk */
    if (old < 0 && errno != ENOENT)
        return err_sys(e, errno, "layer of %s", box);
    if (old >= 0 && (image_check(old, false, e) || take(old, e)))
        return err_wrap(e, "layer of %s", box);
    if (old >= 0)
        return mount_image(old, false, s->scratch, e);
    struct pool *p = pool_of(s, mib, inodes);
    p->used = clock_mono();
    s->pool_broken = false;
    if (p->n) {
        struct upper *u = &p->item[--p->n];
        if (!renameat(s->fs_fd, u->name, dir, "upper.ext4"))
            return u->mnt;
        (void)close(u->mnt);
    }
    return upper_make(s, dir, "upper.ext4", mib, inodes, e);
}

static void ready_name(uint64_t serial, char out[32]) { (void)snprintf(out, 32, "ready-%llu.ext4", (unsigned long long)serial); }

int disk_ready_make(struct server *s, uint64_t serial, uint32_t mib, uint32_t inodes, struct err *e)
{
    char name[32];
    ready_name(serial, name);
    int mnt = upper_make(s, s->fs_fd, name, mib, inodes, e);
    if (mnt >= 0 && !mkdirat(mnt, "work/first", 0700)) { /* its bitmaps are read now, not when a start waits for them … */
        (void)unlinkat(mnt, "work/first", AT_REMOVEDIR);
        (void)unlinkat(mnt, "upper/first", 0); /* … and so is the directory everything is looked for in */
    }
    return mnt;
}

/* While a box is being started only if few are left: the two would fight for the processors. But one that finds none makes
 * its own, and everybody waits for that. */
void disk_refill(struct server *s)
{
    for (int i = 0; i < POOL_KINDS && !s->pool_broken && s->maker.sock >= 0; i++) {
        struct pool *p = &s->pool[i];
        if (!p->mib || (s->nstarting && p->n + p->ordered >= POOL_DEPTH / 2))
            continue;
        while (p->n + p->ordered < POOL_DEPTH && worker_make(s, s->pool_serial, p->mib, p->inodes))
            p->ordered++, s->pool_serial++;
    }
}

void disk_ready_done(struct server *s, uint64_t serial, uint32_t mib, uint32_t inodes, int mnt, const struct err *e)
{
    struct upper u = {.mnt = mnt, .mib = mib, .inodes = inodes};
    ready_name(serial, u.name);
    for (int i = 0; i < POOL_KINDS; i++) {
        struct pool *p = &s->pool[i];
        if (p->mib != mib || p->inodes != inodes)
            continue;
        if (p->ordered)
            p->ordered--;
        if (mnt >= 0 && p->n < POOL_DEPTH) {
            p->item[p->n++] = u;
            return;
        }
    }
    if (mnt < 0) {
        log_warn("disk pool: %s", e->msg); /* a start will meet the same and tell its caller */
        s->pool_broken = true;
        return;
    }
    (void)close(mnt); /* that size went out of use meanwhile */
    (void)unlinkat(s->fs_fd, u.name, 0);
}

void disk_worker_lost(struct server *s)
{
    for (int i = 0; i < POOL_KINDS; i++)
        s->pool[i].ordered = 0;
}

/* Not for small ones: the kernel reports a shutdown on the console, and a serial console takes 2 ms for that. */
void disk_abandon(int mnt)
{
    uint32_t how = EXT4_NO_FLUSH;
    struct statvfs v;
    if (fstatvfs(mnt, &v) < 0 || (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize < ABANDON_MIN)
        return;
    auto_fd fd = openat(mnt, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)ioctl(fd, EXT4_SHUTDOWN, &how); /* only saves work */
}

void disk_fini(struct server *s)
{
    for (int i = 0; i < POOL_KINDS; i++)
        while (s->pool[i].n) {
            struct upper *u = &s->pool[i].item[--s->pool[i].n];
            disk_abandon(u->mnt);
            (void)close(u->mnt);
            (void)unlinkat(s->fs_fd, u->name, 0);
        }
    while (s->ntmpl)
        forget_template(s, s->ntmpl - 1);
    free(s->tmpl);
    s->tmpl = NULL;
}
