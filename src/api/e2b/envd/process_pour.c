/* process.Process StreamInput: one request whose body is a row of envelopes,
 * the first naming the process, the others its input, in order. What the
 * process has not read yet holds the client back. Answered by one empty
 * message when the client has sent all and the process has taken it. */
#include "api/e2b/envd/process.h"
#include "api/e2b/envd/rpc.h"
#include "api/feed.h"
#include "base/enc.h"

#define MESSAGE_MAX (16u << 20)

struct pour {
    struct rpc_stream st;
    struct sel sel;
    struct feed *feed;
    struct buf in; /* not yet understood */
    bool asking, held, ended;
};

static void fini(void *arg)
{
    struct pour *p = arg;
    feed_drop(p->feed);
    p->feed = NULL;
    buf_free(&p->in);
    rpc_stream_fini(&p->st);
}

static void fail(struct pour *p, const struct err *e)
{
    char msg[200];
    if (process_ended(e) && envd_alive(p->st.c.r.api, p->st.c.id))
        rpc_finish_error(&p->st, RPC_NOT_FOUND, "%s", sel_missing(&p->sel, msg, sizeof msg));
    else if (e->code == E_GONE && envd_alive(p->st.c.r.api, p->st.c.id))
        rpc_finish_error(&p->st, RPC_INTERNAL, "%s", e->msg); /* no stdin, or one that was closed */
    else
        rpc_finish_err(&p->st, e);
}

/* ---- the messages ---- */
static void advance(struct pour *p);

static void on_idle(void *arg) { advance(arg); }
static void on_done(void *arg, const struct err *e)
{
    struct pour *p = arg;
    p->feed = NULL;
    if (e) {
        fail(p, e);
        return;
    }
    (void)rpc_msg(&p->st);
    rpc_send(&p->st);
    rpc_finish(&p->st);
}

static void on_list(void *arg, const struct err *e, const struct proc_info *list, size_t n)
{
    static const struct feed_ops ops = {.idle = on_idle, .done = on_done};
    struct pour *p = arg;
    struct err none;
    if (!req_back(&p->st.c.r))
        return;
    p->asking = false;
    if (!e && !sel_hit(&p->sel, list, n))
        e = (err_set(&none, E_NOT_FOUND, "no such process"), &none);
    if (e) {
        fail(p, e);
        return;
    }
    p->feed = feed_new(p->st.c.r.api, p->st.c.id, p->sel.who, &ops, p);
    advance(p);
}

static int take_start(struct pour *p, struct json *start, struct err *e)
{
    struct sandbox *sb = sandbox_find(api_core(p->st.c.r.api), p->st.c.id, e);
    if (p->feed)
        return err_set(e, E_INVALID, "start: the process was already named");
    if (!sb || sel_read(start, &p->sel, e))
        return -1;
    req_hold(&p->st.c.r);
    p->asking = true;
    if (!exec_list(sb, on_list, p, e))
        return 0;
    (void)req_back(&p->st.c.r); /* the callback will not fire */
    return -1;
}

static int take_data(struct pour *p, struct json *data, struct err *e)
{
    struct json *input = NULL;
    auto_buf bytes = {0};
    if (!p->feed)
        return err_set(e, E_INVALID, "data: the first message must name the process");
    if (json_obj(data, "input", &input, true, e) || input_read(input, &bytes, e))
        return -1;
    feed_put(p->feed, bytes.p, bytes.n); /* may have failed and answered already */
    return 0;
}

static int take(struct pour *p, struct str text, struct err *e)
{
    struct json *start = NULL, *data = NULL;
    auto_json j = json_parse_obj(text.n ? text.p : "{}", text.n ? text.n : 2, e);
    if (!j || json_obj(j, "start", &start, false, e) || json_obj(j, "data", &data, false, e))
        return -1;
    return start  ? take_start(p, start, e)
           : data ? take_data(p, data, e)
                  : 0; /* else a keepalive */
}

static void advance(struct pour *p)
{
    struct err e = {0};
    while (!p->st.c.r.over && !p->asking && !(p->feed && feed_busy(p->feed))) {
        struct str text;
        size_t used;
        int got = rpc_next_envelope(p->in.p, p->in.n, MESSAGE_MAX, &text, &used, &e);
        if (got > 0) {
            auto_buf copy = {0}; /* taking it may end the request, and with it the buffer */
            buf_put(&copy, text.p, text.n);
            buf_drop(&p->in, used);
            got = take(p, (struct str){copy.p, copy.n}, &e) ? -1 : 1;
        }
        if (got < 0) {
            rpc_finish_err(&p->st, &e);
            return;
        }
        if (!got)
            break;
    }
    if (p->st.c.r.over)
        return;
    bool full = p->asking || (p->feed && feed_busy(p->feed));
    if (full != p->held) {
        p->held = full;
        (full ? http_body_pause : http_body_resume)(p->st.c.r.s);
    }
    if (full || !p->ended)
        return;
    p->ended = false;
    if (p->in.n || !p->feed)
        rpc_finish_error(&p->st, RPC_INVALID_ARGUMENT,
                         p->in.n ? "the request ends in the middle of a message"
                                 : "no message names the process");
    else
        feed_finish(p->feed, false);
}

/* ---- the request ---- */
static void on_data(struct http_stream *s, void *arg, const char *bytes, size_t n)
{
    struct pour *p = arg;
    (void)s;
    if (p->st.c.r.over)
        return;
    buf_put(&p->in, bytes, n);
    advance(p);
}

static void on_end(struct http_stream *s, void *arg)
{
    struct pour *p = arg;
    (void)s;
    p->ended = true;
    if (!p->st.c.r.over)
        advance(p);
}

static void expired(void *arg)
{
    struct pour *p = arg;
    rpc_finish_error(&p->st, RPC_DEADLINE_EXCEEDED, "the input was not complete in time");
}

void rpc_process_pour(const struct rpc_in *in)
{
    struct pour *p = rpc_stream_new(in, sizeof *p, fini);
    rpc_deadline(&p->st, in->timeout_ms, expired);
    req_watch(&p->st.c.r);
    http_body_stream(in->s, on_data, on_end, p);
}
