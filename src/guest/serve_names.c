/* Names in a volume: found, made, moved, removed. */
#include "guest/serve_int.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1u
#define RENAME_EXCHANGE  2u
#endif

int serve_put_entry(const struct ask *q, const struct spot *p)
{
    struct stat st;
    struct fuse_entry_out o = {0};
    if (fstatat(p->dir, p->base, &st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    serve_put_attr(&o.attr, &st);
    buf_put(q->out, &o, sizeof o);
    return 0;
}

int serve_lookup(struct ask *q)
{
    auto_spot p;
    int rc = serve_find(q->s, q->path, &p);
    return rc ? rc : serve_put_entry(q, &p);
}

/* New things belong to who made them; in a directory with the set-group bit the group is already right. */
int serve_own(const struct ask *q, const struct spot *p)
{
    struct stat dir;
    if (fstat(p->dir, &dir))
        return -errno;
    gid_t gid = dir.st_mode & S_ISGID ? (gid_t)-1 : q->in->gid;
    return fchownat(p->dir, p->base, q->in->uid, gid, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
}

static int made(const struct ask *q, const struct spot *p, bool is_dir)
{
    int rc = serve_own(q, p);
    if (rc)
        (void)unlinkat(p->dir, p->base, is_dir ? AT_REMOVEDIR : 0); /* an id that cannot be stored: as if nothing was made */
    return rc ? rc : serve_put_entry(q, p);
}

int serve_mkdir(struct ask *q)
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
    if (rc == -EEXIST && serve_again(q) && !fstatat(p.dir, p.base, &st, AT_SYMLINK_NOFOLLOW) && S_ISDIR(st.st_mode))
        return serve_put_entry(q, &p);
    return rc;
}

int serve_mknod(struct ask *q)
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
    return errno == EEXIST && serve_again(q) ? serve_put_entry(q, &p) : -errno;
}

int serve_symlink(struct ask *q)
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
    ssize_t n = rc == -EEXIST && serve_again(q) ? readlinkat(p.dir, p.base, to, sizeof to) : -1;
    return n >= 0 && (size_t)n == strlen(target) && !memcmp(to, target, (size_t)n) ? serve_put_entry(q, &p) : rc;
}

int serve_link(struct ask *q)
{
    auto_spot from, to = {-1, ""};
    struct stat st, is;
    int rc = serve_find(q->s, q->path, &from);
    if (rc || (rc = serve_look(q, &from, &st)) || (rc = serve_find(q->s, q->path2, &to)))
        return rc;
    if (linkat(from.dir, from.base, to.dir, to.base, 0)) {
        rc = -errno;
        if (rc != -EEXIST || !serve_again(q) || fstatat(to.dir, to.base, &is, AT_SYMLINK_NOFOLLOW) || is.st_ino != st.st_ino)
            return rc;
    }
    return serve_put_entry(q, &to);
}

static int do_remove(struct ask *q, int flag)
{
    auto_spot p;
    int rc = serve_find(q->s, q->path, &p);
    if (rc)
        return rc;
    if (!strcmp(p.base, "."))
        return -EBUSY;
    if (!unlinkat(p.dir, p.base, flag) || (errno == ENOENT && serve_again(q)))
        return 0;
    return -errno;
}

int serve_unlink(struct ask *q) { return do_remove(q, 0); }
int serve_rmdir(struct ask *q) { return do_remove(q, AT_REMOVEDIR); }

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
    if (serve_again(q) && flags != RENAME_EXCHANGE && (rc == -ENOENT || rc == -EEXIST) && fstatat(from.dir, from.base, &st, AT_SYMLINK_NOFOLLOW) &&
        !fstatat(to.dir, to.base, &st, AT_SYMLINK_NOFOLLOW))
        return 0;
    return rc;
}

int serve_rename(struct ask *q) { return move(q, 0); }

int serve_rename2(struct ask *q)
{
    BODY(q, fuse_rename2_in, b);
    return move(q, b.flags);
}

int serve_readlink(struct ask *q)
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
