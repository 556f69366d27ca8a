/* A greeting is one handshake: it waits for its peer (io), or a worker has it
 * (working), never both. What a worker has is not freed before it comes back. */
#include "tls/front.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "loop/sock.h"
#include "tls/transport.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_NS (10 * NS_PER_S)
#define LINGER_NS   (2 * NS_PER_S)

struct tls_front {
    struct loop *loop;
    struct jobs *workers;
    struct tls_files *files;
    tls_front_ready *ready;
    void *arg;
    int64_t patience_ns;
    struct list greetings; /* oldest first */
    int n;
};
struct greeting {
    struct list node;
    struct tls_front *front;
    struct transport *t;
    struct io io;
    struct timer timer;
    bool heard;   /* the first byte has come */
    bool foreign; /* it is no TLS: answered, and what it still sends is dropped */
    bool working, dead;
};

static void bury(void *arg) { free(arg); }
static void retire(struct greeting *g) /* from the front's list; g->t is taken care of */
{
    io_stop(&g->io);
    timer_stop(&g->timer);
    list_del(&g->node);
    g->front->n--;
    g->dead = true;
}
static void drop(struct greeting *g)
{
    if (g->dead)
        return;
    retire(g);
    if (g->working)
        return; /* on_worked does the rest */
    transport_close(g->t);
    loop_defer(g->front->loop, bury, g);
}
static void fail(struct greeting *g, const char *why)
{
    struct sock_peer peer;
    if (!sock_peer(g->t->fd, &peer, NULL))
        log_debug("no TLS with %s: %s", peer.addr, why);
    drop(g);
}
static void on_patience(void *arg) { fail(arg, "it took too long"); }

/* ---- somebody who speaks plain HTTP ---- */
static bool is_plain(struct greeting *g)
{
    char c;
    g->heard = recv(g->t->fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
    return g->heard && c >= 'A' && c <= 'Z'; /* a method; a hello begins with 22 */
}
static void answer_plain(struct greeting *g)
{
    static const char body[] =
        "{\"error\":{\"code\":\"invalid\",\"message\":\"this port speaks https\","
        "\"hint\":\"use https:// in the URL; what was sent just now, perhaps a key, was not encrypted\"}}\n";
    char answer[400];
    int n = snprintf(
        answer, sizeof answer,
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
        sizeof body - 1, body);
    g->foreign = true;
    (void)send(g->t->fd, answer, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT); /* a courtesy */
    (void)shutdown(g->t->fd, SHUT_WR);
    timer_arm(&g->timer, LINGER_NS); /* so that it can read the answer before a reset */
}
static void drop_plain(struct greeting *g)
{
    char rest[4096];
    ssize_t r = recv(g->t->fd, rest, sizeof rest, MSG_DONTWAIT);
    if (!r || (r < 0 && errno != EAGAIN && errno != EINTR))
        drop(g);
}

/* ---- the handshake ---- */
static void work(void *arg) { tls_step(((struct greeting *)arg)->t); }
static void on_worked(void *arg);
static void hand_over(struct greeting *g)
{
    struct tls_front *f = g->front;
    retire(g);
    f->ready(f->arg, g->t);
    loop_defer(f->loop, bury, g);
}
static void go_on(struct greeting *g)
{
    int flushed = tls_flush(g->t); /* also an alert */
    const char *why = tls_error(tls_of(g->t));
    if (why)
        fail(g, why);
    else if (flushed < 0)
        fail(g, "it left");
    else if (tls_ready(tls_of(g->t)))
        hand_over(g);
    else
        io_want(&g->io, IO_READ | (flushed ? IO_WRITE : 0));
}
static void on_io(void *arg, int events)
{
    struct greeting *g = arg;
    if (g->foreign) {
        drop_plain(g);
        return;
    }
    if ((events & IO_READ) && !g->heard && is_plain(g)) {
        answer_plain(g);
        return;
    }
    if (!(events & IO_READ)) {
        go_on(g);
        return;
    }
    ssize_t r = tls_fill(g->t);
    if (r < 0 && errno == EAGAIN)
        return;
    if (r <= 0) {
        fail(g, "it left");
        return;
    }
    io_want(&g->io, 0);
    g->working = true;
    job_run(g->front->workers, work, on_worked, g);
}
static void on_worked(void *arg)
{
    struct greeting *g = arg;
    g->working = false;
    if (!g->dead) {
        go_on(g);
        return;
    }
    transport_close(g->t); /* its front may be gone */
    free(g);
}

/* ---- the front ---- */
static void make_room(struct tls_front *f)
{
    struct greeting *g;
    list_each(g, &f->greetings, node)
        if (!g->working) {
            fail(g, "too many handshakes at once");
            return;
        }
}
void tls_front_take(void *front, int fd)
{
    struct tls_front *f = front;
    struct err e;
    if (jobs_pending(f->workers) >= FRONT_MAX) { /* those that were given up are still in there */
        (void)close(fd);
        return;
    }
    struct tls *tls = tls_accept_new(tls_files_pair(f->files), &e);
    if (!tls) {
        log_error("%s", e.msg);
        (void)close(fd);
        return;
    }
    if (f->n >= FRONT_MAX)
        make_room(f);
    struct greeting *g = xcalloc(1, sizeof *g);
    g->front = f;
    g->t = tls_transport(fd, tls);
    io_init(&g->io, f->loop, fd, on_io, g);
    timer_init(&g->timer, f->loop, on_patience, g);
    list_add_tail(&f->greetings, &g->node);
    f->n++;
    io_want(&g->io, IO_READ);
    timer_arm(&g->timer, f->patience_ns);
}
void tls_front_patience(struct tls_front *f, int64_t ns) { f->patience_ns = ns; }
int tls_front_busy(const struct tls_front *f) { return f->n; }

struct tls_front *tls_front_new(struct loop *l, struct jobs *workers, struct tls_files *files,
                                tls_front_ready *ready, void *arg)
{
    struct tls_front *f = xcalloc(1, sizeof *f);
    *f = (struct tls_front){.loop = l,
                            .workers = workers,
                            .files = files,
                            .ready = ready,
                            .arg = arg,
                            .patience_ns = PATIENCE_NS};
    list_init(&f->greetings);
    return f;
}
void tls_front_free(struct tls_front *f)
{
    if (!f)
        return;
    struct greeting *g;
    list_each(g, &f->greetings, node)
        drop(g);
    loop_defer(f->loop, bury, f); /* behind whatever was deferred for it */
}
