/* The blocking variant: tests and small tools. */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "spawn/client.h"
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int spawn_connect(const char *path, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return err_set(e, E_INVALID, "the spawner's socket path is longer than %zu", sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    auto_fd fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "socket");
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return err_sys(e, errno, "no spawner answers");
    return take_fd(&fd);
}

/* One message; 0, or -1 + e. */
static int receive(int sock, struct sp_rep *rep, int *fds, int *nfds, int64_t deadline, struct err *e)
{
    int64_t left = (deadline - clock_mono()) / NS_PER_MS;
    struct pollfd p = {.fd = sock, .events = POLLIN};
    if (left < 0 || poll(&p, 1, (int)left) == 0)
        return err_set(e, E_TIMEOUT, "the spawner did not answer in time");
    ssize_t n = fd_recv(sock, rep, sizeof *rep, fds, nfds, 0);
    if (n == (ssize_t)sizeof *rep)
        return 0;
    return n < 0 ? err_sys(e, errno, "spawner") : err_set(e, E_UNAVAILABLE, "the spawner closed the connection");
}

static void keep_event(struct spawn_events *ev, const struct sp_exit *x)
{
    if (ev && ev->n < (int)(sizeof ev->item / sizeof *ev->item))
        ev->item[ev->n++] = *x;
}

int spawn_call_sync(int sock, const struct sp_req *q, const int *fds, int nfds, struct sp_rep *ret, int *ret_fds, int *ret_nfds,
                    struct spawn_events *ev, int timeout_ms, struct err *e)
{
    static atomic_ullong seq;
    struct sp_req r = *q;
    int64_t deadline = clock_mono() + timeout_ms * NS_PER_MS;
    r.version = SP_VERSION;
    r.seq = atomic_fetch_add(&seq, 1) + 1;
    if (fd_send(sock, &r, sizeof r, fds, nfds, 0) < 0)
        return err_sys(e, errno, "spawner");
    for (;;) {
        int got[FD_PASS_MAX], n = FD_PASS_MAX;
        if (receive(sock, ret, got, &n, deadline, e))
            return -1;
        bool mine = ret->seq == r.seq;
        for (int i = 0; i < n; i++)
            if (mine && ret_nfds && i < *ret_nfds)
                ret_fds[i] = got[i];
            else
                (void)close(got[i]);
        if (!ret->seq)
            keep_event(ev, &ret->u.exit);
        if (!mine)
            continue;
        if (ret_nfds && n < *ret_nfds)
            *ret_nfds = n;
        if (!ret->rc)
            return 0;
        if (e)
            *e = ret->err;
        return -1;
    }
}

int spawn_wait_exit(int sock, const char *id, struct sp_exit *ret, struct spawn_events *ev, int timeout_ms, struct err *e)
{
    int64_t deadline = clock_mono() + timeout_ms * NS_PER_MS;
    for (int i = 0; ev && i < ev->n; i++)
        if (!strcmp(ev->item[i].id, id)) {
            *ret = ev->item[i];
            ev->item[i] = ev->item[--ev->n];
            return 0;
        }
    for (;;) {
        struct sp_rep rep;
        int got[FD_PASS_MAX], n = FD_PASS_MAX;
        if (receive(sock, &rep, got, &n, deadline, e))
            return -1;
        for (int i = 0; i < n; i++)
            (void)close(got[i]);
        if (rep.seq)
            continue;
        if (!strcmp(rep.u.exit.id, id)) {
            *ret = rep.u.exit;
            return 0;
        }
        keep_event(ev, &rep.u.exit);
    }
}
