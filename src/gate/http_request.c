/* A request whose head is there: whom it addresses, whether it may, with which
 * addresses; then a connection to it, unless one is open. */
#include "base/clock.h"
#include "gate/http_int.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- requests: decide -------------------------------------------------------------------------------------------------------- */

struct policy_ask http_ask(const struct http_proxy *h)
{
    return (struct policy_ask){.name = str_of(h->to.name), .addr = h->to.has_ip ? &h->to.ip : NULL, .port = h->to.port,
                               .proto = h->c->intercept ? PROTO_TLS : h->connect ? PROTO_TCP : PROTO_HTTP,
                               .looked = h->to.has_ip && !h->connect, .method = h->connect ? (struct str){0} : str_of(h->method),
                               .path = h->connect ? (struct str){0} : str_of(h->path),
                               .websocket = h->websocket};
}
static bool same_target(const struct http_target *a, const struct http_target *b)
{
    return a->port == b->port && !strcmp(a->name, b->name) && a->has_ip == b->has_ip && (!a->has_ip || ip_eq(&a->ip, &b->ip));
}
/* Allowed: rewrite it, have a connection, send it. */
static void go(struct http_proxy *h)
{
    struct policy_ask q = http_ask(h);
    const char *why = "";
    if (!h->connect && http_rewrite(h, &q, &why)) {
        http_deny(h, h->secret[0] ? "secret" : h->rule, why);
        return;
    }
    bool open = h->up.fd >= 0 && h->up_keep && !h->up.eof && !h->up.broken && same_target(&h->at, &h->to);
    if (!h->connect && open) {
        http_exchange(h);
        return;
    }
    http_hang_up(h);
    http_dial(h);
}

static void on_bound(void *arg, const struct addrs *a)
{
    struct http_proxy *h = arg;
    struct box *b = h->c->box;
    h->lookup = NULL;
    for (size_t i = 0; i < a->n; i++)
        if (!policy_addr_closed(&b->set, &a->ip[i]))
            binds_add(&b->binds, &a->ip[i], h->to.name, a->ttl[i], clock_mono());
    if (binds_has(&b->binds, &h->to.ip, h->to.name, clock_mono()))
        go(h);
    else
        http_deny(h, "binding", "the address that was connected to is not one of this host's");
}
/* Proxy: the addresses of the name that the policy lets us use. */
static void on_resolved(void *arg, const struct addrs *a)
{
    struct http_proxy *h = arg;
    struct policy_verdict v = {.answer = ANSWER_ALLOW}, denied = {0};
    struct dial d = {.n = 0};
    h->lookup = NULL;
    for (size_t i = 0; i < a->n && d.n < DIAL_MAX; i++) {
        h->to.ip = a->ip[i];
        h->to.has_ip = true;
        struct policy_ask q = http_ask(h);
        policy_decide(&h->c->box->set, &q, &v);
        if (v.answer == ANSWER_DENY)
            denied = v;
        else {
            d.ip[d.n++] = a->ip[i];
            memcpy(h->rule, v.rule, sizeof h->rule);
            h->by_request |= v.by_request;
        }
    }
    h->to.has_ip = d.n > 0;
    if (!d.n && a->n) {
        http_deny(h, denied.rule, denied.reason);
        return;
    }
    if (!d.n) {
        http_fail(h, a->why ? a->why : "the name has no address");
        return;
    }
    h->to.ip = d.ip[0];
    h->dial = d;
    go(h);
}

static void decide(struct http_proxy *h)
{
    struct conn *c = h->c;
    struct policy_ask q = http_ask(h);
    struct policy_verdict v;
    policy_decide(&c->box->set, &q, &v);
    memcpy(h->rule, v.rule, sizeof h->rule);
    h->by_request = v.by_request;
    if (v.answer == ANSWER_DENY) {
        http_deny(h, v.rule, v.reason);
        return;
    }
    h->dial = (struct dial){.n = 0};
    if (c->proxy && !h->to.has_ip) {
        h->state = H_NAME;
        h->lookup = addr_lookup_start(c->g->loop, c->g->resolver, h->to.name, on_resolved, h);
        return;
    }
    /* In TLS, and after CONNECT, the name was checked before. */
    if (v.by_name && !c->proxy && !c->intercept && !c->want[0] && !binds_has(&c->box->binds, &h->to.ip, h->to.name, clock_mono())) {
        h->state = H_NAME;
        h->lookup = addr_lookup_start(c->g->loop, c->g->resolver, h->to.name, on_bound, h);
        return;
    }
    go(h);
}

/* The one protocol that may follow HTTP. Others are not asked for: the server answers as if they had not been. */
static bool asks_websocket(const struct http_head *r)
{
    return r->upgrade && r->minor == 1 && str_eqz(r->method, "GET") &&
           r->framing == HTTP_BODY_NONE && http_head_has_token(r, "Upgrade", "websocket");
}
static void copy(char *out, size_t cap, struct str s) { (void)snprintf(out, cap, "%.*s", (int)(s.n < cap ? s.n : cap - 1), s.p); }

void http_decide(struct http_proxy *h)
{
    const struct http_head *r = &h->req.head;
    const char *why = "";
    h->began = clock_mono();
    h->status = 0;
    h->req_bytes = h->res_bytes = 0;
    h->secret[0] = 0;
    h->to = (struct http_target){0};
    h->retried = false;
    h->connect = r->form == HTTP_FORM_AUTHORITY;
    h->is_head = str_eqz(r->method, "HEAD");
    h->websocket = asks_websocket(r);
    h->client10 = r->minor == 0;
    h->keep = r->keep_alive;
    copy(h->method, sizeof h->method, r->method);
    copy(h->path, sizeof h->path, h->connect ? r->authority : r->path);
    http_body_init(&h->req_body, r->framing, r->length);
    h->req_done = r->framing == HTTP_BODY_NONE;
    if (r->path.n >= sizeof h->path) {
        http_malformed(h, 414, "the path is too long");
        return;
    }
    if (!http_target_of(h, &h->to, &why)) {
        http_deny(h, "malformed", why);
        return;
    }
    if (h->connect && r->framing != HTTP_BODY_NONE)
        http_malformed(h, 400, "CONNECT with a body");
    else
        decide(h);
}

/* ---- upstream ------------------------------------------------------------------------------------------------------------------ */

static void up_event(void *arg) { http_kick(arg); }

static void granted(struct http_proxy *h, int fd)
{
    static const char ok[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    struct conn *c = h->c;
    chan_write(&h->cli, ok, sizeof ok - 1);
    if (h->cli.broken || chan_queued(&h->cli)) { /* nobody reads it: no tunnel */
        (void)close(fd);
        http_over(h, "reset");
        return;
    }
    http_count(h);
    c->up = fd;
    c->dst = h->to.ip;
    c->port = h->to.port;
    memcpy(c->want, h->to.name, sizeof c->want);
    c->first.n = 0;
    buf_put(&c->first, h->cli.in.p, h->cli.in.n);
    c->fd = chan_take(&h->cli);
    http_drop(c);
    conn_tunnel(c);
}
static void on_dialed(void *arg, int fd, const char *why)
{
    struct http_proxy *h = arg;
    struct conn *c = h->c;
    struct tls *tls = NULL;
    struct err e;
    if (fd < 0) {
        http_fail(h, why);
        return;
    }
    h->to.ip = h->dial.ip[h->dial.at];
    if (h->connect) {
        granted(h, fd);
        return;
    }
    if (c->intercept && !(tls = tls_client_new(c->g->trust, h->to.name, &e))) {
        (void)close(fd);
        http_fail(h, e.msg);
        return;
    }
    h->at = h->to;
    h->up = (struct chan){.on_event = up_event, .arg = h};
    chan_open(&h->up, c->g->loop, fd, tls, c->g->scratch);
    if (!c->opened) {
        c->dst = h->to.ip, c->port = h->to.port;
        memcpy(c->name, h->to.name, sizeof c->name);
        memcpy(c->rule, h->rule, sizeof c->rule);
        conn_open(c);
    }
    http_exchange(h);
}
void http_dial(struct http_proxy *h)
{
    struct conn *c = h->c;
    h->state = H_DIAL;
    if (!h->dial.n)
        h->dial = (struct dial){.ip = {h->to.ip}, .n = 1};
    h->dial.port = h->to.port;
    h->dial.name = str_of(h->to.name);
    h->dial.done = on_dialed;
    h->dial.arg = h;
    if (c->up >= 0) { /* dialed for CONNECT */
        int fd = c->up;
        c->up = -1;
        h->dial.at = 0;
        on_dialed(h, fd, NULL);
        return;
    }
    dial_start(&h->dial, c->g->loop, &c->g->vias);
}
