/* Listeners, the table of stream ids, and the two ways to end: http_server_stop
 * lets requests in flight finish, http_server_free does not. When the process
 * is out of fds accepting pauses, because a level-triggered listener would spin. */
#include "http/conn.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ACCEPTS_PER_TURN 64

static void accept_again(void *arg)
{
    struct http_server *srv = arg;
    for (int i = 0; i < srv->nlisteners; i++)
        io_want(&srv->listener[i].io, IO_READ);
}

struct http_server *http_server_new(struct loop *l, const struct http_config *c)
{
    struct http_server *srv = xcalloc(1, sizeof *srv);
    srv->loop = l;
    srv->cfg = *c;
    struct http_config *g = &srv->cfg;
    if (!g->max_conns)
        g->max_conns = 10000;
    if (!g->limits.head_bytes)
        g->limits = HTTP_LIMITS_DEFAULT;
    if (!g->head_ns)
        g->head_ns = 20 * NS_PER_S;
    if (!g->idle_ns)
        g->idle_ns = 75 * NS_PER_S;
    if (!g->body_ns)
        g->body_ns = 60 * NS_PER_S;
    if (!g->write_ns)
        g->write_ns = 60 * NS_PER_S;
    list_init(&srv->conns);
    timer_init(&srv->accept_timer, l, accept_again, srv);
    srv->scratch = xmalloc(READ_SIZE);
    return srv;
}

static void turn_away(struct transport *t)
{
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
    (void)transport_send(t, full, sizeof full - 1); /* a courtesy */
    (void)transport_shut(t);
    transport_close(t);
}

static void adopt(struct http_server *srv, struct transport *t, bool read_now)
{
    if (srv->nconns >= srv->cfg.max_conns || srv->stopping)
        turn_away(t);
    else
        conn_new(srv, t, read_now);
}
void http_adopt(struct http_server *srv, int fd) { adopt(srv, transport_plain(fd), false); }
void http_adopt_over(struct http_server *srv, struct transport *t) { adopt(srv, t, true); }

static void on_accept(void *arg, int events)
{
    struct http_listener *ls = arg;
    struct http_server *srv = ls->srv;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = sock_accept(ls->fd);
        if (fd >= 0) {
            if (ls->front)
                ls->front(ls->front_arg, fd);
            else
                http_adopt(srv, fd);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            log_warn("cannot accept connections: %s; pausing", strerror(errno));
            for (int j = 0; j < srv->nlisteners; j++)
                io_want(&srv->listener[j].io, 0);
            timer_arm(&srv->accept_timer, 100 * NS_PER_MS);
        }
        return;
    }
}

int http_listen_fd(struct http_server *srv, int fd)
{
    return http_listen_front(srv, fd, NULL, NULL);
}
int http_listen_front(struct http_server *srv, int fd, http_front *front, void *arg)
{
    if (srv->nlisteners == HTTP_LISTENERS_MAX)
        return -1;
    struct http_listener *ls = &srv->listener[srv->nlisteners++];
    *ls = (struct http_listener){.srv = srv, .fd = fd, .front = front, .front_arg = arg};
    io_init(&ls->io, srv->loop, fd, on_accept, ls);
    io_want(&ls->io, IO_READ);
    return 0;
}
int http_listen_tcp(struct http_server *srv, const char *addr, struct err *e)
{
    int fd = sock_listen_tcp(addr, e);
    if (fd < 0)
        return -1;
    if (http_listen_fd(srv, fd)) {
        close(fd);
        return err_set(e, E_QUOTA, "more than %d listeners", HTTP_LISTENERS_MAX);
    }
    return sock_port(fd);
}
int http_listen_unix(struct http_server *srv, const char *path, mode_t mode, struct err *e)
{
    int fd = sock_listen_unix(path, mode, e);
    if (fd < 0)
        return -1;
    if (http_listen_fd(srv, fd)) {
        close(fd);
        return err_set(e, E_QUOTA, "more than %d listeners", HTTP_LISTENERS_MAX);
    }
    return 0;
}
int http_server_conns(const struct http_server *srv) { return srv->nconns; }

/* ---- stream ids: generation << 32 | index + 1, so that a stale id misses ---- */
uint64_t server_slot_take(struct http_server *srv, struct http_stream *s)
{
    if (!srv->free_slot) {
        uint32_t n = srv->nslots ? 2 * srv->nslots : 64; /* bounded by the connections */
        srv->slot = xrealloc(srv->slot, n * sizeof *srv->slot);
        for (uint32_t i = n; i-- > srv->nslots;) {
            srv->slot[i] = (struct http_slot){.next_free = srv->free_slot};
            srv->free_slot = i + 1;
        }
        srv->nslots = n;
    }
    uint32_t i = srv->free_slot - 1;
    srv->free_slot = srv->slot[i].next_free;
    srv->slot[i].s = s;
    return (uint64_t)++srv->slot[i].gen << 32 | (i + 1);
}
static struct http_slot *slot_of(struct http_server *srv, uint64_t id)
{
    uint32_t i = (uint32_t)id;
    if (!i || i > srv->nslots || srv->slot[i - 1].gen != (uint32_t)(id >> 32) || !srv->slot[i - 1].s)
        return NULL;
    return &srv->slot[i - 1];
}
void server_slot_drop(struct http_server *srv, uint64_t id)
{
    struct http_slot *sl = slot_of(srv, id);
    if (!sl)
        return;
    sl->s = NULL;
    sl->next_free = srv->free_slot;
    srv->free_slot = (uint32_t)id;
}
struct http_stream *http_find(struct http_server *srv, uint64_t id)
{
    struct http_slot *sl = slot_of(srv, id);
    return sl && http_alive(sl->s) ? sl->s : NULL;
}

const char *server_date(struct http_server *srv)
{
    time_t now = time(NULL);
    if (now != srv->date_at) {
        static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
        static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
        struct tm tm;
        gmtime_r(&now, &tm);
        snprintf(srv->date, sizeof srv->date, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday % 7], tm.tm_mday % 100,
                 months[tm.tm_mon % 12], (tm.tm_year + 1900) % 10000, tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
        srv->date_at = now;
    }
    return srv->date;
}

/* ---- the end ---- */
static void stopped(void *arg)
{
    struct http_server *srv = arg; /* its memory outlives every deferred call, see http_server_free */
    void (*fn)(void *) = srv->stop_fn;
    srv->stop_fn = NULL;
    timer_stop(&srv->stop_timer);
    if (fn)
        fn(srv->stop_arg);
}
void server_conn_gone(struct http_server *srv)
{
    srv->nconns--;
    if (srv->stopping && !srv->nconns && srv->stop_fn)
        loop_defer(srv->loop, stopped, srv);
}
static void close_listeners(struct http_server *srv)
{
    timer_stop(&srv->accept_timer);
    for (int i = 0; i < srv->nlisteners; i++) {
        io_stop(&srv->listener[i].io);
        close(srv->listener[i].fd);
    }
    srv->nlisteners = 0;
}
static void kill_all(void *arg)
{
    struct http_server *srv = arg;
    struct http_conn *c;
    list_each(c, &srv->conns, node)
        conn_kill(c);
}
void http_server_stop(struct http_server *srv, int64_t grace_ns, void (*done)(void *), void *arg)
{
    if (srv->stopping)
        return;
    srv->stopping = true;
    srv->stop_fn = done;
    srv->stop_arg = arg;
    close_listeners(srv);
    timer_init(&srv->stop_timer, srv->loop, kill_all, srv);
    timer_arm(&srv->stop_timer, grace_ns);
    struct http_conn *c;
    list_each(c, &srv->conns, node)
        if (c->state == CONN_HEAD && !c->s && !conn_pending(c))
            conn_kill(c);
    if (!srv->nconns && srv->stop_fn)
        loop_defer(srv->loop, stopped, srv);
}
static void bury(void *arg)
{
    struct http_server *srv = arg;
    free(srv->slot);
    free(srv->scratch);
    free(srv);
}
void http_server_free(struct http_server *srv)
{
    if (!srv)
        return;
    srv->stop_fn = NULL;
    if (srv->stopping)
        timer_stop(&srv->stop_timer);
    srv->stopping = true;
    close_listeners(srv);
    kill_all(srv);
    loop_defer(srv->loop, bury, srv); /* behind whatever was deferred for it */
}
