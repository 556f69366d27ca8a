#include "jail/fds.h"
#include "jail/sys.h"
#include <stdlib.h>

void fds_keep(struct fd_keep *k, int fd)
{
    int i = 0;
    if (fd < 0)
        return;
    while (i < k->n && k->fd[i] < fd)
        i++;
    if (i < k->n && k->fd[i] == fd)
        return;
    if (k->n == FDS_KEEP_MAX)
        abort(); /* a programming error: the list is built from fixed fields */
    for (int j = k->n++; j > i; j--)
        k->fd[j] = k->fd[j - 1];
    k->fd[i] = fd;
}

int fds_close_others(const struct fd_keep *k, struct err *e)
{
    unsigned lo = 0;
    for (int i = 0; i <= k->n; i++) {
        unsigned hi = i < k->n ? (unsigned)k->fd[i] : ~0u;
        if (i == k->n ? sys_close_range(lo, ~0u) < 0 : hi > lo && sys_close_range(lo, hi - 1) < 0)
            return err_sys(e, errno, "close_range");
        lo = hi + 1;
    }
    return 0;
}

int fds_place(int from, int to, struct err *e)
{
    if (from == to)
        return fds_inherit(from, e);
    if (dup2(from, to) < 0)
        return err_sys(e, errno, "dup2 to %d", to);
    return 0;
}

int fds_inherit(int fd, struct err *e)
{
    if (fcntl(fd, F_SETFD, 0) < 0)
        return err_sys(e, errno, "descriptor %d", fd);
    return 0;
}
