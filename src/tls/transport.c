/* Plain bytes become ciphertext a piece at a time, and the next piece only when
 * the kernel has all of the one before: a slow reader costs one piece of
 * memory. Bytes count as sent in the measure in which their ciphertext is, so
 * that whoever watches for silence sees a slow reader move.
 *
 * Reading takes at most CIPHER_READ from the socket, less than TRANSPORT_READ by
 * more than a record, so what was decrypted always fits the caller's room. */
#include "tls/transport.h"
#include "base/buf.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#define CIPHER_READ (32u << 10)
#define PIECE       (64u << 10) /* plain bytes encrypted at a time */
#define OUT_MAX \
    (256u << 10) /* more unsent than this: the peer asks for answers that it does not read */

struct tls_transport {
    struct transport t;
    struct tls *tls;
    struct buf out; /* ciphertext; the kernel has the first out_off bytes */
    size_t out_off;
    size_t piece, told; /* plain bytes in it, and how many of them were reported as sent */
    bool finished;      /* close_notify is made */
};
static struct tls_transport *self(struct transport *t) { return (struct tls_transport *)t; }

/* ---- ciphertext ---- */
ssize_t tls_fill(struct transport *t)
{
    char raw[CIPHER_READ];
    ssize_t r;
    do
        r = recv(t->fd, raw, sizeof raw, MSG_DONTWAIT);
    while (r < 0 && errno == EINTR);
    if (r > 0)
        tls_feed(self(t)->tls, raw, (size_t)r);
    return r; /* the machine is not told of an end: it would count it as an attack, and forget the session */
}

int tls_flush(struct transport *t)
{
    struct tls_transport *x = self(t);
    (void)tls_take(x->tls, &x->out);
    while (x->out_off < x->out.n) {
        ssize_t w =
            send(t->fd, x->out.p + x->out_off, x->out.n - x->out_off, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 1;
        if (w < 0)
            return -1;
        x->out_off += (size_t)w;
    }
    buf_free(&x->out); /* idle connections keep none */
    x->out_off = 0;
    return 0;
}

void tls_step(struct transport *t)
{
    (void)tls_read(self(t)->tls, NULL, 0); /* the outcome is asked for afterwards */
}
struct tls *tls_of(struct transport *t) { return self(t)->tls; }

/* ---- plain bytes ---- */
static size_t drain(struct tls_transport *x, char *p, size_t cap, ssize_t *last)
{
    size_t got = 0;
    while (got < cap && (*last = tls_read(x->tls, p + got, cap - got)) > 0)
        got += (size_t)*last;
    return got;
}
static ssize_t on_recv(struct transport *t, void *p, size_t cap)
{
    struct tls_transport *x = self(t);
    ssize_t last = 0, r = 1;
    size_t got = drain(x, p, cap, &last);
    if (!got && !last) {
        r = tls_fill(t);
        if (r >= 0)
            got = drain(x, p, cap, &last);
    }
    /* Reading may have made an answer (a key update, an alert). It goes out now, or with the next bytes. */
    int flushed = tls_flush(t);
    if (got)
        return (ssize_t)got;
    if (last < 0 && tls_clean(x->tls))
        return 0;
    if (last < 0 || !r || flushed < 0 || x->out.n - x->out_off > OUT_MAX)
        errno = ECONNRESET; /* no notice before the end: somebody may have cut it */
    else if (r > 0)
        errno = EAGAIN; /* a part of a record, or nothing for us */
    return -1;
}

/* What the caller may count as sent of the piece that is on its way. */
static size_t progress(struct tls_transport *x)
{
    size_t done = x->out.n ? x->out_off * x->piece / x->out.n : x->piece,
           news = done > x->told ? done - x->told : 0;
    x->told += news;
    return news;
}
static ssize_t on_send(struct transport *t, const void *p, size_t n)
{
    struct tls_transport *x = self(t);
    size_t sent = 0;
    for (;;) {
        int f = tls_flush(t);
        if (f < 0)
            return -1;
        sent += progress(x);
        if (f) {
            errno = EAGAIN;
            return sent ? (ssize_t)sent : -1;
        }
        x->piece = x->told = 0;
        if (sent >= n || x->finished)
            break;
        x->piece = n - sent < PIECE ? n - sent : PIECE;
        if (!tls_write(x->tls, (const char *)p + sent, x->piece)) {
            errno = ECONNRESET;
            return -1;
        }
    }
    if (sent)
        return (ssize_t)sent;
    errno = EPIPE;
    return n ? -1 : 0;
}

static bool on_shut(struct transport *t)
{
    struct tls_transport *x = self(t);
    x->finished = true;
    tls_finish(x->tls);
    if (tls_flush(t) == 1)
        return false;
    (void)shutdown(t->fd, SHUT_WR); /* a peer that is gone shows up at the next read */
    return true;
}
static void on_free(struct transport *t)
{
    struct tls_transport *x = self(t);
    tls_free(x->tls);
    buf_free(&x->out);
    free(x);
}
static const struct transport_ops ops = {on_recv, on_send, on_shut, on_free};

struct transport *tls_transport(int fd, struct tls *tls)
{
    struct tls_transport *x = xcalloc(1, sizeof *x);
    x->t = (struct transport){&ops, fd};
    x->tls = tls;
    return &x->t;
}
