/* OP_WATCH on inotify. A recursive watch keeps a tree of watched directories
 * that mirrors the names on disk, so that a moved directory needs no rescan
 * and event paths are built by walking up. A new directory is armed before its
 * CREATE is reported, then its content is reported as created: nothing that
 * appeared between mkdir and the watch is missed (it may be told twice). */
#include "base/cleanup.h"
#include "guest/path.h"
#include "wire/msg.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>

#define WATCH_MAX  8192
#define WATCH_HASH 256
#define WATCH_MASK (IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF)
#define OUT_CONGESTED OUT_RUN

struct node {
    struct list hash, peers, kids;
    struct node *up;
    int wd;
    char name[];
};
struct watch {
    struct stream s; /* first */
    struct io io;
    struct place p;
    bool deep, entries, single; /* single: the path is a file */
    unsigned n;
    uint64_t seq;
    struct node *root, *moved;  /* moved: out of the tree by MOVED_FROM, waiting for its MOVED_TO */
    uint32_t cookie;
    struct list hash[WATCH_HASH];
    char last[PATH_LIMIT];
    char last_type;
};

static struct watch *of(struct stream *s) { return container_of(s, struct watch, s); }

static struct node *find(struct watch *w, int wd)
{
    struct node *x;
    list_each(x, &w->hash[(unsigned)wd % WATCH_HASH], hash)
        if (x->wd == wd)
            return x;
    return NULL;
}

static struct node *child(struct node *up, const char *name)
{
    struct node *x;
    list_each(x, &up->kids, peers)
        if (!strcmp(x->name, name))
            return x;
    return NULL;
}

static struct node *node_new(struct watch *w, struct node *up, const char *name, int wd)
{
    struct node *x = xcalloc(1, sizeof *x + strlen(name) + 1);
    strcpy(x->name, name);
    x->wd = wd, x->up = up;
    list_init(&x->kids);
    list_add_tail(&w->hash[(unsigned)wd % WATCH_HASH], &x->hash);
    if (up)
        list_add_tail(&up->kids, &x->peers);
    w->n++;
    return x;
}

/* Without recursion: always the deepest first kid. */
static void node_free(struct watch *w, struct node *top, bool unwatch)
{
    struct node *x = top, *up;
    list_del(&top->peers);
    top->up = NULL;
    while (x) {
        if (!list_empty(&x->kids)) {
            x = container_of(x->kids.next, struct node, peers);
            continue;
        }
        up = x->up;
        if (unwatch)
            (void)inotify_rm_watch(w->io.fd, x->wd);
        list_del(&x->hash), list_del(&x->peers);
        if (w->moved == x)
            w->moved = NULL;
        if (w->root == x)
            w->root = NULL;
        free(x);
        w->n--;
        x = up;
    }
}

/* Not below a directory that was moved out of the tree, whose watches still speak for a moment. */
static bool attached(const struct watch *w, const struct node *x)
{
    while (x->up)
        x = x->up;
    return x == w->root;
}

/* Path below the root: "a/b/name"; false if it does not fit. */
static bool rel_path(const struct node *dir, const char *name, char *out, size_t cap)
{
    size_t at = cap - 1, n = strlen(name);
    if (n > at)
        return false;
    out[at] = 0;
    at -= n, memcpy(out + at, name, n);
    for (; dir && dir->up; dir = dir->up) {
        size_t k = strlen(dir->name), slash = n ? 1 : 0;
        if (k + slash > at)
            return false;
        if (slash)
            out[--at] = '/';
        at -= k, memcpy(out + at, dir->name, k);
        n = 1;
    }
    memmove(out, out + at, cap - at);
    return true;
}

static void report(struct agent *a, struct watch *w, char type, const char *rel)
{
    char full[2 * PATH_LIMIT];
    bool same = type == w->last_type && !strcmp(rel, w->last);
    if (same && chan_pending(&a->chan) > OUT_CONGESTED)
        return;
    w->last_type = type;
    strcpy(w->last, rel);
    struct buf *b = event_begin(a, EV_WATCH);
    rec_put_str(b, T_NAME, rel);
    rec_put_u64(b, T_TYPE, (uint64_t)type);
    rec_put_u64(b, T_SEQ, ++w->seq);
    if (w->entries && (type == 'c' || type == 'w' || type == 'a')) {
        size_t base = strlen(w->p.path), k = strlen(rel);
        memcpy(full, w->p.path, base);
        if (!w->single && k) {
            if (base != 1)
                full[base++] = '/';
            memcpy(full + base, rel, k), base += k;
        }
        full[base] = 0;
        (void)entry_put(a, b, AT_FDCWD, full, full); /* gone meanwhile: no entry */
    }
    event_send(a, w->s.id);
}

static void report_in(struct agent *a, struct watch *w, char type, const struct node *dir, const char *name)
{
    char rel[PATH_LIMIT];
    if (rel_path(dir, name, rel, sizeof rel))
        report(a, w, type, rel);
}

/* Watch by path: inotify has no *at form. -1 + errno */
static int arm_dir(struct watch *w, const struct node *up, const char *name)
{
    char rel[PATH_LIMIT], full[2 * PATH_LIMIT];
    if (!rel_path(up, name, rel, sizeof rel)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    if (w->n >= WATCH_MAX) {
        errno = ENOSPC;
        return -1;
    }
    size_t n = strlen(w->p.path), k = strlen(rel);
    memcpy(full, w->p.path, n);
    full[n] = '/', memcpy(full + n + 1, rel, k + 1);
    return inotify_add_watch(w->io.fd, full, WATCH_MASK | IN_ONLYDIR | IN_DONT_FOLLOW);
}

/* Arms `name` below `up` and everything in it. tell: report what is inside as created. -1 + errno: a limit. */
static int add_tree(struct agent *a, struct watch *w, struct node *up, const char *name, bool tell)
{
    char rel[PATH_LIMIT], full[2 * PATH_LIMIT];
    struct list todo;
    int wd = arm_dir(w, up, name);
    if (wd < 0)
        return errno == ENOSPC ? -1 : 0; /* gone again, or not ours to see: not an error of the watch */
    if (find(w, wd))
        return 0; /* the same directory by another name */
    struct node *top = node_new(w, up, name, wd);
    /* breadth-first over the nodes themselves; `todo` holds those not yet scanned, linked through a small queue */
    struct item { struct list node; struct node *dir; } *it;
    list_init(&todo);
    it = xmalloc(sizeof *it);
    it->dir = top;
    list_add_tail(&todo, &it->node);
    int rc = 0;
    while (!list_empty(&todo)) {
        it = container_of(todo.next, struct item, node);
        struct node *dir = it->dir;
        list_del(&it->node);
        free(it);
        if (rc || !rel_path(dir, "", rel, sizeof rel))
            continue;
        size_t n = strlen(w->p.path), k = strlen(rel);
        memcpy(full, w->p.path, n);
        full[n] = '/', memcpy(full + n + 1, rel, k + 1);
        int fd = open_beneath(AT_FDCWD, full, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, 0);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);
        if (!d) {
            if (fd >= 0)
                close(fd);
            continue;
        }
        for (struct dirent *de; !rc && (de = readdir(d));) {
            if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
                continue;
            if (de->d_type == DT_DIR && (wd = arm_dir(w, dir, de->d_name)) < 0 && errno == ENOSPC) {
                rc = -1;
                break;
            }
            if (de->d_type == DT_DIR && wd >= 0 && !find(w, wd)) {
                it = xmalloc(sizeof *it);
                it->dir = node_new(w, dir, de->d_name, wd);
                list_add_tail(&todo, &it->node);
            }
            if (tell)
                report_in(a, w, 'c', dir, de->d_name);
        }
        closedir(d);
    }
    if (rc)
        errno = ENOSPC;
    return rc;
}

static void drop_moved(struct watch *w)
{
    if (w->moved)
        node_free(w, w->moved, true);
    w->moved = NULL;
}

static void on_dir(struct agent *a, struct watch *w, struct node *dir, const struct inotify_event *ev)
{
    struct node *x;
    if (ev->mask & IN_MOVED_FROM) {
        drop_moved(w);
        if ((x = child(dir, ev->name))) {
            list_del(&x->peers);
            x->up = NULL;
            w->moved = x, w->cookie = ev->cookie;
        }
    } else if (ev->mask & IN_MOVED_TO) {
        if (w->moved && w->cookie == ev->cookie) {
            x = w->moved;
            w->moved = NULL;
            if (strlen(x->name) >= strlen(ev->name)) {
                strcpy(x->name, ev->name);
                x->up = dir;
                list_add_tail(&dir->kids, &x->peers);
                return;
            }
            node_free(w, x, true); /* no room for the longer name: arm it afresh */
        }
        report_in(a, w, 'c', dir, ev->name);
        if (add_tree(a, w, dir, ev->name, true))
            report(a, w, 'o', "");
    }
}

static void on_event(struct agent *a, struct watch *w, const struct inotify_event *ev)
{
    static const struct { uint32_t mask; char type; } kinds[] = {
        {IN_MODIFY, 'w'}, {IN_CREATE | IN_MOVED_TO, 'c'}, {IN_DELETE, 'd'}, {IN_MOVED_FROM, 'r'}, {IN_ATTRIB, 'a'}, {IN_DELETE_SELF, 'd'},
        {IN_MOVE_SELF, 'r'},
    };
    const char *name = ev->len ? ev->name : "";
    char type = 0;
    if (ev->mask & IN_Q_OVERFLOW) {
        report(a, w, 'o', "");
        return;
    }
    struct node *dir = find(w, ev->wd);
    if (!dir)
        return;
    if (ev->mask & IN_IGNORED) {
        node_free(w, dir, false);
        return;
    }
    if (!attached(w, dir))
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !type; i++)
        if (ev->mask & kinds[i].mask)
            type = kinds[i].type;
    if (!*name && dir != w->root)
        return; /* the parent tells about a directory inside the tree */
    if (!type)
        return;
    bool is_dir = ev->mask & IN_ISDIR;
    if (w->deep && is_dir && (ev->mask & (IN_MOVED_FROM | IN_MOVED_TO))) {
        bool kept = (ev->mask & IN_MOVED_TO) && w->moved && w->cookie == ev->cookie && strlen(w->moved->name) >= strlen(name);
        if (ev->mask & IN_MOVED_FROM)
            report_in(a, w, 'r', dir, name);
        on_dir(a, w, dir, ev);
        if (kept)
            report_in(a, w, 'c', dir, name);
        return;
    }
    if (w->deep && is_dir && (ev->mask & IN_CREATE)) {
        /* armed first, then told; what add_tree finds inside is told after it */
        int wd = arm_dir(w, dir, name);
        bool full = wd < 0 && errno == ENOSPC;
        report_in(a, w, 'c', dir, name);
        if (full || add_tree(a, w, dir, name, true))
            report(a, w, 'o', "");
        return;
    }
    report_in(a, w, type, dir, name);
}

static void on_watch(struct agent *a, struct io *io, uint32_t events)
{
    struct watch *w = container_of(io, struct watch, io);
    (void)events;
    io_set(&a->loop, io, 0);
    stream_wake(a, &w->s); /* read when it is our turn and the output queue has room */
}

static bool watch_run(struct agent *a, struct stream *s)
{
    struct watch *w = of(s);
    char buf[8192] __attribute__((aligned(__alignof__(struct inotify_event))));
    ssize_t n = read(w->io.fd, buf, sizeof buf);
    for (ssize_t at = 0; at < n;) {
        struct inotify_event *ev = (struct inotify_event *)(void *)(buf + at);
        at += (ssize_t)(sizeof *ev + ev->len);
        on_event(a, w, ev);
    }
    if (n > 0)
        return true; /* maybe more; EAGAIN arms the fd again */
    drop_moved(w);   /* its other half would have come together with it */
    io_set(&a->loop, &w->io, EPOLLIN);
    return false;
}

static void watch_cancel(struct agent *a, struct stream *s) { stream_end_ok(a, s); }

static void watch_drop(struct agent *a, struct stream *s)
{
    struct watch *w = of(s);
    drop_moved(w);
    if (w->root)
        node_free(w, w->root, false);
    io_close(&a->loop, &w->io);
    place_fini(&w->p);
}

static const struct stream_ops watch_ops = {.run = watch_run, .cancel = watch_cancel, .drop = watch_drop};

static int watch_root(struct agent *a, struct watch *w, struct err *e)
{
    struct stat st;
    w->io.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->io.fd < 0)
        return err_sys(e, errno, "cannot watch");
    int wd = inotify_add_watch(w->io.fd, w->p.path, WATCH_MASK);
    if (wd < 0 && errno == ENOSPC)
        return err_set(e, E_QUOTA, "the kernel's limit of file watches is reached");
    if (wd < 0 || stat(w->p.path, &st))
        return path_err(e, errno, w->p.path);
    w->root = node_new(w, NULL, "", wd);
    w->single = !S_ISDIR(st.st_mode);
    if (!w->deep || w->single)
        return 0;
    auto_fd fd = open_beneath(AT_FDCWD, w->p.path, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        return path_err(e, errno, w->p.path);
    (void)take_fd(&fd);
    int rc = 0;
    for (struct dirent *de; !rc && (de = readdir(d));)
        if (de->d_type == DT_DIR && strcmp(de->d_name, ".") && strcmp(de->d_name, "..") && add_tree(a, w, w->root, de->d_name, false))
            rc = err_set(e, E_QUOTA, "more than %d directories to watch below '%.100s'", WATCH_MAX, w->p.path);
    closedir(d);
    return rc;
}

void op_watch(const struct req *q)
{
    struct err e = {0};
    struct place p;
    uint64_t flags = rec_u64_or(q->rec, T_FLAGS, 0);
    if (place_open(q->a, q->rec, T_PATH, false, &p, &e)) {
        reply_err(q->a, q->id, &e);
        place_fini(&p);
        return;
    }
    struct watch *w = stream_new(q, sizeof *w, &watch_ops);
    if (!w) {
        place_fini(&p);
        return;
    }
    w->p = p;
    w->deep = flags & WATCH_RECURSIVE, w->entries = flags & WATCH_ENTRY;
    w->io = (struct io){.fd = -1, .fn = on_watch};
    for (int i = 0; i < WATCH_HASH; i++)
        list_init(&w->hash[i]);
    if (watch_root(q->a, w, &e)) {
        stream_end_err(q->a, &w->s, &e);
        return;
    }
    event_begin(q->a, EV_STARTED);
    event_send(q->a, w->s.id);
    io_set(&q->a->loop, &w->io, EPOLLIN);
}
