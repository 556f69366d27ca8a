#include "spawn/client.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/list.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define QUEUE_MAX 4096 /* requests not yet taken by the socket; the spawner answers in milliseconds */
#define TURN_MAX  32   /* answers handled per wake-up */

struct call { /* in c->waiting (sent) or c->unsent */
    struct list link;
    uint64_t seq;
    spawn_done *done;
    void *arg;
    struct sp_req *req; /* only while unsent */
    int fds[FD_PASS_MAX], nfds;
};

struct spawn_client {
    struct loop *loop;
    char *path;
    int fd;
    struct io io;
    uint64_t seq;
    struct list unsent, waiting;
    int nunsent;
    spawn_on_exit *on_exit;
    spawn_on_lost *on_lost;
    void *ctx;
    bool freed; /* inside a callback; buried at the end of the turn */
    bool lost;
    struct err why;
};

static void on_io(void *arg, int events);
static void bury(void *arg);

struct spawn_client *spawn_client_new(struct loop *l, const char *path, spawn_on_exit *on_exit, spawn_on_lost *on_lost, void *ctx,
                                      struct err *e)
{
    struct spawn_client *c = xcalloc(1, sizeof *c);
    c->loop = l;
    c->path = xstrdup(path);
    c->fd = -1;
    c->lost = true;
    c->on_exit = on_exit;
    c->on_lost = on_lost;
    c->ctx = ctx;
    list_init(&c->unsent);
    list_init(&c->waiting);
    if (!spawn_client_again(c, e))
        return c;
    bury(c); /* nobody knows it yet */
    return NULL;
}

int spawn_client_again(struct spawn_client *c, struct err *e)
{
    auto_fd fd = spawn_connect(c->path, e);
    if (fd < 0)
        return -1;
    if (fd_nonblock(fd) < 0)
        return err_sys(e, errno, "spawner socket");
    c->fd = take_fd(&fd);
    c->lost = false;
    io_init(&c->io, c->loop, c->fd, on_io, c);
    io_want(&c->io, IO_READ);
    return 0;
}

static void call_free(struct call *k)
{
    list_del(&k->link);
    for (int i = 0; i < k->nfds; i++)
        (void)close(k->fds[i]);
    free(k->req);
    free(k);
}

static void bury(void *arg)
{
    struct spawn_client *c = arg;
    struct call *k;
    list_each(k, &c->unsent, link)
        call_free(k);
    list_each(k, &c->waiting, link)
        call_free(k);
    free(c->path);
    free(c);
}

void spawn_client_free(struct spawn_client *c)
{
    if (!c || c->freed)
        return;
    c->freed = true;
    if (c->fd >= 0) {
        io_stop(&c->io);
        (void)close(c->fd);
        c->fd = -1;
    }
    loop_defer(c->loop, bury, c);
}

static void fail_calls(struct spawn_client *c, struct list *head)
{
    struct sp_rep *rep = xcalloc(1, sizeof *rep);
    rep->rc = -1;
    rep->err = c->why;
    while (!list_empty(head) && !c->freed) {
        struct call *k = container_of(head->next, struct call, link);
        spawn_done *done = k->done;
        void *arg = k->arg;
        rep->seq = k->seq;
        call_free(k);
        if (done)
            done(arg, rep, NULL, 0);
    }
    free(rep);
}

static void lost_now(void *arg)
{
    struct spawn_client *c = arg;
    if (!c->freed)
        fail_calls(c, &c->waiting);
    if (!c->freed)
        fail_calls(c, &c->unsent);
    if (!c->freed && c->on_lost)
        c->on_lost(c->ctx, &c->why);
}

/* Never calls out: may run inside spawn_call. */
static void lose(struct spawn_client *c, int sys)
{
    if (c->lost)
        return;
    c->lost = true;
    if (sys)
        (void)err_sys(&c->why, sys, "hutch-spawn is not running");
    else
        (void)err_set(&c->why, E_UNAVAILABLE, "the spawner closed the connection");
    c->why.code = E_UNAVAILABLE;
    io_stop(&c->io);
    (void)close(c->fd);
    c->fd = -1;
    loop_defer(c->loop, lost_now, c);
}

/* true: nothing left to send (or lost) */
static bool flush(struct spawn_client *c)
{
    while (!list_empty(&c->unsent)) {
        struct call *k = container_of(c->unsent.next, struct call, link);
        if (fd_send(c->fd, k->req, sizeof *k->req, k->fds, k->nfds, MSG_DONTWAIT) < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK)
                return false;
            lose(c, errno);
            return true;
        }
        for (int i = 0; i < k->nfds; i++)
            (void)close(k->fds[i]);
        k->nfds = 0;
        free(take_ptr(&k->req));
        list_del(&k->link);
        c->nunsent--;
        list_add_tail(&c->waiting, &k->link);
    }
    return true;
}

int spawn_call(struct spawn_client *c, const struct sp_req *q, const int *fds, int nfds, spawn_done *done, void *arg, struct err *e)
{
    if (c->lost || c->freed)
        return err_set(e, E_UNAVAILABLE, "hutch-spawn is not running");
    if (c->nunsent >= QUEUE_MAX)
        return err_set(e, E_UNAVAILABLE, "hutch-spawn does not keep up");
    if (nfds < 0 || nfds > FD_PASS_MAX)
        return err_set(e, E_INTERNAL, "too many descriptors");
    struct call *k = xcalloc(1, sizeof *k);
    k->req = xmalloc(sizeof *k->req);
    *k->req = *q;
    k->req->version = SP_VERSION;
    k->req->seq = k->seq = ++c->seq;
    k->done = done;
    k->arg = arg;
    for (; k->nfds < nfds; k->nfds++)
        if ((k->fds[k->nfds] = fcntl(fds[k->nfds], F_DUPFD_CLOEXEC, 0)) < 0) {
            int sys = errno;
            call_free(k);
            return err_sys(e, sys, "descriptor for the spawner");
        }
    list_add_tail(&c->unsent, &k->link);
    c->nunsent++;
    if (!flush(c) && !c->lost)
        io_want(&c->io, IO_READ | IO_WRITE);
    return 0;
}

static void deliver(struct spawn_client *c, const struct sp_rep *rep, int *fds, int nfds)
{
    struct call *k;
    if (!rep->seq) {
        if (c->on_exit)
            c->on_exit(c->ctx, &rep->u.exit);
        return;
    }
    list_each(k, &c->waiting, link)
        if (k->seq == rep->seq) {
            spawn_done *done = k->done;
            void *arg = k->arg;
            call_free(k);
            if (done)
                done(arg, rep, fds, nfds);
            return;
        }
}

static void on_io(void *arg, int events)
{
    struct spawn_client *c = arg;
    if (events & IO_WRITE && flush(c) && !c->lost)
        io_want(&c->io, IO_READ);
    if (!(events & IO_READ))
        return;
    struct sp_rep *rep = xmalloc(sizeof *rep);
    for (int i = 0; i < TURN_MAX && !c->freed && !c->lost; i++) {
        int fds[FD_PASS_MAX], nfds = FD_PASS_MAX;
        ssize_t n = fd_recv(c->fd, rep, sizeof *rep, fds, &nfds, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n == (ssize_t)sizeof *rep) {
            rep->err.msg[sizeof rep->err.msg - 1] = 0;
            deliver(c, rep, fds, nfds);
        }
        for (int f = 0; n >= 0 && f < nfds; f++)
            if (fds[f] >= 0)
                (void)close(fds[f]);
        if (n != (ssize_t)sizeof *rep && !c->freed)
            lose(c, n < 0 ? errno : 0);
    }
    free(rep);
}
