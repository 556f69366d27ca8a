/* POST /v1/eval: one program in an isolate. The answer is 200 whenever the
 * program was run, also if it failed: `error` then says how. Other statuses
 * mean that it was not run. */
#include "api/gate.h"
#include "api/native/native.h"
#include "api/params.h"
#include "api/schema.h"
#include "api/utf8.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/isolate.h"
#include "json/valid.h"
#include <stdlib.h>

struct program { struct req r; struct isolate_call *k; int64_t t0; };

static void eval_fini(void *arg)
{
    struct program *st = arg;
    if (st->k)
        isolate_cancel(st->k);
}

/* ---- the answer ---- */
static void put_text(struct jw *w, const char *key, const char *key64, struct str t)
{
    struct str whole = {t.p ? t.p : "", t.p ? utf8_whole(t.p, t.n) : 0}; /* a limit may have split a character */
    if (str_utf8(whole)) {
        jw_kv_strn(w, key, whole);
    } else {
        jw_key(w, key64);
        jw_base64(w, t.p, t.n);
    }
}

static const char *hint_of(enum isolate_end end)
{
    switch (end) {
    case ISOLATE_NOT_JSON: return "convert the value to numbers, strings, lists and maps, or print it";
    case ISOLATE_TIMEOUT: return "allow more with timeout_ms";
    case ISOLATE_CPU: return "allow more with cpu_ms";
    case ISOLATE_MEMORY: return "allow more with memory_mib";
    case ISOLATE_OUTPUT_LIMIT: return "print less, or allow more with max_output; a value has its fixed limit";
    case ISOLATE_FORBIDDEN: return "an isolate has no files, network, threads or other programs; a sandbox has";
    default: return NULL;
    }
}

static void put_error(struct jw *w, const struct isolate_result *r)
{
    jw_key(w, "error");
    if (r->end == ISOLATE_VALUE) {
        jw_null(w);
        return;
    }
    jw_obj(w);
    jw_kv_str(w, "code", isolate_end_name(r->end));
    jw_kv_str(w, "message", r->message);
    if (hint_of(r->end))
        jw_kv_str(w, "hint", hint_of(r->end));
    if (r->type)
        jw_kv_str(w, "type", r->type);
    if (r->traceback && *r->traceback)
        jw_kv_str(w, "traceback", r->traceback);
    if (r->end == ISOLATE_FORBIDDEN)
        jw_kv_str(w, "syscall", r->syscall);
    jw_end(w);
}

static void eval_done(void *arg, const struct isolate_result *r, const struct err *e)
{
    struct program *st = arg;
    st->k = NULL;
    if (e) {
        req_fail(&st->r, e, ABOUT_ISOLATE);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_raw(&w, "value", r->value);
    put_text(&w, "stdout", "stdout_base64", r->out);
    put_text(&w, "stderr", "stderr_base64", r->err);
    put_error(&w, r);
    if (r->signal) {
        jw_kv_null(&w, "exit_code");
        jw_kv_i64(&w, "signal", r->signal);
    } else {
        jw_kv_i64(&w, "exit_code", r->exit_code);
        jw_kv_null(&w, "signal");
    }
    jw_kv_str(&w, "language", r->language);
    jw_kv_str(&w, "template", r->template);
    jw_kv_obj(&w, "isolation");
    jw_kv_str(&w, "tier", tier_name(TIER_ISOLATE));
    jw_kv_str(&w, "boundary", isolate_boundary);
    jw_kv_str(&w, "accel", "none");
    jw_end(&w);
    jw_kv_obj(&w, "usage");
    jw_kv_f64(&w, "wall_ms", tenths((double)r->wall_ns / 1e6));
    jw_kv_f64(&w, "cpu_ms", tenths((double)r->cpu_ns / 1e6));
    jw_kv_u64(&w, "memory_bytes", r->memory_bytes);
    jw_end(&w);
    jw_kv_f64(&w, "duration_ms", duration_ms(st->t0));
    jw_end(&w);
    req_json(&st->r, 200, &b);
}

/* ---- the request ---- */
static bool identifier(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return !s[n] && n <= 100 && !(*s >= '0' && *s <= '9');
}

static int read_spec(struct json *j, struct isolate_spec *s, struct buf *input, struct err *e)
{
    int64_t timeout, cpu, memory, output;
    if (json_need(j, e, "language", "code", NULL) || body_text(j, "language", 32, &s->language, true, e) || json_str(j, "code", &s->code, true, e) ||
        body_name(j, "template", &s->template, false, e) || body_text(j, "function", 100, &s->function, false, e) ||
        json_i64(j, "timeout_ms", 1, ISOLATE_TIMEOUT_MAX_MS, 0, &timeout, e) || json_i64(j, "cpu_ms", 1, ISOLATE_TIMEOUT_MAX_MS, 0, &cpu, e) ||
        json_i64(j, "memory_mib", ISOLATE_MEMORY_MIN, 65536, 0, &memory, e) || json_i64(j, "max_output", 1, ISOLATE_OUTPUT_MAX, 0, &output, e))
        return -1;
    if (!isolate_language_ok(s->language))
        return err_set(e, E_INVALID, "language: an isolate runs python, js, php or ruby");
    if (s->function && !identifier(s->function))
        return err_set(e, E_INVALID, "function: not a name");
    if (!s->input.n && json_get(j, "input")) { /* its name was written with escapes */
        json_dump(json_get(j, "input"), input);
        s->input = (struct str){input->p, input->n};
    }
    s->timeout_ms = (uint32_t)timeout, s->cpu_ms = (uint32_t)cpu, s->memory_mib = (uint32_t)memory, s->max_output = (uint32_t)output;
    return 0;
}

static void on_eval_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e = {0};
    struct isolate_spec spec = {.tenant = gate_tenant(api_core(a), s)};
    auto_buf input = {0}, rest = {0};
    /* The input is handed on as it was written, so that whatever a program returns can be given to another: the reader, which
     * is strict about depth and numbers for our own sake, sees null in its place. */
    if (json_member((struct str){p, n}, S("input"), &spec.input) && str_utf8(spec.input)) {
        const char *end = spec.input.p + spec.input.n;
        buf_put(&rest, p, (size_t)(spec.input.p - p));
        buf_puts(&rest, "null");
        buf_put(&rest, end, (size_t)(p + n - end));
    } else {
        spec.input = (struct str){0};
    }
    auto_json j = rest.n ? body_parse(rest.p, rest.n, "Program", &e) : body_parse(p, n, "Program", &e);
    if (!j || read_spec(j, &spec, &input, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct program *st = req_new(a, s, sizeof *st, eval_fini);
    st->t0 = clock_mono();
    st->k = isolate_eval(api_core(a), &spec, eval_done, st, &e);
    if (st->k)
        req_watch(&st->r);
    else
        req_fail(&st->r, &e, e.code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_ISOLATE);
}
void isolate_post(struct http_stream *s, void *a) { api_body(a, s, on_eval_body); }
