#include "gate/dial.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "loop/sock.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define LAST_TRY_NS (20 * NS_PER_S)
#define TRY_NS      (4 * NS_PER_S)

static void on_io(void *arg, int events);
static void on_time(void *arg);

static void hang_up(struct dial *d)
{
    if (d->fd < 0 || !d->loop)
        return;
    io_stop(&d->io);
    (void)close(d->fd);
    d->fd = -1;
}

static int open_to(const struct ip *ip, uint16_t port)
{
    struct sockaddr_storage ss;
    socklen_t n = ip_to_sockaddr(ip, port, &ss);
    auto_fd fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1, idle = 60, every = 15, count = 4;
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* latency, and peers that vanish: it works without */
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    if (connect(fd, (void *)&ss, n) && errno != EINPROGRESS)
        return -1;
    return take_fd(&fd);
}
static const char *words(int err)
{
    switch (err) {
    case ECONNREFUSED: return "connection refused";
    case ETIMEDOUT: return "no answer";
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EADDRNOTAVAIL: return "no route";
    default: return "connection failed";
    }
}

/* The address at d->at, or the next that can be tried at all. */
static bool try(struct dial *d)
{
    for (; d->at < d->n; d->at++) {
        d->fd = d->via.port ? open_to(&d->via.ip, d->via.port) : open_to(&d->ip[d->at], d->port);
        d->asked = false;
        buf_free(&d->answer);
        if (d->fd < 0) {
            d->last = errno;
            continue;
        }
        io_init(&d->io, d->loop, d->fd, on_io, d);
        io_want(&d->io, IO_WRITE);
        timer_arm(&d->timer, d->at + 1 < d->n ? TRY_NS : LAST_TRY_NS);
        return true;
    }
    return false;
}
static void over(struct dial *d, int fd)
{
    const char *why = d->why[0] ? d->why : words(d->last);
    buf_free(&d->answer);
    via_free(&d->via);
    d->done(d->arg, fd, fd < 0 ? why : NULL);
}
static void next(struct dial *d, int err)
{
    hang_up(d);
    timer_stop(&d->timer);
    d->last = err;
    d->at++;
    if (!try(d))
        over(d, -1);
}
/* Exactly its head is read: what comes after it is the far end's. */
static void hear(struct dial *d)
{
    for (;;) {
        char c;
        size_t head;
        ssize_t n = recv(d->fd, &c, 1, MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n > 0)
            buf_put(&d->answer, &c, 1);
        int status = n > 0 ? via_answer(d->answer.p, d->answer.n, &head) : -1;
        if (!status)
            continue;
        if (status >= 200 && status < 300) {
            int fd = d->fd;
            io_stop(&d->io);
            timer_stop(&d->timer);
            d->fd = -1;
            over(d, fd);
            return;
        }
        if (status > 0)
            (void)snprintf(d->why, sizeof d->why, "the host's proxy answered %d", status);
        else
            (void)snprintf(d->why, sizeof d->why, "the host's proxy gave no answer that can be read");
        next(d, ECONNREFUSED);
        return;
    }
}
static void ask(struct dial *d)
{
    auto_buf q = {0};
    via_ask(&d->via, &d->ip[d->at], d->name, d->port, &q);
    d->asked = true;
    if (send(d->fd, q.p, q.n, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)q.n) { /* a fresh socket takes it whole */
        next(d, errno);
        return;
    }
    io_want(&d->io, IO_READ);
}
static void on_io(void *arg, int events)
{
    struct dial *d = arg;
    (void)events;
    if (d->asked) {
        hear(d);
        return;
    }
    int err = sock_error(d->fd);
    if (err) {
        next(d, err);
        return;
    }
    if (d->via.port) {
        ask(d);
        return;
    }
    int fd = d->fd;
    io_stop(&d->io);
    timer_stop(&d->timer);
    d->fd = -1;
    over(d, fd);
}
static void on_time(void *arg)
{
    struct dial *d = arg;
    if (d->fd < 0) /* nothing could be tried */
        over(d, -1);
    else
        next(d, ETIMEDOUT);
}

void dial_start(struct dial *d, struct loop *l, const struct vias *v)
{
    const struct via *via = via_for(v, d->name, &d->ip[0]);
    if (via)
        via_copy(&d->via, via);
    d->loop = l;
    d->at = 0;
    d->fd = -1;
    d->last = EHOSTUNREACH;
    timer_init(&d->timer, l, on_time, d);
    if (!try(d))
        timer_arm(&d->timer, 0);
}
void dial_cancel(struct dial *d)
{
    if (!d->loop)
        return;
    timer_stop(&d->timer);
    hang_up(d);
    buf_free(&d->answer);
    via_free(&d->via);
}
