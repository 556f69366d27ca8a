/* POST …/eval: run a cell in a code context, and wait for its end or stream it
 * as JSON lines. The client leaving interrupts the cell. */
#include "api/native/native.h"
#include "api/ndjson.h"
#include "api/params.h"
#include "api/schema.h"
#include "base/clock.h"
#include "core/code/context.h"
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
    struct jw *w = reply_begin(st->r.s);
    jw_obj(w);
    jw_kv_str(w, "context", st->context);
    jw_kv_str(w, "language", language_name(st->language));
    jw_kv_i64(w, "execution_count", st->count);
    jw_kv_strn(w, "stdout", (struct str){st->out[0].p ? st->out[0].p : "", st->out[0].n});
    jw_kv_strn(w, "stderr", (struct str){st->out[1].p ? st->out[1].p : "", st->out[1].n});
    buf_putc(&st->results, ']');
    auto_buf list = {0};
    buf_putc(&list, '[');
    buf_put(&list, st->results.p, st->results.n);
    jw_kv_raw(w, "results", (struct str){list.p, list.n});
    jw_key(w, "error");
    if (st->error.n)
        jw_raw(w, (struct str){st->error.p, st->error.n});
    else
        jw_null(w);
    put_end(w, st, end);
    jw_end(w);
    req_send(&st->r, 200);
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

struct args { struct eval_spec spec; struct kv env; struct str language; bool stream; int64_t max_output; };
static const struct field eval_rows[] = {
    FIELD("code", F_TEXT, struct args, spec.code, .flags = F_REQUIRED, .help = "The cell."),
    FIELD("language", F_TEXT, struct args, language, .max = 32,
          .help = "Run in the default context of this language: python, javascript, typescript, bash, r or java. Default: python."),
    FIELD("context", F_STR, struct args, spec.context, .max = 64, .help = "Run in the context with this id; excludes `language`."),
    FIELD("env", F_ENV, struct args, env, .help = "Variables for this cell only."),
    FIELD("stream", F_BOOL, struct args, stream, .def = "false", .help = "Answer with JSON lines as it runs."),
    FIELD("timeout_ms", F_INT, struct args, spec.timeout_ms, .max = TIMEOUT_MAX_MS, .def = "0",
          .help = "After that it is interrupted; if that does not help within 5 s, its interpreter is killed. 0: no limit."),
    FIELD("max_output", F_INT, struct args, max_output, .max = OUTPUT_MAX,
          .help = "Bytes of stdout and stderr that are passed on. Default: 1 MiB, with `stream` 8 MiB."),
};
const struct shape eval_body = SHAPE_OF("Eval", struct args, eval_rows);
_Static_assert(COLLECT == 1 << 20 && EVAL_OUTPUT == 8 << 20, "the sentence above says so");

static int check_args(struct args *g, struct err *e)
{
    if (g->language.p && g->spec.context)
        return err_set(e, E_INVALID, "language and context cannot be combined: a context has its own language");
    g->spec.language = LANG_PYTHON;
    if (g->language.p && language_parse(g->language, &g->spec.language))
        return err_set(e, E_INVALID, "language: must be python, javascript, typescript, bash, r or java");
    if (g->max_output < 0)
        g->max_output = g->stream ? EVAL_OUTPUT : COLLECT;
    g->spec.max_output = g->max_output ? (size_t)g->max_output : 1;
    g->spec.env = &g->env;
    return 0;
}

static void on_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    static const struct eval_ops ops = {.started = on_started, .event = on_event, .done = on_done, .failed = on_failed};
    struct api *a = arg;
    struct err e;
    struct args g = {.max_output = -1};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &eval_body, &g, &e);
    if (!j || check_args(&g, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
    } else {
        struct cell *st = req_new(a, s, sizeof *st, fini);
        st->stream = g.stream;
        st->t0 = clock_mono();
        st->v = eval_start(sb, &g.spec, &ops, st, &e);
        if (st->v)
            req_watch(&st->r);
        else
            req_fail(&st->r, &e, ABOUT_SANDBOX);
    }
    fields_free(&eval_body, &g);
}
void eval_post(struct http_stream *s, void *a) { api_body(a, s, on_body); }
