/* Sockets, all CLOEXEC and non-blocking. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* "host:port", "[v6]:port" or ":port" (all addresses); numeric hosts and localhost only, no DNS. Port 0: the kernel
 * picks, see sock_port. Both return the listening fd. */
int sock_listen_tcp(const char *addr, struct err *e);
/* A stale socket file (nobody answers) is replaced; a live one is E_CONFLICT; any other file is left alone. */
int sock_listen_unix(const char *path, mode_t mode, struct err *e);
int sock_port(int fd); /* bound TCP port, -1 if none */

/* The connection may still be in progress: wait for IO_WRITE, then ask sock_error. */
int sock_connect_tcp(const char *addr, struct err *e);
int sock_connect_unix(const char *path, struct err *e);
int sock_error(int fd); /* SO_ERROR: 0 when connected */

struct sock_peer {
    bool is_unix;
    uid_t uid;      /* unix only, by SO_PEERCRED */
    gid_t gid;
    pid_t pid;
    char addr[64];  /* "127.0.0.1:5000", "[::1]:5000" or "unix" */
};
int sock_peer(int fd, struct sock_peer *ret, struct err *e);
int sock_accept(int listen_fd); /* accept4; on TCP no delay and keepalive probes; -1 and errno */
