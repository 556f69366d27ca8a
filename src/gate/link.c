#include "gate/link.h"
#include "base/fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TURN_MAX 32 /* messages per wake-up */

struct out { struct list node; char *p; size_t n; int fds[FD_PASS_MAX], nfds; };

static void out_free(struct gate_link *l, struct out *o)
{
    list_del(&o->node);
    l->queued--;
    for (int i = 0; i < o->nfds; i++)
        (void)close(o->fds[i]);
    explicit_bzero(o->p, o->n); /* may hold a secret */
    free(o->p);
    free(o);
}

void gate_link_close(struct gate_link *l)
{
    if (l->fd < 0 || !l->loop)
        return;
    io_stop(&l->io);
    (void)close(l->fd);
    l->fd = -1;
    while (!list_empty(&l->out))
        out_free(l, container_of(l->out.next, struct out, node));
    free(l->in);
    l->in = NULL;
}

static void end(struct gate_link *l, const char *why)
{
    gate_link_close(l);
    l->on_end(l->arg, why);
}

static bool flush(struct gate_link *l)
{
    while (!list_empty(&l->out)) {
        struct out *o = container_of(l->out.next, struct out, node);
        if (fd_send(l->fd, o->p, o->n, o->fds, o->nfds, MSG_DONTWAIT) < 0) {
            if (errno == EAGAIN)
                return true;
            return false;
        }
        out_free(l, o);
    }
    io_want(&l->io, IO_READ);
    return true;
}

/* False: the link is closed. */
static bool take(struct gate_link *l)
{
    int fds[FD_PASS_MAX], nfds = FD_PASS_MAX;
    ssize_t n = fd_recv(l->fd, l->in, GATE_MSG_MAX, fds, &nfds, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && errno == EAGAIN)
        return false;
    struct gate_head h;
    struct rec r = {0};
    const char *why = NULL;
    if (n <= 0)
        why = n ? strerror(errno) : "closed by the peer";
    else if ((size_t)n < sizeof h || (size_t)n > GATE_MSG_MAX)
        why = "a message of an impossible size";
    else {
        memcpy(&h, l->in, sizeof h);
        r = (struct rec){(unsigned char *)l->in + sizeof h, (size_t)n - sizeof h};
        if (h.version != GATE_VERSION)
            why = "another version of the control protocol";
        else if (!h.op || h.op >= GATE_OP_MAX || !rec_ok(r))
            why = "a malformed message";
    }
    if (why) {
        for (int i = 0; i < nfds; i++)
            (void)close(fds[i]);
        end(l, why);
        return false;
    }
    l->on_msg(l->arg, &h, r, fds, nfds);
    return l->fd >= 0;
}

static void on_io(void *arg, int events)
{
    struct gate_link *l = arg;
    if (events & IO_WRITE && !flush(l)) {
        end(l, strerror(errno));
        return;
    }
    for (int i = 0; events & IO_READ && i < TURN_MAX && take(l); i++)
        ;
}

void gate_link_open(struct gate_link *l, struct loop *loop, int fd)
{
    l->loop = loop;
    l->fd = fd;
    l->in = xmalloc(GATE_MSG_MAX);
    l->queued = 0;
    list_init(&l->out);
    io_init(&l->io, loop, fd, on_io, l);
    io_want(&l->io, IO_READ);
}

void gate_msg(struct buf *b, enum gate_op op, uint32_t serial, int code)
{
    struct gate_head h = {GATE_VERSION, (uint16_t)op, serial, code, 0};
    b->n = 0;
    buf_put(b, &h, sizeof h);
}

bool gate_link_send(struct gate_link *l, struct buf *b, const int *fds, int nfds)
{
    if (l->fd < 0 || b->n > GATE_MSG_MAX || nfds > FD_PASS_MAX) {
        buf_free(b);
        return false;
    }
    if (list_empty(&l->out) && fd_send(l->fd, b->p, b->n, fds, nfds, MSG_DONTWAIT) >= 0) {
        explicit_bzero(b->p, b->n);
        buf_free(b);
        return true;
    }
    /* Full, or broken: then the reading side says so. */
    struct out *o = xcalloc(1, sizeof *o);
    for (int i = 0; i < nfds; i++) {
        int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
        if (fd >= 0)
            o->fds[o->nfds++] = fd; /* one that is missing is noticed by the receiver, who counts */
    }
    o->n = b->n;
    o->p = buf_take(b);
    list_add_tail(&l->out, &o->node);
    l->queued++;
    io_want(&l->io, IO_READ | IO_WRITE);
    return true;
}
