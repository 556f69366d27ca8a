/* OP_SHARE: a volume in a VM. A FUSE file system is mounted at the path once,
 * and stays; the stream that serves it comes and goes (the daemon restarts,
 * the VM is paused, copied, restored). While there is none, whoever uses the
 * volume waits.
 *
 * This runs in a process of its own (ROLE_SHARE) with a channel of its own.
 * The sandbox's agent uses the volume like everybody else, for the file calls
 * of the API, and would wait for itself if it had to carry the answers too. */
#include "base/cleanup.h"
#include "guest/agent.h"
#include "guest/fuse.h"
#include "guest/path.h"
#include "wire/msg.h"
#include "wire/share.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define WINDOW     (512u << 10)
#define MOUNTS_MAX 64

struct shared;
struct share {
    struct list link;
    char *path, *name;
    struct io dev;      /* /dev/fuse */
    struct fuse fuse;
    struct shared *to;  /* NULL: nobody serves it now */
    bool readable;
};
struct shared {
    struct stream s; /* first */
    struct share *share;
    struct buf in;   /* the reply that is not complete yet */
};

static struct shared *of(struct stream *s) { return container_of(s, struct shared, s); }

/* ---- the kernel's side ---- */
static int to_kernel(void *arg, const void *p, size_t n)
{
    struct share *h = arg;
    ssize_t k;
    while ((k = write(h->dev.fd, p, n)) < 0 && errno == EINTR)
        ;
    return k < 0 ? errno : 0;
}

static void arm(struct agent *a, struct share *h)
{
    io_set(&a->loop, &h->dev, h->to && !h->readable && fuse_room(&h->fuse) ? EPOLLIN : 0);
}

static void share_free(struct agent *a, struct share *h)
{
    io_close(&a->loop, &h->dev);
    fuse_fini(&h->fuse);
    list_del(&h->link);
    a->nshares--;
    free(h->path), free(h->name);
    loop_bury(&a->loop, h);
}

/* Unmounted from inside: the stream, if there is one, ends. */
static void unmounted(struct agent *a, struct share *h)
{
    struct shared *t = h->to;
    if (t) {
        t->share = NULL;
        stream_end_err(a, &t->s, &(struct err){.code = E_NOT_FOUND, .msg = "the volume was unmounted inside the sandbox"});
    }
    share_free(a, h);
}

static void on_dev(struct agent *a, struct io *io, uint32_t events)
{
    struct share *h = container_of(io, struct share, dev);
    (void)events;
    h->readable = true;
    arm(a, h);
    if (h->to)
        stream_wake(a, &h->to->s);
}

/* One request. false: the mount is gone, and h with it. */
static bool take(struct agent *a, struct share *h)
{
    static unsigned char buf[FUSE_READ_SIZE];
    ssize_t n = read(h->dev.fd, buf, sizeof buf);
    if (n > 0) {
        if (!fuse_request(&h->fuse, buf, (size_t)n))
            return true;
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOENT)) { /* ENOENT: it was withdrawn while we read */
        h->readable = errno != EAGAIN;
        return true;
    }
    unmounted(a, h);
    return false;
}

/* ---- the server's side ---- */
static bool share_run(struct agent *a, struct stream *s)
{
    struct shared *t = of(s);
    struct share *h = t->share;
    size_t n = 0;
    if (h->readable && fuse_room(&h->fuse) && !take(a, h))
        return false;
    const unsigned char *p = fuse_next(&h->fuse, &n);
    if (p && s->tx) {
        if (n > RUN_CHUNK)
            n = RUN_CHUNK;
        if (n > s->tx)
            n = (size_t)s->tx;
        stream_data(a, s, CH_TUNNEL, p, (uint32_t)n);
        fuse_sent(&h->fuse, n);
    }
    arm(a, h);
    return (h->readable && fuse_room(&h->fuse)) || (s->tx && fuse_next(&h->fuse, &n));
}

static void share_data(struct agent *a, struct stream *s, uint8_t chan, const unsigned char *p, uint32_t n)
{
    struct shared *t = of(s);
    size_t at = 0;
    (void)chan;
    buf_put(&t->in, p, n);
    while (t->in.n - at >= sizeof(struct fuse_out_header)) {
        uint32_t len;
        memcpy(&len, t->in.p + at, sizeof len);
        if (len <= t->in.n - at && len >= sizeof(struct fuse_out_header) && !fuse_reply(&t->share->fuse, t->in.p + at, len)) {
            at += len;
            continue;
        }
        if (len >= sizeof(struct fuse_out_header) && len <= SHARE_MSG_MAX && len > t->in.n - at)
            break; /* not all of it is here */
        stream_end_err(a, s, &(struct err){.code = E_INVALID, .msg = "an answer for the volume is malformed"});
        return;
    }
    buf_drop(&t->in, at);
    stream_consumed(a, s, n);
    stream_wake(a, s);
}

static void share_drop(struct agent *a, struct stream *s)
{
    struct shared *t = of(s);
    if (t->share) {
        t->share->to = NULL;
        fuse_disconnected(&t->share->fuse);
        arm(a, t->share);
    }
    buf_free(&t->in);
}

static const struct stream_ops share_ops = {.data = share_data, .run = share_run, .drop = share_drop};

/* ---- mounting ---- */

/* The place is made if it is not there. That writes to the root, which is frozen in a machine that comes back from disk: a
 * resume must not, and fails; one that is made of a snapshot may have it thawed. User processes stay frozen. */
static int make_place(const char *path, bool thaw, struct err *e)
{
    char part[PATH_LIMIT];
    struct stat st;
    if (!stat(path, &st) && S_ISDIR(st.st_mode))
        return 0;
    auto_fd root = thaw ? open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root >= 0)
        (void)ioctl(root, FITHAW, 0); /* EINVAL: was not frozen */
    for (size_t n = 0; path[n];) {
        n += 1 + strcspn(path + n + 1, "/");
        memcpy(part, path, n);
        part[n] = 0;
        if (mkdir(part, 0755) && errno != EEXIST)
            return path_err(e, errno, part);
    }
    return 0;
}

static int mount_fuse(struct share *h, bool read_only, struct err *e)
{
    char opts[160];
    h->dev.fd = open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (h->dev.fd < 0)
        return err_set(e, E_UNSUPPORTED, "the guest kernel has no FUSE; `hutch template build base` fetches one that has");
    (void)snprintf(opts, sizeof opts, "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other,max_read=%u", h->dev.fd, SHARE_IO_MAX);
    if (mount(h->name, h->path, "fuse.hutch", MS_NOSUID | MS_NODEV | (read_only ? MS_RDONLY : 0), opts))
        return err_sys(e, errno, "mounting volume '%.64s'", h->name);
    return 0;
}

static struct share *share_new(struct agent *a, const char *path, const char *name, uint64_t flags, struct err *e)
{
    if (a->nshares >= MOUNTS_MAX) {
        err_set(e, E_QUOTA, "at most %d volumes", MOUNTS_MAX);
        return NULL;
    }
    if (make_place(path, flags & SHARE_THAW, e))
        return NULL;
    struct share *h = xcalloc(1, sizeof *h);
    h->path = xstrdup(path), h->name = xstrdup(name);
    h->dev = (struct io){.fd = -1, .fn = on_dev};
    fuse_init(&h->fuse, to_kernel, h);
    list_add_tail(&a->shares, &h->link);
    a->nshares++;
    if (mount_fuse(h, flags & SHARE_RO, e)) {
        share_free(a, h);
        return NULL;
    }
    return h;
}

static struct share *share_find(struct agent *a, const char *path)
{
    struct share *h;
    list_each(h, &a->shares, link)
        if (!strcmp(h->path, path))
            return h;
    return NULL;
}

static struct share *wanted(const struct req *q, struct err *e)
{
    auto_free char *path = rec_dup(q->rec, T_PATH), *name = rec_dup(q->rec, T_NAME);
    if (!path || path[0] != '/' || strlen(path) >= PATH_LIMIT || !name || !*name) {
        err_set(e, E_INVALID, "a volume needs a path and a name");
        return NULL;
    }
    struct share *h = share_find(q->a, path);
    if (h && strcmp(h->name, name) != 0) {
        err_set(e, E_CONFLICT, "another volume is mounted at '%.150s'", path);
        return NULL;
    }
    return h ? h : share_new(q->a, path, name, rec_u64_or(q->rec, T_FLAGS, 0), e);
}

void shares_fini(struct agent *a)
{
    while (!list_empty(&a->shares))
        share_free(a, container_of(a->shares.next, struct share, link));
}

void op_share(const struct req *q)
{
    struct err e = {0};
    struct share *h = wanted(q, &e);
    if (!h) {
        reply_err(q->a, q->id, &e);
        return;
    }
    if (h->to) /* the new one knows better */
        stream_end_err(q->a, &h->to->s, &(struct err){.code = E_CANCELED, .msg = "served anew"});
    struct shared *t = stream_new(q, sizeof *t, &share_ops);
    if (!t)
        return;
    t->share = h;
    h->to = t;
    h->readable = true; /* look once; the kernel may have asked long ago */
    fuse_connected(&h->fuse);
    event_begin(q->a, EV_STARTED);
    event_send(q->a, q->id);
    stream_window(q->a, &t->s, WINDOW);
    stream_wake(q->a, &t->s);
}
