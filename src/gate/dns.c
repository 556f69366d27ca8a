/* The resolver that a sandbox sees: UDP and TCP sockets inside its namespace.
 * A name that the policy does not allow is answered NXDOMAIN at once; what is
 * allowed is asked of the host's resolvers, cleaned of addresses that no sandbox
 * may have, bound to the name, and answered. Every question is a record. */
#include "base/clock.h"
#include "base/fd.h"
#include "gate/gate_int.h"
#include "gate/dnsmsg.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PENDING_MAX  256 /* questions of one box under way */
#define TURN_MAX     64
#define TCP_MAX      32  /* connections of one box */
#define TCP_IDLE_NS  (15 * NS_PER_S)
#define TCP_PIPE     16  /* questions of one connection under way */

/* Where an answer goes: a datagram's sender, or a TCP connection. */
struct peer { struct sockaddr_storage from; socklen_t nfrom; union { struct in_pktinfo v4; struct in6_pktinfo v6; } at; int family; };

struct dns_tcp { struct list node; struct box *box; int fd; struct io io; struct timer timer; struct buf in, out; int pending; bool eof, dead; };

struct question { struct list node; struct box *box; struct dns_query q; struct lookup *lookup; struct peer peer; struct dns_tcp *tcp; char rule[112]; };

static void tcp_send(struct dns_tcp *t, const struct buf *m);

/* ---- records ---------------------------------------------------------------------------------------------------------- */

static void addrs_text(const struct dns_answer *a, char out[64])
{
    size_t o = 0;
    out[0] = 0;
    for (size_t i = 0; a && i < a->nrr; i++) {
        struct ip ip;
        char text[IP_TEXT];
        if (!dns_rr_addr(a, &a->rr[i], &ip))
            continue;
        ip_text(&ip, text);
        size_t n = strlen(text);
        if (o + n + 2 > 64)
            break;
        if (o)
            out[o++] = ' ';
        memcpy(out + o, text, n + 1);
        o += n;
    }
}
static void record(struct box *b, const struct dns_query *q, bool allowed, const char *rule, const char *reason, const struct dns_answer *a)
{
    char type[16], addrs[64];
    addrs_text(a, addrs);
    struct gate_record r = {.kind = GATE_K_DNS, .name = q->text[0] ? q->text : q->shown, .type = dns_type_name(q->type, type), .addr = addrs,
                            .rule = rule, .reason = reason, .allowed = allowed};
    b->dns++;
    b->dns_denied += !allowed;
    gate_record(b, &r);
}

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

static void send_udp(int fd, const struct peer *p, const struct buf *m)
{
    union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(struct in6_pktinfo))]; } c = {0};
    struct iovec iov = {m->p, m->n};
    struct msghdr h = {.msg_name = (void *)(uintptr_t)&p->from, .msg_namelen = p->nfrom, .msg_iov = &iov, .msg_iovlen = 1};
    if (p->family) {
        size_t n = p->family == AF_INET ? sizeof p->at.v4 : sizeof p->at.v6;
        h.msg_control = c.room;
        h.msg_controllen = CMSG_SPACE(n);
        struct cmsghdr *k = CMSG_FIRSTHDR(&h);
        k->cmsg_level = p->family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
        k->cmsg_type = p->family == AF_INET ? IP_PKTINFO : IPV6_PKTINFO;
        k->cmsg_len = CMSG_LEN(n);
        memcpy(CMSG_DATA(k), &p->at, n);
    }
    (void)sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL); /* a lost datagram: the asker asks again */
}
/* The sockets of a box may have been exchanged since the question came. */
static int udp_socket(const struct box *b, int family)
{
    for (int i = 0; i < b->nsocks; i++)
        if (b->sock[i].role == GATE_SOCK_DNS_UDP && b->sock[i].family == family)
            return b->sock[i].fd;
    return -1;
}
static void reply(const struct box *b, const struct dns_query *q, const struct peer *p, struct dns_tcp *t, int rcode, const struct dns_answer *a,
                  enum dns_ede ede, const char *text)
{
    auto_buf m = {0};
    size_t max = t ? DNS_MSG_MAX : q->udp_size < DNS_UDP_MAX ? q->udp_size : DNS_UDP_MAX;
    dns_reply(&m, q, rcode, a, ede, text, max);
    if (t)
        tcp_send(t, &m);
    else
        send_udp(udp_socket(b, p->from.ss_family), p, &m);
}

static void question_end(struct question *k)
{
    list_del(&k->node);
    k->box->nquestions--;
    if (k->tcp)
        k->tcp->pending--;
    free(k);
}

/* Drops addresses the sandbox may not have; binds the rest to the name. Returns why the first was dropped. */
static const char *clean(struct box *b, struct dns_answer *a, const char *name)
{
    const char *why = NULL;
    int64_t now = clock_mono();
    for (size_t i = 0; i < a->nrr;) {
        struct ip ip;
        if (!dns_rr_addr(a, &a->rr[i], &ip)) {
            i++;
            continue;
        }
        const char *closed = policy_addr_closed(&b->set, &ip);
        struct ip plain = ip_plain(&ip);
        if (!closed && ip.v6 != plain.v6)
            closed = "an IPv4 address dressed as IPv6"; /* would be connected to as what it is not */
        if (closed) {
            why = why ? why : closed;
            dns_rr_drop(a, i);
            continue;
        }
        binds_add(&b->binds, &ip, name, a->rr[i].ttl, now);
        i++;
    }
    return why;
}

static void on_answer(void *arg, struct dns_answer *a, const char *why)
{
    struct question *k = arg;
    struct box *b = k->box;
    k->lookup = NULL;
    struct policy_verdict v;
    policy_dns(&b->set, str_of(k->q.text), &v); /* it may have changed while we asked */
    if (v.answer != ANSWER_ALLOW) {
        record(b, &k->q, false, v.rule, v.reason, NULL);
        reply(b, &k->q, &k->peer, k->tcp, DNS_NXDOMAIN, NULL, DNS_EDE_BLOCKED, v.reason);
    } else if (!a) {
        record(b, &k->q, true, k->rule, why, NULL);
        reply(b, &k->q, &k->peer, k->tcp, DNS_SERVFAIL, NULL, DNS_EDE_UPSTREAM, why);
    } else {
        const char *dropped = clean(b, a, k->q.text);
        bool left = false;
        struct ip ip;
        for (size_t i = 0; i < a->nrr && !left; i++)
            left = dns_rr_addr(a, &a->rr[i], &ip);
        char reason[160] = "";
        if (dropped)
            (void)snprintf(reason, sizeof reason, "%s %s", left ? "an address was dropped:" : "resolves only to closed addresses:", dropped);
        bool bad = dropped && !left;
        record(b, &k->q, !bad, bad ? "closed" : k->rule, reason, a);
        if (bad)
            reply(b, &k->q, &k->peer, k->tcp, DNS_NXDOMAIN, NULL, DNS_EDE_FILTERED, reason);
        else
            reply(b, &k->q, &k->peer, k->tcp, a->rcode, a, DNS_EDE_NONE, NULL);
    }
    question_end(k);
}

/* ---- questions ------------------------------------------------------------------------------------------------------------ */

static void handle(struct box *b, const uint8_t *p, size_t n, const struct peer *from, struct dns_tcp *t)
{
    struct dns_query q;
    struct policy_verdict v;
    int rc = dns_query_parse(p, n, &q);
    int64_t now = clock_mono();
    if (rc < 0)
        return;
    if (!bucket_has(&b->dns_rate, 1, now) || b->nquestions >= PENDING_MAX) {
        b->dns++, b->dns_denied++; /* counted, not logged: a flood must not fill the log */
        reply(b, &q, from, t, DNS_REFUSED, NULL, DNS_EDE_PROHIBITED, "too many DNS queries; slow down");
        return;
    }
    bucket_take(&b->dns_rate, 1);
    if (rc) {
        static const char why[] = "a query of a type that is not answered";
        record(b, &q, false, "malformed", why, NULL);
        reply(b, &q, from, t, rc, NULL, DNS_EDE_PROHIBITED, why);
        return;
    }
    if (!q.text[0]) {
        static const char why[] = "not a host name";
        record(b, &q, false, "malformed", why, NULL);
        reply(b, &q, from, t, DNS_NXDOMAIN, NULL, DNS_EDE_BLOCKED, why);
        return;
    }
    policy_dns(&b->set, str_of(q.text), &v);
    if (v.answer != ANSWER_ALLOW) {
        record(b, &q, false, v.rule, v.reason, NULL);
        reply(b, &q, from, t, DNS_NXDOMAIN, NULL, DNS_EDE_BLOCKED, v.reason);
        return;
    }
    struct question *k = xcalloc(1, sizeof *k);
    k->box = b;
    k->q = q;
    k->tcp = t;
    if (from)
        k->peer = *from;
    memcpy(k->rule, v.rule, sizeof k->rule);
    list_add_tail(&b->questions, &k->node);
    b->nquestions++;
    if (t)
        t->pending++;
    k->lookup = resolver_ask(b->g->resolver, &q.name, q.type, q.want_dnssec, on_answer, k);
}

void dns_udp_ready(struct gsock *s)
{
    for (int i = 0; i < TURN_MAX; i++) {
        uint8_t in[2048];
        union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(struct in6_pktinfo))]; } c;
        struct iovec iov = {in, sizeof in};
        struct peer p = {0};
        struct msghdr h = {.msg_name = &p.from, .msg_namelen = sizeof p.from, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.room, .msg_controllen = sizeof c.room};
        ssize_t n = recvmsg(s->fd, &h, MSG_DONTWAIT);
        if (n < 0)
            return;
        p.nfrom = h.msg_namelen;
        for (struct cmsghdr *k = CMSG_FIRSTHDR(&h); k; k = CMSG_NXTHDR(&h, k)) {
            if (k->cmsg_level == IPPROTO_IP && k->cmsg_type == IP_PKTINFO) {
                memcpy(&p.at.v4, CMSG_DATA(k), sizeof p.at.v4);
                p.at.v4.ipi_spec_dst = p.at.v4.ipi_addr; /* answer from where it was sent to */
                p.at.v4.ipi_ifindex = 0;
                p.family = AF_INET;
            } else if (k->cmsg_level == IPPROTO_IPV6 && k->cmsg_type == IPV6_PKTINFO) {
                memcpy(&p.at.v6, CMSG_DATA(k), sizeof p.at.v6);
                p.at.v6.ipi6_ifindex = 0;
                p.family = AF_INET6;
            }
        }
        if (!(h.msg_flags & MSG_TRUNC))
            handle(s->box, in, (size_t)n, &p, NULL);
        if (s->box->dead)
            return;
    }
}

/* ---- TCP ------------------------------------------------------------------------------------------------------------------- */

static void tcp_bury(void *arg)
{
    struct dns_tcp *t = arg;
    buf_free(&t->in), buf_free(&t->out);
    free(t);
}
static void tcp_close(struct dns_tcp *t)
{
    if (t->dead)
        return;
    t->dead = true;
    io_stop(&t->io);
    timer_stop(&t->timer);
    (void)close(t->fd);
    list_del(&t->node);
    struct question *k;
    list_each(k, &t->box->questions, node)
        if (k->tcp == t) {
            lookup_cancel(k->lookup);
            question_end(k);
        }
    loop_defer(t->box->g->loop, tcp_bury, t);
}
static void tcp_idle(void *arg) { tcp_close(arg); }

static void tcp_interest(struct dns_tcp *t)
{
    if (t->eof && !t->pending && !t->out.n) {
        tcp_close(t);
        return;
    }
    io_want(&t->io, (t->eof || t->pending >= TCP_PIPE || t->out.n > 2 * DNS_MSG_MAX ? 0 : IO_READ) | (t->out.n ? IO_WRITE : 0));
}
static void tcp_send(struct dns_tcp *t, const struct buf *m)
{
    char len[2] = {(char)(m->n >> 8), (char)m->n};
    if (t->dead)
        return;
    buf_put(&t->out, len, 2);
    buf_put(&t->out, m->p, m->n);
    io_want(&t->io, IO_READ | IO_WRITE); /* tcp_interest settles it once the caller has counted */
}

static void tcp_questions(struct dns_tcp *t)
{
    while (!t->dead && t->in.n >= 2 && t->pending < TCP_PIPE) {
        size_t n = (size_t)(uint8_t)t->in.p[0] << 8 | (uint8_t)t->in.p[1];
        if (n > 2048) { /* no question is that long */
            tcp_close(t);
            return;
        }
        if (t->in.n < n + 2)
            return;
        uint8_t one[2048];
        memcpy(one, t->in.p + 2, n);
        buf_drop(&t->in, n + 2);
        handle(t->box, one, n, NULL, t);
    }
}
static void on_tcp(void *arg, int events)
{
    struct dns_tcp *t = arg;
    timer_arm(&t->timer, TCP_IDLE_NS);
    if (events & IO_WRITE && t->out.n) {
        ssize_t n = send(t->fd, t->out.p, t->out.n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) {
            tcp_close(t);
            return;
        }
        if (n > 0)
            buf_drop(&t->out, (size_t)n);
    }
    if (events & IO_READ && !t->eof) {
        char in[4096];
        ssize_t n = recv(t->fd, in, sizeof in, MSG_DONTWAIT);
        if (n > 0)
            buf_put(&t->in, in, (size_t)n);
        else if (!n)
            t->eof = true;
        else if (errno != EAGAIN) {
            tcp_close(t);
            return;
        }
    }
    tcp_questions(t);
    if (!t->dead)
        tcp_interest(t);
}

void dns_accept(struct gsock *s)
{
    struct box *b = s->box;
    for (int i = 0; i < TURN_MAX; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), open = 0;
        if (fd < 0)
            return;
        struct dns_tcp *t;
        list_each(t, &b->dns_conns, node)
            open++;
        if (open >= TCP_MAX) {
            (void)close(fd);
            continue;
        }
        t = xcalloc(1, sizeof *t);
        t->box = b;
        t->fd = fd;
        io_init(&t->io, b->g->loop, fd, on_tcp, t);
        timer_init(&t->timer, b->g->loop, tcp_idle, t);
        timer_arm(&t->timer, TCP_IDLE_NS);
        list_add_tail(&b->dns_conns, &t->node);
        io_want(&t->io, IO_READ);
    }
}

void dns_drop(struct box *b)
{
    struct dns_tcp *t;
    struct question *k;
    list_each(t, &b->dns_conns, node)
        tcp_close(t);
    list_each(k, &b->questions, node) {
        lookup_cancel(k->lookup);
        question_end(k);
    }
}
