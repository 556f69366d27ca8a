/* Datagrams other than questions. They arrive as they were sent (jail/nft.h: the
 * destination is read from the packet), and a flow, that is one port of the
 * sandbox and one far end, gets a socket of its own that is connected there:
 * nobody else can answer into it. Answers go back by a raw socket, in the name of
 * the far end; so do refusals, as ICMP. A flow ends when nothing moved for a while.
 *
 * A name allows a datagram only through the addresses the resolver gave out for
 * it: what is said inside is not looked at, so QUIC stays closed under a domain
 * list (policy.h: such a rule must say udp and its ports). */
#include "base/clock.h"
#include "gate/dgram.h"
#include "gate/gate_int.h"
#include "wire/net.h"
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FLOWS_MAX   256 /* of one box */
#define TURN_MAX    64
#define IDLE_NS     (60 * NS_PER_S) /* unless the operator says otherwise */
#define SILENT_PART 3               /* of it, while no answer ever came */
#define LOOK_PART   12              /* of it: how often is looked */
#define SAY_AGAIN   (10 * NS_PER_S) /* the same refusal is written down again */
#define SAY_RATE    10              /* lines a second, and four times as many at once */
#define NAMES_MAX   16
#define DATAGRAM    65536u

#ifndef IP_RECVORIGDSTADDR
#define IP_RECVORIGDSTADDR 20
#endif
#ifndef IPV6_RECVORIGDSTADDR
#define IPV6_RECVORIGDSTADDR 74
#endif

struct flow_udp {
    struct list node; /* of its box; used last comes first */
    struct box *box;
    uint64_t id, in, out, dropped;
    struct dgram d; /* as the sandbox sends it */
    int fd;
    struct io io;
    int64_t began, used;
    bool dead;
    char name[NAME_MAX_LEN + 1], rule[112];
};

/* ---- records ---------------------------------------------------------------------------------------------------------- */

static void record(struct box *b, enum gate_kind kind, const struct dgram *d, const struct flow_udp *f, const char *name, const char *rule, const char *reason)
{
    char addr[IP_TEXT];
    ip_text(&d->to, addr);
    struct gate_record r = {.kind = kind, .conn = f ? f->id : 0, .name = name, .type = "udp", .addr = addr, .port = d->to_port, .rule = rule, .reason = reason,
                            .allowed = kind != GATE_K_DENY && kind != GATE_K_CUT, .in = f ? f->in : 0, .out = f ? f->out : 0,
                            .ms = f && kind != GATE_K_OPEN ? (uint64_t)((clock_mono() - f->began) / NS_PER_MS) : 0};
    gate_record(b, &r);
}
/* A flood must not fill the log: one line for a far end in a while, and so many lines a second; what was left out is counted. */
static void say_no(struct box *b, const struct dgram *d, const char *name, const char *rule, const char *reason)
{
    struct udp_box *u = &b->udp;
    int64_t now = clock_mono();
    struct udp_said *oldest = &u->said[0];
    b->denied++;
    for (size_t i = 0; i < UDP_SAID; i++) {
        struct udp_said *s = &u->said[i];
        if (s->at && now - s->at < SAY_AGAIN && s->port == d->to_port && ip_eq(&s->ip, &d->to)) {
            u->unsaid++;
            return;
        }
        if (s->at < oldest->at)
            oldest = s;
    }
    bucket_set(&u->say, SAY_RATE, 4 * SAY_RATE, now);
    if (!bucket_has(&u->say, 1, now)) {
        u->unsaid++;
        return;
    }
    bucket_take(&u->say, 1);
    *oldest = (struct udp_said){d->to, d->to_port, now};
    char more[200];
    if (u->unsaid) {
        (void)snprintf(more, sizeof more, "%.150s (and %llu datagrams refused before it)", reason, (unsigned long long)u->unsaid);
        reason = more;
        u->unsaid = 0;
    }
    record(b, GATE_K_DENY, d, NULL, name, rule, reason);
}

/* ---- back into the sandbox --------------------------------------------------------------------------------------------- */

static int sock_of(const struct box *b, enum gate_sock role, int family)
{
    for (int i = 0; i < b->nsocks; i++)
        if (b->sock[i].role == role && b->sock[i].family == family)
            return b->sock[i].fd;
    return -1;
}
/* From any address to the sandbox's own. A full queue loses it, as networks do. */
static void send_raw(int fd, const struct ip *from, const struct ip *to, struct iovec *iov, size_t n)
{
    union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(struct in6_pktinfo))]; } c = {0};
    struct sockaddr_storage ss;
    struct msghdr h = {.msg_name = &ss, .msg_namelen = ip_to_sockaddr(to, 0, &ss), .msg_iov = iov, .msg_iovlen = n, .msg_control = c.room};
    struct in_pktinfo p4 = {0};
    struct in6_pktinfo p6 = {0};
    memcpy(&p4.ipi_spec_dst, from->b, 4);
    memcpy(&p6.ipi6_addr, from->b, 16);
    h.msg_controllen = CMSG_SPACE(from->v6 ? sizeof p6 : sizeof p4);
    struct cmsghdr *k = CMSG_FIRSTHDR(&h);
    k->cmsg_level = from->v6 ? IPPROTO_IPV6 : IPPROTO_IP;
    k->cmsg_type = from->v6 ? IPV6_PKTINFO : IP_PKTINFO;
    k->cmsg_len = CMSG_LEN(from->v6 ? sizeof p6 : sizeof p4);
    memcpy(CMSG_DATA(k), from->v6 ? (void *)&p6 : (void *)&p4, from->v6 ? sizeof p6 : sizeof p4);
    (void)sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
}
static void refuse(const struct box *b, const struct dgram *d, size_t n, enum dgram_no why)
{
    uint8_t m[DGRAM_NO];
    struct iovec iov = {m, dgram_refuse(d, n, why, m)};
    send_raw(sock_of(b, GATE_SOCK_UDP_NO, d->to.v6 ? AF_INET6 : AF_INET), &d->to, &d->from, &iov, 1);
}
static void answer(const struct flow_udp *f, char *p, size_t n)
{
    uint8_t head[DGRAM_HEAD];
    struct dgram back = {f->d.to, f->d.from, f->d.to_port, f->d.from_port};
    struct iovec iov[2] = {{head, sizeof head}, {p, n}};
    dgram_head(&back, p, n, head);
    send_raw(sock_of(f->box, GATE_SOCK_UDP_BACK, back.to.v6 ? AF_INET6 : AF_INET), &back.from, &back.to, iov, 2);
}

/* ---- flows ----------------------------------------------------------------------------------------------------------- */

static void bury(void *arg) { free(arg); }

static void flow_end(struct flow_udp *f, enum gate_kind kind, const char *reason)
{
    struct box *b = f->box;
    if (f->dead)
        return;
    f->dead = true;
    char why[160];
    if (f->dropped) {
        (void)snprintf(why, sizeof why, "%.80s%s%llu datagrams over the bandwidth were dropped", reason, *reason ? "; " : "", (unsigned long long)f->dropped);
        reason = why;
    }
    record(b, kind, &f->d, f, f->name, f->rule, reason);
    io_stop(&f->io);
    (void)close(f->fd);
    list_del(&f->node);
    b->udp.nflows--;
    meter_conn(b, -1);
    loop_defer(b->g->loop, bury, f);
}
static int64_t idle_ns(const struct gate *g) { return g->udp_idle ? g->udp_idle : IDLE_NS; }
static void on_look(void *arg)
{
    struct box *b = arg;
    struct flow_udp *f;
    int64_t now = clock_mono(), idle = idle_ns(b->g);
    list_each(f, &b->udp.flows, node)
        if (now - f->used >= (f->in ? idle : idle / SILENT_PART))
            flow_end(f, GATE_K_CLOSE, "idle");
    if (!list_empty(&b->udp.flows))
        timer_arm(&b->udp.look, idle / LOOK_PART);
}
/* May n bytes move? Too fast: this one is lost. Used up: the flow ends. */
static bool may_move(struct flow_udp *f, size_t n, bool outward)
{
    struct box *b = f->box;
    if (meter_spent(b)) {
        flow_end(f, GATE_K_CUT, meter_why_spent(b));
        return false;
    }
    if (meter_may(b, n, clock_mono()) < n) {
        f->dropped++;
        return false;
    }
    meter_moved(b, outward ? 0 : n, outward ? n : 0);
    *(outward ? &f->out : &f->in) += n;
    f->used = clock_mono();
    return true;
}
static void on_far(void *arg, int events)
{
    struct flow_udp *f = arg;
    char *in = f->box->g->scratch;
    (void)events;
    for (int i = 0; i < TURN_MAX && !f->dead; i++) {
        ssize_t n = recv(f->fd, in, DATAGRAM, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0) { /* what ICMP said of it outside */
            bool port = errno == ECONNREFUSED;
            refuse(f->box, &f->d, 0, port ? DGRAM_NO_PORT : DGRAM_NO_HOST);
            flow_end(f, GATE_K_CLOSE, port ? "no one listens at the remote address" : "the remote address is unreachable");
            return;
        }
        if (may_move(f, (size_t)n, false))
            answer(f, in, (size_t)n);
    }
}
static void out(struct flow_udp *f, const char *p, size_t n)
{
    list_del(&f->node);
    list_add(&f->box->udp.flows, &f->node);
    if (may_move(f, n, true))
        (void)send(f->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL); /* an error comes to on_far, or the datagram is lost */
}

static struct policy_verdict decide(struct box *b, const struct dgram *d, const char **ret_name)
{
    const char *names[NAMES_MAX];
    struct policy_ask q = {.addr = &d->to, .port = d->to_port, .proto = PROTO_UDP, .looked = true};
    struct policy_verdict v = {0};
    size_t n = binds_names(&b->binds, &d->to, clock_mono(), names, NAMES_MAX);
    *ret_name = n ? names[0] : "";
    for (size_t i = 0; i < n; i++) {
        q.name = str_of(names[i]);
        policy_decide(&b->set, &q, &v);
        *ret_name = names[i];
        if (v.answer == ANSWER_ALLOW)
            return v;
    }
    if (!n)
        policy_decide(&b->set, &q, &v);
    return v;
}
static const char *over_limit(const struct box *b)
{
    if (b->udp.nflows >= FLOWS_MAX)
        return "the sandbox already has 256 UDP flows, the limit";
    return meter_full(b);
}
static int dial(const struct dgram *d)
{
    struct sockaddr_storage ss;
    socklen_t n = ip_to_sockaddr(&d->to, d->to_port, &ss);
    int fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), no = IP_PMTUDISC_DONT;
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &no, sizeof no); /* the sandbox is not told of smaller links outside */
    if (!connect(fd, (void *)&ss, n))
        return fd;
    (void)close(fd);
    return -1;
}
static void begin(struct box *b, const struct dgram *d, const char *p, size_t n)
{
    const char *name, *why = over_limit(b);
    struct policy_verdict v = decide(b, d, &name);
    if (v.answer != ANSWER_ALLOW || why) {
        say_no(b, d, name, v.answer == ANSWER_ALLOW ? "limit" : v.rule, v.answer == ANSWER_ALLOW ? why : v.reason);
        refuse(b, d, n, DGRAM_PROHIBITED);
        return;
    }
    int fd = dial(d);
    if (fd < 0) {
        record(b, GATE_K_FAIL, d, NULL, name, v.rule, "no route");
        refuse(b, d, n, DGRAM_NO_HOST);
        return;
    }
    struct flow_udp *f = xcalloc(1, sizeof *f);
    *f = (struct flow_udp){.box = b, .id = ++b->g->next_conn, .d = *d, .fd = fd, .began = clock_mono(), .used = clock_mono()};
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    memcpy(f->rule, v.rule, sizeof f->rule);
    list_add(&b->udp.flows, &f->node);
    b->udp.nflows++;
    b->total++;
    meter_conn(b, 1);
    io_init(&f->io, b->g->loop, fd, on_far, f);
    io_want(&f->io, IO_READ);
    if (!b->udp.look.armed)
        timer_arm(&b->udp.look, idle_ns(b->g) / LOOK_PART);
    record(b, GATE_K_OPEN, d, f, f->name, f->rule, "");
    out(f, p, n);
}

/* ---- arriving -------------------------------------------------------------------------------------------------------- */

/* Only the sandbox's own address is one to answer to. */
static bool from_guest(const struct ip *a)
{
    static const struct ip guest6 = {.b = NET_GUEST6, .v6 = true};
    static const struct ip guest4 = {.b = {NET_GUEST4 >> 24 & 255, NET_GUEST4 >> 16 & 255, NET_GUEST4 >> 8 & 255, NET_GUEST4 & 255}};
    return ip_eq(a, a->v6 ? &guest6 : &guest4);
}
void udp_ready(struct gsock *s)
{
    struct box *b = s->box;
    char *in = b->g->scratch;
    for (int i = 0; i < TURN_MAX && !b->dead; i++) {
        union { struct cmsghdr align; char room[256]; } c;
        struct sockaddr_storage from, to = {0};
        struct iovec iov = {in, DATAGRAM};
        struct msghdr h = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.room, .msg_controllen = sizeof c.room};
        struct dgram d;
        struct flow_udp *f, *hit = NULL;
        ssize_t n = recvmsg(s->fd, &h, MSG_DONTWAIT);
        if (n < 0)
            return;
        for (struct cmsghdr *k = CMSG_FIRSTHDR(&h); k; k = CMSG_NXTHDR(&h, k))
            if ((k->cmsg_level == IPPROTO_IP && k->cmsg_type == IP_RECVORIGDSTADDR) || (k->cmsg_level == IPPROTO_IPV6 && k->cmsg_type == IPV6_RECVORIGDSTADDR))
                memcpy(&to, CMSG_DATA(k), s->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
        if (!ip_from_sockaddr((void *)&from, &d.from, &d.from_port) || !ip_from_sockaddr((void *)&to, &d.to, &d.to_port) || !from_guest(&d.from) ||
            d.from.v6 != d.to.v6 || !d.to_port)
            continue;
        list_each(f, &b->udp.flows, node)
            if (f->d.from_port == d.from_port && f->d.to_port == d.to_port && ip_eq(&f->d.to, &d.to)) {
                hit = f;
                break;
            }
        if (hit)
            out(hit, in, (size_t)n);
        else
            begin(b, &d, in, (size_t)n);
    }
}
void udp_want_destination(int fd, int family)
{
    int on = 1;
    if (family == AF_INET)
        (void)setsockopt(fd, IPPROTO_IP, IP_RECVORIGDSTADDR, &on, sizeof on);
    else
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, &on, sizeof on);
}

/* ---- life ------------------------------------------------------------------------------------------------------------- */

void udp_init(struct box *b)
{
    list_init(&b->udp.flows);
    timer_init(&b->udp.look, b->g->loop, on_look, b);
}
uint64_t udp_review(struct box *b)
{
    struct flow_udp *f;
    uint64_t cut = 0;
    const char *name;
    list_each(f, &b->udp.flows, node)
        if (decide(b, &f->d, &name).answer != ANSWER_ALLOW) {
            refuse(b, &f->d, 0, DGRAM_PROHIBITED);
            flow_end(f, GATE_K_CUT, "the network policy was changed and does not allow it any more");
            cut++;
        }
    return cut;
}
void udp_cut(struct box *b, const char *why)
{
    struct flow_udp *f;
    list_each(f, &b->udp.flows, node)
        flow_end(f, GATE_K_CUT, why);
    timer_stop(&b->udp.look);
}
