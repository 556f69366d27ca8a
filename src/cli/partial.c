#include "cli/partial.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#define TRIES 16

/* What on_fatal removes. Armed before the file exists, so that none is missed. */
static struct {
    int dir;
    char name[sizeof((struct partial *)0)->name];
} pending;
static volatile sig_atomic_t armed;

static void on_fatal(int sig)
{
    if (armed)
        (void)unlinkat(pending.dir, pending.name, 0); /* on the way out: nothing else can be done */
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

/* Those that the shell had us ignore stay ignored. */
static void catch_fatal(void)
{
    static const int fatal[] = {SIGINT, SIGTERM, SIGHUP};
    static bool done;
    for (size_t i = 0; !done && i < sizeof fatal / sizeof *fatal; i++)
        if (signal(fatal[i], on_fatal) == SIG_IGN)
            (void)signal(fatal[i], SIG_IGN);
    done = true;
}

int partial_begin(struct partial *p, int dir, mode_t mode, struct err *e)
{
    catch_fatal();
    p->fd = -1;
    p->dir = fcntl(dir, F_DUPFD_CLOEXEC, 3);
    if (p->dir < 0)
        return err_sys(e, errno, "dup");
    for (int i = 0; p->fd < 0 && i < TRIES; i++) {
        unsigned long long r = 0;
        if (getrandom(&r, sizeof r, 0) < 0)
            break;
        (void)snprintf(p->name, sizeof p->name, ".hutch-%016llx", r);
        pending.dir = p->dir;
        (void)snprintf(pending.name, sizeof pending.name, "%s", p->name);
        armed = 1;
        p->fd = openat(p->dir, p->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (p->fd < 0 && errno != EEXIST)
            break;
    }
    if (p->fd >= 0)
        return 0;
    (void)err_sys(e, errno, "cannot create a file there");
    armed = 0;
    (void)close(p->dir);
    p->dir = -1;
    return -1;
}

static void leave(struct partial *p)
{
    armed = 0;
    if (p->fd >= 0)
        (void)close(p->fd);
    (void)close(p->dir);
    *p = PARTIAL_NONE;
}

int partial_keep(struct partial *p, const char *name, struct err *e)
{
    int rc = close(p->fd); /* some file systems tell only now that there was no room */
    p->fd = -1;
    if (rc || renameat(p->dir, p->name, p->dir, name)) {
        (void)err_sys(e, errno, "cannot write '%.100s'", name);
        partial_drop(p);
        return -1;
    }
    leave(p);
    return 0;
}

void partial_drop(struct partial *p)
{
    if (p->dir < 0)
        return;
    (void)unlinkat(p->dir, p->name,
                   0); /* if it cannot go, it stays under a name that says what it is */
    leave(p);
}
