/* Attributes: stat, chmod and friends, extended attributes, the size of it all. */
#include "guest/serve_int.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#define XATTR_MAX 65536u

/* Whoever writes without being root takes set-id bits away. */
void serve_put_attr(struct fuse_attr *a, const struct stat *st)
{
    *a = (struct fuse_attr){.ino = st->st_ino, .size = (uint64_t)st->st_size, .blocks = (uint64_t)st->st_blocks,
                            .atime = (uint64_t)st->st_atim.tv_sec, .mtime = (uint64_t)st->st_mtim.tv_sec, .ctime = (uint64_t)st->st_ctim.tv_sec,
                            .atimensec = (uint32_t)st->st_atim.tv_nsec, .mtimensec = (uint32_t)st->st_mtim.tv_nsec,
                            .ctimensec = (uint32_t)st->st_ctim.tv_nsec, .mode = st->st_mode, .nlink = (uint32_t)st->st_nlink, .uid = st->st_uid,
                            .gid = st->st_gid, .rdev = 0, .blksize = (uint32_t)st->st_blksize};
}

void serve_drop_setid(int fd)
{
    struct stat st;
    if (fstat(fd, &st))
        return;
    mode_t keep = st.st_mode & ~(mode_t)(S_ISUID | (st.st_mode & S_IXGRP ? S_ISGID : 0));
    if (keep != st.st_mode)
        (void)fchmod(fd, keep & 07777);
}

static int put_stat(const struct ask *q, const struct stat *st)
{
    struct fuse_attr_out o = {0};
    serve_put_attr(&o.attr, st);
    buf_put(q->out, &o, sizeof o);
    return 0;
}

int serve_getattr(struct ask *q)
{
    BODY(q, fuse_getattr_in, b);
    auto_spot p = {-1, ""};
    struct stat st;
    struct serve_handle *h = b.getattr_flags & FUSE_GETATTR_FH ? serve_any_handle(q->s, b.fh) : NULL;
    if (h)
        return fstat(h->fd, &st) ? -errno : put_stat(q, &st);
    int rc = serve_find(q->s, q->path, &p);
    return rc || (rc = serve_look(q, &p, &st)) ? rc : put_stat(q, &st);
}

static int truncate_at(const struct spot *p, const struct fuse_setattr_in *b)
{
    struct stat st;
    auto_fd fd = serve_open_below(p->dir, p->base, O_WRONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return -EINVAL;
    return ftruncate(fd, (off_t)b->size) ? -errno : 0;
}

static struct timespec time_of(const struct fuse_setattr_in *b, unsigned bit, unsigned now, uint64_t s, uint32_t ns)
{
    if (b->valid & now)
        return (struct timespec){.tv_nsec = UTIME_NOW};
    return b->valid & bit ? (struct timespec){(time_t)s, (long)ns} : (struct timespec){.tv_nsec = UTIME_OMIT};
}

/* The order is chown's and truncate's doing: both clear set-id bits, so the mode comes after them. */
static int change(const struct spot *p, const struct stat *st, const struct fuse_setattr_in *b)
{
    int rc;
    if (b->valid & (FATTR_UID | FATTR_GID) &&
        fchownat(p->dir, p->base, b->valid & FATTR_UID ? b->uid : (uid_t)-1, b->valid & FATTR_GID ? b->gid : (gid_t)-1, AT_SYMLINK_NOFOLLOW))
        return -errno;
    if (b->valid & FATTR_SIZE && (rc = truncate_at(p, b)))
        return rc;
    if (b->valid & FATTR_KILL_SUIDGID && b->valid & FATTR_SIZE && S_ISREG(st->st_mode) && st->st_mode & (S_ISUID | S_ISGID) &&
        fchmodat(p->dir, p->base, st->st_mode & 01777, 0))
        return -errno;
    if (b->valid & FATTR_MODE) {
        if (S_ISLNK(st->st_mode))
            return -EOPNOTSUPP;
        if (fchmodat(p->dir, p->base, b->mode & 07777, 0))
            return -errno;
    }
    if (b->valid & (FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW)) {
        struct timespec t[2] = {time_of(b, FATTR_ATIME, FATTR_ATIME_NOW, b->atime, b->atimensec),
                                time_of(b, FATTR_MTIME, FATTR_MTIME_NOW, b->mtime, b->mtimensec)};
        if (utimensat(p->dir, p->base, t, AT_SYMLINK_NOFOLLOW))
            return -errno;
    }
    return 0;
}

/* Of an open file, which may have no name any more. */
static int change_open(int fd, const struct fuse_setattr_in *b)
{
    struct timespec t[2] = {time_of(b, FATTR_ATIME, FATTR_ATIME_NOW, b->atime, b->atimensec),
                            time_of(b, FATTR_MTIME, FATTR_MTIME_NOW, b->mtime, b->mtimensec)};
    if (b->valid & (FATTR_UID | FATTR_GID) && fchown(fd, b->valid & FATTR_UID ? b->uid : (uid_t)-1, b->valid & FATTR_GID ? b->gid : (gid_t)-1))
        return -errno;
    if (b->valid & FATTR_KILL_SUIDGID)
        serve_drop_setid(fd);
    if ((b->valid & FATTR_SIZE && ftruncate(fd, (off_t)b->size)) || (b->valid & FATTR_MODE && fchmod(fd, b->mode & 07777)))
        return -errno;
    return b->valid & (FATTR_ATIME | FATTR_MTIME | FATTR_ATIME_NOW | FATTR_MTIME_NOW) && futimens(fd, t) ? -errno : 0;
}

int serve_setattr(struct ask *q)
{
    BODY(q, fuse_setattr_in, b);
    auto_spot p = {-1, ""};
    struct stat st;
    struct serve_handle *h = b.valid & FATTR_FH ? serve_any_handle(q->s, b.fh) : NULL;
    if (h) {
        int bad = change_open(h->fd, &b);
        return bad ? bad : fstat(h->fd, &st) ? -errno : put_stat(q, &st);
    }
    int rc = serve_find(q->s, q->path, &p);
    if (rc || (rc = serve_look(q, &p, &st)) || (rc = change(&p, &st, &b)))
        return rc;
    return fstatat(p.dir, p.base, &st, AT_SYMLINK_NOFOLLOW) ? -errno : put_stat(q, &st);
}

int serve_statfs(struct ask *q)
{
    struct statvfs v;
    if (fstatvfs(q->s->root, &v))
        return -errno;
    struct fuse_statfs_out o = {.st = {.blocks = v.f_blocks, .bfree = v.f_bfree, .bavail = v.f_bavail, .files = v.f_files, .ffree = v.f_ffree,
                                       .bsize = (uint32_t)v.f_bsize, .namelen = (uint32_t)v.f_namemax, .frsize = (uint32_t)v.f_frsize}};
    buf_put(q->out, &o, sizeof o);
    return 0;
}

/* user.* only; the client does not send others, this one does not take them. By an opened file: it has no links to follow. */
static int xattr_fd(struct ask *q)
{
    auto_spot p;
    struct stat st;
    int rc = serve_find(q->s, q->path, &p);
    if (rc || (rc = serve_look(q, &p, &st)))
        return rc;
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return -EPERM;
    return serve_open_below(p.dir, p.base, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
}

/* The NUL-terminated name behind the fixed part; NULL: not one we take. */
static const char *xattr_name(const struct ask *q, size_t at, size_t *ret_end)
{
    if (at >= q->body_n)
        return NULL;
    const char *name = (const char *)q->body + at, *nul = memchr(name, 0, q->body_n - at);
    if (!nul || strncmp(name, "user.", 5) != 0 || nul - name > 255)
        return NULL;
    *ret_end = at + (size_t)(nul - name) + 1;
    return name;
}

int serve_setxattr(struct ask *q)
{
    uint32_t size, flags; /* the old, short form: the long one is only sent to who asked for it */
    size_t end;
    if (q->body_n < 8)
        return -EINVAL;
    memcpy(&size, q->body, 4), memcpy(&flags, q->body + 4, 4);
    const char *name = xattr_name(q, 8, &end);
    if (!name)
        return -EOPNOTSUPP;
    if (size > XATTR_MAX || q->body_n - end != size)
        return -EINVAL;
    auto_fd fd = xattr_fd(q);
    if (fd < 0)
        return fd;
    return fsetxattr(fd, name, q->body + end, size, (int)flags) ? -errno : 0;
}

static int put_xattr(struct ask *q, uint32_t room, const void *value, ssize_t n)
{
    if (n < 0)
        return -errno;
    if (!room) {
        struct fuse_getxattr_out o = {.size = (uint32_t)n};
        buf_put(q->out, &o, sizeof o);
        return 0;
    }
    if ((size_t)n > room)
        return -ERANGE;
    buf_put(q->out, value, (size_t)n);
    return 0;
}

int serve_getxattr(struct ask *q)
{
    BODY(q, fuse_getxattr_in, b);
    size_t end;
    const char *name = xattr_name(q, sizeof b, &end);
    if (!name)
        return -ENODATA;
    auto_fd fd = xattr_fd(q);
    if (fd < 0)
        return fd;
    auto_free char *value = xmalloc(XATTR_MAX);
    return put_xattr(q, b.size, value, fgetxattr(fd, name, value, XATTR_MAX));
}

int serve_listxattr(struct ask *q)
{
    BODY(q, fuse_getxattr_in, b);
    auto_fd fd = xattr_fd(q);
    if (fd == -EPERM)
        return put_xattr(q, b.size, "", 0);
    if (fd < 0)
        return fd;
    auto_free char *all = xmalloc(XATTR_MAX), *ours = xmalloc(XATTR_MAX);
    ssize_t n = flistxattr(fd, all, XATTR_MAX), k = 0;
    for (ssize_t i = 0; i < n;) {
        size_t len = strnlen(all + i, (size_t)(n - i)) + 1;
        if (!strncmp(all + i, "user.", 5))
            memcpy(ours + k, all + i, len), k += (ssize_t)len;
        i += (ssize_t)len;
    }
    return put_xattr(q, b.size, ours, n < 0 ? n : k);
}

int serve_removexattr(struct ask *q)
{
    size_t end;
    const char *name = xattr_name(q, 0, &end);
    if (!name)
        return -ENODATA;
    auto_fd fd = xattr_fd(q);
    if (fd < 0)
        return fd;
    return fremovexattr(fd, name) ? -errno : 0;
}
