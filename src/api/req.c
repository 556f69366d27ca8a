#include "api/req.h"
#include "api/api.h"
#include <stdlib.h>

/* ---- what the API keeps with a stream ---- */
struct call {
    const struct dialect *dialect;
    bool changes, vouched;
    struct buf out;
    struct jw w;
    api_body_fn *body; /* what api_body calls once it is there */
};

static void call_free(void *arg)
{
    struct call *c = arg;
    buf_free(&c->out);
    free(c);
}

static struct call *call_of(struct http_stream *s)
{
    struct call *c = http_data(s);
    if (!c) {
        c = xcalloc(1, sizeof *c);
        http_set_data(s, c);
        http_on_free(s, call_free);
    }
    return c;
}

const struct dialect *api_dialect(struct http_stream *s) { return call_of(s)->dialect; }
void api_speak(struct http_stream *s, const struct dialect *d) { call_of(s)->dialect = d; }
bool api_changes(struct http_stream *s) { return call_of(s)->changes; }
void api_set_changes(struct http_stream *s, bool changes) { call_of(s)->changes = changes; }
void api_vouch(struct http_stream *s) { call_of(s)->vouched = true; }
bool api_vouched(struct http_stream *s) { return call_of(s)->vouched; }
api_body_fn **api_body_then(struct http_stream *s) { return &call_of(s)->body; }

/* ---- requests ---- */
static void on_cancel(struct http_stream *s, void *arg)
{
    (void)s;
    req_end(arg);
}

void *req_new(struct api *a, struct http_stream *s, size_t size, void (*fini)(void *))
{
    struct req *r = xcalloc(1, size);
    r->api = a;
    r->s = http_ref(s);
    r->dialect = api_dialect(s);
    r->fini = fini;
    return r;
}

void req_watch(struct req *r) { http_on_cancel(r->s, on_cancel, r); }

static void bury(void *arg)
{
    struct req *r = arg;
    http_unref(r->s);
    free(r);
}

void req_hold(struct req *r) { r->holds++; }

bool req_back(struct req *r)
{
    r->holds--;
    if (!r->over)
        return true;
    if (!r->holds)
        loop_defer(http_loop(r->s), bury, r);
    return false;
}

void req_end(struct req *r)
{
    if (r->over)
        return;
    r->over = true;
    http_on_cancel(r->s, NULL, NULL);
    http_on_drain(r->s, NULL, NULL);
    if (r->fini)
        r->fini(r);
    if (!r->holds)
        loop_defer(http_loop(r->s), bury, r);
}

void req_fail(struct req *r, const struct err *e, enum about about)
{
    r->dialect->fail(r->s, e, about);
    req_end(r);
}

void req_none(struct req *r, const struct err *e, enum about about)
{
    if (!req_back(r))
        return;
    if (e) {
        req_fail(r, e, about);
        return;
    }
    reply_none(r->s);
    req_end(r);
}

void req_settle(struct req *r, int rc, const struct err *e, enum about about)
{
    if (!rc)
        return;
    if (req_back(r)) /* the callback will not fire */
        req_fail(r, e, about);
}

/* ---- replies ---- */
struct jw *reply_begin(struct http_stream *s)
{
    struct call *c = call_of(s);
    c->out.n = 0;
    jw_init(&c->w, &c->out);
    return &c->w;
}

void reply_send(struct http_stream *s, int status) { reply_json(s, status, &call_of(s)->out); }

void req_send(struct req *r, int status)
{
    reply_send(r->s, status);
    req_end(r);
}

void reply_json(struct http_stream *s, int status, struct buf *json)
{
    http_reply_buf(s, status, "application/json", json);
    buf_free(json); /* empty unless the stream was already over */
}

void req_json(struct req *r, int status, struct buf *json)
{
    reply_json(r->s, status, json);
    req_end(r);
}

void reply_none(struct http_stream *s) { http_reply(s, 204, NULL, NULL, 0); }
