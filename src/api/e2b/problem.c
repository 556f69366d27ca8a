/* E2B's form of an error: {"code":404,"message":"…"}, code equal to the status. */
#include "api/e2b/e2b.h"
#include "base/log.h"

void e2b_problem_code(struct http_stream *s, int status, const char *error_code, const char *msg)
{
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_i64(w, "code", status);
    jw_kv_str(w, "message", msg);
    if (error_code)
        jw_kv_str(w, "error_code", error_code);
    jw_end(w);
    reply_send(s, status);
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

void e2b_fail(struct http_stream *s, const struct err *e, enum about about)
{
    if (e->code == E_INTERNAL) {
        log_error("%s: %s", http_request_id(s), e->msg);
        reply_problem(s, 500, "internal error; see the daemon's log");
        return;
    }
    /* what is gone is not there; 502 is kept for traffic to a sandbox that does not run */
    reply_problem(s, about == ABOUT_METHOD ? 405 : e->code == E_GONE ? 404 : e->code == E_GUEST ? 500 : err_http(e->code), e->msg);
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
