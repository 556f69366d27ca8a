#include "gate/dial.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "loop/sock.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
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
        d->fd = open_to(&d->ip[d->at], d->port);
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
static void next(struct dial *d, int err)
{
    hang_up(d);
    timer_stop(&d->timer);
    d->last = err;
    d->at++;
    if (!try(d))
        d->done(d->arg, -1, words(d->last));
}
static void on_io(void *arg, int events)
{
    struct dial *d = arg;
    (void)events;
    int err = sock_error(d->fd);
    if (err) {
        next(d, err);
        return;
    }
    int fd = d->fd;
    io_stop(&d->io);
    timer_stop(&d->timer);
    d->fd = -1;
    d->done(d->arg, fd, NULL);
}
static void on_time(void *arg)
{
    struct dial *d = arg;
    if (d->fd < 0) /* nothing could be tried */
        d->done(d->arg, -1, words(d->last));
    else
        next(d, ETIMEDOUT);
}

void dial_start(struct dial *d, struct loop *l)
{
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
}
