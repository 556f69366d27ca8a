#include "core/sandbox/exec.h"
#include "base/clock.h"
#include "base/list.h"
#include "core/agent/agent.h"
#include "core/box/box.h"
#include "core/host/host.h"
#include "core/sandbox/sandbox.h"
#include "core/sandbox/object.h"
#include <signal.h>
#include <string.h>

#define WINDOW (256 * 1024)

struct exec {
    struct call *call;
    struct exec_ops ops;
    void *arg;
    char sandbox[22];
    struct core *core;
    uint32_t pid;
    uint64_t timeout_ms, offset;
    uint8_t in_chan;
    size_t owed; /* consumed, credit not yet returned */
    bool started, exited, detached_start, freed, buried, asking, kill_wanted;
    bool ended; /* the agent's answer is in; waits for the OOM question */
    bool end_failed;
    struct err end_err;
    struct exec_exit exit;
};

static void finish(struct exec *x, const struct err *e)
{
    x->call = NULL;
    if (!x->freed)
        x->ops.done(x->arg, e);
    free(x);
}

static void tell_exit(struct exec *x)
{
    if (!x->freed && x->ops.exited)
        x->ops.exited(x->arg, &x->exit, x->offset);
}

/* A SIGKILL that nobody asked for may have been the kernel's: only the box's cgroup knows. */
static void on_oom_answer(void *arg, const struct err *e, bool oom)
{
    struct exec *x = arg;
    x->asking = false;
    if (!e && oom)
        x->exit.kind = EXIT_OOM;
    tell_exit(x);
    if (x->ended && !x->buried)
        finish(x, x->end_failed ? &x->end_err : NULL);
}

static void on_exit_event(struct exec *x, struct rec r)
{
    if (x->exited)
        return;
    uint64_t kind = rec_u64_or(r, T_EXIT_KIND, 0), code = rec_u64_or(r, T_EXIT_CODE, 0);
    if (kind < EXIT_CODE || kind > EXIT_TIMEOUT || code > 255)
        return; /* the stream will end without a status, and say so */
    x->exited = true;
    x->exit = (struct exec_exit){(enum exit_kind)kind, (int)code, x->timeout_ms};
    x->offset = rec_u64_or(r, T_OFFSET, 0);
    if (kind == EXIT_SIGNAL && code == SIGKILL) {
        struct sandbox *sb = sandbox_find(x->core, x->sandbox, NULL);
        if (sb && sb->box && box_ask_oom(sb->box, on_oom_answer, x) == 0) {
            x->asking = true;
            return;
        }
    }
    tell_exit(x);
}

static void send_kill(struct exec *x);

static void on_event(void *arg, uint8_t ev, struct rec r)
{
    struct exec *x = arg;
    if (ev == EV_STARTED && !x->started) {
        x->started = true;
        x->pid = (uint32_t)rec_u64_or(r, T_PID, 0);
        if (x->kill_wanted)
            send_kill(x);
        else if (!x->freed && x->ops.started)
            x->ops.started(x->arg, x->pid, rec_u64_or(r, T_OFFSET, 0));
    } else if (ev == EV_EXIT) {
        on_exit_event(x, r);
    } else if (ev == EV_LOST && x->ops.lost && !x->freed) {
        x->ops.lost(x->arg, rec_u64_or(r, T_SIZE, 0));
    }
}

static void on_data(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct exec *x = arg;
    if (x->freed || !x->ops.output)
        exec_consumed(x, n);
    else
        x->ops.output(x->arg, chan, p, n);
}

static void on_room(void *arg)
{
    struct exec *x = arg;
    if (!x->freed && x->ops.room)
        x->ops.room(x->arg);
}

static void on_done(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct exec *x = arg;
    struct err none;
    x->call = NULL;
    if (!e && !x->exited && !x->detached_start) {
        err_set(&none, E_GUEST, "the command's stream ended without an exit status");
        e = &none;
    }
    if (e && x->exited)
        e = NULL; /* the status came from wait(2); what happened after it does not matter */
    if (x->asking) {
        x->ended = true, x->end_failed = e != NULL;
        if (e)
            x->end_err = *e;
        return;
    }
    finish(x, e);
}

static const struct call_ops ops = {
    .event = on_event, .data = on_data, .room = on_room, .done = on_done};

static void put_who(struct buf *b, const char *who)
{
    uint64_t pid;
    if (!strncmp(who, "tag:", 4))
        rec_put_str(b, T_TAG, who + 4);
    else if (str_u64(str_of(who), &pid))
        rec_put_u64(b, T_PID, pid);
}

static struct exec *open_stream(struct sandbox *sb, enum agent_op op, const struct buf *body,
                                const struct exec_ops *o, void *arg, struct err *e)
{
    struct agent *a = sandbox_agent(sb, e);
    if (!a)
        return NULL;
    struct exec *x = xcalloc(1, sizeof *x);
    x->ops = *o, x->arg = arg, x->core = sb->core, x->in_chan = CH_STDIN;
    memcpy(x->sandbox, sb->id, sizeof x->sandbox);
    x->call = agent_call(a, op, body, &ops, x, e);
    if (!x->call) {
        free(x);
        return NULL;
    }
    return x;
}

struct exec *exec_start(struct sandbox *sb, const struct exec_spec *s, const struct exec_ops *o,
                        void *arg, struct err *e)
{
    auto_buf b = {0};
    for (char *const *p = s->argv; *p; p++)
        rec_put_str(&b, T_ARG, *p);
    for (char *const *p = s->env; p && *p; p++)
        rec_put_str(&b, T_ENV, *p);
    rec_put_str(&b, T_CWD, s->cwd);
    rec_put_str(&b, T_USER, s->user);
    rec_put_str(&b, T_TAG, s->tag);
    rec_put_u64(&b, T_STDIN, s->stdin_pipe);
    if (s->timeout_ms)
        rec_put_u64(&b, T_TIMEOUT_MS, s->timeout_ms);
    if (s->cols && s->rows) {
        rec_put_u64(&b, T_COLS, s->cols);
        rec_put_u64(&b, T_ROWS, s->rows);
    }
    if (!s->detached)
        rec_put_u64(&b, T_CREDIT, WINDOW);
    struct exec *x = open_stream(sb, OP_START, &b, o, arg, e);
    if (!x)
        return NULL;
    x->timeout_ms = s->timeout_ms;
    x->detached_start = s->detached;
    if (s->cols && s->rows)
        x->in_chan = CH_PTY;
    return x;
}

struct exec *exec_attach(struct sandbox *sb, const char *who, uint64_t offset,
                         const struct exec_ops *o, void *arg, struct err *e)
{
    auto_buf b = {0};
    put_who(&b, who);
    rec_put_u64(&b, T_OFFSET, offset);
    rec_put_u64(&b, T_CREDIT, WINDOW);
    return open_stream(sb, OP_ATTACH, &b, o, arg, e);
}

void exec_consumed(struct exec *x, size_t n)
{
    x->owed += n;
    if (x->call && x->owed >= WINDOW / 4) {
        call_credit(x->call, x->owed);
        x->owed = 0;
    }
}

size_t exec_input_room(const struct exec *x) { return x->call ? call_room(x->call) : 0; }
size_t exec_input(struct exec *x, const void *p, size_t n)
{
    return x->call ? call_send(x->call, x->in_chan, p, n) : 0;
}
void exec_input_eof(struct exec *x)
{
    if (x->call)
        call_eof(x->call, x->in_chan);
}

/* Let go of the stream; the memory follows at the end of the turn, or with the OOM answer that is still out. */
static void let_go(struct exec *x)
{
    if (!x->call)
        return; /* finish() is on the stack, or comes with the OOM answer */
    call_cancel(x->call);
    x->call = NULL;
    if (x->asking) {
        x->ended = true;
        return;
    }
    x->buried = true;
    loop_defer(x->core->loop, free, x);
}

void exec_detach(struct exec *x)
{
    if (x->freed)
        return;
    x->freed = true;
    let_go(x);
}

static void ignore(void *arg, const struct err *e, struct rec r) { (void)arg, (void)e, (void)r; }

static void send_kill(struct exec *x)
{
    static const struct call_ops quiet = {.done = ignore};
    struct sandbox *sb = sandbox_find(x->core, x->sandbox, NULL);
    struct agent *a = sb ? sandbox_agent(sb, NULL) : NULL;
    if (a && x->pid && !x->exited) {
        auto_buf b = {0};
        rec_put_u64(&b, T_PID, x->pid);
        rec_put_u64(&b, T_SIGNAL, SIGKILL);
        rec_put_u64(&b, T_FLAGS, SIG_TREE);
        (void)agent_call(a, OP_SIGNAL, &b, &quiet, NULL,
                         NULL); /* if the channel is down, so is the process */
    }
    let_go(x);
}

void exec_kill(struct exec *x)
{
    if (x->freed)
        return;
    x->freed = true;
    if (x->call && !x->started)
        x->kill_wanted = true; /* its pid is not known yet: killed when it starts */
    else
        send_kill(x);
}

/* ---- unary calls ---- */
struct unary {
    exec_cb *cb;
    void *arg;
};

static void unary_done(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct unary u = *(struct unary *)arg;
    free(arg);
    u.cb(u.arg, e);
}

static int unary(struct sandbox *sb, enum agent_op op, const struct buf *b, exec_cb *cb, void *arg,
                 struct err *e)
{
    static const struct call_ops o = {.done = unary_done};
    struct agent *a = sandbox_agent(sb, e);
    if (!a)
        return -1;
    struct unary *u = xcalloc(1, sizeof *u);
    *u = (struct unary){cb, arg};
    if (!agent_call(a, op, b, &o, u, e)) {
        free(u);
        return -1;
    }
    return 0;
}

int exec_signal(struct sandbox *sb, const char *who, int signo, bool group, exec_cb *cb, void *arg,
                struct err *e)
{
    auto_buf b = {0};
    put_who(&b, who);
    rec_put_u64(&b, T_SIGNAL, (uint64_t)signo);
    rec_put_u64(&b, T_FLAGS, group ? 0 : SIG_ONE);
    return unary(sb, OP_SIGNAL, &b, cb, arg, e);
}
int exec_resize(struct sandbox *sb, const char *who, unsigned cols, unsigned rows, exec_cb *cb,
                void *arg, struct err *e)
{
    auto_buf b = {0};
    put_who(&b, who);
    rec_put_u64(&b, T_COLS, cols);
    rec_put_u64(&b, T_ROWS, rows);
    return unary(sb, OP_RESIZE, &b, cb, arg, e);
}
int exec_write(struct sandbox *sb, const char *who, const void *p, size_t n, exec_cb *cb, void *arg,
               struct err *e)
{
    auto_buf b = {0};
    put_who(&b, who);
    rec_put(&b, T_BYTES, p, n);
    return unary(sb, OP_INPUT, &b, cb, arg, e);
}
int exec_close_stdin(struct sandbox *sb, const char *who, exec_cb *cb, void *arg, struct err *e)
{
    auto_buf b = {0};
    put_who(&b, who);
    return unary(sb, OP_CLOSE_STDIN, &b, cb, arg, e);
}

/* ---- list ---- */
struct listing {
    void (*cb)(void *, const struct err *, const struct proc_info *, size_t);
    void *arg;
};

static char **add_string(char **v, size_t *n, struct str s)
{
    if (!(*n & (*n + 1))) /* room doubles at 1, 3, 7, …: for the string and the NULL */
        v = xrealloc(v, (*n * 2 + 2) * sizeof *v);
    v[(*n)++] = xstrndup(s.p, s.n);
    v[*n] = NULL;
    return v;
}

static void read_proc(struct rec r, struct proc_info *p)
{
    struct field f;
    size_t nargv = 0, nenv = 0;
    char **argv = xcalloc(1, sizeof *argv), **env = NULL;
    p->pid = (uint32_t)rec_u64_or(r, T_PID, 0);
    p->tag = rec_dup(r, T_TAG), p->cwd = rec_dup(r, T_CWD), p->user = rec_dup(r, T_USER);
    p->started_wall_ns = (int64_t)rec_u64_or(r, T_WALL_NS, 0);
    p->output_bytes = rec_u64_or(r, T_OFFSET, 0);
    p->exit.kind = (enum exit_kind)rec_u64_or(r, T_EXIT_KIND, 0);
    p->exit.code = (int)rec_u64_or(r, T_EXIT_CODE, 0);
    p->running = !p->exit.kind;
    p->pty = rec_u64_or(r, T_COLS, 0) > 0;
    while (rec_next(&r, &f))
        if (f.tag == T_ARG)
            argv = add_string(argv, &nargv, f.v);
        else if (f.tag == T_ENV)
            env = add_string(env, &nenv, f.v);
    p->argv = argv, p->env = env;
}

static void free_strings(char *const *v)
{
    for (char *const *q = v; q && *q; q++)
        free(*q);
    free((void *)(uintptr_t)v);
}

static void list_done(void *arg, const struct err *e, struct rec r)
{
    struct listing l = *(struct listing *)arg;
    free(arg);
    struct proc_info *p = NULL;
    size_t n = 0;
    struct field f;
    while (!e && rec_next(&r, &f))
        if (f.tag == T_PROC) {
            p = xrealloc(p, (n + 1) * sizeof *p);
            p[n] = (struct proc_info){0};
            read_proc(field_rec(f), &p[n++]);
        }
    l.cb(l.arg, e, p, n);
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)p[i].tag), free((void *)(uintptr_t)p[i].cwd),
            free((void *)(uintptr_t)p[i].user);
        free_strings(p[i].argv), free_strings(p[i].env);
    }
    free(p);
}

int exec_list(struct sandbox *sb,
              void (*cb)(void *, const struct err *, const struct proc_info *, size_t), void *arg,
              struct err *e)
{
    static const struct call_ops o = {.done = list_done};
    struct agent *a = sandbox_agent(sb, e);
    if (!a)
        return -1;
    struct listing *l = xcalloc(1, sizeof *l);
    *l = (struct listing){cb, arg};
    if (!agent_call(a, OP_PROCS, NULL, &o, l, e)) {
        free(l);
        return -1;
    }
    return 0;
}

/* ---- signals by name ---- */
static const struct {
    int n;
    const char *name;
} signals[] = {
    {SIGHUP, "SIGHUP"},       {SIGINT, "SIGINT"},   {SIGQUIT, "SIGQUIT"},   {SIGILL, "SIGILL"},
    {SIGTRAP, "SIGTRAP"},     {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},     {SIGFPE, "SIGFPE"},
    {SIGKILL, "SIGKILL"},     {SIGUSR1, "SIGUSR1"}, {SIGSEGV, "SIGSEGV"},   {SIGUSR2, "SIGUSR2"},
    {SIGPIPE, "SIGPIPE"},     {SIGALRM, "SIGALRM"}, {SIGTERM, "SIGTERM"},   {SIGCHLD, "SIGCHLD"},
    {SIGCONT, "SIGCONT"},     {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"},   {SIGTTIN, "SIGTTIN"},
    {SIGTTOU, "SIGTTOU"},     {SIGURG, "SIGURG"},   {SIGXCPU, "SIGXCPU"},   {SIGXFSZ, "SIGXFSZ"},
    {SIGVTALRM, "SIGVTALRM"}, {SIGPROF, "SIGPROF"}, {SIGWINCH, "SIGWINCH"}, {SIGIO, "SIGIO"},
    {SIGPWR, "SIGPWR"},       {SIGSYS, "SIGSYS"},
};

const char *signal_name(int signo)
{
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (signals[i].n == signo)
            return signals[i].name;
    return "SIG?";
}

int signal_number(const char *name)
{
    uint64_t v;
    if (str_u64(str_of(name), &v))
        return v >= 1 && v <= 64 ? (int)v : -1;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!strcasecmp(signals[i].name, name) || !strcasecmp(signals[i].name + 3, name))
            return signals[i].n;
    return -1;
}
