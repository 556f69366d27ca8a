/* POST …/eval: run a cell in a code context, and wait for its end or stream it
 * as JSON lines. The client leaving interrupts the cell. */
#include "api/native/native.h"
#include "api/ndjson.h"
#include "api/params.h"
#include "api/schema.h"
#include "base/clock.h"
#include "core/context.h"
#include <stdio.h>
#include <stdlib.h>

#define TIMEOUT_MAX_MS (7LL * 86400 * 1000)
#define OUTPUT_MAX     (64LL << 20)
#define COLLECT        (1 << 20) /* max_output when waiting */

struct cell {
    struct req r;
    struct eval *v;
    bool stream, begun;
    int64_t t0;
    struct ndjson nd;
    /* collected, when waiting */
    char context[CONTEXT_ID];
    enum language language;
    int64_t count;
    struct buf out[2], results, error;
    size_t nresults;
};

static void fini(void *arg)
{
    struct cell *st = arg;
    if (st->v)
        eval_cancel(st->v);
    st->v = NULL;
    nd_fini(&st->nd);
    buf_free(&st->out[0]), buf_free(&st->out[1]), buf_free(&st->results), buf_free(&st->error);
}

/* ---- rendering ---- */
static void put_data(struct jw *w, const struct kernel_event *ev)
{
    jw_kv_obj(w, "data");
    for (size_t i = 0; i < ev->nmime; i++) {
        jw_key_str(w, ev->mime[i].type);
        if (ev->mime[i].json)
            jw_raw(w, ev->mime[i].value);
        else
            jw_str(w, ev->mime[i].value);
    }
    jw_end(w);
}

static void put_error_members(struct jw *w, const struct kernel_event *ev)
{
    jw_kv_strn(w, "name", ev->name);
    jw_kv_strn(w, "value", ev->value);
    jw_kv_strn(w, "traceback", ev->traceback);
}

static void put_end(struct jw *w, struct cell *st, const struct eval_end *end)
{
    jw_kv_str(w, "status", eval_how_name(end->how));
    jw_kv_bool(w, "state_lost", end->state_lost);
    jw_kv_bool(w, "truncated", end->cut_output || end->cut_results);
    jw_kv_u64(w, "cut_output_bytes", end->cut_output);
    jw_kv_u64(w, "cut_results", end->cut_results);
    jw_kv_f64(w, "duration_ms", duration_ms(st->t0));
    jw_key(w, "problem");
    if (end->e)
        problem_put_stream(w, st->r.s, end->e, ABOUT_REQUEST);
    else
        jw_null(w);
}

/* ---- streaming ---- */
static void on_drain(struct http_stream *s, void *arg)
{
    struct cell *st = arg;
    (void)s;
    if (st->v)
        eval_hold(st->v, false);
}

static void stream_event(struct cell *st, const struct kernel_event *ev)
{
    struct jw *w;
    switch (ev->type) {
    case KE_COUNT:
        w = nd_event(&st->nd, "count");
        jw_kv_i64(w, "execution_count", ev->n);
        break;
    case KE_OUT:
        w = nd_event(&st->nd, ev->is_stderr ? "stderr" : "stdout");
        jw_kv_strn(w, "text", ev->text);
        put_time(w, "at", clock_wall());
        break;
    case KE_RESULT:
        w = nd_event(&st->nd, "result");
        jw_kv_bool(w, "main", ev->is_main);
        put_data(w, ev);
        break;
    case KE_ERROR:
        w = nd_event(&st->nd, "error");
        put_error_members(w, ev);
        break;
    default:
        return;
    }
    nd_send(&st->nd);
    if (!http_writable(st->r.s) && st->v)
        eval_hold(st->v, true);
}

/* ---- waiting ---- */
static void collect_event(struct cell *st, const struct kernel_event *ev)
{
    struct jw w;
    switch (ev->type) {
    case KE_COUNT:
        st->count = ev->n;
        break;
    case KE_OUT:
        buf_put(&st->out[ev->is_stderr], ev->text.p, ev->text.n);
        break;
    case KE_RESULT:
        if (st->nresults++)
            buf_putc(&st->results, ',');
        jw_init(&w, &st->results);
        jw_obj(&w);
        jw_kv_bool(&w, "main", ev->is_main);
        put_data(&w, ev);
        jw_end(&w);
        break;
    case KE_ERROR:
        jw_init(&w, &st->error);
        jw_obj(&w);
        put_error_members(&w, ev);
        jw_end(&w);
        break;
    default:
        break;
    }
}

static void answer(struct cell *st, const struct eval_end *end)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "context", st->context);
    jw_kv_str(&w, "language", language_name(st->language));
    jw_kv_i64(&w, "execution_count", st->count);
    jw_kv_strn(&w, "stdout", (struct str){st->out[0].p ? st->out[0].p : "", st->out[0].n});
    jw_kv_strn(&w, "stderr", (struct str){st->out[1].p ? st->out[1].p : "", st->out[1].n});
    buf_putc(&st->results, ']');
    auto_buf list = {0};
    buf_putc(&list, '[');
    buf_put(&list, st->results.p, st->results.n);
    jw_kv_raw(&w, "results", (struct str){list.p, list.n});
    jw_key(&w, "error");
    if (st->error.n)
        jw_raw(&w, (struct str){st->error.p, st->error.n});
    else
        jw_null(&w);
    put_end(&w, st, end);
    jw_end(&w);
    req_json(&st->r, 200, &b);
}

/* ---- the cell ---- */
static void on_started(void *arg, const struct context_info *c)
{
    struct cell *st = arg;
    st->begun = true;
    (void)snprintf(st->context, sizeof st->context, "%s", c->id);
    st->language = c->language;
    if (!st->stream)
        return;
    http_on_drain(st->r.s, on_drain, st);
    nd_start(&st->nd, st->r.s);
    struct jw *w = nd_event(&st->nd, "started");
    jw_kv_str(w, "context", c->id);
    jw_kv_str(w, "language", language_name(c->language));
    nd_send(&st->nd);
}

static void on_event(void *arg, const struct kernel_event *ev)
{
    struct cell *st = arg;
    if (st->stream)
        stream_event(st, ev);
    else
        collect_event(st, ev);
}

static void on_done(void *arg, const struct eval_end *end)
{
    struct cell *st = arg;
    st->v = NULL;
    if (!st->stream) {
        if (end->how == EVAL_LOST && end->e->code == E_GONE)
            req_fail(&st->r, end->e, ABOUT_SANDBOX);
        else
            answer(st, end);
        return;
    }
    put_end(nd_event(&st->nd, "end"), st, end);
    nd_send(&st->nd);
    nd_end(&st->nd);
    req_end(&st->r);
}

static void on_failed(void *arg, const struct err *e)
{
    struct cell *st = arg;
    st->v = NULL;
    req_fail(&st->r, e, ABOUT_CONTEXT);
}

static int read_spec(struct json *j, struct eval_spec *s, struct kv *env, bool *stream, struct err *e)
{
    struct str language = {0};
    int64_t timeout, max;
    if (json_str(j, "code", &s->code, true, e) || json_str(j, "language", &language, false, e) ||
        body_text(j, "context", 64, &s->context, false, e) || body_env(j, "env", env, e) || json_bool(j, "stream", false, stream, e) ||
        json_i64(j, "timeout_ms", 0, TIMEOUT_MAX_MS, 0, &timeout, e))
        return -1;
    if (json_i64(j, "max_output", 0, OUTPUT_MAX, *stream ? EVAL_OUTPUT : COLLECT, &max, e))
        return -1;
    if (language.p && s->context)
        return err_set(e, E_INVALID, "language and context exclude each other: a context has its language");
    s->language = LANG_PYTHON;
    if (language.p && language_parse(language, &s->language))
        return err_set(e, E_INVALID, "language: python, javascript, typescript, bash, r and java are there");
    s->timeout_ms = (uint64_t)timeout;
    s->max_output = max ? (size_t)max : 1;
    s->env = env;
    return 0;
}

static void on_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    static const struct eval_ops ops = {.started = on_started, .event = on_event, .done = on_done, .failed = on_failed};
    struct api *a = arg;
    struct err e;
    struct eval_spec spec = {0};
    struct kv env = {0};
    bool stream = false;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "Eval", &e);
    if (!j || read_spec(j, &spec, &env, &stream, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
    } else {
        struct cell *st = req_new(a, s, sizeof *st, fini);
        st->stream = stream;
        st->t0 = clock_mono();
        st->v = eval_start(sb, &spec, &ops, st, &e);
        if (st->v)
            req_watch(&st->r);
        else
            req_fail(&st->r, &e, ABOUT_SANDBOX);
    }
    kv_free(&env);
}
void eval_post(struct http_stream *s, void *a) { api_body(a, s, on_body); }
