/* Ports inside the sandbox: which ones listen, and tunnels to them. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "guest/agent.h"
#include "guest/network.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define TABLE_MAX     (4u << 20)
#define TUNNEL_WINDOW (64u << 10)
#define TUNNEL_QUEUE  (2 * TUNNEL_WINDOW + CREDIT_INITIAL)

/* "  sl  local_address rem_address   st ...": the port follows the address, the state is the fourth word */
static void scan_table(const char *path, unsigned char *seen)
{
    auto_free char *s = fd_slurp_at(AT_FDCWD, path, TABLE_MAX, NULL);
    for (char *line = s ? strchr(s, '\n') : NULL; line && line[1]; line = strchr(line + 1, '\n')) {
        char *colon = strchr(line + 1, ':'); /* "0:" */
        char *port = colon ? strchr(colon + 1, ':') : NULL;
        char *st = port ? strchr(port, ' ') : NULL; /* before the remote address */
        st = st ? strchr(st + 1, ' ') : NULL;
        if (!st)
            return;
        unsigned long n = strtoul(port + 1, NULL, 16);
        if (!strncmp(st, " 0A ", 4) && n && n < 65536)
            seen[n / 8] |= (unsigned char)(1u << (n % 8));
    }
}

void op_ports(const struct req *q)
{
    unsigned char seen[8192] = {0};
    struct buf *b = reply_begin(q->a);
    scan_table("/proc/net/tcp", seen);
    scan_table("/proc/net/tcp6", seen);
    for (unsigned n = 1; n < 65536 && b->n < FRAME_MAX - 64; n++)
        if (seen[n / 8] & (1u << (n % 8)) && !network_own_port(n))
            rec_put_u64(b, T_PORT, n);
    reply_send(q->a, q->id);
}

/* ---- tunnels ---------------------------------------------------------------------------------------------------- */

struct tunnel {
    struct stream s; /* first */
    struct io io;
    uint16_t port;
    bool v6, up;
    bool in_eof, in_shut; /* host -> socket */
    bool out_eof;         /* socket -> host */
    bool readable;
    struct buf q;         /* bounded by the credit we gave */
};

static struct tunnel *of(struct stream *s) { return container_of(s, struct tunnel, s); }

static void arm(struct agent *a, struct tunnel *t)
{
    uint32_t ev = 0;
    if (!t->up || t->q.n)
        ev |= EPOLLOUT;
    if (t->up && !t->out_eof && t->s.tx && !t->readable)
        ev |= EPOLLIN;
    io_set(&a->loop, &t->io, ev); /* 0: removed, so a hang-up cannot spin while there is no credit */
}

static int tunnel_dial(struct agent *a, struct tunnel *t)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(t->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(t->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int one = 1;
    io_close(&a->loop, &t->io);
    t->io.fd = socket(t->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (t->io.fd < 0)
        return -1;
    (void)setsockopt(t->io.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(t->io.fd, t->v6 ? (void *)&a6 : (void *)&a4, t->v6 ? sizeof a6 : sizeof a4) && errno != EINPROGRESS)
        return -1;
    return 0;
}

static void tunnel_fail(struct agent *a, struct tunnel *t, int sys)
{
    struct err e = {0};
    if (!t->up && (sys == ECONNREFUSED || sys == EADDRNOTAVAIL || sys == EAFNOSUPPORT || sys == ENETUNREACH))
        err_set(&e, E_UNAVAILABLE, "nothing listens on port %u", t->port);
    else
        err_sys(&e, sys, "port %u", t->port);
    stream_end_err(a, &t->s, &e);
}

static void check_end(struct agent *a, struct tunnel *t)
{
    if (t->out_eof && (t->in_shut || (t->in_eof && !t->q.n)))
        stream_end_ok(a, &t->s);
}

/* false: the stream has ended */
static bool tunnel_write(struct agent *a, struct tunnel *t)
{
    while (t->q.n) {
        ssize_t n = send(t->io.fd, t->q.p, t->q.n, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            tunnel_fail(a, t, errno);
            return false;
        }
        buf_drop(&t->q, (size_t)n);
        stream_consumed(a, &t->s, (uint32_t)n);
    }
    if (!t->q.n && t->in_eof && !t->in_shut) {
        (void)shutdown(t->io.fd, SHUT_WR);
        t->in_shut = true;
    }
    return true;
}

static void tunnel_connected(struct agent *a, struct tunnel *t)
{
    int sys = 0;
    socklen_t n = sizeof sys;
    (void)getsockopt(t->io.fd, SOL_SOCKET, SO_ERROR, &sys, &n);
    if (sys && !t->v6) {
        t->v6 = true;
        if (!tunnel_dial(a, t)) {
            arm(a, t);
            return;
        }
    }
    if (sys) {
        tunnel_fail(a, t, sys);
        return;
    }
    t->up = true;
    event_begin(a, EV_STARTED);
    event_send(a, t->s.id);
    stream_window(a, &t->s, TUNNEL_WINDOW);
    t->s.rx -= t->q.n < t->s.rx ? t->q.n : t->s.rx; /* what came before we were connected */
    if (tunnel_write(a, t))
        arm(a, t);
}

static void on_tunnel(struct agent *a, struct io *io, uint32_t events)
{
    struct tunnel *t = container_of(io, struct tunnel, io);
    if (!t->up) {
        tunnel_connected(a, t);
        return;
    }
    if ((events & EPOLLOUT) && !tunnel_write(a, t))
        return;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        t->readable = true; /* read in run(), when it is this stream's turn */
        stream_wake(a, &t->s);
    }
    arm(a, t);
}

static bool tunnel_run(struct agent *a, struct stream *s)
{
    struct tunnel *t = of(s);
    char b[RUN_CHUNK];
    if (!t->up || t->out_eof)
        return false;
    if (t->readable && s->tx) {
        ssize_t n = recv(t->io.fd, b, s->tx < sizeof b ? (size_t)s->tx : sizeof b, 0);
        if (n > 0) {
            stream_data(a, s, CH_TUNNEL, b, (uint32_t)n);
            if (s->tx && (size_t)n == sizeof b)
                return true;
            t->readable = false;
        } else if (n == 0) {
            t->out_eof = true;
            stream_eof(a, s, CH_TUNNEL);
            check_end(a, t);
            if (!s->hash.next)
                return false;
        } else if (errno == EAGAIN || errno == EINTR)
            t->readable = false;
        else {
            tunnel_fail(a, t, errno);
            return false;
        }
    }
    arm(a, t);
    return false;
}

static void tunnel_data(struct agent *a, struct stream *s, uint8_t chan, const unsigned char *b, uint32_t n)
{
    struct tunnel *t = of(s);
    (void)chan;
    if (t->in_eof) {
        stream_consumed(a, s, n);
        return;
    }
    buf_put(&t->q, b, n);
    if (t->up && tunnel_write(a, t))
        arm(a, t);
}

static void tunnel_eof(struct agent *a, struct stream *s, uint8_t chan)
{
    struct tunnel *t = of(s);
    (void)chan;
    t->in_eof = true;
    if (t->up && tunnel_write(a, t)) {
        arm(a, t);
        check_end(a, t);
    }
}

static void tunnel_drop(struct agent *a, struct stream *s)
{
    io_close(&a->loop, &of(s)->io);
    buf_free(&of(s)->q);
}

static const struct stream_ops tunnel_ops = {.data = tunnel_data, .eof = tunnel_eof, .run = tunnel_run, .drop = tunnel_drop};

void op_connect(const struct req *q)
{
    uint64_t port;
    struct err e = {0};
    if (!rec_u64(q->rec, T_PORT, &port) || !port || port > 65535) {
        err_set(&e, E_INVALID, "port must be 1 to 65535");
        reply_err(q->a, q->id, &e);
        return;
    }
    struct tunnel *t = stream_new(q, sizeof *t, &tunnel_ops);
    if (!t)
        return;
    t->port = (uint16_t)port;
    t->io = (struct io){.fd = -1, .fn = on_tunnel};
    t->s.rx = CREDIT_INITIAL;
    if (tunnel_dial(q->a, t) && (t->v6 = true, tunnel_dial(q->a, t)))
        tunnel_fail(q->a, t, errno);
    else
        arm(q->a, t);
}
