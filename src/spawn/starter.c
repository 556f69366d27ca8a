#include "spawn/starter.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "jail/sys.h"
#include "spawn/op.h"
#include "spawn/place.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_LEN   320
#define STARTER_FD 3     /* where a new spawner finds its end */
#define START_MS   30000 /* a starved host needs more than a few seconds */
#define END_MS     10000 /* for one that is ending, or whose start may yet fail */
#define OTHER_MS   1000  /* a lock that is looked at, or of one that was just killed, is free again by then */
#define TURN_MS    10
#define LEASED     "leased "

int spawn_home_text(const struct stat *home, const char *path, bool leased, char *ret, size_t n)
{
    (void)snprintf(ret, n, "%sv%d %llx:%llx %s\n", leased ? LEASED : "", SP_VERSION, (unsigned long long)home->st_dev, (unsigned long long)home->st_ino, path);
    return (int)strlen(ret);
}

/* ---- who is there ---- */

static bool held(int fd)
{
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB))
        return fd >= 0 && errno == EWOULDBLOCK;
    (void)flock(fd, LOCK_UN);
    return false;
}

enum seat { SEAT_FREE, SEAT_OURS, SEAT_BUSY, SEAT_OTHER };

/* What its lock file says of the spawner that holds a run folder. */
struct occupant { bool leased, ours; int version; char home[PATH_LEN]; };

/* Spawners of before version 3 wrote nothing down: theirs is the home that is held. */
static void read_occupant(int lock, const struct stat *home, bool home_held, struct occupant *ret)
{
    char text[PATH_LEN] = "", *p = text;
    unsigned long long dev, ino;
    int at = 0;
    ssize_t got = pread(lock, text, sizeof text - 1, 0);
    text[got < 0 ? 0 : got] = 0;
    text[strcspn(text, "\n")] = 0;
    *ret = (struct occupant){.leased = !strncmp(text, LEASED, strlen(LEASED)), .ours = home_held};
    p += ret->leased ? strlen(LEASED) : 0;
    if (sscanf(p, "v%d %llx:%llx %n", &ret->version, &dev, &ino, &at) != 3 || !at)
        return;
    ret->ours = dev == home->st_dev && ino == home->st_ino;
    (void)snprintf(ret->home, sizeof ret->home, "%s", p + at);
}

/* It takes its socket away before it ends, so locks without a socket mean "wait"; so does a lease, since whoever has it may fail. */
static enum seat look(const struct spawn_conf *c, struct err *e)
{
    char path[PATH_LEN];
    struct stat st = {0};
    struct occupant who;
    (void)snprintf(path, sizeof path, "%s/spawn.lock", c->run);
    auto_fd lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), home = open(c->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool run_held = held(lock), home_held = held(home);
    if (!run_held && !home_held)
        return SEAT_FREE;
    if (home >= 0)
        (void)fstat(home, &st);
    if (!run_held) {
        err_set(e, E_CONFLICT, "the home %s is in use by another hutch, with another run directory or from another container: stop that one, or set HUTCH_HOME", c->home);
        return SEAT_OTHER;
    }
    read_occupant(lock, &st, home_held, &who);
    if (!who.ours) {
        err_set(e, E_CONFLICT, "the run directory %s is in use by the hutch with %s%.100s: set HUTCH_RUN to another directory", c->run, *who.home ? "the home " : "another home", who.home);
        return SEAT_OTHER;
    }
    (void)snprintf(path, sizeof path, "%s/spawn.sock", c->run);
    if (who.leased || access(path, F_OK))
        return SEAT_BUSY;
    if (who.version == SP_VERSION)
        return SEAT_OURS;
    err_set(e, E_CONFLICT, "a hutch-spawn of another version is still running for the home %s: stop it with that version's `hutch down`, with `systemctl kill hutchd.service`, or kill the process; its sandboxes end with it", c->home);
    return SEAT_OTHER;
}

int spawn_find(const struct spawn_conf *c, bool *ret_found, struct err *e)
{
    enum seat seat;
    for (int ms = 0;; ms += TURN_MS) {
        seat = look(c, e);
        if (seat == SEAT_FREE || seat == SEAT_OURS || (seat == SEAT_OTHER && ms >= OTHER_MS) || ms >= END_MS)
            break;
        (void)usleep(TURN_MS * 1000);
    }
    *ret_found = seat == SEAT_OURS;
    if (seat == SEAT_OTHER)
        return -1;
    if (seat == SEAT_BUSY)
        return err_set(e, E_UNAVAILABLE, "the hutch-spawn of this home has been starting or ending for %d s: try again in a moment", END_MS / 1000);
    return 0;
}

/* ---- a new one ---- */

/* It ended without a word: what it wrote last, or else its watcher, says why. */
static int last_words(int log, off_t from, struct err *e)
{
    auto_free char *text = lseek(log, from, SEEK_SET) == from ? fd_slurp(log, 1 << 20, NULL) : NULL;
    size_t n = text ? strlen(text) : 0;
    while (n && text[n - 1] == '\n')
        text[--n] = 0;
    const char *line = n ? memrchr(text, '\n', n) : NULL;
    return err_set(e, E_UNAVAILABLE, "%s",
                   line ? line + 1
                   : n  ? text
                        : "it exited without a message");
}

static int hear(int lease, int log, off_t from, struct err *e)
{
    struct pollfd p = {.fd = lease, .events = POLLIN};
    struct err word;
    int ready;
    while ((ready = poll(&p, 1, START_MS)) < 0 && errno == EINTR)
        ;
    ssize_t n = ready > 0 ? fd_read_all(lease, &word, sizeof word) : 0;
    if (n == (ssize_t)sizeof word && word.code == E_OK)
        return 0;
    if (n == (ssize_t)sizeof word)
        *e = word;
    else if (ready > 0)
        (void)last_words(log, from, e);
    else
        (void)err_set(e, E_UNAVAILABLE, "it did not answer for %d s", START_MS / 1000);
    return err_wrap(e, "hutch-spawn did not start");
}

/* A grandchild in its own session: not ours to wait for, not in our process group. */
static void become_spawner(const struct spawn_conf *c, int starter, int log)
{
    char bin[PATH_LEN], uid[16], egress[16];
    struct err e;
    if (setsid() < 0 || fork())
        _exit(0);
    (void)snprintf(bin, sizeof bin, "%s/hutch-spawn", c->bin);
    (void)snprintf(uid, sizeof uid, "%u", c->allow_uid);
    (void)snprintf(egress, sizeof egress, "%u", c->egress_uid);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    (void)dup2(null, 0);
    (void)dup2(log, 1);
    (void)dup2(log, 2);
    if (starter == STARTER_FD)
        (void)fcntl(starter, F_SETFD, 0);
    else
        (void)dup2(starter, STARTER_FD);
    (void)sys_close_range(STARTER_FD + 1, ~0u);
    execl(bin, "hutch-spawn", "--watch", "--home", c->home, "--run", c->run, "--share", c->share, "--bin", c->bin, "--allow-uid", uid, "--egress-uid", egress,
          "--starter", "3", (char *)NULL);
    (void)err_sys(&e, errno, "%s", bin);
    spawn_tell(STARTER_FD, &e);
    _exit(127);
}

int spawn_start(const struct spawn_conf *c, int *ret_lease, struct err *e)
{
    int sv[2];
    auto_fd log = place_log(c->home, "spawn.log", e);
    if (log < 0)
        return err_wrap(e, "starting hutch-spawn");
    off_t from = lseek(log, 0, SEEK_END);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
        return err_sys(e, errno, "starting hutch-spawn");
    pid_t pid = fork();
    if (!pid)
        become_spawner(c, sv[1], log);
    int sys = errno;
    (void)close(sv[1]);
    if (pid < 0) {
        (void)close(sv[0]);
        return err_sys(e, sys, "starting hutch-spawn");
    }
    (void)waitpid(pid, NULL, 0);
    *ret_lease = sv[0];
    if (!hear(sv[0], log, from, e))
        return 0;
    spawn_lease_drop(ret_lease);
    return -1;
}

/* ---- the lease ---- */

void spawn_lease_keep(int *lease)
{
    if (*lease >= 0)
        (void)send(*lease, "s", 1, MSG_NOSIGNAL); /* it fails only if there is none any more */
    cleanup_fd(lease);
    *lease = -1;
}

void spawn_lease_drop(int *lease)
{
    char t[sizeof(struct err)];
    struct pollfd p = {.fd = *lease, .events = POLLIN};
    if (*lease < 0)
        return;
    (void)shutdown(*lease, SHUT_WR);
    while (poll(&p, 1, END_MS) > 0 && read(*lease, t, sizeof t) > 0)
        ; /* until its watcher, who has it to the last, is gone too */
    (void)close(*lease);
    *lease = -1;
}

enum spawn_lease spawn_lease_look(int starter)
{
    char t;
    ssize_t n = recv(starter, &t, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 1 ? LEASE_KEPT : n < 0 && (errno == EAGAIN || errno == EINTR) ? LEASE_OPEN : LEASE_DROPPED;
}

void spawn_tell(int starter, const struct err *e)
{
    struct err ok = {.code = E_OK};
    if (starter >= 0)
        (void)send(starter, e ? e : &ok, sizeof ok, MSG_NOSIGNAL); /* a daemon that is gone is seen by the lease */
}
