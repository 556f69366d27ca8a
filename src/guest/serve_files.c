/* Open files and directories of a volume. */
#include "guest/serve_int.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void put_open(const struct ask *q)
{
    struct fuse_open_out o = {.fh = q->head->fh};
    buf_put(q->out, &o, sizeof o);
}

/* What of the client's flags reaches open(): the way of access, append, truncation where allowed. */
static uint64_t open_flags(uint32_t flags)
{
    uint64_t f = flags & (O_ACCMODE | O_TRUNC); /* O_APPEND: the VM's kernel says where to write */
    if ((f & O_ACCMODE) == O_ACCMODE)
        f &= ~(uint64_t)O_ACCMODE;
    if ((f & O_ACCMODE) == O_WRONLY)
        f = (f & ~(uint64_t)O_ACCMODE) | O_RDWR; /* it reads pages it writes a part of */
    return f | O_NONBLOCK | O_NOCTTY;
}

bool serve_writes(uint32_t flags) { return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC; }

static int opened(struct ask *q, int fd, bool dir)
{
    struct stat st;
    auto_fd held = fd;
    if (fstat(fd, &st))
        return -errno;
    if (dir ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
        return dir ? -ENOTDIR : -EINVAL;
    if (q->head->ino && q->head->ino != st.st_ino)
        return -ESTALE;
    int rc = serve_handle_add(q->s, q->head->fh, fd, dir);
    if (!rc)
        (void)take_fd(&held);
    return rc;
}

int serve_open(struct ask *q)
{
    BODY(q, fuse_open_in, b);
    auto_spot p;
    struct stat st;
    int rc = serve_find(q->s, q->path, &p);
    if (rc || (rc = serve_look(q, &p, &st)))
        return rc;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : S_ISLNK(st.st_mode) ? -ELOOP : -EINVAL;
    int fd = serve_open_below(p.dir, p.base, open_flags(b.flags), 0);
    if (fd < 0 || (rc = opened(q, fd, false)))
        return fd < 0 ? fd : rc;
    if (b.open_flags & FUSE_OPEN_KILL_SUIDGID && serve_writes(b.flags)) /* or who may only read would change the file */
        serve_drop_setid(fd);
    put_open(q);
    return 0;
}

int serve_opendir(struct ask *q)
{
    auto_spot p;
    int rc = serve_find(q->s, q->path, &p);
    if (rc)
        return rc;
    int fd = serve_open_below(p.dir, p.base, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
    if (fd < 0 || (rc = opened(q, fd, true)))
        return fd < 0 ? fd : rc;
    put_open(q);
    return 0;
}

static int create_fd(struct ask *q, const struct spot *p, const struct fuse_create_in *b, bool *ret_new)
{
    int fd = serve_open_below(p->dir, p->base, open_flags(b->flags & ~(uint32_t)O_TRUNC) | O_CREAT | O_EXCL, b->mode & 07777);
    *ret_new = fd >= 0;
    if (fd != -EEXIST || (b->flags & O_EXCL && !serve_again(q)))
        return fd;
    return serve_open_below(p->dir, p->base, open_flags(b->flags), 0);
}

int serve_create(struct ask *q)
{
    BODY(q, fuse_create_in, b);
    auto_spot p;
    bool new;
    int rc = serve_find(q->s, q->path, &p);
    if (rc)
        return rc;
    int fd = create_fd(q, &p, &b, &new);
    if (fd < 0)
        return fd;
    if ((new && (rc = serve_own(q, &p))) || (rc = opened(q, fd, false))) {
        if (new)
            (void)unlinkat(p.dir, p.base, 0);
        return rc;
    }
    if ((rc = serve_put_entry(q, &p))) {
        serve_handle_drop(q->s, serve_handle(q->s, q->head->fh, false));
        return rc;
    }
    put_open(q);
    return 0;
}

static int release(struct ask *q, bool dir)
{
    BODY(q, fuse_release_in, b);
    struct serve_handle *h = serve_handle(q->s, b.fh, dir);
    if (h) /* else it could not be opened again: nothing to close */
        serve_handle_drop(q->s, h);
    return 0;
}
int serve_release(struct ask *q) { return release(q, false); }
int serve_releasedir(struct ask *q) { return release(q, true); }

int serve_read(struct ask *q)
{
    BODY(q, fuse_read_in, b);
    struct serve_handle *h = serve_handle(q->s, b.fh, false);
    if (!h)
        return -EBADF;
    if (b.size > SHARE_IO_MAX || b.offset > INT64_MAX)
        return -EINVAL;
    buf_reserve(q->out, b.size);
    ssize_t n = pread(h->fd, q->out->p + q->out->n, b.size, (off_t)b.offset);
    if (n < 0)
        return -errno;
    q->out->n += (size_t)n;
    return 0;
}

int serve_write(struct ask *q)
{
    BODY(q, fuse_write_in, b);
    struct serve_handle *h = serve_handle(q->s, b.fh, false);
    if (!h)
        return -EBADF;
    if (q->body_n - sizeof b != b.size || b.size > SHARE_IO_MAX || b.offset > INT64_MAX)
        return -EINVAL;
    size_t done = 0;
    if (b.write_flags & FUSE_WRITE_KILL_SUIDGID)
        serve_drop_setid(h->fd);
    while (done < b.size) {
        ssize_t n = pwrite(h->fd, q->body + sizeof b + done, b.size - done, (off_t)(b.offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            if (done)
                break; /* a short write; the next one meets the reason */
            return n < 0 ? -errno : -EIO;
        }
        done += (size_t)n;
    }
    struct fuse_write_out o = {.size = (uint32_t)done};
    buf_put(q->out, &o, sizeof o);
    return 0;
}

int serve_fsync(struct ask *q)
{
    BODY(q, fuse_fsync_in, b);
    struct serve_handle *h = serve_any_handle(q->s, b.fh);
    if (!h)
        return -EBADF;
    return (b.fsync_flags & 1 ? fdatasync(h->fd) : fsync(h->fd)) ? -errno : 0;
}

int serve_lseek(struct ask *q)
{
    BODY(q, fuse_lseek_in, b);
    struct serve_handle *h = serve_handle(q->s, b.fh, false);
    if (!h)
        return -EBADF;
    if (b.whence != SEEK_DATA && b.whence != SEEK_HOLE)
        return -EINVAL;
    off_t at = lseek(h->fd, (off_t)b.offset, (int)b.whence);
    if (at < 0)
        return -errno;
    struct fuse_lseek_out o = {.offset = (uint64_t)at};
    buf_put(q->out, &o, sizeof o);
    return 0;
}

int serve_fallocate(struct ask *q)
{
    BODY(q, fuse_fallocate_in, b);
    struct serve_handle *h = serve_handle(q->s, b.fh, false);
    if (!h)
        return -EBADF;
    return fallocate(h->fd, (int)b.mode, (off_t)b.offset, (off_t)b.length) ? -errno : 0;
}

struct dent { uint64_t ino; int64_t off; uint16_t len; uint8_t type; char name[]; };

int serve_readdir(struct ask *q)
{
    BODY(q, fuse_read_in, b);
    struct serve_handle *h = serve_handle(q->s, b.fh, true);
    char raw[8192] __attribute__((aligned(8)));
    size_t room = b.size < SHARE_IO_MAX ? b.size : SHARE_IO_MAX, start = q->out->n;
    if (!h)
        return -EBADF;
    if (b.offset > INT64_MAX || lseek(h->fd, (off_t)b.offset, SEEK_SET) < 0)
        return -EINVAL;
    for (;;) {
        long n = syscall(SYS_getdents64, h->fd, raw, sizeof raw);
        if (n < 0)
            return q->out->n > start ? 0 : -errno;
        for (long at = 0; at < n;) {
            const struct dent *d = (const struct dent *)(const void *)(raw + at);
            struct fuse_dirent o = {.ino = d->ino, .off = (uint64_t)d->off, .namelen = (uint32_t)strlen(d->name), .type = d->type};
            size_t size = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + o.namelen);
            if (q->out->n - start + size > room)
                return 0; /* the next call seeks to the last one's off */
            buf_put(q->out, &o, FUSE_NAME_OFFSET);
            buf_put(q->out, d->name, o.namelen);
            buf_put(q->out, "\0\0\0\0\0\0\0", size - FUSE_NAME_OFFSET - o.namelen);
            at += d->len;
        }
        if (!n)
            return 0;
    }
}
