/* GET …/pty: a terminal over WebSocket. The upgrade is accepted only when the
 * process has started, so that a wrong user or directory is an ordinary HTTP
 * error. Closing the socket kills a terminal it started and leaves one it
 * attached to.
 *
 * Flow, both ways: output is acknowledged while the socket drains; the socket
 * is not read while the process takes no input. */
#include "api/feed.h"
#include "api/native/native.h"
#include "api/params.h"
#include "api/schema.h"
#include "http/uri.h"
#include "http/ws.h"
#include <stdio.h>
#include <stdlib.h>

#define ARGS_MAX 64

struct pty {
    struct req r;
    struct exec *x;
    struct feed *feed;  /* attached: input goes by pid */
    char sandbox[22];
    uint32_t pid;
    struct buf in;      /* typed, not yet taken */
    size_t owed;
    bool attached, open, paused, exited, resizing;
    unsigned cols, rows; /* wanted while a resize is on its way */
};

static void pty_fini(void *arg)
{
    struct pty *st = arg;
    if (st->x && st->attached)
        exec_detach(st->x);
    else if (st->x)
        exec_kill(st->x);
    feed_drop(st->feed);
    buf_free(&st->in);
}

static void say(struct pty *st, struct buf *b)
{
    if (st->open)
        (void)ws_send_text(st->r.s, b->p, b->n); /* fails only when the socket is gone; on_close follows */
    buf_free(b);
}

/* ---- from the client ---- */
static void hold(struct pty *st, bool full)
{
    if (full == st->paused)
        return;
    st->paused = full;
    if (full)
        http_body_pause(st->r.s);
    else
        http_body_resume(st->r.s);
}

static void push_input(struct pty *st)
{
    while (st->x && st->in.n) {
        size_t took = exec_input(st->x, st->in.p, st->in.n);
        if (!took)
            break;
        buf_drop(&st->in, took);
    }
    hold(st, st->x && st->in.n > 0);
}

static void feed_idle(void *arg) { hold(arg, false); }
static void feed_done(void *arg, const struct err *e)
{
    struct pty *st = arg;
    (void)e; /* the process is gone or takes nothing more; its stream says why */
    st->feed = NULL;
    hold(st, false);
}

static void resize(struct pty *st);
static void on_resized(void *arg, const struct err *e)
{
    struct pty *st = arg;
    (void)e; /* a terminal that just closed has no size */
    if (!req_back(&st->r))
        return;
    st->resizing = false;
    if (st->cols)
        resize(st);
}
static void resize(struct pty *st)
{
    char who[16];
    struct sandbox *sb = sandbox_find(api_core(st->r.api), st->sandbox, NULL);
    unsigned cols = st->cols, rows = st->rows;
    if (!sb || st->resizing || !cols)
        return; /* one at a time: the last size wins */
    (void)snprintf(who, sizeof who, "%u", st->pid);
    st->cols = st->rows = 0;
    st->resizing = true;
    req_hold(&st->r);
    if (exec_resize(sb, who, cols, rows, on_resized, st, NULL)) {
        st->resizing = false;
        (void)req_back(&st->r); /* the callback will not fire */
    }
}

struct control {
    struct exec_spec size;
};
static const struct field control_rows[] = {
    FIELD("resize", F_OBJ, struct control, size, .of = &resize_body, .flags = F_REQUIRED,
          .help = "The new size."),
};
static const struct shape control_shape = SHAPE_OF("TerminalControl", struct control, control_rows);

static int read_control(struct pty *st, const char *p, size_t n, struct err *e)
{
    struct control g = {0};
    auto_json j = json_parse_obj(p, n, e);
    if (!j || fields_read(j, &control_shape, &g, NULL, e))
        return -1;
    st->cols = g.size.cols, st->rows = g.size.rows;
    return 0;
}

static void on_msg(struct http_stream *s, void *arg, bool text, const char *p, size_t n)
{
    struct pty *st = arg;
    struct err e;
    if (st->r.over || !st->x)
        return;
    if (text && read_control(st, p, n, &e)) {
        ws_close(s, WS_POLICY, e.msg);
    } else if (text) {
        resize(st);
    } else if (st->feed) {
        feed_put(st->feed, p, n);
        hold(st, st->feed && feed_busy(st->feed));
    } else if (!st->attached) {
        buf_put(&st->in, p, n);
        push_input(st);
    }
}

static void on_close(struct http_stream *s, void *arg, int code, struct str reason)
{
    struct pty *st = arg;
    (void)s, (void)code, (void)reason;
    st->open = false;
    req_end(&st->r);
}

/* ---- from the process ---- */
static void on_drain(struct http_stream *s, void *arg)
{
    struct pty *st = arg;
    (void)s;
    size_t n = st->owed;
    st->owed = 0;
    if (st->x && n)
        exec_consumed(st->x, n);
}

static void on_started(void *arg, uint32_t pid, uint64_t offset)
{
    static const struct feed_ops ops = {.idle = feed_idle, .done = feed_done};
    struct pty *st = arg;
    char who[16];
    (void)offset;
    if (st->open)
        return;
    st->pid = pid;
    http_on_cancel(st->r.s, NULL, NULL); /* from here on on_close is the one to tell us */
    if (http_ws_accept(st->r.s, NULL, on_msg, on_close, st)) {
        req_end(&st->r); /* answered there */
        return;
    }
    st->open = true;
    ws_keepalive(st->r.s, 30);
    http_on_drain(st->r.s, on_drain, st);
    if (st->attached) {
        (void)snprintf(who, sizeof who, "%u", pid);
        st->feed = feed_new(st->r.api, st->sandbox, who, &ops, st);
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_obj(&w, "started");
    jw_kv_u64(&w, "pid", pid);
    jw_end(&w);
    jw_end(&w);
    say(st, &b);
}

static void on_room(void *arg) { push_input(arg); }

static void on_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct pty *st = arg;
    (void)chan;
    if (st->open)
        (void)ws_send_binary(st->r.s, p, n); /* as above */
    if (!st->open || http_writable(st->r.s))
        exec_consumed(st->x, n);
    else
        st->owed += n;
}

static void on_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct pty *st = arg;
    struct buf b = {0};
    struct jw w;
    (void)offset;
    if (!st->open)
        return; /* an exit without a start is no exit */
    st->exited = true;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_key(&w, "exit");
    put_exit(&w, x);
    jw_end(&w);
    say(st, &b);
}

static void on_done(void *arg, const struct err *e)
{
    struct pty *st = arg;
    struct err none;
    st->x = NULL;
    if (!e && !st->exited)
        err_set(&none, E_GUEST, "the terminal ended without a status"), e = &none;
    if (!st->open) {
        req_fail(&st->r, e, st->attached ? ABOUT_PROCESS : ABOUT_REQUEST);
        return;
    }
    hold(st, false);
    if (st->exited) {
        ws_close(st->r.s, WS_NORMAL, "");
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_key(&w, "error");
    problem_put_stream(&w, st->r.s, e, ABOUT_SANDBOX);
    jw_end(&w);
    say(st, &b);
    ws_close(st->r.s, WS_INTERNAL, err_name(e->code));
}

static const struct exec_ops ops = {
    .started = on_started, .output = on_output, .room = on_room, .exited = on_exited, .done = on_done};

/* ---- the request ---- */
struct terminal {
    struct exec_spec spec;
    char **cmd;
    struct kv vars;
    const char *pid;
    int64_t offset;
};
static const struct field pty_rows[] = {
    FIELD("cols", F_INT, struct terminal, spec.cols, .min = 1, .max = PARAM_WINDOW_MAX, .def = "80",
          .help = "Columns."),
    FIELD("rows", F_INT, struct terminal, spec.rows, .min = 1, .max = PARAM_WINDOW_MAX, .def = "24",
          .help = "Rows."),
    FIELD("cmd", F_ARGV, struct terminal, cmd, .max = ARGS_MAX,
          .help =
              "The program and its arguments, each as a cmd= of its own. Default: a login shell."),
    FIELD_USER(struct terminal, spec.user, "As whom."),
    FIELD("cwd", F_PATH, struct terminal, spec.cwd, .max = PARAM_PATH_MAX,
          .help = "Where it runs."),
    FIELD("env", F_ENV, struct terminal, vars,
          .help = "Variables: `env.KEY=VALUE`, or `env[KEY]=VALUE`."),
    FIELD("pid", F_STR, struct terminal, pid, .max = 200,
          .help = "Attach to this process, which has a terminal, in place of a new one."),
    FIELD("offset", F_INT, struct terminal, offset, .min = -1, .max = INT64_MAX, .def = "-1",
          .help = "With `pid`: from this byte of its output on. -1: from now."),
};
const struct shape pty_query = SHAPE_OF(NULL, struct terminal, pty_rows);

static void start(struct pty *st, struct sandbox *sb, struct terminal *q, struct err *e)
{
    char *login[] = {(char *)(uintptr_t)"/bin/bash", (char *)(uintptr_t)"-l", NULL};
    struct exec_spec spec = q->spec;
    if (!kv_get(&q->vars, "TERM") && !kv_get(&sb->env, "TERM"))
        kv_set(&q->vars, S("TERM"), S("xterm-256color"));
    char **env = kv_to_env(&q->vars);
    spec.stdin_pipe = true;
    spec.argv = q->cmd ? q->cmd : login;
    spec.env = env;
    st->x = exec_start(sb, &spec, &ops, st, e);
    env_free(env);
}

static void attach(struct pty *st, struct sandbox *sb, const struct terminal *q, struct err *e)
{
    st->attached = true;
    if (!who_ok(q->pid))
        err_set(e, E_INVALID, "pid: a process is named by its pid or as tag:NAME");
    else
        st->x =
            exec_attach(sb, q->pid, q->offset < 0 ? UINT64_MAX : (uint64_t)q->offset, &ops, st, e);
}

void pty_open(struct http_stream *s, void *arg)
{
    struct err e;
    struct terminal q = {0};
    struct sandbox *sb = api_sandbox(arg, s);
    if (!sb)
        return;
    if (!http_is_ws(s)) {
        err_set(&e, E_INVALID, "this path only supports WebSocket");
        problem_reply(s, &e, "send a WebSocket upgrade request");
        return;
    }
    struct pty *st = req_new(arg, s, sizeof *st, pty_fini);
    memcpy(st->sandbox, sb->id, sizeof st->sandbox);
    if (!native_query(arg, s, &pty_query, &q, &e)) {
        if (q.pid)
            attach(st, sb, &q, &e);
        else
            start(st, sb, &q, &e);
    }
    query_free(&pty_query, &q);
    if (!st->x) {
        req_fail(&st->r, &e, ABOUT_REQUEST);
        return;
    }
    req_watch(&st->r);
}
