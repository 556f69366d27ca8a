#include "guest/serve_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#define FREE (-1)
#define GONE (-2)
#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1u
#define RENAME_EXCHANGE  2u
#endif

/* ---- handles ---- */
static struct serve_handle *slot(struct serve *s, uint64_t fh, bool to_add)
{
    struct serve_handle *gone = NULL;
    for (size_t i = (size_t)((fh * 0x9e3779b97f4a7c15ull) >> 32), k = 0; k < s->size; i++, k++) {
        struct serve_handle *h = &s->handle[i & (s->size - 1)];
        if (h->fd == FREE)
            return to_add ? gone ? gone : h : NULL;
        if (h->fd == GONE)
            gone = gone ? gone : h;
        else if (h->fh == fh)
            return h;
    }
    return to_add ? gone : NULL;
}

static void rehash(struct serve *s)
{
    struct serve_handle *old = s->handle;
    size_t size = s->size;
    s->size = s->n * 4 < 64 ? 64 : s->size * (s->n * 2 > s->size ? 2 : 1);
    s->handle = xcalloc(s->size, sizeof *s->handle);
    for (size_t i = 0; i < s->size; i++)
        s->handle[i].fd = FREE;
    s->used = s->n;
    for (size_t i = 0; i < size; i++)
        if (old[i].fd >= 0)
            *slot(s, old[i].fh, true) = old[i];
    free(old);
}

static int handle_add(struct serve *s, uint64_t fh, int fd, bool dir)
{
    if (s->n >= SERVE_HANDLES_MAX)
        return -ENFILE;
    if ((s->used + 1) * 4 > s->size * 3)
        rehash(s);
    struct serve_handle *h = slot(s, fh, true);
    if (h->fd >= 0)
        return -EINVAL; /* taken */
    s->used += h->fd == FREE;
    s->n++;
    *h = (struct serve_handle){fh, fd, dir};
    return 0;
}

struct serve_handle *serve_handle(struct serve *s, uint64_t fh, bool dir)
{
    struct serve_handle *h = s->size ? slot(s, fh, false) : NULL;
    return h && h->dir == dir ? h : NULL;
}

struct serve_handle *serve_any_handle(struct serve *s, uint64_t fh)
{
    struct serve_handle *h = serve_handle(s, fh, false);
    return h ? h : serve_handle(s, fh, true);
}

void serve_init(struct serve *s, int root, bool read_only)
{
    *s = (struct serve){.root = root, .read_only = read_only};
    rehash(s);
}

void serve_fini(struct serve *s)
{
    for (size_t i = 0; i < s->size; i++)
        cleanup_fd(&s->handle[i].fd);
    free(s->handle);
    *s = (struct serve){.root = -1};
}

/* ---- paths ---- */
int serve_open_below(int dir, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    return fd < 0 ? -errno : (int)fd;
}

/* Relative, no empty parts, no "." and "..": said by the client, so looked at. */
static bool tidy(const char *p)
{
    while (*p) {
        size_t k = strcspn(p, "/");
        if (!k || k > 255 || (k == 1 && p[0] == '.') || (k == 2 && p[0] == '.' && p[1] == '.') || (p[k] && !p[k + 1]))
            return false;
        p += k + (p[k] == '/');
    }
    return true;
}

int serve_find(struct serve *s, char *path, struct spot *ret)
{
    char *slash = strrchr(path, '/');
    *ret = (struct spot){-1, slash ? slash + 1 : *path ? path : "."};
    if (slash)
        *slash = 0;
    ret->dir = serve_open_below(s->root, slash ? path : ".", O_PATH | O_DIRECTORY);
    if (slash)
        *slash = '/';
    return ret->dir < 0 ? ret->dir : 0;
}

/* What is there, and that it is what the client means. */
int serve_look(const struct ask *q, const struct spot *p, struct stat *st)
{
    if (fstatat(p->dir, p->base, st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    return q->head->ino && q->head->ino != st->st_ino ? -ESTALE : 0;
}

static bool again(const struct ask *q) { return q->head->flags & SHARE_AGAIN; }

/* ---- replies ---- */
void serve_put_attr(struct fuse_attr *a, const struct stat *st)
{
    *a = (struct fuse_attr){.ino = st->st_ino, .size = (uint64_t)st->st_size, .blocks = (uint64_t)st->st_blocks,
                            .atime = (uint64_t)st->st_atim.tv_sec, .mtime = (uint64_t)st->st_mtim.tv_sec, .ctime = (uint64_t)st->st_ctim.tv_sec,
                            .atimensec = (uint32_t)st->st_atim.tv_nsec, .mtimensec = (uint32_t)st->st_mtim.tv_nsec,
                            .ctimensec = (uint32_t)st->st_ctim.tv_nsec, .mode = st->st_mode, .nlink = (uint32_t)st->st_nlink, .uid = st->st_uid,
                            .gid = st->st_gid, .rdev = 0, .blksize = (uint32_t)st->st_blksize};
}

static int put_entry(const struct ask *q, const struct spot *p)
{
    struct stat st;
    struct fuse_entry_out o = {0};
    if (fstatat(p->dir, p->base, &st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    serve_put_attr(&o.attr, &st);
    buf_put(q->out, &o, sizeof o);
    return 0;
}

static void put_open(const struct ask *q)
{
    struct fuse_open_out o = {.fh = q->head->fh};
    buf_put(q->out, &o, sizeof o);
}

/* ---- names ---- */
static int do_lookup(struct ask *q)
{
    auto_spot p;
    int rc = serve_find(q->s, q->path, &p);
    return rc ? rc : put_entry(q, &p);
}

/* New things belong to who made them; in a directory with the set-group bit the group is already right. */
static int own(const struct ask *q, const struct spot *p)
{
    struct stat dir;
    if (fstat(p->dir, &dir))
        return -errno;
    gid_t gid = dir.st_mode & S_ISGID ? (gid_t)-1 : q->in->gid;
    return fchownat(p->dir, p->base, q->in->uid, gid, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int made(const struct ask *q, const struct spot *p, bool is_dir)
{
    int rc = own(q, p);
    if (rc)
        (void)unlinkat(p->dir, p->base, is_dir ? AT_REMOVEDIR : 0); /* an id that cannot be stored: as if nothing was made */
    return rc ? rc : put_entry(q, p);
}

static int do_mkdir(struct ask *q)
{
    BODY(q, fuse_mkdir_in, b);
    auto_spot p;
    struct stat st;
    int rc = serve_find(q->s, q->path, &p);
    if (rc)
        return rc;
    if (!mkdirat(p.dir, p.base, b.mode & 07777))
        return made(q, &p, true);
    rc = -errno;
    if (rc == -EEXIST && again(q) && !fstatat(p.dir, p.base, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode))
        return put_entry(q, &p);
    return rc;
}

static int do_mknod(struct ask *q)
{
    BODY(q, fuse_mknod_in, b);
    auto_spot p;
    mode_t type = b.mode & S_IFMT;
    int rc = serve_find(q->s, q->path, &p);
    if (rc)
        return rc;
    if (type != S_IFREG && type != S_IFIFO && type != S_IFSOCK && type != 0)
        return -EPERM; /* no devices in volumes */
    if (!mknodat(p.dir, p.base, type | (b.mode & 07777), 0))
        return made(q, &p, false);
    return errno == EEXIST && again(q) ? put_entry(q, &p) : -errno;
}

static int do_symlink(struct ask *q)
{
    auto_spot p = {-1, ""};
    char to[SHARE_PATH_MAX + 1];
    const unsigned char *nul = memchr(q->body, 0, q->body_n); /* name, then target */
    if (!nul || q->body[q->body_n - 1] || nul == q->body + q->body_n - 1)
        return -EINVAL;
    const char *target = (const char *)nul + 1;
    int rc = serve_find(q->s, q->path, &p);
    if (rc)
        return rc;
    if (!symlinkat(target, p.dir, p.base))
        return made(q, &p, false);
    rc = -errno;
    ssize_t n = rc == -EEXIST && again(q) ? readlinkat(p.dir, p.base, to, sizeof to) : -1;
    return n >= 0 && (size_t)n == strlen(target) && !memcmp(to, target, (size_t)n) ? put_entry(q, &p) : rc;
}

static int do_link(struct ask *q)
{
    auto_spot from, to = {-1, ""};
    struct stat st, is;
    int rc = serve_find(q->s, q->path, &from);
    if (rc || (rc = serve_look(q, &from, &st)) || (rc = serve_find(q->s, q->path2, &to)))
        return rc;
    if (linkat(from.dir, from.base, to.dir, to.base, 0)) {
        rc = -errno;
        if (rc != -EEXIST || !again(q) || fstatat(to.dir, to.base, &is, AT_SYMLINK_NOFOLLOW) || is.st_ino != st.st_ino)
            return rc;
    }
    return put_entry(q, &to);
}

static int do_remove(struct ask *q, int flag)
{
    auto_spot p;
    int rc = serve_find(q->s, q->path, &p);
    if (rc)
        return rc;
    if (!strcmp(p.base, "."))
        return -EBUSY;
    if (!unlinkat(p.dir, p.base, flag) || (errno == ENOENT && again(q)))
        return 0;
    return -errno;
}

static int do_unlink(struct ask *q) { return do_remove(q, 0); }
static int do_rmdir(struct ask *q) { return do_remove(q, AT_REMOVEDIR); }

static int move(struct ask *q, unsigned flags)
{
    auto_spot from, to = {-1, ""};
    struct stat st;
    int rc = serve_find(q->s, q->path, &from);
    if (rc || (rc = serve_find(q->s, q->path2, &to)))
        return rc;
    if (flags & ~(RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL;
    if (!syscall(SYS_renameat2, from.dir, from.base, to.dir, to.base, flags))
        return 0;
    rc = -errno;
    if (again(q) && flags != RENAME_EXCHANGE && (rc == -ENOENT || rc == -EEXIST) && fstatat(from.dir, from.base, &st, AT_SYMLINK_NOFOLLOW) &&
        !fstatat(to.dir, to.base, &st, AT_SYMLINK_NOFOLLOW))
        return 0;
    return rc;
}

static int do_rename(struct ask *q) { return move(q, 0); }

static int do_rename2(struct ask *q)
{
    BODY(q, fuse_rename2_in, b);
    return move(q, b.flags);
}

static int do_readlink(struct ask *q)
{
    auto_spot p;
    struct stat st;
    char to[SHARE_PATH_MAX + 1];
    int rc = serve_find(q->s, q->path, &p);
    if (rc || (rc = serve_look(q, &p, &st)))
        return rc;
    ssize_t n = readlinkat(p.dir, p.base, to, sizeof to);
    if (n < 0)
        return -errno;
    buf_put(q->out, to, (size_t)n);
    return 0;
}

/* ---- open files ---- */
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

static bool writes(uint32_t flags) { return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC; }

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
    int rc = handle_add(q->s, q->head->fh, fd, dir);
    if (!rc)
        (void)take_fd(&held);
    return rc;
}

static int do_open(struct ask *q)
{
    BODY(q, fuse_open_in, b);
    auto_spot p;
    struct stat st;
    int rc = serve_find(q->s, q->path, &p);
    if (rc || (rc = serve_look(q, &p, &st)))
        return rc;
    if (!S_ISREG(st.st_mode))
        return S_ISDIR(st.st_mode) ? -EISDIR : S_ISLNK(st.st_mode) ? -ELOOP : -EINVAL;
    int fd = serve_open_below(p.dir, p.base, open_flags(b.flags));
    if (fd < 0 || (rc = opened(q, fd, false)))
        return fd < 0 ? fd : rc;
    if (b.open_flags & FUSE_OPEN_KILL_SUIDGID)
        serve_drop_setid(fd);
    put_open(q);
    return 0;
}

static int do_opendir(struct ask *q)
{
    auto_spot p;
    int rc = serve_find(q->s, q->path, &p);
    if (rc)
        return rc;
    int fd = serve_open_below(p.dir, p.base, O_RDONLY | O_DIRECTORY | O_NONBLOCK);
    if (fd < 0 || (rc = opened(q, fd, true)))
        return fd < 0 ? fd : rc;
    put_open(q);
    return 0;
}

static int create_fd(struct ask *q, const struct spot *p, const struct fuse_create_in *b, bool *ret_new)
{
    struct open_how how = {.flags = open_flags(b->flags & ~(uint32_t)O_TRUNC) | O_CREAT | O_EXCL | O_CLOEXEC, .mode = b->mode & 07777,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    long fd = syscall(SYS_openat2, p->dir, p->base, &how, sizeof how);
    *ret_new = fd >= 0;
    if (fd >= 0)
        return (int)fd;
    if (errno != EEXIST || (b->flags & O_EXCL && !again(q)))
        return -errno;
    return serve_open_below(p->dir, p->base, open_flags(b->flags));
}

static int do_create(struct ask *q)
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
    if ((new && (rc = own(q, &p))) || (rc = opened(q, fd, false))) {
        if (new)
            (void)unlinkat(p.dir, p.base, 0);
        return rc;
    }
    if ((rc = put_entry(q, &p))) {
        struct serve_handle *h = serve_handle(q->s, q->head->fh, false);
        (void)close(h->fd);
        h->fd = GONE;
        q->s->n--;
        return rc;
    }
    put_open(q);
    return 0;
}

static int release(struct ask *q, bool dir)
{
    BODY(q, fuse_release_in, b);
    struct serve_handle *h = serve_handle(q->s, b.fh, dir);
    if (!h)
        return 0; /* could not be opened again: nothing to close */
    (void)close(h->fd);
    h->fd = GONE;
    q->s->n--;
    return 0;
}
static int do_release(struct ask *q) { return release(q, false); }
static int do_releasedir(struct ask *q) { return release(q, true); }

static int do_read(struct ask *q)
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

static int do_write(struct ask *q)
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

static int do_fsync(struct ask *q)
{
    BODY(q, fuse_fsync_in, b);
    struct serve_handle *h = serve_any_handle(q->s, b.fh);
    if (!h)
        return -EBADF;
    return (b.fsync_flags & 1 ? fdatasync(h->fd) : fsync(h->fd)) ? -errno : 0;
}

static int do_lseek(struct ask *q)
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

static int do_fallocate(struct ask *q)
{
    BODY(q, fuse_fallocate_in, b);
    struct serve_handle *h = serve_handle(q->s, b.fh, false);
    if (!h)
        return -EBADF;
    return fallocate(h->fd, (int)b.mode, (off_t)b.offset, (off_t)b.length) ? -errno : 0;
}

struct dent { uint64_t ino; int64_t off; uint16_t len; uint8_t type; char name[]; };

static int do_readdir(struct ask *q)
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

/* ---- the table ---- */
enum { W = 1 /* changes something */, NEW = 2 /* W, if its flags say so */ };
static const struct { int (*fn)(struct ask *); uint8_t what; } ops[] = {
    [FUSE_LOOKUP] = {do_lookup, 0},       [FUSE_GETATTR] = {serve_getattr, 0},       [FUSE_SETATTR] = {serve_setattr, W},
    [FUSE_READLINK] = {do_readlink, 0},   [FUSE_SYMLINK] = {do_symlink, W},       [FUSE_MKNOD] = {do_mknod, W},
    [FUSE_MKDIR] = {do_mkdir, W},         [FUSE_UNLINK] = {do_unlink, W},         [FUSE_RMDIR] = {do_rmdir, W},
    [FUSE_RENAME] = {do_rename, W},       [FUSE_RENAME2] = {do_rename2, W},       [FUSE_LINK] = {do_link, W},
    [FUSE_OPEN] = {do_open, NEW},         [FUSE_READ] = {do_read, 0},             [FUSE_WRITE] = {do_write, W},
    [FUSE_STATFS] = {serve_statfs, 0},       [FUSE_RELEASE] = {do_release, 0},       [FUSE_FSYNC] = {do_fsync, 0},
    [FUSE_SETXATTR] = {serve_setxattr, W},   [FUSE_GETXATTR] = {serve_getxattr, 0},     [FUSE_LISTXATTR] = {serve_listxattr, 0},
    [FUSE_REMOVEXATTR] = {serve_removexattr, W}, [FUSE_OPENDIR] = {do_opendir, 0},
    [FUSE_READDIR] = {do_readdir, 0},     [FUSE_RELEASEDIR] = {do_releasedir, 0}, [FUSE_FSYNCDIR] = {do_fsync, 0},
    [FUSE_CREATE] = {do_create, W},       [FUSE_LSEEK] = {do_lseek, 0},           [FUSE_FALLOCATE] = {do_fallocate, W},
};

static int act(struct ask *q)
{
    uint32_t op = q->in->opcode;
    if (op >= sizeof ops / sizeof *ops || !ops[op].fn)
        return -ENOSYS;
    bool changes = ops[op].what == W;
    if (ops[op].what == NEW) {
        BODY(q, fuse_open_in, b);
        changes = writes(b.flags);
    }
    return changes && q->s->read_only ? -EROFS : ops[op].fn(q);
}

static bool take_path(const unsigned char *p, size_t n, char *out)
{
    memcpy(out, p, n);
    out[n] = 0;
    return strlen(out) == n && tidy(out);
}

int serve_message(struct serve *s, const void *msg, size_t n, struct buf *out)
{
    const unsigned char *p = msg;
    struct share_head head;
    struct fuse_in_header in;
    struct ask *q;
    if (n < sizeof head + sizeof in || n > SHARE_MSG_MAX)
        return -1;
    memcpy(&head, p, sizeof head);
    size_t at = sizeof head + (size_t)head.path_n + head.path2_n;
    if (head.length != n || head.path_n > SHARE_PATH_MAX || head.path2_n > SHARE_PATH_MAX || at + sizeof in > n)
        return -1;
    memcpy(&in, p + at, sizeof in);
    if (in.len != n - at)
        return -1;
    q = xcalloc(1, sizeof *q);
    *q = (struct ask){.s = s, .head = &head, .in = &in, .body = p + at + sizeof in, .body_n = n - at - sizeof in, .out = out};
    struct fuse_out_header o = {.unique = in.unique};
    size_t mark = out->n;
    buf_put(out, &o, sizeof o);
    bool ok = take_path(p + sizeof head, head.path_n, q->path) && take_path(p + sizeof head + head.path_n, head.path2_n, q->path2);
    mode_t mask = umask(0); /* the VM's kernel has applied the caller's */
    o.error = ok ? act(q) : -EINVAL;
    (void)umask(mask);
    free(q);
    if (o.error)
        out->n = mark + sizeof o;
    o.len = (uint32_t)(out->n - mark);
    memcpy(out->p + mark, &o, sizeof o);
    return 0;
}
