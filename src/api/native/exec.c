/* POST …/exec: reads the request, then one of three forms. Waiting collects
 * here; streaming is exec_stream.c; background starts detached, answers with
 * the pid and leaves. Output beyond max_output is counted and dropped, never
 * left standing: a command must not block because its caller wants little. */
#include "api/feed.h"
#include "api/native/native.h"
#include "api/params.h"
#include "api/schema.h"
#include "api/utf8.h"
#include "base/clock.h"
#include "base/enc.h"
#include <stdio.h>
#include <stdlib.h>

#define OUTPUT_MAX (16 << 20)
#define TIMEOUT_MAX_MS (7LL * 86400 * 1000)

/* ---- rendering ---- */
void put_exit(struct jw *w, const struct exec_exit *x)
{
    if (!x || x->kind < EXIT_CODE || x->kind > EXIT_TIMEOUT) {
        jw_null(w);
        return;
    }
    static const char *const kinds[] = {[EXIT_CODE] = "exit", [EXIT_SIGNAL] = "signal", [EXIT_OOM] = "oom", [EXIT_TIMEOUT] = "timeout"};
    jw_obj(w);
    jw_kv_str(w, "kind", kinds[x->kind]);
    jw_kv_i64(w, x->kind == EXIT_CODE ? "code" : "signal", x->code);
    if (x->kind == EXIT_SIGNAL)
        jw_kv_str(w, "name", signal_name(x->code));
    if (x->kind == EXIT_TIMEOUT)
        jw_kv_u64(w, "timeout_ms", x->timeout_ms);
    jw_end(w);
}

double tenths(double ms) { return (double)(int64_t)(ms * 10 + 0.5) / 10; }
double duration_ms(int64_t since_mono) { return tenths((double)(clock_mono() - since_mono) / 1e6); }

void exec_input_push(struct exec *x, struct exec_input *in)
{
    while (in->at < in->n) {
        size_t took = exec_input(x, in->p + in->at, in->n - in->at);
        if (!took)
            return; /* room() calls again */
        in->at += took;
    }
    if (in->eof) {
        in->eof = false;
        exec_input_eof(x);
    }
}

/* ---- waiting ---- */
struct wait {
    struct req r;
    struct exec *x;
    struct exec_input in;
    struct buf out[2]; /* stdout, stderr */
    uint64_t total[2];
    size_t max;
    uint32_t pid;
    bool exited;
    struct exec_exit exit;
    int64_t t0;
};

static void wait_fini(void *arg)
{
    struct wait *st = arg;
    if (st->x)
        exec_kill(st->x);
    free(st->in.p);
    buf_free(&st->out[0]);
    buf_free(&st->out[1]);
}

static void wait_started(void *arg, uint32_t pid, uint64_t offset)
{
    struct wait *st = arg;
    (void)offset;
    st->pid = pid;
    exec_input_push(st->x, &st->in);
}

static void wait_room(void *arg)
{
    struct wait *st = arg;
    exec_input_push(st->x, &st->in);
}

static void wait_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct wait *st = arg;
    int i = chan == CH_STDERR;
    size_t room = st->max - st->out[i].n;
    buf_put(&st->out[i], p, n < room ? n : room);
    st->total[i] += n;
    exec_consumed(st->x, n);
}

static void wait_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct wait *st = arg;
    (void)offset;
    st->exited = true;
    st->exit = *x;
}

static void put_output(struct jw *w, const char *key, const char *key64, struct buf *b, bool cut)
{
    struct str t = {b->p ? b->p : "", b->n};
    if (cut)
        t.n = utf8_whole(t.p, t.n); /* the limit may have split a character */
    if (str_utf8(t)) {
        jw_kv_strn(w, key, t);
    } else {
        jw_key(w, key64);
        jw_base64(w, b->p, b->n);
    }
}

static void wait_done(void *arg, const struct err *e)
{
    struct wait *st = arg;
    struct err none;
    st->x = NULL;
    if (!e && !st->exited)
        err_set(&none, E_GUEST, "the command ended without a status"), e = &none;
    if (e) {
        req_fail(&st->r, e, ABOUT_REQUEST);
        return;
    }
    bool cut[2] = {st->total[0] > st->out[0].n, st->total[1] > st->out[1].n};
    struct jw *w = reply_begin(st->r.s);
    jw_obj(w);
    jw_kv_u64(w, "pid", st->pid);
    jw_key(w, "exit");
    put_exit(w, &st->exit);
    put_output(w, "stdout", "stdout_base64", &st->out[0], cut[0]);
    put_output(w, "stderr", "stderr_base64", &st->out[1], cut[1]);
    jw_kv_u64(w, "stdout_bytes", st->total[0]);
    jw_kv_u64(w, "stderr_bytes", st->total[1]);
    jw_kv_bool(w, "truncated", cut[0] || cut[1]);
    jw_kv_f64(w, "duration_ms", duration_ms(st->t0));
    jw_end(w);
    req_send(&st->r, 200);
}

static void run_waiting(struct api *a, struct http_stream *s, struct sandbox *sb, const struct exec_spec *spec, struct exec_input *in, size_t max)
{
    static const struct exec_ops ops = {.started = wait_started, .output = wait_output, .room = wait_room, .exited = wait_exited, .done = wait_done};
    struct err e;
    struct wait *st = req_new(a, s, sizeof *st, wait_fini);
    st->in = *in, in->p = NULL;
    st->max = max;
    st->t0 = clock_mono();
    st->x = exec_start(sb, spec, &ops, st, &e);
    if (!st->x) {
        req_fail(&st->r, &e, ABOUT_SANDBOX);
        return;
    }
    req_watch(&st->r);
}

/* ---- background ---- */
struct background { struct req r; struct exec *x; struct exec_input in; char sandbox[22]; char *tag; };

static void background_fini(void *arg)
{
    struct background *st = arg;
    if (st->x)
        exec_detach(st->x);
    free(st->in.p);
    free(st->tag);
}

static void background_started(void *arg, uint32_t pid, uint64_t offset)
{
    struct background *st = arg;
    (void)offset;
    if (st->in.p) { /* nobody waits for it: the feed goes on by itself */
        char who[16];
        (void)snprintf(who, sizeof who, "%u", pid);
        struct feed *f = feed_new(st->r.api, st->sandbox, who, NULL, NULL);
        feed_put(f, st->in.p, st->in.n);
        feed_finish(f, st->in.eof);
    }
    struct jw *w = reply_begin(st->r.s);
    jw_obj(w);
    jw_kv_u64(w, "pid", pid);
    jw_kv_str(w, "tag", st->tag);
    jw_end(w);
    req_send(&st->r, 201);
}

static void background_done(void *arg, const struct err *e)
{
    struct background *st = arg;
    struct err none;
    st->x = NULL;
    if (!e)
        err_set(&none, E_GUEST, "the command did not report its start"), e = &none;
    req_fail(&st->r, e, ABOUT_REQUEST);
}

static void run_background(struct api *a, struct http_stream *s, struct sandbox *sb, const struct exec_spec *spec, struct exec_input *in)
{
    static const struct exec_ops ops = {.started = background_started, .done = background_done};
    struct err e;
    struct background *st = req_new(a, s, sizeof *st, background_fini);
    st->in = *in, in->p = NULL;
    st->tag = spec->tag ? xstrdup(spec->tag) : NULL;
    memcpy(st->sandbox, sb->id, sizeof st->sandbox);
    st->x = exec_start(sb, spec, &ops, st, &e);
    if (!st->x)
        req_fail(&st->r, &e, ABOUT_SANDBOX);
}

/* ---- the request ---- */
struct args {
    struct exec_spec spec;
    char **argv, **env;
    struct kv vars;
    struct str text, b64;
    struct exec_input in;
    bool stream, background, keep_stdin;
    size_t max_output;
};

static const struct field window_rows[] = {
    FIELD("cols", F_INT, struct exec_spec, cols, .min = 1, .max = PARAM_WINDOW_MAX, .def = "80",
          .help = "Columns."),
    FIELD("rows", F_INT, struct exec_spec, rows, .min = 1, .max = PARAM_WINDOW_MAX, .def = "24",
          .help = "Rows."),
};
const struct shape window_shape = SHAPE_OF("WindowSize", struct exec_spec, window_rows);
static const struct field exec_rows[] = {
    FIELD(
        "cmd", F_ARGV, struct args, argv, .flags = F_REQUIRED,
        .help =
            "The program and its arguments, or a string that /bin/bash -c runs. With `env` at most 256 KiB."),
    FIELD("cwd", F_PATH, struct args, spec.cwd, .max = PARAM_PATH_MAX,
          .help = "Where it runs. Default: the template's, `/home/user`."),
    FIELD_USER(struct args, spec.user, "As whom. Default: the template's, `user`."),
    FIELD("env", F_ENV, struct args, vars, .help = "Variables for this command."),
    FIELD("stdin", F_TEXT, struct args, text,
          .help = "What it reads, then end of file. Default: /dev/null."),
    FIELD("stdin_base64", F_BASE64, struct args, b64,
          .help = "The same for bytes; excludes `stdin`."),
    FIELD("timeout_ms", F_INT, struct args, spec.timeout_ms, .max = TIMEOUT_MAX_MS, .def = "0",
          .help = "After that its whole process tree is killed. 0: no limit."),
    FIELD("stream", F_BOOL, struct args, stream, .def = "false",
          .help = "Answer with JSON lines as it runs."),
    FIELD("background", F_BOOL, struct args, background, .def = "false",
          .help = "Answer at once with its pid and leave it running; excludes `stream`."),
    FIELD("keep_stdin", F_BOOL, struct args, keep_stdin, .def = "false",
          .help = "With `stream` or `background`: leave its stdin open for `POST …/stdin`."),
    FIELD("tag", F_STR, struct args, spec.tag, .max = 128,
          .help = "A label: `tag:NAME` then names the process."),
    FIELD("max_output", F_INT, struct args, max_output, .max = OUTPUT_MAX, .def = "1048576",
          .help = "Without `stream`: how many bytes of each of stdout and stderr are kept."),
    FIELD("pty", F_OBJ, struct args, spec, .of = &window_shape,
          .help = "Give it a terminal; all output is then `stdout`."),
};
const struct shape exec_body = SHAPE_OF("Exec", struct args, exec_rows);

static int decode_input(struct args *g, struct err *e)
{
    struct buf b = {0};
    if (g->text.p && g->b64.p)
        return err_set(e, E_INVALID, "stdin and stdin_base64 cannot be combined");
    if (g->b64.p && !base64_decode(g->b64.p, g->b64.n, &b)) {
        buf_free(&b);
        return err_set(e, E_INVALID, "stdin_base64: not base64");
    }
    if (g->text.p)
        buf_put(&b, g->text.p, g->text.n);
    if (g->text.p || g->b64.p) {
        g->in.n = b.n;
        buf_reserve(&b, 0);
        g->in.p = buf_take(&b);
        g->in.eof = !g->keep_stdin;
    }
    g->spec.stdin_pipe = g->text.p || g->b64.p || g->keep_stdin;
    return 0;
}

static int check_args(struct args *g, struct err *e)
{
    if (decode_input(g, e))
        return -1;
    if (g->stream && g->background)
        return err_set(e, E_INVALID, "stream and background cannot be combined; …/processes/{pid}/stream follows a background command");
    if (g->keep_stdin && !g->stream && !g->background)
        return err_set(e, E_INVALID, "keep_stdin needs stream or background");
    g->spec.argv = g->argv;
    g->spec.detached = g->background;
    if (g->vars.n)
        g->spec.env = g->env = kv_to_env(&g->vars);
    return 0;
}

static void on_exec_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct args g = {0};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &exec_body, &g, &e);
    if (!j || check_args(&g, &e))
        problem_about(s, &e, ABOUT_REQUEST);
    else if (g.background)
        run_background(a, s, sb, &g.spec, &g.in);
    else if (g.stream)
        exec_stream_start(a, s, sb, &g.spec, &g.in);
    else
        run_waiting(a, s, sb, &g.spec, &g.in, g.max_output);
    free(g.in.p);
    if (g.env)
        env_free(g.env);
    fields_free(&exec_body, &g);
}
void exec_post(struct http_stream *s, void *a) { api_body(a, s, on_exec_body); }
