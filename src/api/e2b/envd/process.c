/* process.Process, the calls that answer at once: list, input, signals, size. */
#include "api/e2b/envd/process.h"
#include "api/e2b/envd/rpc.h"
#include "api/feed.h"
#include "api/params.h"
#include "base/enc.h"
#include <signal.h>
#include <stdio.h>

/* ---- shared ---- */
int sel_read(struct json *msg, struct sel *ret, struct err *e)
{
    struct json *sel = NULL;
    struct str tag = {0};
    int64_t pid = 0;
    if (json_obj(msg, "process", &sel, true, e) || json_i64(sel, "pid", 0, INT32_MAX, 0, &pid, e) ||
        json_str(sel, "tag", &tag, false, e))
        return -1;
    if (tag.p && !pid) {
        if (!tag.n || tag.n > sizeof ret->who - 5)
            return err_set(e, E_INVALID, "process.tag: empty or longer than %zu bytes",
                           sizeof ret->who - 5);
        (void)snprintf(ret->who, sizeof ret->who, "tag:%s", tag.p);
    } else {
        (void)snprintf(ret->who, sizeof ret->who, "%lld", (long long)pid);
    }
    return 0;
}

const char *sel_missing(const struct sel *sel, char *out, size_t cap)
{
    bool tag = !strncmp(sel->who, "tag:", 4);
    (void)snprintf(out, cap, "process with %s %s not found", tag ? "tag" : "pid",
                   sel->who + (tag ? 4 : 0));
    return out;
}

const struct proc_info *sel_hit(const struct sel *sel, const struct proc_info *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char pid[16];
        (void)snprintf(pid, sizeof pid, "%u", p[i].pid);
        if (p[i].running &&
            (!strncmp(sel->who, "tag:", 4) ? p[i].tag && !strcmp(p[i].tag, sel->who + 4)
                                           : !strcmp(pid, sel->who)))
            return &p[i];
    }
    return NULL;
}

bool process_ended(const struct err *e)
{
    return e->code == E_NOT_FOUND || (e->code == E_GONE && strstr(e->msg, "has ended"));
}

int input_read(struct json *input, struct buf *ret, struct err *e)
{
    struct str text = {0};
    if (json_str(input, "stdin", &text, false, e) ||
        (!text.p && json_str(input, "pty", &text, false, e)))
        return -1;
    if (!text.p || !base64_decode(text.p, text.n, ret))
        return err_set(e, E_INVALID,
                       text.p ? "input: not base64" : "input: stdin or pty must be given");
    return 0;
}

int read_winsize(struct json *pty, unsigned *cols, unsigned *rows, struct err *e)
{
    struct json *size = NULL;
    int64_t c, r;
    if (json_obj(pty, "size", &size, false, e) || json_i64(size, "cols", 0, 65535, 0, &c, e) ||
        json_i64(size, "rows", 0, 65535, 0, &r, e))
        return -1;
    *cols = c ? (unsigned)c : 80;
    *rows = r ? (unsigned)r : 24;
    return 0;
}

/* As Go's os/exec says it: the SDKs show it to their users. */
static const char *signal_words(int signo)
{
    static const char *const words[] = {
        [SIGHUP] = "hangup",
        [SIGINT] = "interrupt",
        [SIGQUIT] = "quit",
        [SIGILL] = "illegal instruction",
        [SIGTRAP] = "trace/breakpoint trap",
        [SIGABRT] = "aborted",
        [SIGBUS] = "bus error",
        [SIGFPE] = "floating point exception",
        [SIGKILL] = "killed",
        [SIGUSR1] = "user defined signal 1",
        [SIGSEGV] = "segmentation fault",
        [SIGUSR2] = "user defined signal 2",
        [SIGPIPE] = "broken pipe",
        [SIGALRM] = "alarm clock",
        [SIGTERM] = "terminated",
    };
    return signo > 0 && (size_t)signo < sizeof words / sizeof *words ? words[signo] : NULL;
}

void put_process_end(struct jw *w, const struct exec_exit *x)
{
    char status[64];
    int signo = x->kind == EXIT_SIGNAL ? x->code
                                       : SIGKILL; /* out of memory and out of time end in a kill */
    bool exited = x->kind == EXIT_CODE;
    if (exited)
        (void)snprintf(status, sizeof status, "exit status %d", x->code);
    else if (signal_words(signo))
        (void)snprintf(status, sizeof status, "signal: %s", signal_words(signo));
    else
        (void)snprintf(status, sizeof status, "signal: signal %d", signo);
    jw_obj(w);
    if (!exited)
        jw_kv_i64(w, "exitCode", -1);
    else if (x->code)
        jw_kv_i64(w, "exitCode", x->code);
    if (exited)
        jw_kv_bool(w, "exited", true);
    jw_kv_str(w, "status", status);
    if (!exited || x->code)
        jw_kv_str(w, "error", status);
    jw_end(w);
}

/* ---- list ---- */
static void put_process(struct jw *w, const struct proc_info *p)
{
    jw_obj(w);
    jw_kv_u64(w, "pid", p->pid);
    if (p->tag && *p->tag)
        jw_kv_str(w, "tag", p->tag);
    jw_kv_obj(w, "config");
    jw_kv_str(w, "cmd", p->argv && p->argv[0] ? p->argv[0] : "");
    jw_kv_arr(w, "args");
    for (char *const *v = p->argv && p->argv[0] ? p->argv + 1 : NULL; v && *v; v++)
        jw_strz(w, *v);
    jw_end(w);
    jw_kv_obj(w, "envs");
    for (char *const *v = p->env; v && *v; v++) {
        const char *eq = strchr(*v, '=');
        if (!eq)
            continue;
        jw_key_str(w, (struct str){*v, (size_t)(eq - *v)});
        jw_strz(w, eq + 1);
    }
    jw_end(w);
    if (p->cwd && *p->cwd)
        jw_kv_str(w, "cwd", p->cwd);
    jw_end(w);
    jw_end(w);
}

static void on_list(void *arg, const struct err *e, const struct proc_info *p, size_t n)
{
    struct rpc_call *c = arg;
    if (!req_back(&c->r))
        return;
    if (e) {
        rpc_fail_err(c, e);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "processes");
    for (size_t i = 0; i < n; i++)
        if (p[i].running)
            put_process(&w, &p[i]);
    jw_end(&w);
    jw_end(&w);
    rpc_reply(c, &b);
}

void rpc_process_list(const struct rpc_in *in)
{
    struct err e = {0};
    struct rpc_call *c = rpc_call_new(in, sizeof *c, NULL);
    req_hold(&c->r);
    rpc_settle(c, exec_list(in->sb, on_list, c, &e), &e);
}

/* ---- calls about one process ---- */
struct one {
    struct rpc_call c;
    struct sel sel;
    struct feed *feed;
    void (*then)(struct one *st, struct sandbox *sb, const struct proc_info *p);
    unsigned cols, rows;
};

static void one_fail(struct one *st, const struct err *e)
{
    char msg[200];
    if (process_ended(e) && envd_alive(st->c.r.api, st->c.id))
        rpc_fail(&st->c, RPC_NOT_FOUND, "%s", sel_missing(&st->sel, msg, sizeof msg));
    else if (e->code == E_GONE && envd_alive(st->c.r.api, st->c.id))
        rpc_fail(&st->c, RPC_INTERNAL, "%s", e->msg); /* no stdin, or one that was closed */
    else
        rpc_fail_err(&st->c, e);
}

static struct one *one_new(const struct rpc_in *in, void (*fini)(void *))
{
    struct err e = {0};
    struct sel sel;
    if (sel_read(in->msg, &sel, &e)) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return NULL;
    }
    struct one *st = rpc_call_new(in, sizeof *st, fini);
    st->sel = sel;
    return st;
}

static void on_unary(void *arg, const struct err *e)
{
    struct one *st = arg;
    if (!req_back(&st->c.r))
        return;
    if (e)
        one_fail(st, e);
    else
        rpc_reply_empty(&st->c);
}

/* What runs decides: one that has ended is still known to the agent for a while, but not found here. */
static void on_look(void *arg, const struct err *e, const struct proc_info *p, size_t n)
{
    struct one *st = arg;
    struct err none = {0};
    if (!req_back(&st->c.r))
        return;
    const struct proc_info *hit = e ? NULL : sel_hit(&st->sel, p, n);
    struct sandbox *sb = sandbox_find(api_core(st->c.r.api), st->c.id, &none);
    if (!e && !hit && sb)
        err_set(&none, E_NOT_FOUND, "no such process");
    if (e || !hit || !sb)
        one_fail(st, e ? e : &none);
    else
        st->then(st, sb, hit);
}

static void look(struct one *st, struct sandbox *sb,
                 void (*then)(struct one *, struct sandbox *, const struct proc_info *))
{
    struct err e = {0};
    st->then = then;
    req_hold(&st->c.r);
    rpc_settle(&st->c, exec_list(sb, on_look, st, &e), &e);
}

static int read_signal(struct json *msg, struct err *e)
{
    struct json *sig = json_get(msg, "signal");
    struct str name = {0};
    int64_t num = 0;
    if (json_kind(sig) == JSON_INT)
        (void)json_to_i64(sig, 0, 64, &num, e);
    else if (sig && !json_to_str(sig, &name, e))
        num = str_eqz(name, "SIGNAL_SIGKILL")   ? SIGKILL
              : str_eqz(name, "SIGNAL_SIGTERM") ? SIGTERM
                                                : 0;
    return num == SIGKILL || num == SIGTERM
               ? (int)num
               : err_set(e, E_INVALID, "signal: must be SIGNAL_SIGKILL or SIGNAL_SIGTERM");
}

void rpc_process_signal(const struct rpc_in *in)
{
    struct err e = {0};
    int signo = read_signal(in->msg, &e);
    if (signo < 0) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return;
    }
    struct one *st = one_new(in, NULL);
    if (!st)
        return;
    req_hold(&st->c.r);
    rpc_settle(&st->c, exec_signal(in->sb, st->sel.who, signo, true, on_unary, st, &e), &e);
}

static void resize(struct one *st, struct sandbox *sb, const struct proc_info *p)
{
    struct err e = {0};
    (void)p;
    req_hold(&st->c.r);
    rpc_settle(&st->c, exec_resize(sb, st->sel.who, st->cols, st->rows, on_unary, st, &e), &e);
}

static void reply_running(struct one *st, struct sandbox *sb, const struct proc_info *p)
{
    (void)sb, (void)p;
    rpc_reply_empty(&st->c);
}

void rpc_process_update(const struct rpc_in *in)
{
    struct err e = {0};
    struct json *pty = NULL;
    unsigned cols = 0, rows = 0;
    if (json_obj(in->msg, "pty", &pty, false, &e) || (pty && read_winsize(pty, &cols, &rows, &e))) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return;
    }
    struct one *st = one_new(in, NULL);
    if (!st)
        return;
    st->cols = cols, st->rows = rows;
    look(st, in->sb, pty ? resize : reply_running); /* without a size there is nothing to change */
}

/* ---- input: one call at a time per process in order; a full pipe makes the call wait ---- */
static void input_fini(void *arg)
{
    struct one *st = arg;
    feed_drop(st->feed);
}

static void input_done(void *arg, const struct err *e)
{
    struct one *st = arg;
    st->feed = NULL;
    if (e)
        one_fail(st, e);
    else
        rpc_reply_empty(&st->c);
}

void rpc_process_input(const struct rpc_in *in)
{
    static const struct feed_ops ops = {.done = input_done};
    struct err e = {0};
    struct json *input = NULL;
    auto_buf b = {0};
    if (json_obj(in->msg, "input", &input, true, &e) || input_read(input, &b, &e)) {
        rpc_refuse(in, RPC_INVALID_ARGUMENT, "%s", e.msg);
        return;
    }
    struct one *st = one_new(in, input_fini);
    if (!st)
        return;
    req_watch(&st->c.r);
    if (!b.n) { /* nothing to write, but to whom still matters */
        look(st, in->sb, reply_running);
        return;
    }
    struct feed *f = st->feed = feed_new(in->api, in->sb->id, st->sel.who, &ops, st);
    feed_put(
        f, b.p,
        b.n); /* may have failed and answered already: then the feed is only waiting for its burial */
    if (st->feed)
        feed_finish(f, false);
}

/* ---- end of input: not for terminals, which have none ---- */
static void close_stdin(struct one *st, struct sandbox *sb, const struct proc_info *p)
{
    struct err e = {0};
    if (p->pty) {
        rpc_fail(
            &st->c, RPC_INTERNAL,
            "error closing stdin: a terminal has no end of input; send the character 0x04 instead");
        return;
    }
    req_hold(&st->c.r);
    rpc_settle(&st->c, exec_close_stdin(sb, st->sel.who, on_unary, st, &e), &e);
}

void rpc_process_close_stdin(const struct rpc_in *in)
{
    struct one *st = one_new(in, NULL);
    if (st)
        look(st, in->sb, close_stdin);
}
