#include "base/fd.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool fd_write_all(int fd, const void *p, size_t n)
{
    const char *c = p;
    while (n) {
        ssize_t w = write(fd, c, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return false;
        c += w, n -= (size_t)w;
    }
    return true;
}

ssize_t fd_read_all(int fd, void *p, size_t n)
{
    size_t got = 0;
    while (got < n) {
        ssize_t r = read(fd, (char *)p + got, n - got);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -1;
        if (!r)
            break;
        got += (size_t)r;
    }
    return (ssize_t)got;
}

char *fd_slurp(int fd, size_t max, size_t *ret_n)
{
    auto_buf b = {0};
    for (;;) {
        buf_reserve(&b, 4096);
        ssize_t r = read(fd, b.p + b.n, 4096);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return NULL;
        if (!r)
            break;
        b.n += (size_t)r;
        if (b.n > max) {
            errno = EFBIG;
            return NULL;
        }
    }
    if (ret_n)
        *ret_n = b.n;
    return buf_take(&b);
}

char *fd_slurp_at(int dirfd, const char *path, size_t max, size_t *ret_n)
{
    auto_fd fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? NULL : fd_slurp(fd, max, ret_n);
}

int fd_nonblock(int fd)
{
    int f = fcntl(fd, F_GETFL);
    return f < 0 ? -1 : fcntl(fd, F_SETFL, f | O_NONBLOCK);
}

int fd_cloexec(int fd, bool on)
{
    return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0);
}

union cmsg_room { struct cmsghdr align; char room[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)]; };

ssize_t fd_send(int sock, const void *p, size_t n, const int *fds, int nfds, int flags)
{
    struct iovec iov = {(void *)(uintptr_t)p, n};
    union cmsg_room c;
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds < 0 || nfds > FD_PASS_MAX) {
        errno = EINVAL;
        return -1;
    }
    if (nfds) {
        memset(&c, 0, sizeof c);
        m.msg_control = c.room;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)nfds);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)nfds);
        memcpy(CMSG_DATA(h), fds, sizeof(int) * (size_t)nfds);
    }
    ssize_t r;
    do
        r = sendmsg(sock, &m, MSG_NOSIGNAL | flags);
    while (r < 0 && errno == EINTR);
    return r;
}

ssize_t fd_recv(int sock, void *p, size_t n, int *fds, int *nfds, int flags)
{
    struct iovec iov = {p, n};
    union cmsg_room c;
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.room, .msg_controllen = sizeof c.room};
    int room = nfds ? *nfds : 0, got = 0;
    ssize_t r;
    do
        r = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | flags);
    while (r < 0 && errno == EINTR);
    if (nfds)
        *nfds = 0;
    if (r < 0)
        return r;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t k = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < k; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof fd, sizeof fd);
            if (got < room)
                fds[got++] = fd;
            else
                (void)close(fd);
        }
    }
    if (nfds)
        *nfds = got;
    return r;
}
