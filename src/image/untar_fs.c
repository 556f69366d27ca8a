/* The file system side of extraction: finding parents without leaving the root,
 * and removing trees that hostile archives built. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "image/untar.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_in_root(int root, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    for (int i = 0; i < 32; i++) {
        int fd = (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) /* EAGAIN: a rename elsewhere raced a ".." in a link */
            return fd;
    }
    return -1;
}

void untar_forget_dir(struct untar *u)
{
    if (u->dir_fd >= 0)
        (void)close(u->dir_fd);
    u->dir_fd = -1;
}

/* Makes the missing components of `dir`, each inside the directory that the
 * components before it resolve to. A dangling link among them is an error: its
 * target could be anything. */
static int make_parents(struct untar *u, const char *dir, struct err *e)
{
    char path[UNTAR_PATH_MAX];
    auto_fd at = open_in_root(u->root_fd, "");
    if (at < 0)
        return err_sys(e, errno, "root");
    for (const char *c = dir; *c;) {
        size_t end = (size_t)(strchrnul(c, '/') - dir);
        memcpy(path, dir, end);
        path[end] = 0;
        int fd = open_in_root(u->root_fd, path);
        if (fd < 0 && errno == ENOENT) {
            const char *name = path + (c - dir);
            if (mkdirat(at, name, 0755) < 0)
                return errno == EEXIST ? err_set(e, E_INVALID, "a parent is a link to nowhere") : err_sys(e, errno, "making a parent");
            if (++u->st.files > u->max_files)
                return err_set(e, E_TOO_LARGE, "archive has more than %llu files", (unsigned long long)u->max_files);
            fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        }
        if (fd < 0)
            return err_sys(e, errno, "opening a parent");
        (void)close(at);
        at = fd;
        c = dir + end;
        c += *c == '/';
    }
    return 0;
}

int untar_parent(struct untar *u, const char *path, bool make, const char **ret_name, struct err *e)
{
    char dir[UNTAR_PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    memcpy(dir, path, n);
    dir[n] = 0;
    *ret_name = slash ? slash + 1 : path;
    if (u->dir_fd >= 0 && !strcmp(dir, u->dir))
        return u->dir_fd;
    untar_forget_dir(u);
    int fd = open_in_root(u->root_fd, dir);
    if (fd < 0 && errno == ENOENT && make) {
        if (make_parents(u, dir, e) < 0)
            return -1;
        fd = open_in_root(u->root_fd, dir);
    }
    if (fd < 0)
        return err_sys(e, errno, "opening the parent");
    memcpy(u->dir, dir, n + 1);
    return u->dir_fd = fd;
}

/* ---- removal ---------------------------------------------------------------------------------------------------- */

/* Links can nest directories deeper than any one member name may be, so depth
 * is bounded here too: one descriptor a level. */
#define REMOVE_DEPTH_MAX (2 * UNTAR_DEPTH_MAX)

static int remove_children(struct untar *u, int fd /* taken */, const char *path, bool keep_layer, int depth, struct err *e);

static int remove_at(struct untar *u, int dirfd, const char *name, const char *path, bool keep_layer, int depth, struct err *e)
{
    char shown[96];
    bool keep = keep_layer && map_get(&u->layer, path);
    if (!keep) {
        if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
            return 0;
        if (errno != EISDIR && errno != EPERM)
            return err_sys(e, errno, "removing %s", untar_show(path, shown));
    }
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return keep && (errno == ENOTDIR || errno == ELOOP || errno == ENOENT) ? 0 : err_sys(e, errno, "removing %s", untar_show(path, shown));
    if (remove_children(u, fd, path, keep_layer, depth, e) < 0)
        return -1;
    if (!keep && unlinkat(dirfd, name, AT_REMOVEDIR) < 0)
        return err_sys(e, errno, "removing %s", untar_show(path, shown));
    return 0;
}

static int remove_children(struct untar *u, int fd, const char *path, bool keep_layer, int depth, struct err *e)
{
    char shown[96];
    DIR *d = fdopendir(fd);
    if (!d) {
        (void)close(fd);
        return err_sys(e, errno, "removing %s", untar_show(path, shown));
    }
    int rc = depth < REMOVE_DEPTH_MAX ? 0 : err_set(e, E_INVALID, "%s: directories nested too deep", untar_show(path, shown));
    while (rc == 0) {
        errno = 0;
        struct dirent *de = readdir(d);
        if (!de) {
            if (errno)
                rc = err_sys(e, errno, "removing %s", untar_show(path, shown));
            break;
        }
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
            continue;
        auto_free char *sub = xasprintf("%s%s%s", path, *path ? "/" : "", de->d_name);
        rc = remove_at(u, dirfd(d), de->d_name, sub, keep_layer, depth + 1, e);
    }
    (void)closedir(d);
    return rc;
}

int untar_remove(struct untar *u, int dirfd, const char *name, const char *path, bool keep_layer, struct err *e)
{
    int rc = remove_at(u, dirfd, name, path, keep_layer, 0, e);
    /* The cached parent may have been below; u->dir_fd itself may be dirfd, so only drop it when it is not. */
    if (u->dir_fd != dirfd)
        untar_forget_dir(u);
    return rc;
}

int untar_empty(struct untar *u, const char *path, struct err *e)
{
    auto_fd at = open_in_root(u->root_fd, path);
    if (at < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : err_sys(e, errno, "whiteout");
    int fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "whiteout");
    untar_forget_dir(u);
    return remove_children(u, fd, path, true, 0, e);
}
