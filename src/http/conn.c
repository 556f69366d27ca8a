/* Bytes in, bytes out, deadlines: the life of a connection. See conn.h for the
 * shape. Order in conn_advance matters: input first (it makes output), then the
 * peer's end (it may cancel), then one flush, then whoever waits for room. */
#include "http/conn.h"
#include "base/clock.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- output ---- */
void conn_put(struct http_conn *c, const void *p, size_t n)
{
    if (!conn_pending(c))
        c->out_at = clock_mono();
    if (c->out_off && c->out.n + n + 1 > c->out.cap && c->out_off >= c->out.n / 2) {
        buf_drop(&c->out, c->out_off);
        c->out_off = 0;
    }
    buf_put(&c->out, p, n);
}

static bool flush(struct http_conn *c) /* false: the connection broke */
{
    size_t budget = OUT_TURN;
    c->blocked = false;
    while (conn_pending(c) && budget) {
        size_t n = conn_pending(c) < budget ? conn_pending(c) : budget;
        ssize_t w = transport_send(c->t, c->out.p + c->out_off, n);
        if (w < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (w < 0)
            return false;
        c->out_off += (size_t)w;
        budget -= (size_t)w;
        c->out_at = clock_mono();
        if ((size_t)w < n)
            break;
    }
    if (conn_pending(c)) {
        c->blocked = true;
        return true;
    }
    c->out_off = c->out.n = 0;
    if (c->out.cap > OUT_LOW)
        buf_free(&c->out);
    return true;
}

/* ---- state ---- */
static void enter(struct http_conn *c, enum conn_state st)
{
    c->state = st;
    c->since = clock_mono();
}

static void bury(void *arg)
{
    struct http_conn *c = arg;
    buf_free(&c->in);
    buf_free(&c->out);
    free(c);
}

void conn_kill(struct http_conn *c)
{
    if (c->dead)
        return;
    c->dead = true;
    io_stop(&c->io);
    timer_stop(&c->timer);
    transport_close(c->t);
    struct http_stream *s = c->s;
    c->s = NULL;
    if (s) {
        /* The handler is owed a word unless it has ended the stream itself; a half-closed tunnel still waits for the peer. */
        bool owed = s->reply != REPLY_DONE || (s->mode == BODY_TUNNEL && !s->body_told && !s->hang_up);
        stream_detach(s, owed && !c->cut);
    }
    list_del(&c->node);
    server_conn_gone(c->srv);
    loop_defer(c->srv->loop, bury, c);
}

/* The request is answered: let go of the stream and go on, or close. */
static void finish(struct http_conn *c)
{
    struct http_stream *s = c->s;
    bool keep = s->keep && s->body.done && !c->srv->stopping && !(c->eof && !c->in.n);
    c->linger = true;
    c->s = NULL;
    c->served = true;
    stream_detach(s, false);
    enter(c, keep ? CONN_HEAD : CONN_CLOSING);
}

/* A head or body that cannot be understood: say so if nothing was said, then close. */
static void refuse(struct http_conn *c, int status, const char *why)
{
    struct http_stream *s = c->s;
    c->linger = true;
    c->s = NULL;
    if (s->reply == REPLY_NONE) {
        s->keep = false;
        stream_problem(s, status, why);
        stream_detach(s, s->id != 0); /* a handler that waits for the body hears "cancel" */
        enter(c, CONN_CLOSING);
        return;
    }
    stream_detach(s, true);
    enter(c, CONN_CLOSING);
}

/* ---- input ---- */
static void deliver(struct http_conn *c, struct http_stream *s, struct str d)
{
    if (s->mode == BODY_STREAM) {
        s->on_data(s, s->body_arg, d.p, d.n);
    } else if (s->mode == BODY_COLLECT) {
        if (d.n > s->collect_max - s->collect.n) {
            buf_free(&s->collect);
            s->mode = BODY_DROP;
            stream_problem(s, 413, "the body is larger than allowed here");
            return;
        }
        buf_put(&s->collect, d.p, d.n);
    }
    (void)c;
}

/* Body bytes of the request in flight. Returns how many were taken; 0 with *stop when the rest has to wait. */
static size_t input_request(struct http_conn *c, const char *p, size_t n, bool *stop)
{
    struct http_stream *s = c->s;
    size_t used = 0;
    if (s->mode == BODY_TUNNEL) {
        if (s->hang_up && s->reply == REPLY_DONE) {
            *stop = true;
            return n; /* nobody listens any more */
        }
        if (s->paused || !n) {
            *stop = true;
            return 0;
        }
        s->on_data(s, s->body_arg, p, n);
        return n;
    }
    if (s->reply == REPLY_DONE) {
        if (s->body.done || !s->keep) {
            finish(c);
            return 0;
        }
        s->mode = BODY_DROP;
        s->paused = 0;
    } else if (s->mode == BODY_UNDECIDED || s->paused) {
        *stop = true;
        return 0;
    }
    if (s->body.done) {
        *stop = true;
        if (s->body_told)
            return 0;
        s->body_told = true;
        *stop = false;
        if (s->mode == BODY_STREAM) {
            s->on_end(s, s->body_arg);
        } else if (s->mode == BODY_COLLECT) {
            buf_reserve(&s->collect, 0);
            s->collect.p[s->collect.n] = 0;
            s->on_whole(s, s->body_arg, s->collect.p, s->collect.n);
            buf_free(&s->collect);
        }
        return 0;
    }
    if (!n) {
        *stop = true;
        return 0;
    }
    struct str d;
    switch (http_body_push(&s->body, p, n, &used, &d)) {
    case HTTP_BODY_DATA:
        deliver(c, s, d);
        break;
    case HTTP_BODY_ERROR:
        refuse(c, 400, s->body.why);
        break;
    default:
        break;
    }
    return used;
}

static size_t input(struct http_conn *c, const char *p, size_t n)
{
    size_t used = 0;
    bool stop = false;
    while (!stop && !c->dead && !c->cut) {
        if (c->state == CONN_REQUEST) {
            used += input_request(c, p + used, n - used, &stop);
            continue;
        }
        if (c->state != CONN_HEAD)
            return n;
        /* A pipelining peer that does not read its replies gets no further ones made. */
        if (used == n || conn_pending(c) >= OUT_LOW)
            break;
        if (!c->s) {
            c->s = stream_new(c);
            c->since = clock_mono();
        }
        size_t took;
        enum http_parse r = http_parse_push(&c->s->parser, p + used, n - used, &took);
        used += took;
        if (r == HTTP_PARSE_ERROR)
            refuse(c, c->s->parser.status, c->s->parser.why);
        if (r != HTTP_PARSE_DONE)
            continue;
        enter(c, CONN_REQUEST);
        c->in_at = c->since;
        stream_begin(c->s);
    }
    return used;
}

static void input_buffered(struct http_conn *c)
{
    c->busy = true;
    size_t used = input(c, c->in.p ? c->in.p : "", c->in.n);
    c->busy = false;
    buf_drop(&c->in, used);
    if (!c->in.n && c->in.cap)
        buf_free(&c->in);
}

static bool read_some(struct http_conn *c) /* false: broke */
{
    char *buf = c->srv->scratch;
    ssize_t r = transport_recv(c->t, buf, READ_SIZE);
    if (r < 0)
        return errno == EAGAIN;
    if (!r) {
        c->eof = true;
        return true;
    }
    c->in_at = clock_mono();
    if (c->in.n) {
        buf_put(&c->in, buf, (size_t)r);
        return true; /* advance looks at it */
    }
    c->busy = true;
    size_t used = input(c, buf, (size_t)r);
    c->busy = false;
    if (!c->dead && used < (size_t)r)
        buf_put(&c->in, buf + used, (size_t)r - used);
    return true;
}

/* ---- deadlines: one timer per connection, armed lazily ---- */
static int64_t deadline(const struct http_conn *c)
{
    const struct http_config *cfg = &c->srv->cfg;
    int64_t d = INT64_MAX, t = INT64_MAX;
    if (conn_pending(c) || c->shutting)
        d = c->out_at + cfg->write_ns;
    if (c->state == CONN_HEAD)
        t = c->since + (c->s || !c->served ? cfg->head_ns : cfg->idle_ns);
    else if (c->state == CONN_REQUEST && !c->s->body.done && !c->s->paused && c->s->mode != BODY_UNDECIDED && c->s->mode != BODY_TUNNEL)
        t = c->in_at + cfg->body_ns;
    else if (c->state == CONN_LINGER)
        t = c->since + LINGER_NS;
    return t < d ? t : d;
}
static void arm(struct http_conn *c)
{
    int64_t d = deadline(c);
    if (d == INT64_MAX || (c->timer_at && c->timer_at <= d))
        return; /* an earlier alarm looks again */
    c->timer_at = d;
    timer_arm(&c->timer, d - clock_mono());
}
static void conn_advance(struct http_conn *c);
static void on_timer(void *arg)
{
    struct http_conn *c = arg;
    c->timer_at = 0;
    int64_t now = clock_mono();
    if (now < deadline(c)) {
        arm(c);
        return;
    }
    if ((conn_pending(c) || c->shutting) && now >= c->out_at + c->srv->cfg.write_ns) {
        conn_kill(c);
    } else if (c->state == CONN_HEAD && c->s) {
        refuse(c, 408, "the request took too long to arrive");
        conn_advance(c);
    } else if (c->state == CONN_REQUEST && c->s->reply == REPLY_NONE) {
        refuse(c, 408, "the body took too long to arrive");
        conn_advance(c);
    } else {
        conn_kill(c);
    }
}

/* ---- the one place where things happen ---- */
static void settle_eof(struct http_conn *c)
{
    struct http_stream *s = c->s;
    if (c->state == CONN_HEAD) {
        if (s) {
            c->s = NULL;
            stream_detach(s, false);
        }
        c->linger = false;
        enter(c, CONN_CLOSING);
    } else if (c->state == CONN_REQUEST && s->mode == BODY_TUNNEL) {
        if (!s->paused && !s->body_told) {
            s->body_told = true;
            c->busy = true;
            s->on_end(s, s->body_arg);
            c->busy = false;
        }
    } else if (c->state == CONN_REQUEST && (!s->body.done || s->cancel_fn)) {
        conn_kill(c); /* left in the middle of the body, or while the handler works and wants to know */
    } else if (c->state == CONN_LINGER) {
        conn_kill(c);
    }
}

/* Our side's proper end, once all that was said is out. False: it has to wait for the peer. */
static bool shut(struct http_conn *c)
{
    if (c->shut)
        return true;
    if (!c->shutting)
        c->out_at = clock_mono();
    c->shut = transport_shut(c->t);
    c->shutting = !c->shut;
    c->blocked |= c->shutting;
    return c->shut;
}
static void settle_raw(struct http_conn *c)
{
    struct http_stream *s = c->s;
    if (conn_pending(c) || s->mode != BODY_TUNNEL || s->reply != REPLY_DONE)
        return;
    if (!shut(c))
        return;
    if (s->hang_up || (c->eof && s->body_told)) {
        c->cut = true; /* a proper end, not a cancel */
        conn_kill(c);
    }
}

static void conn_advance(struct http_conn *c)
{
    if (c->dead)
        return;
    input_buffered(c);
    if (c->dead)
        return;
    /* Pipelined bytes that wait do not hide that the peer left while a handler works. */
    bool working = c->state == CONN_REQUEST && c->s->mode != BODY_TUNNEL && c->s->body.done && c->s->cancel_fn;
    if (c->eof && (!c->in.n || working))
        settle_eof(c);
    if (c->dead)
        return;
    if (!flush(c) || c->cut) {
        conn_kill(c);
        return;
    }
    if (c->s && c->state == CONN_REQUEST && c->s->full && conn_pending(c) <= OUT_LOW && c->s->reply != REPLY_DONE) {
        c->s->full = false;
        if (c->s->drain_fn)
            c->s->drain_fn(c->s, c->s->drain_arg);
    }
    if (c->s && c->state == CONN_REQUEST)
        settle_raw(c);
    if (c->dead)
        return;
    if (c->state == CONN_CLOSING && !conn_pending(c) && shut(c)) {
        if (c->eof || !c->linger) {
            conn_kill(c);
            return;
        }
        enter(c, CONN_LINGER);
    }
    if (c->state == CONN_HEAD && !c->s && c->out.cap > 4096 && !c->out.n)
        buf_free(&c->out);
    if (c->state == CONN_HEAD && c->in.n && conn_pending(c) < OUT_LOW)
        conn_kick(c); /* pipelined requests that had to wait */
    io_want(&c->io, (!c->eof && c->in.n < IN_CAP ? IO_READ : 0) | (c->blocked ? IO_WRITE : 0));
    arm(c);
}

static void on_turn(void *arg)
{
    struct http_conn *c = arg;
    c->kicked = false;
    conn_advance(c);
}
void conn_kick(struct http_conn *c)
{
    if (c->kicked || c->busy || c->dead)
        return;
    c->kicked = true;
    loop_defer(c->srv->loop, on_turn, c);
}

static void on_io(void *arg, int events)
{
    struct http_conn *c = arg;
    if ((events & IO_READ) && !read_some(c)) {
        conn_kill(c);
        return;
    }
    conn_advance(c);
}

static void first_read(void *arg)
{
    struct http_conn *c = arg;
    if (!c->dead)
        on_io(c, IO_READ);
}
void conn_new(struct http_server *srv, struct transport *t, bool read_now)
{
    struct http_conn *c = xcalloc(1, sizeof *c);
    c->srv = srv;
    c->t = t;
    if (sock_peer(t->fd, &c->peer, NULL)) { /* reset before we looked */
        transport_close(t);
        free(c);
        return;
    }
    io_init(&c->io, srv->loop, t->fd, on_io, c);
    timer_init(&c->timer, srv->loop, on_timer, c);
    list_add_tail(&srv->conns, &c->node);
    srv->nconns++;
    enter(c, CONN_HEAD);
    io_want(&c->io, IO_READ);
    arm(c);
    if (read_now)
        loop_defer(srv->loop, first_read, c);
}
