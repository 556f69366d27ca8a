/* The machine of an HTTP/1 connection that is looked into: plain, or inside TLS
 * that we opened, or on the proxy port. One request at a time. */
#include "base/clock.h"
#include "gate/http_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_NS     (30 * NS_PER_S)
#define IDLE_NS     (120 * NS_PER_S) /* between requests */
#define EXCHANGE_NS (600 * NS_PER_S) /* silence within one */
#define CLOSING_NS  (2 * NS_PER_S)

static void advance(struct http_proxy *h);
static void kick(struct http_proxy *h);
static void dial_up(struct http_proxy *h);

/* ---- records ------------------------------------------------------------------------------------------------------------- */

static void record(struct http_proxy *h, enum gate_kind kind, bool allowed, const char *rule, const char *reason)
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

static void bytes_to_conn(struct http_proxy *h)
{
    h->c->out.bytes = h->cli.rx;
    h->c->in.bytes = h->cli.tx;
}
static void end(struct http_proxy *h, const char *reason)
{
    bytes_to_conn(h);
    conn_end(h->c, GATE_K_CLOSE, reason);
}
static void hang_up(struct http_proxy *h) /* upstream */
{
    chan_close(&h->up);
    h->up = (struct chan){.fd = -1};
    h->at = (struct http_target){0};
    h->up_used = false;
}
static void say(struct http_proxy *h, int status, const char *code, const char *rule, const char *reason)
{
    auto_buf out = {0};
    deny_http(&out, status, code, rule, reason, h->is_head);
    chan_write(&h->cli, out.p, out.n);
    chan_finish(&h->cli);
    hang_up(h);
    h->state = H_CLOSING;
    timer_arm(&h->timer, CLOSING_NS);
}
static void deny(struct http_proxy *h, const char *rule, const char *reason)
{
    record(h, GATE_K_DENY, false, rule, reason);
    say(h, 403, "network_denied", rule, reason);
}
/* The request is none, or not one that can be understood in one way only. */
static void malformed(struct http_proxy *h, int status, const char *why)
{
    record(h, GATE_K_DENY, false, "malformed", why);
    say(h, status, "bad_request", "malformed", why);
}
static void fail(struct http_proxy *h, const char *why)
{
    char reason[200];
    (void)snprintf(reason, sizeof reason, "%.110s port %u: %.60s", h->to.name[0] ? h->to.name : "the address", h->to.port, why);
    record(h, GATE_K_FAIL, true, h->rule, reason);
    if (h->res_begun) { /* half an answer is out: only its end can tell */
        hang_up(h);
        struct linger l = {1, 0};
        (void)setsockopt(h->cli.fd, SOL_SOCKET, SO_LINGER, &l, sizeof l);
        end(h, reason);
    } else
        say(h, 502, "upstream_failed", h->rule, reason);
}

/* ---- requests: decide -------------------------------------------------------------------------------------------------------- */

static struct policy_ask ask_of(const struct http_proxy *h)
{
    return (struct policy_ask){.name = str_of(h->to.name), .addr = h->to.has_ip ? &h->to.ip : NULL, .port = h->to.port,
                               .proto = h->c->intercept ? PROTO_TLS : h->connect ? PROTO_TCP : PROTO_HTTP,
                               .looked = h->to.has_ip && !h->connect, .method = h->connect ? (struct str){0} : str_of(h->method),
                               .path = h->connect ? (struct str){0} : str_of(h->path)};
}
static void go(struct http_proxy *h);

/* Sends the head that http_rewrite made; the exchange begins. */
static void send_request(struct http_proxy *h)
{
    h->state = H_EXCHANGE;
    h->up_keep = true;
    h->res_begun = h->res_done = false;
    http_parser_reset(&h->res);
    h->res.flags = h->is_head ? HTTP_NO_BODY : 0;
    chan_write(&h->up, h->head.p, h->head.n);
    timer_arm(&h->timer, EXCHANGE_NS);
    kick(h);
}
static bool same_target(const struct http_target *a, const struct http_target *b)
{
    return a->port == b->port && !strcmp(a->name, b->name) && a->has_ip == b->has_ip && (!a->has_ip || ip_eq(&a->ip, &b->ip));
}
/* Allowed: rewrite it, have a connection, send it. */
static void go(struct http_proxy *h)
{
    struct policy_ask q = ask_of(h);
    const char *why = "";
    if (!h->connect && http_rewrite(h, &q, &why)) {
        deny(h, h->secret[0] ? "secret" : h->rule, why);
        return;
    }
    bool open = h->up.fd >= 0 && h->up_keep && !h->up.eof && !h->up.broken && same_target(&h->at, &h->to);
    if (!h->connect && open) {
        send_request(h);
        return;
    }
    hang_up(h);
    dial_up(h);
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
        deny(h, "binding", "the address that was connected to is not one of this host's");
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
        struct policy_ask q = ask_of(h);
        policy_decide(&h->c->box->set, &q, &v);
        if (v.answer == ANSWER_DENY)
            denied = v;
        else {
            d.ip[d.n++] = a->ip[i];
            memcpy(h->rule, v.rule, sizeof h->rule);
        }
    }
    h->to.has_ip = d.n > 0;
    if (!d.n && a->n) {
        deny(h, denied.rule, denied.reason);
        return;
    }
    if (!d.n) {
        fail(h, a->why ? a->why : "the name has no address");
        return;
    }
    h->to.ip = d.ip[0];
    h->dial = d;
    go(h);
}

static void decide(struct http_proxy *h)
{
    struct conn *c = h->c;
    struct policy_ask q = ask_of(h);
    struct policy_verdict v;
    policy_decide(&c->box->set, &q, &v);
    memcpy(h->rule, v.rule, sizeof h->rule);
    if (v.answer == ANSWER_DENY) {
        deny(h, v.rule, v.reason);
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

static void copy(char *out, size_t cap, struct str s) { (void)snprintf(out, cap, "%.*s", (int)(s.n < cap ? s.n : cap - 1), s.p); }

static void on_request(struct http_proxy *h)
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
    h->client10 = r->minor == 0;
    h->keep = r->keep_alive;
    copy(h->method, sizeof h->method, r->method);
    copy(h->path, sizeof h->path, h->connect ? r->authority : r->path);
    http_body_init(&h->req_body, r->framing, r->length);
    h->req_done = r->framing == HTTP_BODY_NONE;
    if (r->path.n >= sizeof h->path) {
        malformed(h, 414, "the path is too long");
        return;
    }
    if (!http_target_of(h, &h->to, &why)) {
        deny(h, "malformed", why);
        return;
    }
    if (h->connect && r->framing != HTTP_BODY_NONE)
        malformed(h, 400, "CONNECT with a body");
    else
        decide(h);
}

/* ---- upstream ------------------------------------------------------------------------------------------------------------------ */

static void up_event(void *arg) { kick(arg); }

static void granted(struct http_proxy *h, int fd)
{
    static const char ok[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    struct conn *c = h->c;
    chan_write(&h->cli, ok, sizeof ok - 1);
    if (h->cli.broken || chan_queued(&h->cli)) { /* nobody reads it: no tunnel */
        (void)close(fd);
        end(h, "reset");
        return;
    }
    bytes_to_conn(h);
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
        fail(h, why);
        return;
    }
    h->to.ip = h->dial.ip[h->dial.at];
    if (h->connect) {
        granted(h, fd);
        return;
    }
    if (c->intercept && !(tls = tls_client_new(c->g->trust, h->to.name, &e))) {
        (void)close(fd);
        fail(h, e.msg);
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
    send_request(h);
}
static void dial_up(struct http_proxy *h)
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

/* ---- bodies ---------------------------------------------------------------------------------------------------------------------- */

static void put_piece(struct chan *to, bool chunked, const char *p, size_t n)
{
    if (!n)
        return;
    if (!chunked) {
        chan_write(to, p, n);
        return;
    }
    char head[HTTP_CHUNK_HEAD_MAX];
    auto_buf b = {0};
    buf_put(&b, head, http_chunk_head(head, n));
    buf_put(&b, p, n);
    buf_puts(&b, "\r\n");
    chan_write(to, b.p, b.n);
}

enum step { STEP_WAIT, STEP_ON, STEP_END };

static enum step move_request(struct http_proxy *h)
{
    bool moved = false;
    while (!h->req_done && h->cli.in.n && !chan_full(&h->up) && chan_ready(&h->up)) {
        size_t used;
        struct str data = {0};
        enum http_body_state st = http_body_push(&h->req_body, h->cli.in.p, h->cli.in.n, &used, &data);
        if (st == HTTP_BODY_ERROR) {
            h->keep = false;
            malformed(h, 400, h->req_body.why ? h->req_body.why : "a malformed body");
            return STEP_END;
        }
        if (st == HTTP_BODY_DATA)
            put_piece(&h->up, h->req_body.framing == HTTP_BODY_CHUNKED, data.p, data.n);
        h->req_bytes += data.n;
        http_spend(h, data.n);
        chan_used(&h->cli, used);
        moved |= used > 0;
        if (st == HTTP_BODY_DONE || h->req_body.done) {
            h->req_done = true;
            if (h->req_body.framing == HTTP_BODY_CHUNKED)
                chan_write(&h->up, "0\r\n\r\n", 5);
        }
        if (!used && st != HTTP_BODY_DONE)
            break;
    }
    return moved ? STEP_ON : STEP_WAIT;
}

/* The server closed a kept connection just as we used it: once more, if nothing can have happened twice. */
static bool try_again(struct http_proxy *h)
{
    if (h->retried || !h->up_used || h->res_begun || http_parse_begun(&h->res) || h->req_body.framing != HTTP_BODY_NONE)
        return false;
    h->retried = true;
    hang_up(h);
    h->dial = (struct dial){.n = 0};
    dial_up(h);
    return true;
}
static enum step take_head(struct http_proxy *h)
{
    size_t used = 0;
    enum http_parse p = http_parse_push(&h->res, h->up.in.p ? h->up.in.p : "", h->up.in.n, &used);
    chan_used(&h->up, used);
    if (p == HTTP_PARSE_ERROR) {
        fail(h, h->res.why ? h->res.why : "its answer is not HTTP");
        return STEP_END;
    }
    if (p == HTTP_PARSE_MORE) {
        if (!h->up.eof)
            return STEP_WAIT;
        if (try_again(h))
            return STEP_END;
        fail(h, h->up.broken ? h->up.why : "it closed the connection without an answer");
        return STEP_END;
    }
    const struct http_head *r = &h->res.head;
    auto_buf out = {0};
    if (r->status == 101 && (!h->req.head.upgrade || !http_head_get(r, "upgrade").p)) {
        fail(h, "it switched protocols without being asked");
        return STEP_END;
    }
    if (r->status < 200 && r->status != 101) {
        if (!h->client10) {
            http_response_head(h, &out);
            chan_write(&h->cli, out.p, out.n);
        }
        http_parser_reset(&h->res);
        return STEP_ON;
    }
    h->status = r->status;
    h->up_keep = h->up_keep && r->keep_alive && r->framing != HTTP_BODY_CLOSE;
    http_response_head(h, &out);
    chan_write(&h->cli, out.p, out.n);
    h->res_begun = true;
    if (r->status == 101) {
        record(h, GATE_K_HTTP, true, h->rule, "");
        h->state = H_TUNNEL;
        return STEP_ON;
    }
    http_body_init(&h->res_body, r->framing, r->length);
    h->res_done = r->framing == HTTP_BODY_NONE;
    return STEP_ON;
}

static void put_response(struct http_proxy *h, const char *p, size_t n, bool last)
{
    auto_buf out = {0};
    bool chunked = !h->client10 && (h->res_body.framing == HTTP_BODY_CHUNKED || h->res_body.framing == HTTP_BODY_CLOSE);
    mask_push(&h->mask, p, n, last, &out);
    put_piece(&h->cli, chunked, out.p, out.n);
    if (last && chunked)
        chan_write(&h->cli, "0\r\n\r\n", 5);
}
static enum step move_response(struct http_proxy *h)
{
    bool moved = false;
    if (!h->res_begun)
        return h->up.in.n || h->up.eof ? take_head(h) : STEP_WAIT;
    while (!h->res_done && h->up.in.n && !chan_full(&h->cli)) {
        size_t used;
        struct str data = {0};
        enum http_body_state st = http_body_push(&h->res_body, h->up.in.p, h->up.in.n, &used, &data);
        if (st == HTTP_BODY_ERROR) {
            fail(h, h->res_body.why ? h->res_body.why : "a malformed body");
            return STEP_END;
        }
        h->res_done = st == HTTP_BODY_DONE || h->res_body.done;
        h->res_bytes += data.n;
        http_spend(h, data.n);
        put_response(h, data.p, st == HTTP_BODY_DATA ? data.n : 0, h->res_done);
        chan_used(&h->up, used);
        moved |= used > 0 || h->res_done;
        if (!used && !h->res_done)
            break;
    }
    if (!h->res_done && h->up.eof && !h->up.in.n) {
        /* Under TLS only a proper goodbye is an end. */
        if (h->up.broken || !h->up.clean || !http_body_eof(&h->res_body)) {
            fail(h, h->up.broken ? h->up.why : "it ended in the middle of its answer");
            return STEP_END;
        }
        h->res_done = true;
        put_response(h, NULL, 0, true);
        return STEP_ON;
    }
    return moved ? STEP_ON : STEP_WAIT;
}

static void exchange_over(struct http_proxy *h)
{
    record(h, GATE_K_HTTP, true, h->rule, "");
    mask_clear(&h->mask);
    h->up_used = true;
    if (!h->up_keep || !h->req_done)
        hang_up(h);
    if (!h->keep || !h->req_done) {
        chan_finish(&h->cli);
        hang_up(h);
        h->state = H_CLOSING;
        timer_arm(&h->timer, CLOSING_NS);
        return;
    }
    http_parser_reset(&h->req);
    h->state = H_REQUEST;
    timer_arm(&h->timer, IDLE_NS);
}

static enum step tunnel(struct http_proxy *h)
{
    bool moved = false;
    if (h->cli.in.n && !chan_full(&h->up)) {
        chan_write(&h->up, h->cli.in.p, h->cli.in.n);
        h->req_bytes += h->cli.in.n;
        chan_used(&h->cli, h->cli.in.n);
        moved = true;
    }
    if (h->up.in.n && !chan_full(&h->cli)) {
        auto_buf out = {0};
        mask_push(&h->mask, h->up.in.p, h->up.in.n, false, &out);
        chan_write(&h->cli, out.p, out.n);
        h->res_bytes += h->up.in.n;
        chan_used(&h->up, h->up.in.n);
        moved = true;
    }
    if (h->cli.eof && !h->cli.in.n)
        chan_finish(&h->up);
    if (h->up.eof && !h->up.in.n && !h->cli.finishing) {
        auto_buf out = {0};
        mask_push(&h->mask, NULL, 0, true, &out);
        chan_write(&h->cli, out.p, out.n);
        chan_finish(&h->cli);
    }
    if (h->up.broken || (h->up.eof && h->cli.eof && !h->up.in.n && !h->cli.in.n && !chan_queued(&h->cli) && !chan_queued(&h->up))) {
        end(h, h->up.broken ? "reset" : "");
        return STEP_END;
    }
    return moved ? STEP_ON : STEP_WAIT;
}

/* ---- the machine ------------------------------------------------------------------------------------------------------------------- */

static enum step read_request(struct http_proxy *h)
{
    size_t used = 0;
    if (!h->cli.in.n) {
        if (h->cli.eof)
            end(h, "");
        return h->cli.eof ? STEP_END : STEP_WAIT;
    }
    if (!http_parse_begun(&h->req))
        timer_arm(&h->timer, HEAD_NS);
    enum http_parse p = http_parse_push(&h->req, h->cli.in.p, h->cli.in.n, &used);
    chan_used(&h->cli, used);
    if (p == HTTP_PARSE_ERROR) {
        h->method[0] = h->path[0] = 0;
        h->is_head = false;
        malformed(h, h->req.status, h->req.why);
    } else if (p == HTTP_PARSE_DONE)
        on_request(h);
    else if (h->cli.eof) {
        end(h, "");
        return STEP_END;
    }
    return STEP_ON;
}
static enum step one_step(struct http_proxy *h)
{
    struct conn *c = h->c; /* outlives h this turn */
    switch (h->state) {
    case H_REQUEST: return read_request(h);
    case H_NAME:
    case H_DIAL: return STEP_WAIT;
    case H_EXCHANGE: {
        enum step a = move_request(h);
        if (a == STEP_END)
            return STEP_ON; /* it became another state */
        enum step b = move_response(h);
        if (b == STEP_END)
            return c->dead ? STEP_END : STEP_ON;
        if (h->res_done) {
            exchange_over(h);
            return STEP_ON;
        }
        if (h->cli.eof && !h->req_done && !h->cli.in.n) { /* the client left in the middle of its body */
            end(h, "the client ended in the middle of its request");
            return STEP_END;
        }
        return a == STEP_ON || b == STEP_ON ? STEP_ON : STEP_WAIT;
    }
    case H_TUNNEL: return tunnel(h);
    case H_CLOSING:
        chan_used(&h->cli, h->cli.in.n);
        if (h->cli.eof || h->cli.broken) {
            end(h, "");
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
        bytes_to_conn(h);
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
            record(h, GATE_K_FAIL, true, c->rule, "the sandbox's program did not take the network gate's certificate");
        end(h, "reset");
        return;
    }
    for (int i = 0; i < 64; i++) {
        enum step s = one_step(h);
        if (s == STEP_END || c->http != h)
            return;
        if (s == STEP_WAIT) {
            meter(h);
            return;
        }
    }
    meter(h);
    if (c->http == h && !c->dead)
        kick(h);
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
static void kick(struct http_proxy *h)
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
        timer_arm(&h->timer, EXCHANGE_NS);
    kick(h);
}
static void on_time(void *arg)
{
    struct http_proxy *h = arg;
    if (h->state == H_EXCHANGE && !h->res_begun)
        fail(h, "no answer for ten minutes");
    else
        end(h, "idle");
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
    kick(h);
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
    hang_up(h);
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
    kick(c->http);
}
void http_review(struct conn *c, uint64_t *cut)
{
    struct http_proxy *h = c->http;
    if (h->state == H_REQUEST || h->state == H_CLOSING)
        return; /* the next request is decided by the new policy */
    struct policy_ask q = ask_of(h);
    struct policy_verdict v;
    policy_decide(&c->box->set, &q, &v);
    if (v.answer != ANSWER_DENY)
        return;
    bytes_to_conn(h);
    c->opened = true;
    conn_end(c, GATE_K_CUT, "the network policy was changed and does not allow it any more");
    (*cut)++;
}
