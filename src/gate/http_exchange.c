/* An exchange under way: the request goes out as it was written anew, its answer
 * comes back with our framing and without the secrets; or, after 101, just bytes. */
#include "base/clock.h"
#include "gate/http_int.h"

#define IDLE_NS (120 * NS_PER_S) /* between requests */

void http_exchange(struct http_proxy *h)
{
    h->state = H_EXCHANGE;
    h->up_keep = true;
    h->res_begun = h->res_done = false;
    http_parser_reset(&h->res);
    h->res.flags = h->is_head ? HTTP_NO_BODY : 0;
    chan_write(&h->up, h->head.p, h->head.n);
    timer_arm(&h->timer, HTTP_EXCHANGE_NS);
    http_kick(h);
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

static enum http_step move_request(struct http_proxy *h)
{
    bool moved = false;
    while (!h->req_done && h->cli.in.n && !chan_full(&h->up) && chan_ready(&h->up)) {
        size_t used;
        struct str data = {0};
        enum http_body_state st = http_body_push(&h->req_body, h->cli.in.p, h->cli.in.n, &used, &data);
        if (st == HTTP_BODY_ERROR) {
            h->keep = false;
            http_malformed(h, 400, h->req_body.why ? h->req_body.why : "a malformed body");
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
    http_hang_up(h);
    h->dial = (struct dial){.n = 0};
    http_dial(h);
    return true;
}
static enum http_step take_head(struct http_proxy *h)
{
    size_t used = 0;
    enum http_parse p = http_parse_push(&h->res, h->up.in.p ? h->up.in.p : "", h->up.in.n, &used);
    chan_used(&h->up, used);
    if (p == HTTP_PARSE_ERROR) {
        http_fail(h, h->res.why ? h->res.why : "its answer is not HTTP");
        return STEP_END;
    }
    if (p == HTTP_PARSE_MORE) {
        if (!h->up.eof)
            return STEP_WAIT;
        if (try_again(h))
            return STEP_END;
        http_fail(h, h->up.broken ? h->up.why : "it closed the connection without an answer");
        return STEP_END;
    }
    const struct http_head *r = &h->res.head;
    auto_buf out = {0};
    const char *unseen = http_response_unseen(h);
    if (unseen) {
        http_deny(h, "secret", unseen);
        return STEP_END;
    }
    if (r->status == 101 && (!h->websocket || !http_head_has_token(r, "Upgrade", "websocket"))) {
        http_fail(h, "it switched protocols without being asked");
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
        http_record(h, GATE_K_HTTP, true, h->rule, "");
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
static enum http_step move_response(struct http_proxy *h)
{
    bool moved = false;
    if (!h->res_begun)
        return h->up.in.n || h->up.eof ? take_head(h) : STEP_WAIT;
    while (!h->res_done && h->up.in.n && !chan_full(&h->cli)) {
        size_t used;
        struct str data = {0};
        enum http_body_state st = http_body_push(&h->res_body, h->up.in.p, h->up.in.n, &used, &data);
        if (st == HTTP_BODY_ERROR) {
            http_fail(h, h->res_body.why ? h->res_body.why : "a malformed body");
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
            http_fail(h, h->up.broken ? h->up.why : "it ended in the middle of its answer");
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
    http_record(h, GATE_K_HTTP, true, h->rule, "");
    mask_clear(&h->mask);
    h->up_used = true;
    if (!h->up_keep || !h->req_done)
        http_hang_up(h);
    if (!h->keep || !h->req_done) {
        http_finish(h);
        return;
    }
    http_parser_reset(&h->req);
    h->state = H_REQUEST;
    timer_arm(&h->timer, IDLE_NS);
}

enum http_step http_exchange_step(struct http_proxy *h)
{
    struct conn *c = h->c; /* outlives h this turn */
    enum http_step a = move_request(h);
    if (a == STEP_END)
        return STEP_ON; /* it became another state */
    enum http_step b = move_response(h);
    if (b == STEP_END)
        return c->dead ? STEP_END : STEP_ON;
    if (h->res_done) {
        exchange_over(h);
        return STEP_ON;
    }
    if (h->cli.eof && !h->req_done && !h->cli.in.n) { /* the client left in the middle of its body */
        http_over(h, "the client ended in the middle of its request");
        return STEP_END;
    }
    return a == STEP_ON || b == STEP_ON ? STEP_ON : STEP_WAIT;
}

enum http_step http_tunnel_step(struct http_proxy *h)
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
        http_over(h, h->up.broken ? "reset" : "");
        return STEP_END;
    }
    return moved ? STEP_ON : STEP_WAIT;
}
