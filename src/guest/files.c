/* File operations that are one or two system calls: stat, mkdir, move,
 * attributes, links. */
#include "base/cleanup.h"
#include "guest/path.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

static uint64_t flags_of(const struct req *q) { return rec_u64_or(q->rec, T_FLAGS, 0); }

static void own(const struct place *p)
{
    if (p->user.uid || p->user.gid)
        (void)!fchownat(p->dir, p->base, p->user.uid, p->user.gid, AT_SYMLINK_NOFOLLOW); /* a foreign fs may refuse */
}

static void finish(const struct req *q, const struct place *p, int rc, const struct err *e)
{
    if (rc)
        reply_err(q->a, q->id, e);
    else
        entry_reply(q, p);
}

/* Where inotify does not see what others do. */
static bool is_remote(const struct place *p)
{
    struct statfs fs;
    auto_fd fd = open_beneath(p->dir, p->base, O_PATH, 0);
    if (fd < 0 || fstatfs(fd, &fs))
        return false;
    switch ((unsigned long)fs.f_type & 0xffffffffUL) {
    case 0x6969: case 0x517b: case 0xff534d42: case 0xfe534d42: case 0x65735546: /* NFS, SMB, CIFS, SMB2, FUSE */
        return true;
    default:
        return false;
    }
}

void op_stat(const struct req *q)
{
    struct err e = {0};
    auto_place p;
    int rc = place_open(q->a, q->rec, T_PATH, false, &p, &e);
    struct buf *b = rc ? NULL : reply_begin(q->a);
    if (b && entry_put(q->a, b, p.dir, p.base, p.path))
        rc = path_err(&e, errno, p.path);
    if (rc) {
        reply_err(q->a, q->id, &e);
        return;
    }
    if (is_remote(&p))
        rec_put_u64(b, T_FLAGS, STAT_REMOTE);
    reply_send(q->a, q->id);
}

static int make_dir(const struct req *q, struct place *p, struct err *e)
{
    struct stat st;
    uint64_t flags = flags_of(q), mode = rec_u64_or(q->rec, T_MODE, 0755);
    if (place_open(q->a, q->rec, T_PATH, flags & FILE_PARENTS, p, e))
        return -1;
    if (!mkdirat(p->dir, p->base, 0755)) {
        own(p);
        if (mode != 0755)
            (void)!fchmodat(p->dir, p->base, mode & 07777, 0);
        return 0;
    }
    int sys = errno;
    if (sys == EEXIST && (flags & FILE_PARENTS) && !(flags & FILE_EXCL) && !fstatat(p->dir, p->base, &st, 0) && S_ISDIR(st.st_mode))
        return 0;
    return path_err(e, sys, p->path);
}

void op_mkdir(const struct req *q)
{
    struct err e = {0};
    auto_place p;
    finish(q, &p, make_dir(q, &p, &e), &e);
}

static int move(const struct req *q, struct place *from, struct place *to, struct err *e)
{
    struct stat st;
    *to = (struct place){.dir = -1};
    if (place_open(q->a, q->rec, T_PATH, false, from, e) || place_changeable(from, e))
        return -1;
    if (fstatat(from->dir, from->base, &st, AT_SYMLINK_NOFOLLOW)) /* before parents are made for nothing */
        return path_err(e, errno, from->path);
    if (place_open(q->a, q->rec, T_DEST, flags_of(q) & FILE_PARENTS, to, e) || place_changeable(to, e))
        return -1;
    if (renameat(from->dir, from->base, to->dir, to->base))
        return path_err(e, errno, errno == EXDEV || errno == ENOTEMPTY || errno == EISDIR || errno == ENOTDIR ? to->path : from->path);
    return 0;
}

void op_move(const struct req *q)
{
    struct err e = {0};
    auto_place from, to;
    finish(q, &to, move(q, &from, &to, &e), &e);
}

static int owner_ids(const struct req *q, uid_t *uid, gid_t *gid, struct err *e)
{
    struct str s;
    uint64_t v;
    struct user u;
    *uid = (uid_t)-1, *gid = (gid_t)-1;
    if (rec_get(q->rec, T_OWNER, &s) && s.n) {
        if (user_find(&q->a->users, s, &u, e))
            return -1;
        *uid = u.uid;
    }
    auto_free char *name = rec_dup(q->rec, T_GROUP);
    if (name && *name && !group_find(&q->a->users, name, gid))
        return err_set(e, E_NOT_FOUND, "group '%.64s' does not exist", name);
    if (rec_u64(q->rec, T_UID, &v))
        *uid = (uid_t)v;
    if (rec_u64(q->rec, T_GID, &v))
        *gid = (gid_t)v;
    return 0;
}

/* By descriptor, also where there is no /proc (a keeper) or no fchmodat2 (before Linux 6.6). */
static int chmod_fd(int fd, mode_t mode)
{
    char link[64];
    if (!syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH))
        return 0;
    if (errno != ENOSYS && errno != EPERM)
        return -1;
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return chmod(link, mode);
}

static int set_attr(const struct req *q, struct place *p, struct err *e)
{
    uid_t uid;
    gid_t gid;
    uint64_t mode;
    if (place_open(q->a, q->rec, T_PATH, false, p, e) || owner_ids(q, &uid, &gid, e))
        return -1;
    auto_fd fd = open_beneath(p->dir, p->base, O_PATH, 0); /* links are followed, as chown and chmod do */
    if (fd < 0)
        return path_err(e, errno, p->path);
    if ((uid != (uid_t)-1 || gid != (gid_t)-1) && fchownat(fd, "", uid, gid, AT_EMPTY_PATH))
        return path_err(e, errno, p->path);
    if (rec_u64(q->rec, T_MODE, &mode)) { /* after chown, which clears the set-id bits */
        if (mode > 07777)
            return err_set(e, E_INVALID, "mode is out of range");
        if (chmod_fd(fd, (mode_t)mode))
            return path_err(e, errno, p->path);
    }
    return 0;
}

void op_setattr(const struct req *q)
{
    struct err e = {0};
    auto_place p;
    finish(q, &p, set_attr(q, &p, &e), &e);
}

static int make_link(const struct req *q, struct place *p, struct err *e)
{
    auto_free char *target = rec_dup(q->rec, T_TARGET);
    if (place_open(q->a, q->rec, T_PATH, false, p, e))
        return -1;
    if (!target || !*target || strlen(target) >= PATH_LIMIT)
        return err_set(e, E_INVALID, "no usable target given");
    if (symlinkat(target, p->dir, p->base))
        return path_err(e, errno, p->path);
    own(p);
    return 0;
}

void op_symlink(const struct req *q)
{
    struct err e = {0};
    auto_place p;
    finish(q, &p, make_link(q, &p, &e), &e);
}
