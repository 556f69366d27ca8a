/* E2B's form of an error: {"code":404,"message":"…"}, code equal to the status.
 * Also what browsers ask for first: any page may call, with a key. */
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "api/params.h"
#include "base/log.h"

void e2b_problem_code(struct http_stream *s, int status, const char *error_code, const char *msg)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_i64(&w, "code", status);
    jw_kv_str(&w, "message", msg);
    if (error_code)
        jw_kv_str(&w, "error_code", error_code);
    jw_end(&w);
    reply_json(s, status, &b);
}
static void reply_problem(struct http_stream *s, int status, const char *msg) { e2b_problem_code(s, status, NULL, msg); }

void e2b_problem(struct http_stream *s, int status, const char *fmt, ...)
{
    auto_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    reply_problem(s, status, b.p ? b.p : "");
}

void e2b_fail(struct http_stream *s, const struct err *e)
{
    if (e->code == E_INTERNAL) {
        log_error("%s: %s", http_request_id(s), e->msg);
        reply_problem(s, 500, "internal error; the daemon's log says more");
        return;
    }
    /* what is gone is not there; 502 is kept for traffic to a sandbox that does not run */
    reply_problem(s, e->code == E_GONE ? 404 : e->code == E_GUEST ? 500 : err_http(e->code), e->msg);
}

void e2b_req_fail(struct req *r, const struct err *e)
{
    e2b_fail(r->s, e);
    req_end(r);
}

void e2b_req_none(struct req *r, const struct err *e)
{
    if (!req_back(r))
        return;
    if (e) {
        e2b_req_fail(r, e);
        return;
    }
    reply_none(r->s);
    req_end(r);
}

void e2b_body(struct http_stream *s, struct api *a, void (*fn)(struct http_stream *, void *, const char *, size_t))
{
    http_body_collect(s, PARAM_BODY_MAX, fn, a);
}

bool e2b_path(struct str path)
{
    static const char *const first[] = {"/sandboxes", "/templates", "/v2", "/v3", "/snapshots", "/volumes", "/volumecontent", "/secrets", "/teams", "/api-keys", "/access-tokens", "/nodes", "/health"};
    const char *slash = path.n > 1 ? memchr(path.p + 1, '/', path.n - 1) : NULL;
    struct str head = {path.p, slash ? (size_t)(slash - path.p) : path.n};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (str_eqz(head, first[i]))
            return true;
    return false;
}

bool e2b_cors(struct http_stream *s)
{
    if (!http_req_header(s, "Origin").p)
        return false;
    (void)http_header(s, "Access-Control-Allow-Origin", "*"); /* nothing is sent yet */
    (void)http_header(s, "Access-Control-Expose-Headers", "*");
    if (!http_is(s, "OPTIONS") || !http_req_header(s, "Access-Control-Request-Method").p)
        return false;
    struct str ask = http_req_header(s, "Access-Control-Request-Headers");
    auto_buf headers = {0};
    buf_put(&headers, ask.n ? ask.p : "*", ask.n ? ask.n : 1); /* "*" does not cover Authorization; the list does */
    (void)http_header(s, "Access-Control-Allow-Headers", headers.p);
    (void)http_header(s, "Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE");
    (void)http_header(s, "Access-Control-Max-Age", "7200");
    reply_none(s);
    return true;
}
