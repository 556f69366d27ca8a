#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/path.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#define XATTR_LIST 4096
#define XATTR_VALUE 4096
#define XATTR_TOTAL 8192 /* of one entry; the rest is left out */

static uint64_t ns_of(struct timespec t) { return (uint64_t)(t.tv_sec * NS_PER_S + t.tv_nsec); }
static char type_of(mode_t m) { return S_ISREG(m) ? 'f' : S_ISDIR(m) ? 'd' : S_ISLNK(m) ? 'l' : 'o'; }

/* Of the open file fd, or with fd < 0 of what lies at path. */
static void put_xattrs(struct buf *b, int fd, const char *path)
{
    char list[XATTR_LIST], kv[256 + 1 + XATTR_VALUE];
    size_t total = 0;
    ssize_t n = fd < 0 ? llistxattr(path, list, sizeof list) : flistxattr(fd, list, sizeof list);
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(list + i) + 1) {
        size_t k = strlen(list + i);
        if (strncmp(list + i, "user.", 5) || k > 255)
            continue;
        memcpy(kv, list + i, k);
        kv[k] = '=';
        ssize_t v = fd < 0 ? lgetxattr(path, list + i, kv + k + 1, XATTR_VALUE) : fgetxattr(fd, list + i, kv + k + 1, XATTR_VALUE);
        if (v < 0 || (total += k + (size_t)v) > XATTR_TOTAL)
            continue;
        rec_put(b, T_XATTR, kv, k + 1 + (size_t)v);
    }
}

/* Where a link leads: its resolved path and type; its plain text if it dangles. */
static void put_target(struct buf *b, int dir, const char *name)
{
    char link[64], to[PATH_LIMIT];
    struct stat st;
    auto_fd fd = open_beneath(dir, name, O_PATH, 0);
    if (fd >= 0 && !fstat(fd, &st)) {
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, to, sizeof to);
        if (n > 0) {
            rec_put(b, T_TARGET, to, (size_t)n);
            rec_put_u64(b, T_TARGET_TYPE, (uint64_t)type_of(st.st_mode));
            rec_put_u64(b, T_TARGET_MODE, st.st_mode & 07777);
            return;
        }
    }
    ssize_t n = readlinkat(dir, name, to, sizeof to);
    if (n > 0)
        rec_put(b, T_TARGET, to, (size_t)n);
}

static void put_stat(struct agent *a, struct buf *b, const struct stat *st, const char *path)
{
    const char *slash = strrchr(path, '/');
    rec_put_str(b, T_NAME, slash && slash[1] ? slash + 1 : path);
    rec_put_str(b, T_PATH, path);
    rec_put_u64(b, T_TYPE, (uint64_t)type_of(st->st_mode));
    rec_put_u64(b, T_SIZE, (uint64_t)st->st_size);
    rec_put_u64(b, T_MODE, st->st_mode & 07777);
    rec_put_u64(b, T_UID, st->st_uid);
    rec_put_u64(b, T_GID, st->st_gid);
    rec_put_str(b, T_OWNER, user_name(&a->users, st->st_uid));
    rec_put_str(b, T_GROUP, group_name(&a->users, st->st_gid));
    rec_put_u64(b, T_MTIME_NS, ns_of(st->st_mtim));
    rec_put_u64(b, T_ATIME_NS, ns_of(st->st_atim));
    rec_put_u64(b, T_CTIME_NS, ns_of(st->st_ctim));
}

int entry_put(struct agent *a, struct buf *b, int dir, const char *name, const char *path)
{
    struct stat st;
    char full[320];
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return -1;
    size_t mark = rec_open(b, T_ENTRY);
    put_stat(a, b, &st, path);
    if (S_ISLNK(st.st_mode)) {
        put_target(b, dir, name);
    } else if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) {
        (void)snprintf(full, sizeof full, "/proc/self/fd/%d/%.255s", dir, name);
        put_xattrs(b, -1, dir == AT_FDCWD ? name : full);
    }
    rec_close(b, mark);
    return 0;
}

void entry_put_open(struct agent *a, struct buf *b, int fd, const struct stat *st, const char *path)
{
    size_t mark = rec_open(b, T_ENTRY);
    put_stat(a, b, st, path);
    put_xattrs(b, fd, NULL);
    rec_close(b, mark);
}

void entry_reply(const struct req *q, const struct place *p)
{
    struct err e = {0};
    struct buf *b = reply_begin(q->a);
    if (entry_put(q->a, b, p->dir, p->base, p->path)) {
        path_err(&e, errno, p->path);
        reply_err(q->a, q->id, &e);
    } else
        reply_send(q->a, q->id);
}
