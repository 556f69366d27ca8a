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
#include "core/isolate/isolate.h"
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
    case ISOLATE_OUTPUT_LIMIT: return "print less, or allow more with max_output; the size of the value is fixed";
    case ISOLATE_FORBIDDEN: return "an isolate has no files, network, threads or other programs; use a sandbox";
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
    struct jw *w = reply_begin(st->r.s);
    jw_obj(w);
    jw_kv_raw(w, "value", r->value);
    put_text(w, "stdout", "stdout_base64", r->out);
    put_text(w, "stderr", "stderr_base64", r->err);
    put_error(w, r);
    if (r->signal) {
        jw_kv_null(w, "exit_code");
        jw_kv_i64(w, "signal", r->signal);
    } else {
        jw_kv_i64(w, "exit_code", r->exit_code);
        jw_kv_null(w, "signal");
    }
    jw_kv_str(w, "language", r->language);
    jw_kv_str(w, "template", r->template);
    jw_kv_obj(w, "isolation");
    jw_kv_str(w, "tier", tier_isolate.name);
    jw_kv_str(w, "boundary", tier_isolate.boundary[0]);
    jw_kv_str(w, "accel", "none");
    jw_end(w);
    jw_kv_obj(w, "usage");
    jw_kv_f64(w, "wall_ms", tenths((double)r->wall_ns / 1e6));
    jw_kv_f64(w, "cpu_ms", tenths((double)r->cpu_ns / 1e6));
    jw_kv_u64(w, "memory_bytes", r->memory_bytes);
    jw_end(w);
    jw_kv_f64(w, "duration_ms", duration_ms(st->t0));
    jw_end(w);
    req_send(&st->r, 200);
}

/* ---- the request ---- */
static bool identifier(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    return !s[n] && n <= 100 && !(*s >= '0' && *s <= '9');
}

struct args {
    struct isolate_spec spec;
    struct json *input;
};
static const struct field program_rows[] = {
    FIELD("language", F_STR, struct args, spec.language, .flags = F_REQUIRED, .max = 32,
          .help = "python, js, php or ruby."),
    FIELD("code", F_TEXT, struct args, spec.code, .flags = F_REQUIRED,
          .help = "The program. Its value is that of its last expression."),
    FIELD("input", F_JSON, struct args, input,
          .help = "A value that the program finds as `input`."),
    FIELD("function", F_STR, struct args, spec.function, .max = 100,
          .help = "Call this function of the program with the input; its value counts."),
    FIELD("template", F_NAME, struct args, spec.template,
          .help = "Whose interpreter. Default: `isolate` if it is built, else `base`."),
    FIELD("timeout_ms", F_INT, struct args, spec.timeout_ms, .min = 1,
          .max = ISOLATE_TIMEOUT_MAX_MS, .help = "Time. Default: 5000."),
    FIELD("cpu_ms", F_INT, struct args, spec.cpu_ms, .min = 1, .max = ISOLATE_TIMEOUT_MAX_MS,
          .help = "Processor time. Default: as the timeout."),
    FIELD("memory_mib", F_INT, struct args, spec.memory_mib, .min = ISOLATE_MEMORY_MIN,
          .max = SANDBOX_MEMORY_MAX, .help = "Memory in MiB. Default: 128."),
    FIELD("max_output", F_INT, struct args, spec.max_output, .min = 1, .max = ISOLATE_OUTPUT_MAX,
          .help = "Bytes of each of stdout and stderr. Default: 1 MiB."),
};
const struct shape program_body = SHAPE_OF("Program", struct args, program_rows);
_Static_assert(ISOLATE_TIMEOUT_MS == 5000 && ISOLATE_MEMORY_MIB == 128 && ISOLATE_OUTPUT == 1 << 20,
               "the sentences above say so");

static int check_args(struct args *g, struct buf *input, struct err *e)
{
    struct isolate_spec *s = &g->spec;
    if (!isolate_language_ok(s->language))
        return err_set(e, E_INVALID, "language: an isolate runs python, js, php or ruby");
    if (s->function && !identifier(s->function))
        return err_set(e, E_INVALID, "function: not a name");
    if (!s->input.n && g->input) { /* its name was written with escapes */
        json_dump(g->input, input);
        s->input = (struct str){input->p, input->n};
    }
    if (s->input.n && json_valid(s->input, e))
        return err_wrap(e, "input");
    return 0;
}

static void on_eval_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e = {0};
    struct caller who = api_caller(a, s);
    struct args g = {.spec.tenant = who.tenant, .spec.by = &who};
    auto_buf input = {0}, rest = {0};
    /* The input is handed on as it was written, so that whatever a program returns can be given to another: the reader, which
     * is strict about depth and numbers for our own sake, sees null in its place. */
    if (json_member((struct str){p, n}, S("input"), &g.spec.input) && str_utf8(g.spec.input)) {
        const char *end = g.spec.input.p + g.spec.input.n;
        buf_put(&rest, p, (size_t)(g.spec.input.p - p));
        buf_puts(&rest, "null");
        buf_put(&rest, end, (size_t)(p + n - end));
    } else {
        g.spec.input = (struct str){0};
    }
    auto_json j = native_body(a, rest.n ? rest.p : p, rest.n ? rest.n : n, &program_body, &g, &e);
    if (!j || check_args(&g, &input, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct program *st = req_new(a, s, sizeof *st, eval_fini);
    st->t0 = clock_mono();
    st->k = isolate_eval(api_core(a), &g.spec, eval_done, st, &e);
    if (st->k)
        req_watch(&st->r);
    else
        req_fail(&st->r, &e, e.code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_ISOLATE);
}
void isolate_post(struct http_stream *s, void *a) { api_body(a, s, on_eval_body); }
