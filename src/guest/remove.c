/* OP_REMOVE. A tree is removed with one directory open at a time: down by
 * openat without following links, up by ".." with the identity of the parent
 * checked, so a directory that is moved away while we are inside ends the
 * removal instead of leading it astray. Depth costs a few bytes of heap per
 * level, no stack. A bounded number of removals per turn. */
#include "base/cleanup.h"
#include "guest/path.h"
#include "wire/msg.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define OPS_PER_TURN 256
#define DEPTH_MAX    100000
#define TRIES_MAX    1000 /* a directory that others keep filling */

struct up { dev_t dev; ino_t ino; char *name; }; /* the parent's identity, and our name in it */
struct removal {
    struct stream s; /* first */
    struct place p;
    struct up *up;
    size_t depth;
    int fd;     /* directory being emptied; -1 at the top */
    int tries;
};
struct dent { uint64_t ino; int64_t off; uint16_t len; uint8_t type; char name[]; };

static struct removal *of(struct stream *s) { return container_of(s, struct removal, s); }

static void rm_drop(struct agent *a, struct stream *s)
{
    struct removal *r = of(s);
    (void)a;
    while (r->depth)
        free(r->up[--r->depth].name);
    free(r->up);
    cleanup_fd(&r->fd);
    place_fini(&r->p);
}

static int descend(struct removal *r, int dir, const char *name)
{
    struct stat st;
    auto_fd fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(dir, &st))
        return -1;
    if (r->depth == DEPTH_MAX) {
        errno = ELOOP;
        return -1;
    }
    if ((r->depth & (r->depth - 1)) == 0)
        r->up = xrealloc(r->up, (r->depth ? r->depth * 2 : 1) * sizeof *r->up);
    r->up[r->depth++] = (struct up){st.st_dev, st.st_ino, xstrdup(name)};
    cleanup_fd(&r->fd);
    r->fd = take_fd(&fd);
    return 0;
}

/* The innermost directory looked empty: go up and remove it there. 1: the whole removal is finished. */
static int ascend(struct removal *r)
{
    struct stat st;
    struct up *u = &r->up[r->depth - 1];
    auto_fd up = r->depth == 1 ? fcntl(r->p.dir, F_DUPFD_CLOEXEC, 3) : openat(r->fd, "..", O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    if (up < 0 || fstat(up, &st))
        return -1;
    if (st.st_dev != u->dev || st.st_ino != u->ino) {
        errno = ESTALE;
        return -1;
    }
    if (unlinkat(up, u->name, AT_REMOVEDIR) && errno != ENOENT) {
        if (errno == ENOTEMPTY && ++r->tries < TRIES_MAX)
            return lseek(r->fd, 0, SEEK_SET) ? -1 : 0; /* somebody added something: look again */
        return -1;
    }
    free(u->name);
    r->depth--;
    r->tries = 0;
    cleanup_fd(&r->fd);
    r->fd = r->depth ? take_fd(&up) : -1;
    return r->depth == 0;
}

/* One buffer of names. 1: finished, 0: more to do, -1 + errno. */
static int step(struct removal *r, int *budget)
{
    char buf[4096] __attribute__((aligned(8)));
    long n = syscall(SYS_getdents64, r->fd, buf, sizeof buf);
    if (n < 0)
        return -1;
    if (n == 0)
        return ascend(r);
    for (long at = 0; at < n;) {
        struct dent *d = (struct dent *)(void *)(buf + at);
        at += d->len;
        if (!strcmp(d->name, ".") || !strcmp(d->name, ".."))
            continue;
        --*budget;
        if (d->type != DT_DIR && (!unlinkat(r->fd, d->name, 0) || errno == ENOENT))
            continue;
        if (d->type == DT_DIR || errno == EISDIR || errno == EPERM) {
            if (!descend(r, r->fd, d->name))
                return 0; /* the parent is read again from its start when we come back */
            if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) { /* replaced meanwhile */
                if (++r->tries < TRIES_MAX && !unlinkat(r->fd, d->name, 0))
                    continue;
                if (errno == ENOENT)
                    continue;
            }
        }
        return -1;
    }
    return 0;
}

static bool rm_run(struct agent *a, struct stream *s)
{
    struct removal *r = of(s);
    struct err e = {0};
    for (int budget = OPS_PER_TURN, rc; budget > 0;) {
        rc = step(r, &budget);
        budget--;
        if (rc > 0) {
            stream_end_ok(a, s);
            return false;
        }
        if (rc < 0) {
            if (errno == ESTALE)
                err_set(&e, E_CONFLICT, "'%.150s' changed while it was removed", r->p.path);
            else
                path_err(&e, errno, r->p.path);
            stream_end_err(a, s, &e);
            return false;
        }
    }
    return true;
}

static const struct stream_ops rm_ops = {.run = rm_run, .drop = rm_drop};

/* 0: done, 1: it is a directory with content and may be emptied, -1 */
static int try_simple(const struct req *q, struct place *p, struct err *e)
{
    if (place_open(q->a, q->rec, T_PATH, false, p, e) || place_changeable(p, e))
        return -1;
    if (!unlinkat(p->dir, p->base, 0))
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return path_err(e, errno, p->path);
    if (!unlinkat(p->dir, p->base, AT_REMOVEDIR))
        return 0;
    if (errno == ENOTEMPTY && (rec_u64_or(q->rec, T_FLAGS, 0) & FILE_RECURSIVE))
        return 1;
    return path_err(e, errno, p->path);
}

void op_remove(const struct req *q)
{
    struct err e = {0};
    struct place p;
    int rc = try_simple(q, &p, &e);
    struct removal *r = rc > 0 ? stream_new(q, sizeof *r, &rm_ops) : NULL;
    if (r) {
        r->p = p, r->fd = -1;
        if (!descend(r, p.dir, p.base)) {
            stream_wake(q->a, &r->s);
            return;
        }
        path_err(&e, errno, p.path);
        stream_end_err(q->a, &r->s, &e);
        return;
    }
    if (rc < 0)
        reply_err(q->a, q->id, &e);
    else if (!rc)
        reply_ok(q->a, q->id);
    place_fini(&p);
}
