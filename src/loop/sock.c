/* Sockets are made non-blocking and CLOEXEC in the call that makes them, never
 * after it. No resolver here: this code runs on loops. */
#include "loop/sock.h"
#include "base/cleanup.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define FLAGS (SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK)

/* "host:port" with a numeric host; no resolver, because this runs on loops. */
static int parse_addr(const char *addr, struct sockaddr_storage *ss, socklen_t *len, struct err *e)
{
    const char *colon = strrchr(addr, ':');
    uint64_t port;
    if (!colon || !str_u64(str_of(colon + 1), &port) || port > 65535)
        return err_set(e, E_INVALID, "address %.100s: want host:port", addr);
    char host[80];
    size_t n = (size_t)(colon - addr);
    if (n >= sizeof host)
        return err_set(e, E_INVALID, "address %.100s: host too long", addr);
    memcpy(host, addr, n);
    host[n] = 0;
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']')
        memmove(host, host + 1, n - 2), host[n - 2] = 0;
    memset(ss, 0, sizeof *ss);
    struct sockaddr_in *v4 = (void *)ss;
    struct sockaddr_in6 *v6 = (void *)ss;
    if (!strcmp(host, "localhost"))
        strcpy(host, "127.0.0.1");
    if (!*host || !strcmp(host, "*"))
        strcpy(host, "0.0.0.0");
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        *len = sizeof *v4;
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        *len = sizeof *v6;
    } else {
        return err_set(e, E_INVALID, "address %.100s: the host must be numeric or localhost", addr);
    }
    return 0;
}

int sock_listen_tcp(const char *addr, struct err *e)
{
    struct sockaddr_storage ss;
    socklen_t len;
    if (parse_addr(addr, &ss, &len, e))
        return -1;
    auto_fd fd = socket(ss.ss_family, FLAGS, 0);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || bind(fd, (void *)&ss, len) || listen(fd, SOMAXCONN))
        return err_sys(e, errno, "listen on %s", addr);
    return take_fd(&fd);
}

static int unix_addr(const char *path, struct sockaddr_un *un, struct err *e)
{
    *un = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof un->sun_path)
        return err_set(e, E_INVALID, "socket path %.120s: must have 1 to %zu bytes", path, sizeof un->sun_path - 1);
    strcpy(un->sun_path, path);
    return 0;
}

int sock_listen_unix(const char *path, mode_t mode, struct err *e)
{
    struct sockaddr_un un;
    if (unix_addr(path, &un, e))
        return -1;
    struct stat st;
    if (!lstat(path, &st)) {
        if (!S_ISSOCK(st.st_mode))
            return err_set(e, E_CONFLICT, "%s exists and is not a socket", path);
        auto_fd probe = socket(AF_UNIX, FLAGS, 0);
        if (probe < 0)
            return err_sys(e, errno, "socket");
        if (!connect(probe, (void *)&un, sizeof un) || errno == EAGAIN)
            return err_set(e, E_CONFLICT, "another process is listening on %s", path);
        if (errno != ECONNREFUSED && errno != ENOENT)
            return err_sys(e, errno, "probe %s", path);
        if (unlink(path) && errno != ENOENT)
            return err_sys(e, errno, "remove stale %s", path);
    }
    auto_fd fd = socket(AF_UNIX, FLAGS, 0);
    if (fd < 0)
        return err_sys(e, errno, "socket");
    /* The inode takes its mode from the socket's own (unix(7) on Linux), so there is no moment with a wider one. */
    if (fchmod(fd, mode) || bind(fd, (void *)&un, sizeof un))
        return err_sys(e, errno, "bind %s", path);
    if (chmod(path, mode) || listen(fd, SOMAXCONN)) { /* the umask may have narrowed it */
        err_sys(e, errno, "listen on %s", path);
        (void)unlink(path); /* ours, and useless */
        return -1;
    }
    return take_fd(&fd);
}

int sock_port(int fd)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    if (getsockname(fd, (void *)&ss, &len))
        return -1;
    if (ss.ss_family == AF_INET)
        return ntohs(((struct sockaddr_in *)(void *)&ss)->sin_port);
    if (ss.ss_family == AF_INET6)
        return ntohs(((struct sockaddr_in6 *)(void *)&ss)->sin6_port);
    return -1;
}

int sock_connect_tcp(const char *addr, struct err *e)
{
    struct sockaddr_storage ss;
    socklen_t len;
    if (parse_addr(addr, &ss, &len, e))
        return -1;
    auto_fd fd = socket(ss.ss_family, FLAGS, 0);
    if (fd < 0)
        return err_sys(e, errno, "socket");
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* only latency is at stake */
    if (connect(fd, (void *)&ss, len) && errno != EINPROGRESS)
        return err_sys(e, errno, "connect to %s", addr);
    return take_fd(&fd);
}

int sock_connect_unix(const char *path, struct err *e)
{
    struct sockaddr_un un;
    if (unix_addr(path, &un, e))
        return -1;
    auto_fd fd = socket(AF_UNIX, FLAGS, 0);
    if (fd < 0)
        return err_sys(e, errno, "socket");
    if (connect(fd, (void *)&un, sizeof un))
        return err_sys(e, errno, "connect to %s", path);
    return take_fd(&fd);
}

int sock_error(int fd)
{
    int v = 0;
    socklen_t n = sizeof v;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &v, &n) ? errno : v;
}

int sock_peer(int fd, struct sock_peer *ret, struct err *e)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    struct sock_peer p = {.uid = (uid_t)-1, .gid = (gid_t)-1};
    if (getpeername(fd, (void *)&ss, &len))
        return err_sys(e, errno, "getpeername");
    char host[INET6_ADDRSTRLEN] = "";
    if (ss.ss_family == AF_UNIX) {
        struct ucred cr;
        socklen_t n = sizeof cr;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cr, &n))
            return err_sys(e, errno, "SO_PEERCRED");
        p.is_unix = true, p.uid = cr.uid, p.gid = cr.gid, p.pid = cr.pid;
        strcpy(p.addr, "unix");
    } else if (ss.ss_family == AF_INET) {
        struct sockaddr_in *in = (void *)&ss;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(p.addr, sizeof p.addr, "%s:%u", host, ntohs(in->sin_port));
    } else if (ss.ss_family == AF_INET6) {
        struct sockaddr_in6 *in = (void *)&ss;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        snprintf(p.addr, sizeof p.addr, "[%s]:%u", host, ntohs(in->sin6_port));
    }
    *ret = p;
    return 0;
}

int sock_accept(int listen_fd)
{
    struct sockaddr_storage ss;
    socklen_t len = sizeof ss;
    int fd = accept4(listen_fd, (void *)&ss, &len, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1, idle = 60, every = 15, count = 4;
    if (fd < 0 || ss.ss_family == AF_UNIX)
        return fd;
    /* Latency, and peers that vanished without a word while a handler waits; the connection works without. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    return fd;
}
