/* E2B's code interpreter, port 49999 of every sandbox, for whoever access.c let
 * in: /execute and /contexts over the same contexts as the native API. Errors
 * are plain text here, and the lines of /execute are pure ASCII: its clients
 * split network chunks anywhere and lines at more than newlines. */
#include "api/preview/preview.h"
#include "api/e2b/e2b.h"
#include "api/e2b/envd/envd.h"
#include "api/params.h"
#include "base/clock.h"
#include "core/code/context.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BODY_MAX (16u << 20)
#define QUIET_NS (5 * NS_PER_S)
#define PATIENCE_NS (20 * NS_PER_S) /* for a cell to begin; clients give a request up that has no answer after 30 or 60 s */

static void reply_text(struct http_stream *s, int status, const char *text) { http_reply(s, status, "text/plain; charset=utf-8", text, strlen(text)); }

static int text_status(const struct err *e)
{
    switch (e->code) {
    case E_NOT_FOUND: return 404;
    case E_INVALID: return 400;
    default: return 500;
    }
}

/* ---- /execute ---- */
struct execute {
    struct req r;
    char id[22];
    struct eval *v;
    struct timer quiet;
    struct buf line;
    bool begun, failed;
};

static void execute_fini(void *arg)
{
    struct execute *st = arg;
    timer_stop(&st->quiet);
    if (st->v)
        eval_cancel(st->v);
    st->v = NULL;
    buf_free(&st->line);
}

static void line_begin(struct execute *st, struct jw *w, const char *type)
{
    st->line.n = 0;
    jw_init(w, &st->line);
    w->ascii = true;
    jw_obj(w);
    jw_kv_str(w, "type", type);
}

static void line_send(struct execute *st, struct jw *w)
{
    jw_end(w);
    buf_putc(&st->line, '\n');
    (void)http_write(st->r.s, st->line.p, st->line.n); /* fails only when the client left */
    timer_arm(&st->quiet, QUIET_NS);
    if (st->line.cap > 64 * 1024)
        buf_free(&st->line);
}

static void on_drain(struct http_stream *s, void *arg)
{
    struct execute *st = arg;
    (void)s;
    if (st->v)
        eval_hold(st->v, false);
}

static void answer_begin(struct execute *st)
{
    if (st->begun)
        return;
    st->begun = true;
    http_on_drain(st->r.s, on_drain, st);
    (void)http_header(st->r.s, "Cache-Control", "no-store");
    (void)http_header(st->r.s, "X-Accel-Buffering", "no");
    (void)http_reply_start(st->r.s, 200, "application/json");
    timer_arm(&st->quiet, QUIET_NS);
}

/* Nothing was said for a while: the cell is at work, or waits for others or for its kernel. */
static void on_quiet(void *arg)
{
    struct execute *st = arg;
    struct jw w;
    answer_begin(st);
    line_begin(st, &w, "keepalive");
    line_send(st, &w);
}

static void on_started(void *arg, const struct context_info *c)
{
    (void)c;
    answer_begin(arg);
}

static void put_stamp(struct jw *w)
{
    char text[40];
    struct tm tm;
    int64_t now = clock_wall();
    time_t t = (time_t)(now / NS_PER_S);
    gmtime_r(&t, &tm);
    size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(text + n, sizeof text - n, ".%06d+00:00", (int)(now % NS_PER_S / 1000));
    jw_kv_str(w, "timestamp", text);
}

/* One pair of surrounding quotes goes: the repr 'bar' is sent as bar. */
static struct str unquoted(struct str s)
{
    if (s.n >= 2 && (*s.p == '\'' || *s.p == '"') && s.p[s.n - 1] == *s.p)
        return (struct str){s.p + 1, s.n - 2};
    return s;
}

static const char *field_of(struct str type)
{
    static const char *const known[][2] = {
        {"text/plain", "text"}, {"text/html", "html"}, {"text/markdown", "markdown"}, {"image/svg+xml", "svg"}, {"image/png", "png"},
        {"image/jpeg", "jpeg"}, {"application/pdf", "pdf"}, {"text/latex", "latex"}, {"application/json", "json"},
        {"application/javascript", "javascript"}, {"e2b/data", "data"}, {"e2b/chart", "chart"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_eqz(type, known[i][0]))
            return known[i][1];
    return NULL;
}

static void put_mime(struct jw *w, const struct mime *m)
{
    if (m->json)
        jw_raw(w, m->value);
    else
        jw_str(w, str_eqz(m->type, "text/plain") ? unquoted(m->value) : m->value);
}

static void send_result(struct execute *st, const struct kernel_event *ev)
{
    struct jw w;
    line_begin(st, &w, "result");
    for (size_t i = 0; i < ev->nmime; i++) {
        const char *field = field_of(ev->mime[i].type);
        if (!field)
            continue;
        jw_key(&w, field);
        put_mime(&w, &ev->mime[i]);
    }
    jw_kv_bool(&w, "is_main_result", ev->is_main);
    jw_kv_obj(&w, "extra");
    for (size_t i = 0; i < ev->nmime; i++)
        if (!field_of(ev->mime[i].type)) {
            jw_key_str(&w, ev->mime[i].type);
            put_mime(&w, &ev->mime[i]);
        }
    jw_end(&w);
    line_send(st, &w);
}

static void send_error(struct execute *st, struct str name, struct str value, struct str traceback)
{
    struct jw w;
    if (st->failed)
        return; /* exactly one */
    st->failed = true;
    line_begin(st, &w, "error");
    jw_kv_strn(&w, "name", name);
    jw_kv_strn(&w, "value", value);
    jw_kv_strn(&w, "traceback", traceback);
    line_send(st, &w);
}

static void on_event(void *arg, const struct kernel_event *ev)
{
    struct execute *st = arg;
    struct jw w;
    switch (ev->type) {
    case KE_COUNT:
        line_begin(st, &w, "number_of_executions");
        jw_kv_i64(&w, "execution_count", ev->n);
        line_send(st, &w);
        break;
    case KE_OUT:
        line_begin(st, &w, ev->is_stderr ? "stderr" : "stdout");
        jw_kv_strn(&w, "text", ev->text);
        put_stamp(&w);
        line_send(st, &w);
        break;
    case KE_RESULT:
        send_result(st, ev);
        break;
    case KE_ERROR:
        send_error(st, ev->name, ev->value, ev->traceback);
        break;
    default:
        return;
    }
    if (!http_writable(st->r.s) && st->v)
        eval_hold(st->v, true);
}

static void answer_end(struct execute *st, const struct err *lost)
{
    struct jw w;
    if (lost && !envd_alive(st->r.api, st->id)) {
        http_abort(st->r.s); /* the SDKs tell a dead sandbox by the cut */
        req_end(&st->r);
        return;
    }
    if (lost)
        send_error(st, lost->code == E_CANCELED ? S("ContextRestarting") : S("UnexpectedEndOfExecution"), str_of(lost->msg), S(""));
    line_begin(st, &w, "end_of_execution");
    line_send(st, &w);
    http_end(st->r.s);
    req_end(&st->r);
}

static void on_done(void *arg, const struct eval_end *end)
{
    struct execute *st = arg;
    st->v = NULL;
    answer_end(st, end->how == EVAL_LOST ? end->e : NULL);
}

static void on_failed(void *arg, const struct err *e)
{
    struct execute *st = arg;
    st->v = NULL;
    if (st->begun) {
        answer_end(st, e);
        return;
    }
    if (!envd_alive(st->r.api, st->id))
        envd_gone(st->r.s, st->id);
    else
        reply_text(st->r.s, text_status(e), e->msg);
    req_end(&st->r);
}

static int read_language(struct json *j, enum language *ret, bool *given, struct err *e)
{
    struct str s = {0};
    *ret = LANG_PYTHON;
    if (json_str(j, "language", &s, false, e))
        return -1;
    *given = s.p != NULL;
    if (s.p && str_trim(s).n && language_parse(s, ret))
        return err_set(e, E_UNSUPPORTED, "No kernel for language '%.*s': python, javascript, typescript, r, java and bash are there", (int)(s.n > 40 ? 40 : s.n), s.p);
    return 0;
}

static void on_execute_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    static const struct eval_ops ops = {.started = on_started, .event = on_event, .done = on_done, .failed = on_failed};
    struct execute *st = arg;
    struct eval_spec spec = {0};
    struct str context = {0};
    struct kv env = {0};
    struct err e;
    bool given = false;
    struct sandbox *sb = sandbox_find(api_core(st->r.api), st->id, NULL);
    auto_json j = json_parse_obj(p, n, &e);
    if (!sb || sb->state != SB_RUNNING) {
        envd_gone(s, st->id);
    } else if (!j || json_str(j, "code", &spec.code, true, &e) || json_str(j, "context_id", &context, false, &e) ||
               body_env(j, "env_vars", &env, &e) || read_language(j, &spec.language, &given, &e)) {
        reply_text(s, text_status(&e), e.msg);
    } else if (context.p && given) {
        reply_text(s, 400, "Only one of context_id or language can be provided");
    } else {
        spec.context = context.p;
        spec.env = &env;
        st->v = eval_start(sb, &spec, &ops, st, &e);
        if (!st->v)
            reply_text(s, text_status(&e), e.msg);
    }
    kv_free(&env);
    if (st->v) {
        timer_arm(&st->quiet, PATIENCE_NS);
        req_watch(&st->r);
    } else {
        req_end(&st->r);
    }
}

static void execute(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    struct execute *st = req_new(a, s, sizeof *st, execute_fini);
    memcpy(st->id, sb->id, sizeof st->id);
    timer_init(&st->quiet, http_loop(s), on_quiet, st);
    req_watch(&st->r);
    http_body_collect(s, BODY_MAX, on_execute_body, st);
}

/* ---- /contexts ---- */
struct contexts_req { struct req r; char id[22]; };

static void put_context(struct jw *w, const struct context_info *c)
{
    jw_obj(w);
    jw_kv_str(w, "id", c->id);
    jw_kv_str(w, "language", language_name(c->language));
    jw_kv_str(w, "cwd", c->cwd);
    jw_end(w);
}

static void contexts_fail(struct contexts_req *st, const struct err *e)
{
    if (!envd_alive(st->r.api, st->id))
        envd_gone(st->r.s, st->id);
    else
        reply_text(st->r.s, text_status(e), e->msg);
    req_end(&st->r);
}

static void on_created(void *arg, const struct err *e, const struct context_info *c)
{
    struct contexts_req *st = arg;
    if (!req_back(&st->r))
        return;
    if (e) {
        struct err copy = *e;
        copy.code = E_INTERNAL; /* 500, whatever the reason */
        contexts_fail(st, &copy);
        return;
    }
    struct jw *w = reply_begin(st->r.s);
    put_context(w, c);
    req_send(&st->r, 200);
}

static void on_changed(void *arg, const struct err *e, const struct context_info *c)
{
    struct contexts_req *st = arg;
    (void)c;
    if (!req_back(&st->r))
        return;
    if (e) {
        contexts_fail(st, e);
        return;
    }
    http_reply(st->r.s, 200, "application/json", "null", 4);
    req_end(&st->r);
}

static void on_listed(void *arg, const struct err *e, const struct context_info *c, size_t n)
{
    struct contexts_req *st = arg;
    if (!req_back(&st->r))
        return;
    if (e) {
        contexts_fail(st, e);
        return;
    }
    struct jw *w = reply_begin(st->r.s);
    jw_arr(w);
    for (size_t i = 0; i < n; i++)
        put_context(w, &c[i]);
    jw_end(w);
    req_send(&st->r, 200);
}

static struct contexts_req *contexts_begin(struct api *a, struct http_stream *s, const struct sandbox *sb)
{
    struct contexts_req *st = req_new(a, s, sizeof *st, NULL);
    memcpy(st->id, sb->id, sizeof st->id);
    return st;
}

static void on_create_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct contexts_req *st = arg;
    struct context_spec spec = {0};
    struct str cwd = {0};
    struct err e;
    bool given;
    struct sandbox *sb = sandbox_find(api_core(st->r.api), st->id, NULL);
    auto_json j = json_parse_obj(n ? p : "{}", n ? n : 2, &e);
    (void)s;
    if (!j || read_language(j, &spec.language, &given, &e) || json_str(j, "cwd", &cwd, false, &e) || !sb) {
        contexts_fail(st, &e);
        return;
    }
    spec.cwd = cwd.n ? cwd.p : NULL;
    req_hold(&st->r);
    if (context_create(sb, &spec, on_created, st, &e) && req_back(&st->r))
        contexts_fail(st, &e);
}

typedef int change_fn(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e);

static void change(struct contexts_req *st, struct sandbox *sb, struct str id, change_fn *fn)
{
    struct err e;
    char text[128];
    (void)snprintf(text, sizeof text, "%.*s", (int)(id.n < sizeof text ? id.n : 0), id.p);
    req_hold(&st->r);
    if (fn(sb, text, on_changed, st, &e) && req_back(&st->r))
        contexts_fail(st, &e);
}

static bool contexts(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    int n = http_nsegments(s);
    struct err e;
    if (n < 1 || !str_eqz(http_segment(s, 0), "contexts"))
        return false;
    struct contexts_req *st = contexts_begin(a, s, sb);
    if (n == 1 && http_is(s, "POST")) {
        http_body_collect(s, PARAM_BODY_MAX, on_create_body, st);
    } else if (n == 1 && http_is(s, "GET")) {
        req_hold(&st->r);
        if (context_list(sb, on_listed, st, &e) && req_back(&st->r))
            contexts_fail(st, &e);
    } else if (n == 2 && http_is(s, "DELETE")) {
        change(st, sb, http_segment(s, 1), context_remove);
    } else if (n == 3 && http_is(s, "POST") && str_eqz(http_segment(s, 2), "restart")) {
        change(st, sb, http_segment(s, 1), context_restart);
    } else {
        req_end(&st->r);
        return false;
    }
    return true;
}

/* ---- the door ---- */
void e2b_interpreter(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port)
{
    struct str path = http_path(s);
    (void)port;
    if (str_eqz(path, "/health") && (http_is(s, "GET") || http_is(s, "HEAD")))
        http_reply(s, 200, "application/json", "\"OK\"", 4); /* before the next check: to be looked at is not to be at work */
    else if (!preview_reachable(s, sb))
        return;
    else if (str_eqz(path, "/execute") && http_is(s, "POST"))
        execute(a, s, sb);
    else if (!contexts(a, s, sb))
        reply_text(s, 404, "Not Found");
}
