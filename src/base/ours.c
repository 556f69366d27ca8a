#include "base/ours.h"
#include "base/cleanup.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#define TRIES 8 /* whoever puts something in our way more often than that wants nothing to work */

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static int open_dir(int parent, const char *name, struct err *e)
{
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (parent == AT_FDCWD ? 0 : O_NOFOLLOW);
    if (mkdirat(parent, name, 0700) && errno != EEXIST)
        return err_sys(e, errno, "making %s", name);
    int fd = openat(parent, name, flags);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        return err_set(e, E_DENIED, "%s is not a directory: remove it, hutch makes its own", name);
    return fd < 0 ? err_sys(e, errno, "opening %s", name) : fd;
}

int ours_dir(int parent, const char *name, const struct owner *to, uid_t was, struct err *e)
{
    struct stat st, now;
    auto_fd fd = open_dir(parent, name, e);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st))
        return err_sys(e, errno, "%s", name);
    if (st.st_uid != geteuid() && st.st_uid != to->uid && st.st_uid != was)
        return err_set(e, E_DENIED,
                       "%s belongs to uid %u: if it is hutch's, give it to root (chown root)", name,
                       (unsigned)st.st_uid);
    if (fchown(fd, to->uid, to->gid) || fchmod(fd, to->mode))
        return err_sys(e, errno, "owning %s", name);
    /* Until this moment it may have been another's, who could have moved it. */
    int flags = parent == AT_FDCWD ? 0 : AT_SYMLINK_NOFOLLOW;
    if (fstatat(parent, name, &now, flags) || !same(&st, &now))
        return err_set(e, E_CONFLICT, "%s was replaced while it was opened", name);
    return take_fd(&fd);
}

int ours_place(int dir, const char *name, struct err *e)
{
    struct stat st;
    if (fstat(dir, &st))
        return err_sys(e, errno, "%s", name);
    if (st.st_uid == geteuid() && (!(st.st_mode & 022) || st.st_mode & S_ISVTX))
        return 0;
    return err_set(
        e, E_DENIED,
        "others could replace files of root in %s: it must belong to root and be writable by nobody else, or have the sticky bit",
        name);
}

static bool ours(int fd)
{
    struct stat st;
    return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1;
}

int ours_file(int dir, const char *name, int flags, struct err *e)
{
    for (int i = 0; i < TRIES; i++) {
        /* not blocking: a pipe would make us wait for whoever opens its other end */
        auto_fd fd = openat(dir, name, flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (fd >= 0 && ours(fd))
            return take_fd(&fd);
        /* a link, a pipe or a socket, or (fs.protected_regular) a file of another */
        if (fd < 0 && errno != ELOOP && errno != ENXIO && errno != EACCES)
            return err_sys(e, errno, "%s", name);
        if (unlinkat(dir, name, 0) && errno != ENOENT)
            return err_sys(e, errno, "removing %s, which is not ours", name);
        log_warn("%s was not a file of ours: removed", name);
    }
    return err_set(e, E_CONFLICT, "%s is put in our way as often as it is removed", name);
}

int ours_give_socket(int dir, const char *name, uid_t uid, struct err *e)
{
    struct stat st;
    auto_fd fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return err_sys(e, errno, "%s", name);
    if (!S_ISSOCK(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1)
        return err_set(e, E_CONFLICT, "%s is not the socket that was made there", name);
    return fchownat(fd, "", uid, (gid_t)-1, AT_EMPTY_PATH) ? err_sys(e, errno, "%s", name) : 0;
}
