#include "gate/chan.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_MAX (64u * 1024)

static void on_io(void *arg, int events);

static void break_it(struct chan *ch, const char *why)
{
    if (ch->broken)
        return;
    ch->broken = ch->eof = true;
    (void)snprintf(ch->why, sizeof ch->why, "%s", why);
}

static void interest(struct chan *ch)
{
    if (ch->fd < 0)
        return;
    bool handshake = ch->tls && !tls_ready(ch->tls);
    bool read = !ch->eof && !ch->broken && (ch->in.n < CHAN_IN_MAX || handshake) && ch->may;
    ch->waiting_more = !ch->eof && !ch->broken && !ch->may;
    io_want(&ch->io, (read ? IO_READ : 0) | (chan_queued(ch) && !ch->broken ? IO_WRITE : 0));
}

/* Plain bytes out of TLS, and whatever TLS wants to say. */
static void turn_tls(struct chan *ch)
{
    if (!ch->tls)
        return;
    bool was = tls_ready(ch->tls);
    for (;;) {
        buf_reserve(&ch->in, 16384);
        ssize_t n = tls_read(ch->tls, ch->in.p + ch->in.n, 16384);
        if (n > 0) {
            ch->in.n += (size_t)n;
            continue;
        }
        if (n < 0) {
            ch->eof = true;
            ch->clean = tls_clean(ch->tls);
            if (tls_error(ch->tls))
                break_it(ch, tls_error(ch->tls));
        }
        break;
    }
    (void)tls_take(ch->tls, &ch->out);
    if (!was && tls_ready(ch->tls) && ch->wait.n) {
        (void)tls_write(ch->tls, ch->wait.p, ch->wait.n);
        buf_free(&ch->wait);
        (void)tls_take(ch->tls, &ch->out);
    }
}

static void flush(struct chan *ch)
{
    while (chan_queued(ch)) {
        ssize_t n = send(ch->fd, ch->out.p + ch->out_off, chan_queued(ch), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) {
            if (errno != EAGAIN)
                break_it(ch, "the connection was reset");
            return;
        }
        ch->tx += (uint64_t)n;
        ch->out_off += (size_t)n;
    }
    ch->out.n = ch->out_off = 0;
    if (ch->out.cap > CHAN_OUT_MAX)
        buf_free(&ch->out);
    if (ch->finishing && !ch->shut) {
        ch->shut = true;
        (void)shutdown(ch->fd, SHUT_WR);
    }
}

static void fill(struct chan *ch)
{
    size_t want = ch->may < READ_MAX ? (size_t)ch->may : READ_MAX;
    ssize_t n = recv(ch->fd, ch->scratch, want, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n < 0) {
        break_it(ch, "the connection was reset");
        return;
    }
    ch->rx += (uint64_t)n;
    ch->may -= (uint64_t)n;
    if (ch->tls) {
        if (n)
            tls_feed(ch->tls, ch->scratch, (size_t)n);
        else
            tls_feed_end(ch->tls);
        turn_tls(ch);
    } else if (n)
        buf_put(&ch->in, ch->scratch, (size_t)n);
    else
        ch->eof = ch->clean = true;
}

static void on_io(void *arg, int events)
{
    struct chan *ch = arg;
    if (events & IO_READ && !ch->eof)
        fill(ch);
    if (!ch->broken)
        flush(ch);
    interest(ch);
    ch->on_event(ch->arg);
}

void chan_open(struct chan *ch, struct loop *l, int fd, struct tls *tls, char *scratch)
{
    ch->loop = l;
    ch->fd = fd;
    ch->tls = tls;
    ch->scratch = scratch;
    ch->may = UINT64_MAX;
    io_init(&ch->io, l, fd, on_io, ch);
    turn_tls(ch); /* a client's first flight */
    flush(ch);
    interest(ch);
}
void chan_close(struct chan *ch)
{
    if (!ch->loop)
        return;
    io_stop(&ch->io);
    if (ch->fd >= 0)
        (void)close(ch->fd);
    ch->fd = -1;
    tls_free(ch->tls);
    ch->tls = NULL;
    buf_free(&ch->in), buf_free(&ch->out), buf_free(&ch->wait);
    ch->out_off = 0;
}
int chan_take(struct chan *ch)
{
    int fd = ch->fd;
    io_stop(&ch->io);
    ch->fd = -1;
    return fd;
}
void chan_feed(struct chan *ch, const void *p, size_t n)
{
    ch->rx += n;
    if (ch->tls) {
        tls_feed(ch->tls, p, n);
        turn_tls(ch);
        flush(ch);
    } else
        buf_put(&ch->in, p, n);
    interest(ch);
}
void chan_allow(struct chan *ch, uint64_t bytes)
{
    ch->may = bytes;
    interest(ch);
}
bool chan_ready(const struct chan *ch) { return !ch->tls || tls_ready(ch->tls); }

void chan_write(struct chan *ch, const void *p, size_t n)
{
    if (ch->fd < 0 || ch->broken || ch->finishing || !n)
        return;
    if (!ch->tls)
        buf_put(&ch->out, p, n);
    else if (!tls_ready(ch->tls))
        buf_put(&ch->wait, p, n);
    else {
        if (!tls_write(ch->tls, p, n))
            break_it(ch, tls_error(ch->tls) ? tls_error(ch->tls) : "TLS");
        (void)tls_take(ch->tls, &ch->out);
    }
    flush(ch);
    interest(ch);
}
void chan_finish(struct chan *ch)
{
    if (ch->fd < 0 || ch->finishing)
        return;
    if (ch->tls) {
        tls_finish(ch->tls);
        (void)tls_take(ch->tls, &ch->out);
    }
    ch->finishing = true;
    if (!ch->broken)
        flush(ch);
    interest(ch);
}
void chan_used(struct chan *ch, size_t n)
{
    buf_drop(&ch->in, n);
    if (!ch->in.n && ch->in.cap > CHAN_IN_MAX)
        buf_free(&ch->in);
    interest(ch);
}
