/* Decisions about one connection: where it wants to go, under which name, and
 * whether that holds. The bytes are moved by relay.c and http_exchange.c. */
#include "gate/conn.h"
#include "base/clock.h"
#include "base/log.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The kernel's headers for these clash with libc's. */
#define SO_ORIGINAL_DST      80
#define IP6T_SO_ORIGINAL_DST 80

#define LOOK_NS     (6 * NS_PER_S)  /* for the first bytes when a name must be seen */
#define FALLBACK_NS (400 * NS_PER_MS) /* the same when silence is fine: the server may speak first */
#define DENY_NS     (400 * NS_PER_MS) /* before a refusal that cannot be explained becomes a reset */
#define LINGER_NS   NS_PER_S
#define ACCEPT_TURN 64
#define NAMES_MAX   16

static void on_client(void *arg, int events);
static void on_time(void *arg);
static void look(struct conn *c);
static void dial_out(struct conn *c);

/* ---- records and ends ------------------------------------------------------------------------------------------------- */

const char *conn_proto_name(const struct conn *c)
{
    static const char *const names[] = {[PROTO_TCP] = "tcp", [PROTO_HTTP] = "http", [PROTO_TLS] = "tls", [PROTO_UDP] = "udp"};
    return names[c->proto];
}
static void record(struct conn *c, enum gate_kind kind, bool allowed, const char *rule, const char *reason)
{
    char addr[IP_TEXT] = "";
    static const struct ip none;
    if (!ip_eq(&c->dst, &none))
        ip_text(&c->dst, addr);
    bool end = kind == GATE_K_CLOSE || kind == GATE_K_CUT;
    struct gate_record r = {.kind = kind, .conn = c->id, .name = c->name[0] ? c->name : c->want, .type = conn_proto_name(c), .addr = addr, .port = c->port,
                            .rule = rule, .reason = reason, .allowed = allowed, .in = c->in.bytes, .out = c->out.bytes,
                            .ms = end ? (uint64_t)((clock_mono() - c->began) / NS_PER_MS) : 0};
    c->box->denied += kind == GATE_K_DENY;
    gate_record(c->box, &r);
}
void conn_open(struct conn *c)
{
    c->opened = true;
    record(c, GATE_K_OPEN, true, c->rule, "");
}

static void bury(void *arg)
{
    struct conn *c = arg;
    buf_free(&c->first);
    free(c);
}
static void drop(struct conn *c)
{
    if (c->dead)
        return;
    c->dead = true;
    list_del(&c->node);
    list_del(&c->starve);
    timer_stop(&c->timer);
    io_stop(&c->io);
    io_stop(&c->uio);
    dial_cancel(&c->dial);
    addr_lookup_cancel(c->lookup);
    c->lookup = NULL;
    http_drop(c);
    relay_drop(c);
    if (c->fd >= 0)
        (void)close(c->fd);
    if (c->up >= 0)
        (void)close(c->up);
    c->fd = c->up = -1;
    meter_conn(c->box, -1);
    loop_defer(c->g->loop, bury, c);
}
void conn_end(struct conn *c, enum gate_kind kind, const char *reason)
{
    if (c->dead)
        return;
    if (c->opened)
        record(c, kind, kind == GATE_K_CLOSE, c->rule, reason);
    drop(c);
}
static void reset_client(struct conn *c)
{
    struct linger l = {1, 0};
    if (c->fd >= 0)
        (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    drop(c);
}

/* Our last words are sent; wait until the peer has read them, or a moment. */
static void linger(struct conn *c)
{
    c->state = CONN_LINGER;
    (void)shutdown(c->fd, SHUT_WR);
    io_want(&c->io, IO_READ);
    timer_arm(&c->timer, LINGER_NS);
}
/* c->reason is set: say it in the client's own protocol, as far as that is known. False: not known (yet). */
static bool refuse(struct conn *c, int status, const char *code)
{
    const uint8_t *p = (const uint8_t *)c->first.p;
    if (c->first.n && p[0] == 0x16) {
        (void)send(c->fd, deny_alert, sizeof deny_alert, MSG_DONTWAIT | MSG_NOSIGNAL);
        linger(c);
        return true;
    }
    if (hello_is_http(p, c->first.n) == 1) {
        auto_buf out = {0};
        deny_http(&out, status, code, c->rule, c->reason, !memcmp(p, "HEAD ", 5));
        (void)send(c->fd, out.p, out.n, MSG_DONTWAIT | MSG_NOSIGNAL); /* a fresh socket takes it whole, or the client is gone */
        linger(c);
        return true;
    }
    return false;
}
static void deny_now(struct conn *c)
{
    if (!refuse(c, 403, "network_denied"))
        reset_client(c);
}
void conn_deny(struct conn *c, const char *rule, const char *reason)
{
    (void)snprintf(c->rule, sizeof c->rule, "%s", rule);
    (void)snprintf(c->reason, sizeof c->reason, "%s", reason);
    record(c, GATE_K_DENY, false, c->rule, c->reason);
    if (c->first.n) {
        deny_now(c);
        return;
    }
    c->state = CONN_DENY; /* what comes first tells how to say it */
    io_want(&c->io, IO_READ);
    timer_arm(&c->timer, DENY_NS);
}
void conn_fail(struct conn *c, const char *reason)
{
    char addr[IP_TEXT];
    ip_text(&c->dst, addr);
    (void)snprintf(c->reason, sizeof c->reason, "%.120s port %u: %.50s", c->name[0] ? c->name : c->want[0] ? c->want : addr, c->port, reason);
    record(c, GATE_K_FAIL, true, c->rule, reason);
    if (c->proto != PROTO_HTTP || !refuse(c, 502, "upstream_unreachable"))
        reset_client(c);
}

void conn_starve(struct conn *c)
{
    if (c->starve.next)
        return;
    list_add_tail(&c->g->starved, &c->starve);
    if (!c->g->refill.armed)
        timer_arm(&c->g->refill, 4 * NS_PER_MS);
}
void conn_fed(struct list *n)
{
    struct conn *c = container_of(n, struct conn, starve);
    if (c->state == CONN_RELAY)
        relay_feed(c);
    else if (c->state == CONN_HTTP)
        http_feed(c);
}

/* ---- decisions ------------------------------------------------------------------------------------------------------------ */

struct policy_ask conn_ask(const struct conn *c)
{
    return (struct policy_ask){.name = str_of(c->name), .addr = &c->dst, .port = c->port, .proto = c->proto};
}
static struct policy_verdict ask(const struct conn *c, const struct policy_ask *q)
{
    struct policy_verdict v;
    policy_decide(&c->box->set, q, &v);
    return v;
}
static void take_rule(struct conn *c, const struct policy_verdict *v) { memcpy(c->rule, v->rule, sizeof c->rule); }

/* Rules for uninspected TCP by name: is the address one that such a name was resolved to? */
static bool allowed_by_binding(struct conn *c)
{
    const char *names[NAMES_MAX];
    size_t n = binds_names(&c->box->binds, &c->dst, clock_mono(), names, NAMES_MAX);
    for (size_t i = 0; i < n; i++)
        if (policy_injects_host(c->box->own, str_of(names[i]), c->port))
            return false; /* it may be the one that secrets are put in for: that must be seen */
    for (size_t i = 0; i < n; i++) {
        struct policy_ask q = {.name = str_of(names[i]), .addr = &c->dst, .port = c->port, .proto = PROTO_TCP};
        struct policy_verdict v = ask(c, &q);
        if (v.answer != ANSWER_ALLOW)
            continue;
        memcpy(c->name, names[i], strlen(names[i]) + 1);
        take_rule(c, &v);
        return true;
    }
    return false;
}

static void first_decision(struct conn *c)
{
    struct policy_ask q = {.addr = &c->dst, .port = c->port, .proto = PROTO_TCP};
    struct policy_verdict v = ask(c, &q);
    if (v.answer == ANSWER_DENY) {
        conn_deny(c, v.rule, v.reason);
        return;
    }
    take_rule(c, &v);
    if (v.answer == ANSWER_ALLOW || allowed_by_binding(c)) {
        const char *name;
        if (!c->name[0] && binds_names(&c->box->binds, &c->dst, clock_mono(), &name, 1)) /* for the log */
            memcpy(c->name, name, strlen(name) + 1);
        dial_out(c);
        return;
    }
    q.looked = true;
    c->fallback = ask(c, &q).answer == ANSWER_ALLOW;
    look(c);
}

/* Without a name that can be trusted: what do the rules about addresses say? */
static void decide_nameless(struct conn *c, const char *why)
{
    struct policy_ask q = {.addr = &c->dst, .port = c->port, .proto = c->proto, .looked = true};
    struct policy_verdict v = ask(c, &q);
    if (v.answer == ANSWER_ALLOW) {
        take_rule(c, &v);
        dial_out(c);
        return;
    }
    char reason[200];
    (void)snprintf(reason, sizeof reason, "%.110s%s%.60s", v.reason, why ? "; the connection has " : "", why ? why : "");
    conn_deny(c, v.rule, reason);
}

static void on_addrs(void *arg, const struct addrs *a)
{
    struct conn *c = arg;
    c->lookup = NULL;
    for (size_t i = 0; i < a->n; i++)
        if (!policy_addr_closed(&c->box->set, &a->ip[i]))
            binds_add(&c->box->binds, &a->ip[i], c->name, a->ttl[i], clock_mono());
    if (binds_has(&c->box->binds, &c->dst, c->name, clock_mono())) {
        dial_out(c);
        return;
    }
    char addr[IP_TEXT], reason[200];
    ip_text(&c->dst, addr);
    (void)snprintf(reason, sizeof reason, "%.90s claims to be %.90s, but is not one of its addresses", addr, c->name);
    conn_deny(c, "binding", reason);
}
/* The name is allowed; it must also be a name of this address. One that we never gave out is looked up once: the sandbox may know it
 * from before we were restarted. */
static void check_binding(struct conn *c)
{
    if (binds_has(&c->box->binds, &c->dst, c->name, clock_mono())) {
        dial_out(c);
        return;
    }
    c->state = CONN_NAME;
    timer_stop(&c->timer);
    io_want(&c->io, 0);
    c->lookup = addr_lookup_start(c->g->loop, c->g->resolver, c->name, on_addrs, c);
}

static void decide_tls(struct conn *c, const struct hello *h)
{
    c->proto = PROTO_TLS;
    memcpy(c->name, h->sni, sizeof c->name);
    if (!h->sni[0] || h->ech) {
        decide_nameless(c, h->ech ? "an encrypted client hello" : "no server name");
        return;
    }
    struct policy_ask q = conn_ask(c);
    struct policy_verdict v = ask(c, &q);
    if (v.answer != ANSWER_ALLOW) {
        conn_deny(c, v.rule, v.reason);
        return;
    }
    take_rule(c, &v);
    c->intercept = v.intercept;
    if (c->want[0] && strcmp(c->want, c->name)) {
        conn_deny(c, "binding", "the TLS server name is not the host that CONNECT asked for");
        return;
    }
    if (v.intercept && !c->box->ca) {
        conn_deny(c, v.rule, "this rule needs to see inside TLS, but the sandbox has no certificate authority for it");
        return;
    }
    if (v.by_name && !c->want[0]) /* after CONNECT we looked the name up ourselves */
        check_binding(c);
    else
        dial_out(c);
}

/* The first bytes, as far as they have come. False: more are needed. */
static bool classify(struct conn *c)
{
    struct hello h;
    const char *why = "";
    const uint8_t *p = (const uint8_t *)c->first.p;
    switch (hello_parse(p, c->first.n, &h, &why)) {
    case HELLO_MORE: return false;
    case HELLO_GOT: decide_tls(c, &h); return true;
    case HELLO_BAD:
        c->proto = PROTO_TLS;
        decide_nameless(c, why);
        return true;
    case HELLO_NOT_TLS: break;
    }
    int http = hello_is_http(p, c->first.n);
    if (http < 0)
        return false;
    if (http) {
        c->proto = PROTO_HTTP;
        http_start(c);
    } else
        decide_nameless(c, "neither HTTP nor TLS inside");
    return true;
}

static void look(struct conn *c)
{
    c->state = CONN_LOOK;
    timer_arm(&c->timer, c->fallback ? FALLBACK_NS : LOOK_NS);
    io_want(&c->io, IO_READ);
    if (c->first.n)
        (void)classify(c);
}
void conn_tunnel(struct conn *c)
{
    c->proto = PROTO_TCP;
    c->proxy = false;
    c->name[0] = 0;
    io_init(&c->io, c->g->loop, c->fd, on_client, c);
    struct policy_ask q = {.name = str_of(c->want), .addr = &c->dst, .port = c->port, .proto = PROTO_TCP};
    struct policy_verdict v = ask(c, &q);
    take_rule(c, &v);
    if (v.answer == ANSWER_ALLOW) {
        memcpy(c->name, c->want, sizeof c->name);
        conn_open(c);
        relay_start(c);
        return;
    }
    q.looked = true;
    q.name = (struct str){0};
    c->fallback = ask(c, &q).answer == ANSWER_ALLOW;
    look(c);
}

/* ---- outwards ---------------------------------------------------------------------------------------------------------------- */

static void on_dialed(void *arg, int fd, const char *why)
{
    struct conn *c = arg;
    if (fd < 0) {
        conn_fail(c, why);
        return;
    }
    c->up = fd;
    conn_open(c);
    relay_start(c);
}
static void dial_out(struct conn *c)
{
    timer_stop(&c->timer);
    if (c->intercept) {
        http_start(c);
        return;
    }
    if (c->up >= 0) { /* a tunnel that is dialed already */
        conn_open(c);
        relay_start(c);
        return;
    }
    c->state = CONN_DIAL;
    io_want(&c->io, 0);
    c->dial = (struct dial){.ip = {c->dst}, .n = 1, .port = c->port, .name = str_of(c->name), .done = on_dialed, .arg = c};
    dial_start(&c->dial, c->g->loop, &c->g->vias);
}

/* ---- events ------------------------------------------------------------------------------------------------------------------ */

static void on_time(void *arg)
{
    struct conn *c = arg;
    if (c->state == CONN_LOOK && c->fallback)
        decide_nameless(c, NULL);
    else if (c->state == CONN_LOOK)
        conn_deny(c, c->rule, "the client sent no server name, so no rule can allow it");
    else
        reset_client(c);
}
static void on_client(void *arg, int events)
{
    struct conn *c = arg;
    char *in = c->g->scratch;
    (void)events;
    ssize_t n = recv(c->fd, in, 4096, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        if (c->state == CONN_LOOK)
            record(c, GATE_K_DENY, false, c->rule, "the connection ended before it named a server");
        drop(c);
        return;
    }
    if (c->state == CONN_LINGER)
        return; /* not heard any more */
    buf_put(&c->first, in, (size_t)n);
    if (c->state == CONN_DENY)
        deny_now(c);
    else if (c->state == CONN_LOOK && !classify(c) && c->first.n > HELLO_MAX)
        conn_deny(c, c->rule, "too much was sent before a server name");
}

/* ---- accepting ---------------------------------------------------------------------------------------------------------------- */

static bool original_dst(int fd, struct ip *ret, uint16_t *ret_port)
{
    struct sockaddr_storage ss, own;
    socklen_t n = sizeof ss, m = sizeof own;
    struct ip self;
    uint16_t self_port;
    if (getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &ss, &n) && (n = sizeof ss, getsockopt(fd, SOL_IPV6, IP6T_SO_ORIGINAL_DST, &ss, &n)))
        return false;
    if (!ip_from_sockaddr((void *)&ss, ret, ret_port))
        return false;
    /* Our own address: it was not redirected, somebody talks to the listener itself. */
    return !getsockname(fd, (void *)&own, &m) && ip_from_sockaddr((void *)&own, &self, &self_port) && !(ip_eq(&self, ret) && self_port == *ret_port);
}
static void begin(struct gsock *s, int fd)
{
    struct box *b = s->box;
    struct conn *c = xcalloc(1, sizeof *c);
    const char *why = meter_full(b);
    int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *c = (struct conn){.box = b, .g = b->g, .id = ++b->g->next_conn, .fd = fd, .up = -1, .proxy = s->role == GATE_SOCK_PROXY, .began = clock_mono()};
    list_add_tail(&b->conns, &c->node);
    b->total++;
    meter_conn(b, 1);
    io_init(&c->io, b->g->loop, fd, on_client, c);
    timer_init(&c->timer, b->g->loop, on_time, c);
    bool known = c->proxy || original_dst(fd, &c->dst, &c->port);
    if (!known)
        conn_deny(c, "closed", "this port belongs to the network gate itself");
    else if (why) {
        (void)snprintf(c->reason, sizeof c->reason, "%s", why);
        record(c, GATE_K_DENY, false, "limit", why);
        reset_client(c);
    } else if (c->proxy) {
        c->proto = PROTO_HTTP;
        http_start(c);
    } else
        first_decision(c);
}
void conn_accept(struct gsock *s)
{
    struct box *b = s->box;
    for (int i = 0; i < ACCEPT_TURN && !b->dead; i++) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE)
                log_warn("out of descriptors: connections of sandboxes wait");
            return;
        }
        begin(s, fd);
    }
}

/* ---- after a change ------------------------------------------------------------------------------------------------------------- */

/* Would the connection, as it stands, be allowed now? */
static bool still_good(struct conn *c)
{
    struct policy_ask q = conn_ask(c);
    q.looked = true;
    struct policy_verdict v = ask(c, &q);
    return v.answer == ANSWER_ALLOW && !v.intercept;
}
uint64_t conns_review(struct box *b)
{
    struct conn *c;
    uint64_t cut = 0;
    list_each(c, &b->conns, node) {
        if (c->state == CONN_HTTP)
            http_review(c, &cut);
        else if ((c->state == CONN_RELAY || c->state == CONN_DIAL || c->state == CONN_NAME) && !still_good(c)) {
            c->opened = true;
            struct linger l = {1, 0};
            (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
            conn_end(c, GATE_K_CUT, "the network policy was changed and does not allow it any more");
            cut++;
        }
    }
    return cut;
}
void conns_cut(struct box *b, const char *why)
{
    struct conn *c;
    list_each(c, &b->conns, node)
        conn_end(c, GATE_K_CUT, why);
}
