#include "base/tree.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 32

static int remove_at(int dirfd, const char *name, int depth)
{
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT                      ? 0
               : errno == ENOTDIR || errno == ELOOP ? unlinkat(dirfd, name, 0)
                                                    : -1;
    DIR *d = depth < DEPTH_MAX ? fdopendir(fd) : NULL;
    if (!d) {
        (void)close(fd);
        return -1;
    }
    int rc = 0;
    for (struct dirent *de; !rc && (de = readdir(d));)
        if (strcmp(de->d_name, ".") && strcmp(de->d_name, ".."))
            rc = de->d_type == DT_DIR ? remove_at(fd, de->d_name, depth + 1)
                                      : unlinkat(fd, de->d_name, 0);
    (void)closedir(d);
    return rc ? rc : unlinkat(dirfd, name, AT_REMOVEDIR);
}

int tree_remove(int dirfd, const char *name, struct err *e)
{
    return remove_at(dirfd, name, 0) ? err_sys(e, errno, "removing %s", name) : 0;
}
