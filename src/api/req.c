#include "api/req.h"
#include <stdlib.h>

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
    problem_about(r->s, e, about);
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
