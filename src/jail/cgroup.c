#include "jail/cgroup.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/sys.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#define CLAIMS 0x68757463 /* where the bytes of cgroup_host_claim() begin */

int cg_write(int dir, const char *file, const char *text)
{
    auto_fd fd = openat(dir, file, O_WRONLY | O_CLOEXEC);
    size_t n = strlen(text);
    return fd < 0 || write(fd, text, n) != (ssize_t)n ? errno : 0;
}

int cg_write_u64(int dir, const char *file, uint64_t v)
{
    char t[24];
    (void)snprintf(t, sizeof t, "%llu", (unsigned long long)v);
    return cg_write(dir, file, t);
}

static ssize_t slurp(int dir, const char *file, char *p, size_t size)
{
    auto_fd fd = openat(dir, file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fd_read_all(fd, p, size - 1);
    p[n < 0 ? 0 : n] = 0;
    return n;
}

uint64_t cg_read_u64(int dir, const char *file)
{
    char t[64];
    return slurp(dir, file, t, sizeof t) <= 0 ? 0 : strtoull(t, NULL, 10);
}

uint64_t cg_read_key(int dir, const char *file, const char *key)
{
    char t[8192];
    size_t k = strlen(key);
    if (slurp(dir, file, t, sizeof t) <= 0)
        return 0;
    for (char *p = t; p && *p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
        if (!strncmp(p, key, k) && p[k] == ' ')
            return strtoull(p + k + 1, NULL, 10);
    return 0;
}

/* Files in memory count as cache there, but only their owner can let go of them: a tmpfs, and all memory of a guest of gVisor's. */
uint64_t cg_cache(int dir, const char *key)
{
    uint64_t all = cg_read_key(dir, "memory.stat", key),
             held = cg_read_key(dir, "memory.stat", "shmem");
    return all > held ? all - held : 0;
}

/* proc(5): "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue". option: one of the super
 * block options, or NULL. */
bool cg_mount_find(const char *mountinfo, const char *fstype, const char *option, char *path, size_t size)
{
    for (const char *line = mountinfo; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        char at[256], type[32], super[512];
        size_t n = strcspn(line, "\n");
        const char *dash = memmem(line, n, " - ", 3);
        if (!dash || sscanf(line, "%*s %*s %*s %*s %255s", at) != 1 || sscanf(dash + 3, "%31s %*s %511s", type, super) != 2)
            continue;
        if (strcmp(type, fstype))
            continue;
        bool hit = !option;
        for (char *save = NULL, *o = strtok_r(super, ",", &save); o && !hit; o = strtok_r(NULL, ",", &save))
            hit = !strcmp(o, option);
        if (!hit || strlen(at) >= size)
            continue;
        memcpy(path, at, strlen(at) + 1);
        return true;
    }
    return false;
}

/* Nobody but root may open it: who can, can lock it, and hutch would not start. */
int cg_own_dir(int root, const char *tag)
{
    auto_fd own = -1;
    if ((mkdirat(root, tag, 0700) < 0 && errno != EEXIST) || (own = openat(root, tag, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 || fchmod(own, 0700) < 0)
        return -1;
    return take_fd(&own);
}

static int host_dir(const struct cgroup_host *h, int i) { return i < CG_TREES ? h->tree[i] : h->v2; }

/* By descriptors of their own: those of the directories are also the jailer's, and the lock must end with us. Takes what it can get
 * even if one is another's, so that whoever gives up knows which are free to remove. */
static int host_lock(struct cgroup_host *h, struct err *e)
{
    int rc = 0;
    for (int i = 0; i <= CG_TREES; i++) {
        int dir = host_dir(h, i);
        auto_fd fd = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir < 0)
            continue;
        if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
            h->lock[i] = take_fd(&fd);
        else
            rc = errno == EWOULDBLOCK ? err_set(e, E_CONFLICT, "the control groups %s belong to another hutch that is still running", h->tag)
                                      : err_sys(e, errno, "locking the control groups %s", h->tag);
    }
    return rc;
}

static int host_open(struct cgroup_host *h, const char *text, struct err *e)
{
    char at[256];
    h->version = cg_mount_find(text, "cgroup", "memory", at, sizeof at) ? 1 : 2;
    if (h->version == 2)
        return cg2_host_open(h, text, true, e);
    struct err why;
    if (cg2_host_open(h, text, false, &why)) /* optional beside v1: the v1 freezer does the same, slower */
        (void)snprintf(h->note, sizeof h->note, "no cgroup2 besides v1: using the v1 freezer to kill and freeze");
    return cg1_host_open(h, text, e);
}

int cgroup_host_open(struct cgroup_host *h, const char *mountinfo, const char *tag, struct err *e)
{
    *h = CGROUP_HOST_NONE;
    if (strlen(tag) >= sizeof h->tag)
        return err_set(e, E_INVALID, "cgroup tag too long");
    memcpy(h->tag, tag, strlen(tag) + 1);
    auto_free char *text = fd_slurp_at(AT_FDCWD, mountinfo, 1 << 20, NULL);
    if (!text)
        return err_sys(e, errno, "mount table");
    struct err why;
    int made = host_open(h, text, e), taken = host_lock(h, made ? &why : e);
    if (made || taken)
        cgroup_host_close(h, true);
    return made || taken ? -1 : 0;
}

/* A byte of a file that is there anyway: nothing to leave behind, and no directory per number. */
int cgroup_host_claim(const struct cgroup_host *h, unsigned n)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = CLAIMS + (off_t)n, .l_len = 1};
    auto_fd fd = openat(h->version == 1 ? h->tree[CG_MEMORY] : h->v2, "../cgroup.procs", O_RDWR | O_CLOEXEC);
    if (fd >= 0 && !fcntl(fd, F_OFD_SETLK, &l))
        return take_fd(&fd);
    if (fd >= 0 && errno == EAGAIN && !fcntl(fd, F_OFD_GETLK, &l) && l.l_type == F_RDLCK)
        errno = EACCES; /* anybody may read that file, and so lock it for reading: that is no hutch, and must not keep one from starting */
    return -1;
}

void cgroup_host_close(struct cgroup_host *h, bool rm)
{
    /* "..", because a directory cannot remove itself by "." */
    char up[CG_NAME + 8];
    (void)snprintf(up, sizeof up, "../%s", h->tag);
    for (int i = 0; i <= CG_TREES; i++) {
        int *fd = i < CG_TREES ? &h->tree[i] : &h->v2;
        if (*fd < 0)
            continue;
        if (rm && h->lock[i] >= 0) /* nobody else's */
            (void)unlinkat(*fd, up, AT_REMOVEDIR); /* EBUSY if a box is left: the next start sweeps it */
        (void)close(*fd);
        *fd = -1;
    }
    for (int i = 0; i <= CG_TREES; i++)
        cleanup_fd(&h->lock[i]), h->lock[i] = -1;
}

static int each_dir(int dir, int (*fn)(int dir, const char *name, void *arg), void *arg)
{
    int n = 0, fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return 0;
    for (struct dirent *t; (t = readdir(d));)
        if (t->d_type == DT_DIR && t->d_name[0] != '.')
            n += fn(dir, t->d_name, arg);
    (void)closedir(d);
    return n;
}

static int sweep_kill(int dir, const char *name, void *arg)
{
    (void)arg;
    struct cgroup g = CGROUP_NONE;
    auto_fd d = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    g.tree[CG_FREEZER] = d;
    return d >= 0 && !cg1_kill(&g, NULL);
}

static int sweep_rmdir(int dir, const char *name, void *arg)
{
    (void)arg;
    return unlinkat(dir, name, AT_REMOVEDIR) < 0;
}

static int count(int dir, const char *name, void *arg)
{
    (void)dir, (void)name, (void)arg;
    return 1;
}

int cgroup_host_sweep(struct cgroup_host *h, struct err *e)
{
    int found = 0, left = 0;
    for (int i = 0; i <= CG_TREES; i++) {
        int dir = host_dir(h, i), n = dir < 0 ? 0 : each_dir(dir, count, NULL);
        found = n > found ? n : found;
    }
    if (!found)
        return 0;
    if (h->v2_kill)
        (void)cg2_kill(h->v2, NULL); /* whatever survives shows as a group that cannot be removed, below */
    for (int turn = 0; turn < 200; turn++) {
        left = 0;
        for (int i = 0; i <= CG_TREES; i++) {
            int dir = host_dir(h, i);
            if (dir < 0)
                continue;
            if (!h->v2_kill || turn > 20)
                (void)each_dir(dir, sweep_kill, NULL);
            left += each_dir(dir, sweep_rmdir, NULL);
        }
        if (!left)
            return found;
        (void)nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL); /* start-up only */
    }
    return err_set(e, E_CONFLICT, "%d control groups of an earlier run cannot be removed", left);
}

/* ---- trees of others ---- */

/* -> how many hierarchies have one of that tag */
static int other_open(const struct cgroup_host *h, const char *tag, struct cgroup_host *ret)
{
    char up[CG_NAME + 8];
    int n = 0;
    *ret = CGROUP_HOST_NONE;
    ret->version = h->version, ret->v2_kill = h->v2_kill;
    (void)snprintf(ret->tag, sizeof ret->tag, "%s", tag);
    (void)snprintf(up, sizeof up, "../%s", ret->tag);
    for (int i = 0; i <= CG_TREES; i++) {
        int dir = host_dir(h, i), fd = dir < 0 ? -1 : openat(dir, up, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        *(i < CG_TREES ? &ret->tree[i] : &ret->v2) = fd;
        n += fd >= 0;
    }
    return n;
}

static int count_procs(int dir, const char *name, void *arg)
{
    struct cgroup_census *c = arg;
    auto_fd d = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_fd fd = d < 0 ? -1 : openat(d, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    auto_free char *list = fd < 0 ? NULL : fd_slurp(fd, 1 << 20, NULL);
    for (char *p = list; p && *p; p += strspn(p, "\n ")) {
        char *end;
        bool seen = strtol(p, &end, 10) > 0;
        if (end == p)
            break;
        p = end;
        c->procs++;
        c->unseen += !seen;
    }
    return 1;
}

int cgroup_host_census(const struct cgroup_host *h, const char *tag, struct cgroup_census *ret)
{
    struct cgroup_host o;
    *ret = (struct cgroup_census){0};
    int trees = other_open(h, tag, &o);
    for (int i = 0; i <= CG_TREES; i++) {
        int dir = host_dir(&o, i);
        if (dir >= 0)
            ret->groups += each_dir(dir, count_procs, ret);
    }
    /* cgroup2 lists those of other pid namespaces as 0. v1 leaves them out, but counts them; zombies as well, who only look unseen. */
    if (o.v2 < 0 && !ret->procs && cg_read_u64(o.tree[CG_PIDS], "pids.current"))
        ret->unseen++;
    cgroup_host_close(&o, false);
    return trees;
}

int cgroup_host_clear(const struct cgroup_host *h, const char *tag, struct err *e)
{
    struct cgroup_host o;
    (void)other_open(h, tag, &o);
    int n = host_lock(&o, e) ? -1 : cgroup_host_sweep(&o, e);
    cgroup_host_close(&o, true);
    return n;
}

static int make_dir(int parent, const char *name, int *ret, struct err *e)
{
    if (parent < 0)
        return 0;
    if ((mkdirat(parent, name, 0755) < 0 && errno != EEXIST) || (*ret = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_sys(e, errno, "cgroup %s", name);
    return 0;
}

int cgroup_begin(const struct cgroup_host *h, const char *name, struct cgroup *ret, struct err *e)
{
    struct cgroup g = CGROUP_NONE;
    if (strlen(name) >= sizeof g.name)
        return err_set(e, E_INVALID, "cgroup name too long");
    memcpy(g.name, name, strlen(name) + 1);
    memcpy(g.v2_name, name, strlen(name) + 1);
    g.live = true;
    int rc = make_dir(h->v2, name, &g.v2, e);
    for (int i = 0; i < CG_TREES && !rc; i++)
        rc = make_dir(h->tree[i], name, &g.tree[i], e);
    if (rc)
        (void)cgroup_remove(h, &g);
    *ret = g;
    return rc;
}

/* An empty one of that name was left behind by a box that could not be removed in time. */
static int rename_one(int dir, const char *from, const char *to)
{
    return !renameat(dir, from, dir, to) || (errno == EEXIST && !unlinkat(dir, to, AT_REMOVEDIR) && !renameat(dir, from, dir, to)) ? 0 : -1;
}

/* A cgroup2 keeps the name it was made with. Whoever looks at the host finds the box in an attribute:
 * getfattr -n trusted.hutch.box /sys/fs/cgroup/hutch-x/ready-1. Nothing of ours depends on it. */
static void label_v2(const struct cgroup *g, const char *name)
{
    if (g->v2 >= 0 && strcmp(name, g->v2_name) && fsetxattr(g->v2, CG_BOX_ATTR, name, strlen(name), 0) < 0)
        log_debug("cgroup %s of %s has no label: %s", g->v2_name, name, strerror(errno));
}

/* v1 alone can. */
static int rename_all(const struct cgroup_host *h, const char *name, struct cgroup *g, struct err *e)
{
    int done = 0;
    for (; done < CG_TREES; done++)
        if (g->tree[done] >= 0 && rename_one(h->tree[done], g->name, name) < 0)
            break;
    if (done == CG_TREES) {
        memcpy(g->name, name, strlen(name) + 1);
        return 0;
    }
    int sys = errno;
    while (done--) /* all have one name, or nobody could remove them */
        if (g->tree[done] >= 0)
            (void)renameat(h->tree[done], name, h->tree[done], g->name);
    return err_sys(e, sys, "cgroup %s", name);
}

int cgroup_finish(const struct cgroup_host *h, const char *name, const struct cgroup_limit *l, struct cgroup *g, struct err *e)
{
    int rc = strlen(name) >= sizeof g->name ? err_set(e, E_INVALID, "cgroup name too long") : strcmp(name, g->name) ? rename_all(h, name, g, e) : 0;
    if (rc || (h->version == 1 ? cg1_limit(g, l, true, e) : cg2_limit(g, l, e))) {
        (void)cgroup_remove(h, g);
        return -1;
    }
    label_v2(g, name);
    return 0;
}

int cgroup_make(const struct cgroup_host *h, const char *name, const struct cgroup_limit *l, struct cgroup *ret, struct err *e)
{
    struct cgroup g;
    if (cgroup_begin(h, name, &g, e) || cgroup_finish(h, name, l, &g, e))
        return -1;
    *ret = g;
    return 0;
}

int cgroup_join_fds(const struct cgroup *g, int fd[CG_TREES], struct err *e)
{
    int n = 0;
    for (int i = 0; i < CG_TREES; i++) {
        if (g->tree[i] < 0)
            continue;
        if ((fd[n] = openat(g->tree[i], "tasks", O_WRONLY | O_CLOEXEC)) < 0) {
            int sys = errno;
            while (n--)
                (void)close(fd[n]);
            return err_sys(e, sys, "tasks");
        }
        n++;
    }
    return n;
}

int cgroup_join(const int *fd, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        if (write(fd[i], "0", 1) != 1)
            return err_sys(e, errno, "tasks");
        (void)close(fd[i]);
    }
    return 0;
}

int cgroup_set(const struct cgroup_host *h, const struct cgroup *g, const struct cgroup_limit *l, struct err *e)
{
    return h->version == 1 ? cg1_limit(g, l, false, e) : cg2_limit(g, l, e);
}

int cgroup_freeze(const struct cgroup *g, bool on, struct err *e)
{
    return g->v2 >= 0 ? cg2_freeze(g->v2, on, e) : cg1_freeze(g, on, e);
}

int cgroup_kill(const struct cgroup_host *h, const struct cgroup *g, struct err *e)
{
    return h->v2_kill && g->v2 >= 0 ? cg2_kill(g->v2, e) : cg1_kill(g, e);
}

void cgroup_usage(const struct cgroup_host *h, const struct cgroup *g, struct cgroup_usage *ret)
{
    *ret = (struct cgroup_usage){0};
    if (h->version == 1)
        cg1_usage(g, ret);
    else
        cg2_usage(g, ret);
}

int cgroup_remove(const struct cgroup_host *h, struct cgroup *g)
{
    int busy = 0;
    for (int i = 0; i <= CG_TREES; i++) {
        int dir = i < CG_TREES ? h->tree[i] : h->v2, *fd = i < CG_TREES ? &g->tree[i] : &g->v2;
        if (*fd >= 0)
            (void)close(*fd);
        *fd = -1;
        const char *name = i < CG_TREES ? g->name : g->v2_name;
        if (dir >= 0 && g->live && *name && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            busy = 1;
    }
    g->live = busy;
    return busy;
}
