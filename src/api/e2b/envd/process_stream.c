/* process.Process Start and Connect: a process as a stream of events.
 *
 * A client that leaves only detaches; the process runs on. Output is
 * acknowledged to the agent while the client takes it: what arrives while the
 * connection is full is sent (it is bounded by the agent's window) but owed,
 * and the debt is paid when the connection drains. */
#include "api/e2b/envd/process.h"
#include "api/e2b/envd/rpc.h"
#include "api/params.h"
#include "core/sandbox/exec.h"
#include <stdio.h>
#include <stdlib.h>

#define PIECE     (32u * 1024) /* of one data event */
#define PIECE_PTY (16u * 1024)

struct run {
    struct rpc_stream st;
    struct exec *x;
    size_t owed;
    bool attached, started, exited;
    struct exec_exit exit;
    struct sel sel; /* attached */
};

static void run_fini(void *arg)
{
    struct run *run = arg;
    if (run->x)
        exec_detach(run->x);
    rpc_stream_fini(&run->st);
}

static void put_keepalive(struct jw *w)
{
    jw_kv_obj(w, "event");
    jw_kv_obj(w, "keepalive");
    jw_end(w);
    jw_end(w);
}

static void on_drain(struct http_stream *s, void *arg)
{
    struct run *run = arg;
    (void)s;
    size_t n = run->owed;
    run->owed = 0;
    if (run->x && n)
        exec_consumed(run->x, n);
}

static void on_started(void *arg, uint32_t pid, uint64_t offset)
{
    struct run *run = arg;
    (void)offset;
    if (run->started)
        return;
    run->started = true;
    http_on_drain(run->st.c.r.s, on_drain, run);
    struct jw *w = rpc_msg(&run->st);
    jw_kv_obj(w, "event");
    jw_kv_obj(w, "start");
    jw_kv_u64(w, "pid", pid);
    jw_end(w);
    jw_end(w);
    rpc_send(&run->st);
}

static void on_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct run *run = arg;
    const char *key = chan == CH_PTY ? "pty" : chan == CH_STDERR ? "stderr" : "stdout";
    size_t piece = chan == CH_PTY ? PIECE_PTY : PIECE;
    for (size_t at = 0; run->started && at < n; at += piece) {
        struct jw *w = rpc_msg(&run->st);
        jw_kv_obj(w, "event");
        jw_kv_obj(w, "data");
        jw_key(w, key);
        jw_base64(w, p + at, n - at < piece ? n - at : piece);
        jw_end(w);
        jw_end(w);
        rpc_send(&run->st);
    }
    if (http_writable(run->st.c.r.s))
        exec_consumed(run->x, n);
    else
        run->owed += n;
}

static void on_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct run *run = arg;
    (void)offset;
    run->exited = true;
    run->exit = *x;
}

static void on_done(void *arg, const struct err *e)
{
    struct run *run = arg;
    run->x = NULL;
    if (!envd_alive(run->st.c.r.api,
                    run->st.c.id)) { /* its processes die with it: that is not their own end */
        rpc_cut(&run->st);
        return;
    }
    if (!run->started && run->attached && e && (e->code == E_NOT_FOUND || e->code == E_GONE)) {
        char msg[200];
        rpc_finish_error(&run->st, RPC_NOT_FOUND, "%s", sel_missing(&run->sel, msg, sizeof msg));
        return;
    }
    if (!run->started && !run->attached && e && !envd_no_user(e) &&
        (e->code == E_NOT_FOUND || e->code == E_DENIED)) {
        rpc_finish_error(&run->st, RPC_INVALID_ARGUMENT, "%s", e->msg); /* cwd, program */
        return;
    }
    if (e || !run->started || !run->exited) {
        struct err none;
        if (!e)
            err_set(&none, E_GUEST, "the process ended without a status"), e = &none;
        rpc_finish_err(&run->st, e);
        return;
    }
    if (run->exit.kind == EXIT_TIMEOUT && !run->attached) {
        rpc_finish_error(&run->st, RPC_DEADLINE_EXCEEDED,
                         "the command did not end within %llu ms and was killed",
                         (unsigned long long)run->exit.timeout_ms);
        return;
    }
    struct jw *w = rpc_msg(&run->st);
    jw_kv_obj(w, "event");
    jw_key(w, "end");
    put_process_end(w, &run->exit);
    jw_end(w);
    rpc_send(&run->st);
    rpc_finish(&run->st);
}

static const struct exec_ops ops = {
    .started = on_started, .output = on_output, .exited = on_exited, .done = on_done};

static struct run *run_new(const struct rpc_in *in)
{
    struct run *run = rpc_stream_new(in, sizeof *run, run_fini);
    run->st.keepalive = put_keepalive;
    return run;
}

static void run_begin(struct run *run, const struct err *e)
{
    if (run->x)
        req_watch(&run->st.c.r);
    else
        rpc_finish_err(&run->st, e);
}

/* ---- Start ---- */
struct start {
    struct exec_spec spec;
    char **argv, **env;
    struct kv vars;
};

static int read_argv(struct json *process, struct start *g, struct err *e)
{
    struct json *args = NULL;
    struct str s;
    if (json_str(process, "cmd", &s, true, e) || json_arr(process, "args", &args, false, e))
        return -1;
    size_t n = json_len(args);
    if (!s.n)
        return err_set(e, E_INVALID, "process.cmd: empty");
    if (n >= PARAM_ARGS_MAX)
        return err_set(e, E_INVALID, "process.args: more than %d", PARAM_ARGS_MAX);
    g->argv = xcalloc(n + 2, sizeof *g->argv);
    g->argv[0] = (char *)(uintptr_t)s.p; /* exec_spec wants char *const *, and does not write */
    for (size_t i = 0; i < n; i++) {
        if (json_to_str(json_at(args, i), &s, e))
            return -1;
        if (s.n > PARAM_ARG_MAX)
            return err_set(e, E_INVALID, "process.args[%zu]: longer than %d bytes", i,
                           PARAM_ARG_MAX);
        g->argv[i + 1] = (char *)(uintptr_t)s.p;
    }
    g->spec.argv = g->argv;
    return 0;
}

static int read_envs(struct json *process, struct start *g, struct err *e)
{
    struct json *envs = NULL;
    if (json_obj(process, "envs", &envs, false, e))
        return -1;
    for (void *it = envs ? json_first(envs) : NULL; it; it = json_next(envs, it)) {
        struct str k = json_iter_key(it), v;
        if (json_to_str(json_iter_value(envs, it), &v, e))
            return -1;
        if (!k.n || memchr(k.p, '=', k.n))
            return err_set(e, E_INVALID, "process.envs: '%.*s' is not a name",
                           (int)(k.n > 64 ? 64 : k.n), k.p);
        kv_set(&g->vars, k, v);
    }
    if (g->vars.n)
        g->spec.env = g->env = kv_to_env(&g->vars);
    return 0;
}

static int read_start(const struct rpc_in *in, struct start *g, struct err *e)
{
    struct json *process = NULL, *pty = NULL;
    const char *cwd, *tag;
    if (json_obj(in->msg, "process", &process, true, e) ||
        json_obj(in->msg, "pty", &pty, false, e) || read_argv(process, g, e) ||
        read_envs(process, g, e) || rpc_text(process, "cwd", &cwd, e) ||
        rpc_text(in->msg, "tag", &tag, e) ||
        json_bool(in->msg, "stdin", true, &g->spec.stdin_pipe, e) ||
        (pty && read_winsize(pty, &g->spec.cols, &g->spec.rows, e)))
        return -1;
    if (*cwd && !(cwd = envd_path(in->sb, cwd, e)))
        return -1;
    g->spec.cwd =
        *cwd       ? cwd
        : in->user ? envd_workdir(in->sb)
                   : NULL; /* the template's is everybody's; core gives a named user their home */
    g->spec.tag = *tag ? tag : NULL;
    g->spec.user = in->user;
    g->spec.timeout_ms = in->timeout_ms;
    return 0;
}

void rpc_process_start(const struct rpc_in *in)
{
    struct err e = {0};
    struct start g = {0};
    if (read_start(in, &g, &e)) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
    } else {
        struct run *run = run_new(in);
        run->x = exec_start(in->sb, &g.spec, &ops, run, &e);
        run_begin(run, &e);
    }
    free(g.argv);
    if (g.env)
        env_free(g.env);
    kv_free(&g.vars);
}

/* ---- Connect ---- */
static void connect_expired(void *arg)
{
    struct run *run = arg;
    rpc_finish_error(&run->st, RPC_DEADLINE_EXCEEDED,
                     "the stream was open for as long as it was asked for");
}

void rpc_process_connect(const struct rpc_in *in)
{
    struct err e = {0};
    struct sel sel;
    if (sel_read(in->msg, &sel, &e)) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return;
    }
    struct run *run = run_new(in);
    run->attached = true;
    run->sel = sel;
    rpc_deadline(&run->st, in->timeout_ms, connect_expired);
    run->x = exec_attach(in->sb, sel.who, EXEC_RECENT, &ops, run, &e);
    run_begin(run, &e);
}
