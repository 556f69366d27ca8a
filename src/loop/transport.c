#include "loop/transport.h"
#include "base/buf.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static ssize_t plain_recv(struct transport *t, void *p, size_t cap)
{
    ssize_t r;
    do
        r = recv(t->fd, p, cap, MSG_DONTWAIT);
    while (r < 0 && errno == EINTR);
    return r;
}
static ssize_t plain_send(struct transport *t, const void *p, size_t n)
{
    ssize_t w;
    do
        w = send(t->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (w < 0 && errno == EINTR);
    return w;
}
static bool plain_shut(struct transport *t)
{
    (void)shutdown(t->fd, SHUT_WR); /* a peer that is gone shows up at the next read */
    return true;
}
static void plain_free(struct transport *t) { free(t); }
static const struct transport_ops plain = {plain_recv, plain_send, plain_shut, plain_free};

struct transport *transport_plain(int fd)
{
    struct transport *t = xmalloc(sizeof *t);
    *t = (struct transport){&plain, fd};
    return t;
}

void transport_close(struct transport *t)
{
    if (!t)
        return;
    (void)close(t->fd);
    t->ops->free(t);
}
