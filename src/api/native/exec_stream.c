/* A command as JSON lines while it runs: the streaming form of exec, and
 * attaching to a process by pid or tag.
 *
 * Back-pressure: output is acknowledged to the agent only while the client
 * takes it. What arrives while the stream is full is written (it is bounded by
 * the agent's window) but owed, and the debt is paid when the stream drains. */
#include "api/native/native.h"
#include "api/ndjson.h"
#include "api/utf8.h"
#include "base/clock.h"
#include <stdlib.h>

struct run {
    struct req r;
    struct exec *x;
    struct exec_input in;
    struct ndjson nd;
    struct utf8_tail tail[2]; /* stdout, stderr */
    size_t owed;
    int64_t t0;
    bool attached, begun, exited;
};

static void run_fini(void *arg)
{
    struct run *st = arg;
    if (st->x && st->attached)
        exec_detach(st->x);
    else if (st->x)
        exec_kill(st->x);
    nd_fini(&st->nd);
    free(st->in.p);
}

static void on_drain(struct http_stream *s, void *arg)
{
    struct run *st = arg;
    (void)s;
    size_t n = st->owed;
    st->owed = 0;
    if (st->x && n)
        exec_consumed(st->x, n);
}

static void on_started(void *arg, uint32_t pid, uint64_t offset)
{
    struct run *st = arg;
    if (st->begun)
        return;
    st->begun = true;
    http_on_drain(st->r.s, on_drain, st);
    nd_start(&st->nd, st->r.s);
    struct jw *w = nd_event(&st->nd, "started");
    jw_kv_u64(w, "pid", pid);
    if (st->attached)
        jw_kv_u64(w, "offset", offset);
    nd_send(&st->nd);
    exec_input_push(st->x, &st->in);
}

static void on_room(void *arg)
{
    struct run *st = arg;
    exec_input_push(st->x, &st->in);
}

static void send_output(struct run *st, int i, const struct buf *b)
{
    if (!b->n)
        return;
    struct jw *w = nd_event(&st->nd, i ? "stderr" : "stdout");
    struct str t = {b->p, b->n};
    if (str_utf8(t)) {
        jw_kv_strn(w, "data", t);
    } else {
        jw_key(w, "data_base64");
        jw_base64(w, b->p, b->n);
    }
    nd_send(&st->nd);
}

static void flush_tails(struct run *st)
{
    for (int i = 0; i < 2; i++) {
        auto_buf b = {0};
        utf8_flush(&st->tail[i], &b);
        send_output(st, i, &b);
    }
}

static void on_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct run *st = arg;
    int i = chan == CH_STDERR;
    auto_buf b = {0};
    if (!st->begun) { /* output without a start: nothing to say it with */
        exec_consumed(st->x, n);
        return;
    }
    utf8_push(&st->tail[i], p, n, &b);
    send_output(st, i, &b);
    if (http_writable(st->r.s))
        exec_consumed(st->x, n);
    else
        st->owed += n;
}

static void on_lost(void *arg, uint64_t n)
{
    struct run *st = arg;
    if (!st->begun)
        return;
    flush_tails(st);
    jw_kv_u64(nd_event(&st->nd, "lost"), "bytes", n);
    nd_send(&st->nd);
}

static void on_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct run *st = arg;
    if (!st->begun || st->exited)
        return;
    st->exited = true;
    flush_tails(st);
    struct jw *w = nd_event(&st->nd, "exit");
    jw_key(w, "exit");
    put_exit(w, x);
    if (st->attached)
        jw_kv_null(w, "duration_ms"); /* it began before we looked */
    else
        jw_kv_f64(w, "duration_ms", duration_ms(st->t0));
    jw_kv_u64(w, "offset", offset);
    nd_send(&st->nd);
}

static void on_done(void *arg, const struct err *e)
{
    struct run *st = arg;
    struct err none;
    st->x = NULL;
    if (!e && !st->exited)
        err_set(&none, E_GUEST, "the command's stream ended without a status"), e = &none;
    if (!st->begun) {
        req_fail(&st->r, e, st->attached ? ABOUT_PROCESS : ABOUT_REQUEST);
        return;
    }
    if (!st->exited) {
        flush_tails(st);
        struct jw *w = nd_event(&st->nd, "interrupted");
        jw_key(w, "error");
        problem_put_stream(w, st->r.s, e, ABOUT_SANDBOX);
        nd_send(&st->nd);
    }
    nd_end(&st->nd);
    req_end(&st->r);
}

static const struct exec_ops ops = {
    .started = on_started, .output = on_output, .lost = on_lost, .room = on_room, .exited = on_exited, .done = on_done};

void exec_stream_start(struct api *a, struct http_stream *s, struct sandbox *sb, const struct exec_spec *spec, struct exec_input *in)
{
    struct err e;
    struct run *st = req_new(a, s, sizeof *st, run_fini);
    st->in = *in, in->p = NULL;
    st->t0 = clock_mono();
    st->x = exec_start(sb, spec, &ops, st, &e);
    if (!st->x) {
        req_fail(&st->r, &e, ABOUT_SANDBOX);
        return;
    }
    req_watch(&st->r);
}

void exec_stream_attach(struct api *a, struct http_stream *s, struct sandbox *sb, const char *who, uint64_t offset)
{
    struct err e;
    struct run *st = req_new(a, s, sizeof *st, run_fini);
    st->attached = true;
    st->x = exec_attach(sb, who, offset, &ops, st, &e);
    if (!st->x) {
        req_fail(&st->r, &e, ABOUT_SANDBOX);
        return;
    }
    req_watch(&st->r);
}
