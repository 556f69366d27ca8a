#include "spawn/server.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "spawn/starter.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUE_MAX 512 /* messages the daemon has not taken; then it is dropped and must come again and ask */
#define QUEUE_LOW 64  /* above this no more requests are read from it */
#define TURN_MAX  8   /* requests per turn */
#define SPARE_MS  1   /* without a request: then there is time to make something ahead */

struct out { struct list link; struct sp_rep rep; int fds[OUT_FDS], nfds; };

int server_watch(struct server *s, struct watch *w, int fd, void (*fn)(struct server *, struct watch *), void *arg)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = w};
    *w = (struct watch){fd, fn, arg};
    return epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &ev);
}

void server_unwatch(struct server *s, struct watch *w)
{
    if (w->fn)
        (void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    w->fn = NULL; /* an event of this turn that still names it is skipped */
}

/* ---- the connection ------------------------------------------------------------------------------------------- */

static void conn_interest(struct server *s)
{
    struct conn *c = &s->conn;
    struct epoll_event ev = {.events = (c->queued < QUEUE_LOW ? EPOLLIN : 0u) | (c->queued ? EPOLLOUT : 0u), .data.ptr = &c->w};
    if (c->fd >= 0)
        (void)epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &ev);
}

static void out_free(struct conn *c, struct out *o)
{
    list_del(&o->link);
    for (int i = 0; i < o->nfds; i++)
        (void)close(o->fds[i]);
    free(o);
    c->queued--;
}

static void conn_close(struct server *s, const char *why)
{
    struct conn *c = &s->conn;
    struct out *o;
    if (c->fd < 0)
        return;
    log_info("daemon disconnected: %s", why);
    server_unwatch(s, &c->w);
    (void)close(c->fd);
    c->fd = -1;
    list_each(o, &c->queue, link)
        out_free(c, o);
}

static void conn_send(struct server *s, const struct sp_rep *rep, const int *fds, int nfds)
{
    struct conn *c = &s->conn;
    if (c->fd < 0)
        return;
    if (!c->queued) {
        if (fd_send(c->fd, rep, sizeof *rep, fds, nfds, MSG_DONTWAIT) >= 0)
            return;
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ETOOMANYREFS) {
            conn_close(s, "broken");
            return;
        }
    }
    if (c->queued >= QUEUE_MAX) {
        conn_close(s, "does not read");
        return;
    }
    struct out *o = xcalloc(1, sizeof *o);
    o->rep = *rep;
    for (; o->nfds < nfds && o->nfds < OUT_FDS; o->nfds++)
        if ((o->fds[o->nfds] = fcntl(fds[o->nfds], F_DUPFD_CLOEXEC, 10)) < 0)
            break; /* it will see too few descriptors and ask again with SP_ATTACH */
    list_add_tail(&c->queue, &o->link);
    c->queued++;
    conn_interest(s);
}

static void conn_flush(struct server *s)
{
    struct conn *c = &s->conn;
    struct out *o;
    list_each(o, &c->queue, link) {
        if (fd_send(c->fd, &o->rep, sizeof o->rep, o->fds, o->nfds, MSG_DONTWAIT) < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ETOOMANYREFS)
                conn_close(s, "broken");
            break;
        }
        out_free(c, o);
    }
    conn_interest(s);
}

void server_reply(struct server *s, uint64_t gen, uint64_t seq, const struct sp_rep *rep, const int *fds, int nfds)
{
    struct sp_rep r = *rep;
    r.seq = seq;
    if (gen == s->conn.gen && seq)
        conn_send(s, &r, fds, nfds);
}

void server_fail(struct server *s, uint64_t gen, uint64_t seq, const struct err *e)
{
    struct sp_rep r = {.rc = -1, .err = *e};
    err_of_host(&r.err);
    server_reply(s, gen, seq, &r, NULL, 0);
}

void server_ok(struct server *s, uint64_t gen, uint64_t seq)
{
    struct sp_rep r = {0};
    server_reply(s, gen, seq, &r, NULL, 0);
}

void server_event(struct server *s, const struct sp_exit *x)
{
    struct sp_rep r = {.u.exit = *x};
    conn_send(s, &r, NULL, 0);
}

static void dispatch(struct server *s, struct request *r)
{
    struct err e = {0};
    int rc;
    switch (r->q->op) {
    case SP_BOX_START:
        rc = op_box_start(s, r, &e);
        break;
    case SP_GVISOR_START: rc = op_gvisor_start(s, r, &e); break;
    case SP_VM_START:
        rc = op_vm_start(s, r, &e);
        break;
    case SP_ISOLATE_START:
        rc = op_isolate_start(s, r, &e);
        break;
    case SP_PACK:
        rc = op_pack(s, r, &e);
        break;
    case SP_TOOL:
        rc = op_tool(s, r, &e);
        break;
    case SP_VM_SAVE:
        rc = op_save(s, r, &e);
        break;
    case SP_LAYER_SAVE:
    case SP_LAYER_SEED:
        rc = op_layer(s, r, &e);
        break;
    case SP_NET:
        rc = op_net(s, r, &e);
        break;
    case SP_EGRESS:
        rc = op_egress(s, r, &e);
        break;
    case SP_VOLUME_MAKE:
    case SP_VOLUME_DELETE:
    case SP_VOLUME_CLOSE:
    case SP_VOLUME_STAT:
    case SP_KEEPER_START:
    case SP_VOLUME_PORT:
    case SP_VOLUME_LEND:
        rc = op_volume(s, r, &e);
        break;
    default:
        rc = op_control(s, r, &e);
    }
    if (rc) {
        log_debug("request %u refused: %s", r->q->op, e.msg);
        server_fail(s, r->gen, r->q->seq, &e);
    }
}

static void on_conn(struct server *s, struct watch *w)
{
    struct conn *c = &s->conn;
    (void)w;
    if (c->queued)
        conn_flush(s);
    for (int i = 0; i < TURN_MAX && c->fd >= 0 && c->queued < QUEUE_LOW; i++) {
        struct sp_req q;
        int fds[FD_PASS_MAX], nfds = FD_PASS_MAX;
        ssize_t n = fd_recv(c->fd, &q, sizeof q, fds, &nfds, MSG_DONTWAIT | MSG_TRUNC); /* its real length: a longer one is none of ours */
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        struct request r = {c->gen, &q, fds, nfds};
        if (n == (ssize_t)sizeof q && q.version == SP_VERSION && q.seq)
            dispatch(s, &r);
        else
            conn_close(s, n == 0 ? "closed" : n < 0 ? "error" : "has another version");
        for (int f = 0; n >= 0 && f < nfds; f++)
            if (fds[f] >= 0)
                (void)close(fds[f]);
    }
    conn_interest(s);
}

static void on_accept(struct server *s, struct watch *w)
{
    struct ucred u;
    socklen_t n = sizeof u;
    int fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &n) < 0 || (u.uid != 0 && u.uid != s->allow_uid)) {
        log_warn("connection of uid %u refused", (unsigned)u.uid);
        (void)close(fd);
        return;
    }
    conn_close(s, "replaced by a new connection");
    s->conn.gen++;
    s->conn.fd = fd;
    if (server_watch(s, &s->conn.w, fd, on_conn, NULL) < 0) {
        (void)close(fd);
        s->conn.fd = -1;
    }
    log_info("daemon connected: pid %d", (int)u.pid);
}

static void on_signal(struct server *s, struct watch *w)
{
    struct signalfd_siginfo i;
    if (read(w->fd, &i, sizeof i) == sizeof i)
        s->stop = true;
}

/* The daemon that started us is up, or will never be. */
static void on_starter(struct server *s, struct watch *w)
{
    enum spawn_lease is = spawn_lease_look(w->fd);
    if (is == LEASE_OPEN)
        return;
    server_unwatch(s, w);
    (void)close(w->fd);
    s->starter = 0;
    if (is == LEASE_KEPT) {
        own_for_good(s);
        return;
    }
    log_info("the daemon that started hutch-spawn did not start");
    server_unlisten(s); /* first: whoever starts next must not mistake us for one that stays */
    s->stop = true;
}

/* ---- the loop ------------------------------------------------------------------------------------------------- */

static void bury(struct server *s)
{
    struct box *b;
    list_each(b, &s->graves, grave) {
        list_del(&b->grave);
        free(b);
    }
}

int server_run(struct server *s)
{
    struct epoll_event ev[32];
    if (server_watch(s, &s->w_listen, s->listener, on_accept, NULL) < 0 || server_watch(s, &s->w_sig, s->sigfd, on_signal, NULL) < 0 ||
        (s->starter && server_watch(s, &s->w_starter, s->starter, on_starter, NULL) < 0) || workers_watch(s) < 0)
        return -1;
    while (!s->stop) {
        int64_t now = clock_mono();
        int wait = box_retry(s, now), tick = console_tick(s, now);
        if (tick >= 0 && (wait < 0 || tick < wait))
            wait = tick;
        bool spare = ready_wants(s);
        int n = epoll_wait(s->epoll, ev, 32, spare ? SPARE_MS : wait);
        if (!n && spare)
            ready_refill(s);
        for (int i = 0; i < n; i++) {
            struct watch *w = ev[i].data.ptr;
            if (w->fn)
                w->fn(s, w);
        }
        bury(s);
        disk_refill(s);
        ready_order(s);
    }
    log_info("stopping");
    return 0;
}
