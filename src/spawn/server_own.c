/* What of this host is this spawner's alone, and how everybody else can tell:
 * the home and the run folder, a tree of control groups, a window of ids. Each
 * has a lock that its kernel object carries, so that it is seen from other
 * roots and namespaces and is free the moment we die. Nothing is swept that we
 * have not locked. docs/decisions/013-id-windows-and-cgroup-place.md */
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/ours.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include "spawn/starter.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#define UID_FIRST   0x70000000u /* above what login, sub-uid and machine tools hand out */
#define UID_WINDOWS 32u         /* of SLOTS ranges each: up to 0xf0000000 */
#define LOCK_TURNS  200         /* of 10 ms: what a killed one had forked just before holds its locks a moment longer */

static uint64_t hash64(const void *p, size_t n)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a: names, not secrets */
    for (const unsigned char *t = p; n--; t++)
        h = (h ^ *t) * 1099511628211u;
    return h;
}

/* Of versions before this one: by path, which two roots on one host may share. */
static uint32_t hash32(const char *t)
{
    uint32_t h = 2166136261u;
    for (; *t; t++)
        h = (h ^ (unsigned char)*t) * 16777619u;
    return h;
}

static void moment(void) { (void)nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL); } /* start-up only */

static int lock_wait(int fd)
{
    for (int i = 0;; i++) {
        if (!flock(fd, LOCK_EX | LOCK_NB))
            return 0;
        if (errno != EWOULDBLOCK || i == LOCK_TURNS)
            return -1;
        moment();
    }
}

/* Whose run folder this is, for the next one that wants it. */
static int write_owner(struct server *s, const struct stat *home, bool leased, struct err *e)
{
    char text[PATH_LEN];
    int n = spawn_home_text(home, s->home, leased, text, sizeof text);
    return ftruncate(s->lock, 0) < 0 || pwrite(s->lock, text, (size_t)n, 0) != n ? err_sys(e, errno, "spawn.lock") : 0;
}

void own_for_good(struct server *s)
{
    struct stat st;
    struct err e;
    if (fstat(s->home_fd, &st) < 0 || write_owner(s, &st, false, &e))
        log_warn("spawn.lock cannot be written: the next hutchd cannot take over the sandboxes");
}

static int lock_run(struct server *s, struct err *e)
{
    s->run_fd = open(s->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->run_fd < 0)
        return err_sys(e, errno, "run directory %s", s->run);
    if (ours_place(s->run_fd, s->run, e) || ours_place(s->home_fd, s->home, e) || (s->lock = ours_file(s->run_fd, "spawn.lock", O_RDWR, e)) < 0)
        return -1;
    if (!lock_wait(s->lock))
        return 0;
    return errno == EWOULDBLOCK ? err_set(e, E_CONFLICT, "another hutch uses the run directory %s", s->run) : err_sys(e, errno, "locking spawn.lock in %s", s->run);
}

/* The home is what must not be shared; the run folder may differ by mistake, or because it is another root's. */
int own_home(struct server *s, struct err *e)
{
    struct stat st;
    if (lock_run(s, e))
        return -1;
    server_unlisten(s); /* of one that was killed: nobody else has the lock, so nobody listens there */
    if (ftruncate(s->lock, 0) < 0 || fstat(s->home_fd, &st) < 0)
        return err_sys(e, errno, "home and run directory");
    if (lock_wait(s->home_fd))
        return errno == EWOULDBLOCK ? err_set(e, E_CONFLICT, "another hutch uses the home %s, with another run directory or from another container", s->home)
                                    : err_sys(e, errno, "locking the home %s", s->home);
    uint64_t id[2] = {st.st_dev, st.st_ino};
    (void)snprintf(s->tag, sizeof s->tag, "hutch-%016llx", (unsigned long long)hash64(id, sizeof id));
    return write_owner(s, &st, s->starter && spawn_lease_look(s->starter) != LEASE_KEPT, e);
}

/* ---- control groups ---- */

/* Is `pid` a spawner of a home with our path? In another root it is not our home, since we hold the lock of that. */
static bool same_path(const struct server *s, const char *pid)
{
    char path[64];
    size_t n = 0;
    (void)snprintf(path, sizeof path, "/proc/%s/cmdline", pid);
    auto_free char *text = fd_slurp_at(AT_FDCWD, path, 8192, &n);
    bool spawner = false, home = false;
    if (!text)
        return false;
    for (size_t at = 0; at < n; at += strlen(text + at) + 1) {
        const char *arg = text + at, *slash = strrchr(arg, '/');
        if (!at)
            spawner = !strcmp(slash ? slash + 1 : arg, "hutch-spawn");
        else if (home && !strcmp(arg, s->home))
            return spawner;
        home = !strcmp(arg, "--home");
    }
    return false;
}

static bool other_lives(const struct server *s)
{
    DIR *d = opendir("/proc");
    bool found = false;
    for (struct dirent *t; d && !found && (t = readdir(d));) {
        long pid = strtol(t->d_name, NULL, 10);
        found = pid > 0 && pid != getpid() && pid != getppid() && same_path(s, t->d_name); /* our watcher has our arguments */
    }
    if (d)
        (void)closedir(d);
    return found;
}

/* Versions before this one named their tree by the home's path and took no lock on it. Ours of that time is swept; one that
 * may be somebody else's is left alone. What was just killed looks alive for a moment. */
static void sweep_unlocked(struct server *s)
{
    char tag[CG_NAME];
    struct cgroup_census c;
    struct err e;
    (void)snprintf(tag, sizeof tag, "hutch-%08x", hash32(s->home));
    for (int i = 0; cgroup_host_census(&s->cg, tag, &c) && (c.unseen || other_lives(s)); i++) {
        if (i == LOCK_TURNS / 2) {
            log_warn("control groups %s belong to an older hutch that runs elsewhere with the same home path: not touched", tag);
            return;
        }
        moment();
    }
    if (!c.groups) /* nothing of ours; if somebody we cannot see has just begun, it is his */
        return;
    int n = cgroup_host_clear(&s->cg, tag, &e);
    if (n < 0)
        log_warn("%s: %s", tag, e.msg);
    else
        log_info("removed the control groups %s of an older version, %d boxes", tag, n);
}

int own_cgroups(struct server *s, struct err *e)
{
    for (int i = 0; cgroup_host_open(&s->cg, "/proc/self/mountinfo", s->tag, e); i++) {
        if (e->code != E_CONFLICT || i == LOCK_TURNS)
            return -1;
        moment();
    }
    int swept = cgroup_host_sweep(&s->cg, e);
    if (swept < 0)
        return -1;
    if (swept)
        log_warn("killed and removed %d boxes that the last run of this home left behind", swept);
    sweep_unlocked(s);
    return 0;
}

/* ---- ids ---- */

/* Two marks, for root only and with nothing to leave behind: a byte of a file of /sys that nobody else can open, and one of a file of the
 * control groups. There is one /sys per network namespace, so the first is for who shares that (or our /sys), the second for who
 * shares the tree. Anybody can lock a file that he can read, so the second alone would not do. */
#define MARKS "/sys/bus/cpu/uevent"

static int mark(uint32_t w)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = w, .l_len = 1};
    auto_fd fd = open(MARKS, O_WRONLY | O_CLOEXEC);
    return fd < 0 || fcntl(fd, F_OFD_SETLK, &l) ? -1 : take_fd(&fd);
}

static bool take_window(struct server *s, uint32_t w)
{
    auto_fd m = mark(w);
    if (m < 0 && errno == EAGAIN)
        return false;
    s->uid_claim = cgroup_host_claim(&s->cg, w);
    if (s->uid_claim < 0 && errno == EAGAIN)
        return false;
    if (m < 0 && s->uid_claim < 0)
        log_warn("neither " MARKS " nor the control groups can be locked: another hutch on this host may use the same ids");
    s->uid_lock = take_fd(&m);
    return true;
}

int own_ids(struct server *s, struct err *e)
{
    uint32_t seed = (uint32_t)hash64(s->tag, strlen(s->tag));
    for (uint32_t i = 0; i < UID_WINDOWS; i++) {
        uint32_t w = (seed + i) % UID_WINDOWS;
        if (!take_window(s, w))
            continue;
        s->uid_base = UID_FIRST + w * SLOTS * SLOT_IDS;
        return 0;
    }
    return err_set(e, E_QUOTA, "all %u id ranges of this host are in use", UID_WINDOWS);
}
