#include "gate/resolve.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/list.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TRY_NS       (2 * NS_PER_S)
#define TRIES        4
#define INFLIGHT_MAX 2048

struct resolver {
    struct loop *loop;
    struct resolver_addr server[RESOLVERS_MAX];
    size_t nservers;
    struct list lookups;
    size_t inflight;
    struct dns_answer answer; /* big; one is parsed at a time */
    uint8_t in[DNS_MSG_MAX];
};
struct lookup {
    struct list node;
    struct resolver *r;
    struct dname name;
    uint16_t type, id;
    bool dnssec, tcp, cancelled;
    int fd, tries;
    size_t first; /* server tried first */
    struct io io;
    struct timer timer;
    struct buf out; /* TCP: what is still to be written */
    struct buf in;  /* TCP: what has come */
    lookup_done *done;
    void *arg;
};

bool resolver_addr_parse(struct str s, struct resolver_addr *ret)
{
    struct resolver_addr a = {.port = 53};
    struct str host;
    if (ip_parse(s, &a.ip) || (name_split_port(s, &host, &a.port) && ip_parse(host, &a.ip))) {
        *ret = a;
        return true;
    }
    return false;
}
size_t resolv_conf_parse(const char *text, struct resolver_addr *out, size_t cap)
{
    size_t n = 0;
    while (*text && n < cap) {
        size_t len = strcspn(text, "\n");
        struct str line = str_trim((struct str){text, len});
        if (str_starts(line, "nameserver") && line.n > 10 && (line.p[10] == ' ' || line.p[10] == '\t')) {
            struct str v = str_trim((struct str){line.p + 10, line.n - 10});
            n += resolver_addr_parse(v, &out[n]);
        }
        text += len + (text[len] == '\n');
    }
    return n;
}

struct resolver *resolver_new(struct loop *l)
{
    struct resolver *r = xcalloc(1, sizeof *r);
    r->loop = l;
    list_init(&r->lookups);
    return r;
}
void resolver_free(struct resolver *r) { free(r); }
void resolver_servers(struct resolver *r, const struct resolver_addr *a, size_t n)
{
    r->nservers = n > RESOLVERS_MAX ? RESOLVERS_MAX : n;
    memcpy(r->server, a, r->nservers * sizeof *a);
}

/* ---- one lookup ---------------------------------------------------------------------------------------------------- */

static void hang_up(struct lookup *l)
{
    if (l->fd < 0)
        return;
    io_stop(&l->io);
    (void)close(l->fd);
    l->fd = -1;
}
static void bury(void *arg)
{
    struct lookup *l = arg;
    buf_free(&l->out), buf_free(&l->in);
    free(l);
}
static void finish(struct lookup *l)
{
    hang_up(l);
    timer_stop(&l->timer);
    list_del(&l->node);
    l->r->inflight--;
    loop_defer(l->r->loop, bury, l);
}
static void answer(struct lookup *l, struct dns_answer *a, const char *why)
{
    lookup_done *done = l->done;
    void *arg = l->arg;
    finish(l);
    done(arg, a, why);
}
void lookup_cancel(struct lookup *l)
{
    if (l)
        finish(l);
}

static void on_io(void *arg, int events);
static void try_next(void *arg);

static void send_now(struct lookup *l)
{
    auto_buf q = {0};
    random_bytes(&l->id, sizeof l->id);
    dns_query_build(&q, l->id, &l->name, l->type, l->dnssec);
    if (!l->tcp) {
        (void)send(l->fd, q.p, q.n, MSG_DONTWAIT | MSG_NOSIGNAL); /* lost or refused: the timer or the socket tells */
        return;
    }
    char len[2] = {(char)(q.n >> 8), (char)q.n};
    l->out.n = l->in.n = 0;
    buf_put(&l->out, len, 2);
    buf_put(&l->out, q.p, q.n);
}

/* Opens a socket to the server whose turn it is. False: all tries used up. */
static bool start(struct lookup *l)
{
    struct resolver *r = l->r;
    hang_up(l);
    while (l->tries < TRIES) {
        const struct resolver_addr *s = &r->server[(l->first + (size_t)l->tries) % r->nservers];
        struct sockaddr_storage ss;
        socklen_t n = ip_to_sockaddr(&s->ip, s->port, &ss);
        l->fd = socket(ss.ss_family, (l->tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (l->fd >= 0 && (!connect(l->fd, (void *)&ss, n) || errno == EINPROGRESS)) {
            io_init(&l->io, r->loop, l->fd, on_io, l);
            send_now(l);
            io_want(&l->io, l->tcp ? IO_READ | IO_WRITE : IO_READ);
            timer_arm(&l->timer, TRY_NS);
            return true;
        }
        if (l->fd >= 0)
            (void)close(l->fd);
        l->fd = -1;
        l->tries++;
    }
    return false;
}
static void try_next(void *arg)
{
    struct lookup *l = arg;
    l->tries++;
    if (!start(l))
        answer(l, NULL, "the resolvers of the host do not answer");
}

static void got(struct lookup *l, const uint8_t *p, size_t n)
{
    struct dns_answer *a = &l->r->answer;
    if (!dns_answer_parse(p, n, l->id, &l->name, l->type, a)) {
        if (l->tcp)
            try_next(l); /* over UDP it may be a forgery: keep waiting for the real one */
        return;
    }
    if (a->truncated && !l->tcp) {
        l->tcp = true;
        if (!start(l))
            answer(l, NULL, "the resolvers of the host do not answer");
        return;
    }
    if (a->rcode != DNS_NOERROR && a->rcode != DNS_NXDOMAIN && l->tries + 1 < TRIES && l->r->nservers > 1) {
        try_next(l); /* this one cannot; another may */
        return;
    }
    answer(l, a, NULL);
}

static void on_tcp(struct lookup *l, int events)
{
    if (events & IO_WRITE && l->out.n) {
        ssize_t n = send(l->fd, l->out.p, l->out.n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) {
            try_next(l);
            return;
        }
        if (n > 0)
            buf_drop(&l->out, (size_t)n);
        if (!l->out.n)
            io_want(&l->io, IO_READ);
    }
    if (!(events & IO_READ))
        return;
    ssize_t n = recv(l->fd, l->r->in, sizeof l->r->in, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        try_next(l);
        return;
    }
    buf_put(&l->in, l->r->in, (size_t)n);
    size_t want = l->in.n >= 2 ? ((size_t)(uint8_t)l->in.p[0] << 8 | (uint8_t)l->in.p[1]) + 2 : 2;
    if (l->in.n >= 2 && l->in.n >= want)
        got(l, (uint8_t *)l->in.p + 2, want - 2);
    else if (l->in.n > DNS_MSG_MAX + 2)
        try_next(l);
}
static void on_io(void *arg, int events)
{
    struct lookup *l = arg;
    if (l->tcp) {
        on_tcp(l, events);
        return;
    }
    ssize_t n = recv(l->fd, l->r->in, sizeof l->r->in, MSG_DONTWAIT);
    if (n >= 0)
        got(l, l->r->in, (size_t)n);
    else if (errno != EAGAIN)
        try_next(l); /* refused */
}

static void fail_now(void *arg)
{
    struct lookup *l = arg;
    answer(l, NULL, l->r->nservers ? "too many DNS queries at once" : "no resolver is known on the host");
}
struct lookup *resolver_ask(struct resolver *r, const struct dname *name, uint16_t type, bool dnssec, lookup_done *done, void *arg)
{
    struct lookup *l = xcalloc(1, sizeof *l);
    *l = (struct lookup){.r = r, .name = *name, .type = type, .dnssec = dnssec, .fd = -1, .done = done, .arg = arg};
    list_add_tail(&r->lookups, &l->node);
    r->inflight++;
    timer_init(&l->timer, r->loop, try_next, l);
    if (r->inflight > INFLIGHT_MAX || !r->nservers || !start(l)) {
        timer_init(&l->timer, r->loop, fail_now, l);
        timer_arm(&l->timer, 0);
    }
    return l;
}
