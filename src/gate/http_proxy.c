/* The machine of an HTTP/1 connection that is looked into: plain, or inside TLS
 * that we opened, or on the proxy port. One request at a time: its head is read
 * here, decided in http_request.c and carried in http_exchange.c; here too are the
 * ways in which it can end. */
#include "base/clock.h"
#include "gate/http_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HEAD_NS    (30 * NS_PER_S)
#define CLOSING_NS (2 * NS_PER_S)

/* ---- records ------------------------------------------------------------------------------------------------------------- */

void http_record(struct http_proxy *h, enum gate_kind kind, bool allowed, const char *rule, const char *reason)
{
    struct conn *c = h->c;
    char addr[IP_TEXT] = "";
    if (h->to.has_ip)
        ip_text(&h->to.ip, addr);
    struct gate_record r = {.kind = kind, .conn = c->id, .name = h->to.name[0] ? h->to.name : c->name, .type = conn_proto_name(c), .addr = addr,
                            .port = h->to.port ? h->to.port : c->port, .method = h->method, .path = h->path, .status = (unsigned)h->status,
                            .in = h->res_bytes, .out = h->req_bytes, .ms = h->began ? (uint64_t)((clock_mono() - h->began) / NS_PER_MS) : 0,
                            .allowed = allowed, .rule = rule, .reason = reason, .secret = h->secret};
    c->box->denied += kind == GATE_K_DENY;
    gate_record(c->box, &r);
}

/* ---- ends ------------------------------------------------------------------------------------------------------------------ */

void http_count(struct http_proxy *h)
{
    h->c->out.bytes = h->cli.rx;
    h->c->in.bytes = h->cli.tx;
}
void http_over(struct http_proxy *h, const char *reason)
{
    http_count(h);
    conn_end(h->c, GATE_K_CLOSE, reason);
}
void http_hang_up(struct http_proxy *h) /* upstream */
{
    chan_close(&h->up);
    h->up = (struct chan){.fd = -1};
    h->at = (struct http_target){0};
    h->up_used = false;
}
void http_finish(struct http_proxy *h)
{
    chan_finish(&h->cli);
    http_hang_up(h);
    h->state = H_CLOSING;
    timer_arm(&h->timer, CLOSING_NS);
}
static void say(struct http_proxy *h, int status, const char *code, const char *rule, const char *reason)
{
    auto_buf out = {0};
    deny_http(&out, status, code, rule, reason, h->is_head);
    chan_write(&h->cli, out.p, out.n);
    http_finish(h);
}
void http_deny(struct http_proxy *h, const char *rule, const char *reason)
{
    http_record(h, GATE_K_DENY, false, rule, reason);
    say(h, 403, "network_denied", rule, reason);
}
/* The request is none, or not one that can be understood in one way only. */
void http_malformed(struct http_proxy *h, int status, const char *why)
{
    http_record(h, GATE_K_DENY, false, "malformed", why);
    say(h, status, "bad_request", "malformed", why);
}
void http_fail(struct http_proxy *h, const char *why)
{
    char reason[200];
    (void)snprintf(reason, sizeof reason, "%.110s port %u: %.60s", h->to.name[0] ? h->to.name : "the address", h->to.port, why);
    http_record(h, GATE_K_FAIL, true, h->rule, reason);
    if (h->res_begun) { /* half an answer is out: only its end can tell */
        http_hang_up(h);
        struct linger l = {1, 0};
        (void)setsockopt(h->cli.fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
        http_over(h, reason);
    } else
        say(h, 502, "upstream_failed", h->rule, reason);
}

/* ---- the machine ------------------------------------------------------------------------------------------------------------------- */

static enum http_step read_request(struct http_proxy *h)
{
    size_t used = 0;
    if (!h->cli.in.n) {
        if (h->cli.eof)
            http_over(h, "");
        return h->cli.eof ? STEP_END : STEP_WAIT;
    }
    if (!http_parse_begun(&h->req))
        timer_arm(&h->timer, HEAD_NS);
    enum http_parse p = http_parse_push(&h->req, h->cli.in.p, h->cli.in.n, &used);
    chan_used(&h->cli, used);
    if (p == HTTP_PARSE_ERROR) {
        h->method[0] = h->path[0] = 0;
        h->is_head = false;
        http_malformed(h, h->req.status, h->req.why);
    } else if (p == HTTP_PARSE_DONE)
        http_decide(h);
    else if (h->cli.eof) {
        http_over(h, "");
        return STEP_END;
    }
    return STEP_ON;
}
static enum http_step one_step(struct http_proxy *h)
{
    switch (h->state) {
    case H_REQUEST: return read_request(h);
    case H_NAME:
    case H_DIAL: return STEP_WAIT;
    case H_EXCHANGE: return http_exchange_step(h);
    case H_TUNNEL: return http_tunnel_step(h);
    case H_CLOSING:
        chan_used(&h->cli, h->cli.in.n);
        if (h->cli.eof || h->cli.broken) {
            http_over(h, "");
            return STEP_END;
        }
        return STEP_WAIT;
    }
    return STEP_WAIT;
}

static void meter(struct http_proxy *h)
{
    struct box *b = h->c->box;
    meter_moved(b, h->cli.tx - h->seen_tx, h->cli.rx - h->seen_rx);
    h->seen_tx = h->cli.tx, h->seen_rx = h->cli.rx;
    if (meter_spent(b) || !http_budget_ok(h)) {
        http_count(h);
        conn_end(h->c, GATE_K_CUT, meter_spent(b) ? meter_why_spent(b) : "the budget of the secret for this host is used up");
        return;
    }
    if (!meter_has_rate(b))
        return;
    uint64_t may = meter_may(b, CHAN_IN_MAX, clock_mono());
    chan_allow(&h->cli, may);
    if (h->up.fd >= 0)
        chan_allow(&h->up, may);
    if (!may)
        conn_starve(h->c);
}
static void advance(struct http_proxy *h)
{
    struct conn *c = h->c;
    if (h->cli.broken) {
        if (h->cli.tls && !*h->method && !chan_ready(&h->cli)) /* one that was served and then reset has no complaint */
            http_record(h, GATE_K_FAIL, true, c->rule, "the program in the sandbox did not accept the network gate's certificate");
        http_over(h, "reset");
        return;
    }
    for (int i = 0; i < 64; i++) {
        enum http_step s = one_step(h);
        if (s == STEP_END || c->http != h)
            return;
        if (s == STEP_WAIT) {
            meter(h);
            return;
        }
    }
    meter(h);
    if (c->http == h && !c->dead)
        http_kick(h);
}
static void kicked(void *arg)
{
    struct http_proxy *h = arg;
    h->kicked = false;
    if (!h->c) /* dropped meanwhile */
        free(h);
    else
        advance(h);
}
void http_kick(struct http_proxy *h)
{
    if (h->kicked)
        return;
    h->kicked = true;
    loop_defer(h->c->g->loop, kicked, h);
}
static void cli_event(void *arg)
{
    struct http_proxy *h = arg;
    if (h->state == H_EXCHANGE || h->state == H_TUNNEL)
        timer_arm(&h->timer, HTTP_EXCHANGE_NS);
    http_kick(h);
}
static void on_time(void *arg)
{
    struct http_proxy *h = arg;
    if (h->state == H_EXCHANGE && !h->res_begun)
        http_fail(h, "no answer for ten minutes");
    else
        http_over(h, "idle");
}

/* ---- entry points --------------------------------------------------------------------------------------------------------------------- */

void http_start(struct conn *c)
{
    struct http_proxy *h = xcalloc(1, sizeof *h);
    struct tls *tls = NULL;
    struct err e = {0};
    h->c = c;
    h->up.fd = -1;
    http_parser_init(&h->req, HTTP_REQUEST, HTTP_ALLOW_ABSOLUTE | (c->proxy ? HTTP_ALLOW_CONNECT : 0));
    http_parser_init(&h->res, HTTP_RESPONSE, 0);
    timer_init(&h->timer, c->g->loop, on_time, h);
    timer_stop(&c->timer);
    io_stop(&c->io);
    c->state = CONN_HTTP;
    if (c->intercept && !(tls = tls_server_new(c->box->ca, c->name, &e))) {
        http_parser_fini(&h->req), http_parser_fini(&h->res);
        free(h);
        conn_fail(c, e.msg);
        return;
    }
    c->http = h;
    h->cli = (struct chan){.on_event = cli_event, .arg = h};
    chan_open(&h->cli, c->g->loop, c->fd, tls, c->g->scratch);
    c->fd = -1;
    if (c->first.n)
        chan_feed(&h->cli, c->first.p, c->first.n);
    buf_free(&c->first);
    timer_arm(&h->timer, HEAD_NS);
    http_kick(h);
}
void http_drop(struct conn *c)
{
    struct http_proxy *h = c->http;
    if (!h)
        return;
    c->http = NULL;
    timer_stop(&h->timer);
    dial_cancel(&h->dial);
    addr_lookup_cancel(h->lookup);
    h->lookup = NULL;
    chan_close(&h->cli);
    http_hang_up(h);
    http_parser_fini(&h->req), http_parser_fini(&h->res);
    mask_clear(&h->mask);
    if (h->head.p)
        explicit_bzero(h->head.p, h->head.n);
    buf_free(&h->head);
    h->c = NULL;
    if (!h->kicked) { /* else the pending kick frees it */
        h->kicked = true;
        loop_defer(c->g->loop, kicked, h);
    }
}
void http_feed(struct conn *c)
{
    chan_allow(&c->http->cli, CHAN_IN_MAX);
    http_kick(c->http);
}
void http_review(struct conn *c, uint64_t *cut)
{
    struct http_proxy *h = c->http;
    if (h->state == H_REQUEST || h->state == H_CLOSING)
        return; /* the next request is decided by the new policy */
    struct policy_ask q = http_ask(h);
    struct policy_verdict v;
    policy_decide(&c->box->set, &q, &v);
    if (v.answer != ANSWER_DENY)
        return;
    http_count(h);
    c->opened = true;
    conn_end(c, GATE_K_CUT, "the network policy was changed and does not allow it any more");
    (*cut)++;
}
