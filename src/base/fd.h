/* File descriptors: whole reads and writes, SCM_RIGHTS, flags. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#define FD_PASS_MAX 32
bool fd_write_all(int fd, const void *p, size_t n);  /* blocking fds; retries EINTR; false + errno */
ssize_t fd_read_all(int fd, void *p, size_t n);      /* reads until n or EOF; -1 + errno */
char *fd_slurp(int fd, size_t max, size_t *ret_n);   /* NUL-terminated, NULL + errno (EFBIG over max) */
char *fd_slurp_at(int dirfd, const char *path, size_t max, size_t *ret_n);
int fd_nonblock(int fd);
int fd_cloexec(int fd, bool on);
/* One datagram/stream message with fds. recv: fds arrive CLOEXEC; surplus fds are closed. */
ssize_t fd_send(int sock, const void *p, size_t n, const int *fds, int nfds, int flags);
ssize_t fd_recv(int sock, void *p, size_t n, int *fds, int *nfds /* in: room, out: got */, int flags);
