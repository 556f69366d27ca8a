/* OP_LIST: depth-first, names in byte order, a bounded piece per turn. A level
 * holds its directory and the names still to come; memory is bounded over all
 * levels. Links are shown, never followed. */
#include "base/cleanup.h"
#include "guest/path.h"
#include "wire/msg.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX  64
#define NAMES_MAX  (16u << 20) /* bytes of names held by one listing */
#define ENTRIES_PER_TURN 64

struct level {
    int fd;
    char *names; /* one after the other */
    uint32_t *order;
    size_t n, at, bytes, path_n;
};
struct listing {
    struct stream s; /* first */
    struct level level[DEPTH_MAX];
    int depth, max;
    size_t bytes;
    struct buf path; /* of the innermost level */
};

static struct listing *of(struct stream *s) { return container_of(s, struct listing, s); }

static int by_name(const void *x, const void *y, void *names)
{
    return strcmp((char *)names + *(const uint32_t *)x, (char *)names + *(const uint32_t *)y);
}

/* No qsort_r in older musl: heap sort on offsets, no recursion, no allocation. */
static void sort(uint32_t *v, size_t n, char *names)
{
    for (size_t end = n, start = n / 2; end > 1;) {
        size_t root;
        if (start)
            root = --start;
        else {
            uint32_t t = v[--end];
            v[end] = v[0], v[0] = t, root = 0;
        }
        for (size_t c; (c = 2 * root + 1) < end; root = c) {
            if (c + 1 < end && by_name(&v[c], &v[c + 1], names) < 0)
                c++;
            if (by_name(&v[root], &v[c], names) >= 0)
                break;
            uint32_t t = v[root];
            v[root] = v[c], v[c] = t;
        }
    }
}

/* Takes the fd. */
static int push(struct listing *l, int fd, struct err *e)
{
    struct buf names = {0};
    uint32_t *order = NULL;
    size_t n = 0;
    auto_fd keep = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    DIR *d = fdopendir(fd);
    if (keep < 0 || !d) {
        int sys = errno;
        d ? (void)closedir(d) : (void)close(fd);
        return err_sys(e, sys, "list");
    }
    for (struct dirent *de; (de = readdir(d));) {
        size_t k = strlen(de->d_name) + 1;
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
            continue;
        if (l->bytes + names.n + k > NAMES_MAX) {
            closedir(d), buf_free(&names), free(order);
            return err_set(e, E_TOO_LARGE, "the directory has too many entries to list");
        }
        if ((n & (n - 1)) == 0)
            order = xrealloc(order, (n ? n * 2 : 1) * sizeof *order);
        order[n++] = (uint32_t)names.n;
        buf_put(&names, de->d_name, k);
    }
    closedir(d);
    sort(order, n, names.p);
    l->bytes += names.n;
    l->level[l->depth++] = (struct level){.fd = take_fd(&keep), .bytes = names.n, .names = names.p, .order = order, .n = n, .path_n = l->path.n};
    return 0;
}

static void pop(struct listing *l)
{
    struct level *v = &l->level[--l->depth];
    l->bytes -= v->bytes;
    close(v->fd);
    free(v->names), free(v->order);
}

static bool list_run(struct agent *a, struct stream *s)
{
    struct listing *l = of(s);
    struct err e = {0};
    struct buf *b = event_begin(a, EV_ENTRIES);
    int count = 0;
    while (l->depth && count < ENTRIES_PER_TURN && b->n < FRAME_MAX - ENTRY_MAX) {
        struct level *v = &l->level[l->depth - 1];
        if (v->at == v->n) {
            pop(l);
            continue;
        }
        const char *name = v->names + v->order[v->at++];
        l->path.n = v->path_n;
        buf_putc(&l->path, '/');
        buf_puts(&l->path, name);
        if (l->path.n >= PATH_LIMIT || entry_put(a, b, v->fd, name, l->path.p))
            continue; /* gone meanwhile, or too deep to be named */
        count++;
        if (l->depth < l->max) {
            int fd = openat(v->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            if (fd >= 0 && push(l, fd, &e)) {
                stream_end_err(a, s, &e);
                return false;
            }
        }
    }
    if (count)
        event_send(a, s->id);
    if (l->depth)
        return true;
    stream_end_ok(a, s);
    return false;
}

static void list_drop(struct agent *a, struct stream *s)
{
    (void)a;
    while (of(s)->depth)
        pop(of(s));
    buf_free(&of(s)->path);
}

static const struct stream_ops list_ops = {.run = list_run, .drop = list_drop};

void op_list(const struct req *q)
{
    struct err e = {0};
    auto_place p;
    uint64_t depth = rec_u64_or(q->rec, T_DEPTH, 1);
    auto_fd fd = -1;
    if (!place_open(q->a, q->rec, T_PATH, false, &p, &e)) {
        fd = open_beneath(p.dir, p.base, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
        if (fd < 0)
            path_err(&e, errno, p.path);
        else if (!depth || depth > DEPTH_MAX)
            err_set(&e, E_INVALID, "depth must be 1 to %d", DEPTH_MAX);
    }
    if (e.code) {
        reply_err(q->a, q->id, &e);
        return;
    }
    struct listing *l = stream_new(q, sizeof *l, &list_ops);
    if (!l)
        return;
    l->max = (int)depth;
    if (strcmp(p.path, "/"))
        buf_puts(&l->path, p.path);
    if (push(l, take_fd(&fd), &e))
        stream_end_err(q->a, &l->s, &e);
    else
        stream_wake(q->a, &l->s);
}
