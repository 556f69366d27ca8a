/* Bytes between two plain sockets, by splice through a pipe that is borrowed
 * only while bytes are in it: an idle connection holds two descriptors. */
#include "base/clock.h"
#include "gate/conn.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIPE_BYTES (1024u * 1024)
#define PIPES_KEPT 32
#define TURN_BYTES (4u << 20) /* per connection and wake-up, so that a fast one does not starve the rest */

/* ---- pipes ----------------------------------------------------------------------------------------------------------- */

static struct gpipe *pipe_take(struct gate *g)
{
    if (!list_empty(&g->pipes)) {
        struct gpipe *p = container_of(g->pipes.next, struct gpipe, node);
        list_del(&p->node);
        g->npipes--;
        return p;
    }
    struct gpipe *p = xcalloc(1, sizeof *p);
    if (pipe2(p->fd, O_CLOEXEC | O_NONBLOCK)) {
        free(p);
        return NULL;
    }
    (void)fcntl(p->fd[0], F_SETPIPE_SZ, PIPE_BYTES); /* refused when this user has many: the default serves */
    return p;
}
static void pipe_give(struct gate *g, struct gpipe *p, bool empty)
{
    if (!p)
        return;
    if (empty && g->npipes < PIPES_KEPT) {
        list_add(&g->pipes, &p->node);
        g->npipes++;
        return;
    }
    (void)close(p->fd[0]), (void)close(p->fd[1]);
    free(p);
}

/* ---- flows ------------------------------------------------------------------------------------------------------------- */

enum moved { MOVED, BLOCKED, STARVED, DRY, BROKEN };

/* What the pipe holds, to the socket. */
static enum moved drain(struct conn *c, struct flow *f, int to)
{
    while (f->held) {
        ssize_t n = splice(f->pipe->fd[0], NULL, to, NULL, f->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
        if (n <= 0)
            return n < 0 && errno == EAGAIN ? BLOCKED : BROKEN;
        f->held -= (size_t)n;
    }
    if (f->pipe)
        pipe_give(c->g, f->pipe, true);
    f->pipe = NULL;
    return MOVED;
}
static enum moved fill(struct conn *c, struct flow *f, int from, size_t *ret_n)
{
    uint64_t may = meter_may(c->box, PIPE_BYTES, clock_mono());
    if (!may)
        return STARVED;
    if (!f->pipe && !(f->pipe = pipe_take(c->g)))
        return BROKEN;
    ssize_t n = splice(from, NULL, f->pipe->fd[1], NULL, may, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0) {
        f->held = (size_t)n;
        f->bytes += (uint64_t)n;
        *ret_n = (size_t)n;
        return MOVED;
    }
    pipe_give(c->g, f->pipe, true);
    f->pipe = NULL;
    if (n < 0)
        return errno == EAGAIN ? DRY : BROKEN;
    f->eof = true;
    return MOVED;
}
static enum moved pump(struct conn *c, struct flow *f, int from, int to)
{
    bool outward = f == &c->out;
    for (size_t moved = 0; moved < TURN_BYTES && !f->shut;) {
        size_t n = 0;
        enum moved m;
        while (outward && c->first.n) {
            ssize_t k = send(to, c->first.p, c->first.n, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (k < 0)
                return errno == EAGAIN ? BLOCKED : BROKEN;
            buf_drop(&c->first, (size_t)k);
        }
        if ((m = drain(c, f, to)) != MOVED)
            return m;
        if (f->eof) {
            f->shut = true;
            (void)shutdown(to, SHUT_WR); /* fails if the peer is gone: then reading says so */
            break;
        }
        if ((m = fill(c, f, from, &n)) != MOVED)
            return m;
        meter_moved(c->box, outward ? 0 : n, outward ? n : 0);
        moved += n;
    }
    return MOVED;
}

static void abort_both(struct conn *c)
{
    struct linger l = {1, 0};
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l); /* the other end sees a reset too */
    (void)setsockopt(c->up, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    conn_end(c, GATE_K_CLOSE, "reset");
}

static void settle(struct conn *c, enum moved out, enum moved in)
{
    if (out == BROKEN || in == BROKEN) {
        abort_both(c);
        return;
    }
    if (meter_spent(c->box)) {
        conn_end(c, GATE_K_CUT, meter_why_spent(c->box));
        return;
    }
    if (c->out.shut && c->in.shut) {
        conn_end(c, GATE_K_CLOSE, "");
        return;
    }
    if (out == STARVED || in == STARVED)
        conn_starve(c);
    int client = 0, far = 0;
    if (!c->out.eof && out != BLOCKED && out != STARVED)
        client |= IO_READ;
    if (!c->in.eof && in != BLOCKED && in != STARVED)
        far |= IO_READ;
    if (in == BLOCKED)
        client |= IO_WRITE;
    if (out == BLOCKED)
        far |= IO_WRITE;
    io_want(&c->io, client);
    io_want(&c->uio, far);
}
void relay_feed(struct conn *c)
{
    enum moved out = pump(c, &c->out, c->fd, c->up);
    enum moved in = out == BROKEN ? BROKEN : pump(c, &c->in, c->up, c->fd);
    settle(c, out, in);
}
static enum moved held(const struct conn *c, const struct flow *f)
{
    return f->held || (f == &c->out && c->first.n) ? BLOCKED : c->starve.next ? STARVED : MOVED;
}
static void on_client(void *arg, int events)
{
    struct conn *c = arg;
    enum moved out = events & IO_READ ? pump(c, &c->out, c->fd, c->up) : held(c, &c->out);
    enum moved in = events & IO_WRITE ? pump(c, &c->in, c->up, c->fd) : held(c, &c->in);
    settle(c, out, in);
}
static void on_far(void *arg, int events)
{
    struct conn *c = arg;
    enum moved in = events & IO_READ ? pump(c, &c->in, c->up, c->fd) : held(c, &c->in);
    enum moved out = events & IO_WRITE ? pump(c, &c->out, c->fd, c->up) : held(c, &c->out);
    settle(c, out, in);
}

void relay_start(struct conn *c)
{
    c->state = CONN_RELAY;
    timer_stop(&c->timer);
    io_stop(&c->io);
    io_init(&c->io, c->g->loop, c->fd, on_client, c);
    io_init(&c->uio, c->g->loop, c->up, on_far, c);
    meter_moved(c->box, 0, c->first.n);
    c->out.bytes += c->first.n;
    relay_feed(c);
}
void relay_drop(struct conn *c)
{
    pipe_give(c->g, c->out.pipe, !c->out.held);
    pipe_give(c->g, c->in.pipe, !c->in.held);
    c->out.pipe = c->in.pipe = NULL;
}
