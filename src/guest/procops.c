/* The process operations of the channel. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/group.h"
#include "guest/path.h"
#include "guest/proc.h"
#include "guest/spawn.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#define ARGS_MAX 4096
#define ENV_MAX  1024
#define DESC_MAX 2048 /* bytes of arguments shown by OP_PROCS */
#define RECENT_NS (30 * NS_PER_S) /* see OP_ATTACH */

/* Everything a start needs besides the process itself; strings live in `text`. */
struct start {
    struct buf text;
    size_t *arg, *env; /* offsets into text while it grows */
    size_t narg, nenv;
    char **argv, **envp;
    struct launch l;
    char *cwd;
};

static void start_fini(struct start *s)
{
    buf_free(&s->text);
    free(s->arg), free(s->env), free(s->argv), free(s->envp), free(s->cwd);
}

static int add_text(struct start *s, size_t **vec, size_t *n, size_t max, struct str v, const char *what, struct err *e)
{
    if (v.n && memchr(v.p, 0, v.n))
        return err_set(e, E_INVALID, "%s contains a NUL byte", what);
    if (*n == max)
        return err_set(e, E_INVALID, "more than %zu %ss", max, what);
    if ((*n & (*n - 1)) == 0)
        *vec = xrealloc(*vec, (*n ? *n * 2 : 1) * sizeof **vec);
    (*vec)[(*n)++] = s->text.n;
    buf_put(&s->text, v.p, v.n);
    buf_putc(&s->text, 0);
    return 0;
}

/* Highest priority first: a variable that is there already wins. */
static int add_env(struct start *s, struct str v, struct err *e)
{
    const char *eq = v.n ? memchr(v.p, '=', v.n) : NULL;
    if (!eq || eq == v.p)
        return err_set(e, E_INVALID, "environment entry '%.*s' is not NAME=value", (int)(v.n > 64 ? 64 : v.n), v.p ? v.p : "");
    size_t k = (size_t)(eq - v.p) + 1;
    for (size_t i = 0; i < s->nenv; i++)
        if (!strncmp(s->text.p + s->env[i], v.p, k))
            return 0;
    return add_text(s, &s->env, &s->nenv, ENV_MAX, v, "environment entry", e);
}

static int add_env_kv(struct start *s, const char *k, const char *v, struct err *e)
{
    char line[512];
    int n = snprintf(line, sizeof line, "%s=%s", k, v);
    return n < 0 || (size_t)n >= sizeof line ? 0 : add_env(s, (struct str){line, (size_t)n}, e);
}

static int build_env(struct agent *a, struct start *s, const struct user *u, struct rec r, bool pty, struct err *e)
{
    struct field f;
    size_t from = s->nenv; /* a later entry of the same request wins: walk once to find the last of each */
    while (rec_next(&r, &f))
        if (f.tag == T_ENV) {
            const char *eq = f.v.n ? memchr(f.v.p, '=', f.v.n) : NULL;
            size_t k = eq ? (size_t)(eq - f.v.p) + 1 : 0;
            for (size_t i = from; k && i < s->nenv; i++)
                if (!strncmp(s->text.p + s->env[i], f.v.p, k)) {
                    s->env[i] = s->env[--s->nenv];
                    break;
                }
            if (add_env(s, f.v, e))
                return -1;
        }
    for (size_t at = 0; at < a->env.n;) {
        struct str v = str_of(a->env.p + at);
        if (add_env(s, v, e))
            return -1;
        at += v.n + 1;
    }
    if (add_env_kv(s, "PATH", AGENT_PATH, e) || add_env_kv(s, "HOME", u->home, e) || add_env_kv(s, "USER", u->name, e) ||
        add_env_kv(s, "LOGNAME", u->name, e) || add_env_kv(s, "SHELL", u->shell, e))
        return -1;
    return pty ? add_env_kv(s, "TERM", "xterm-256color", e) : 0;
}

static void finish_vectors(struct start *s)
{
    s->argv = xcalloc(s->narg + 1, sizeof *s->argv);
    s->envp = xcalloc(s->nenv + 1, sizeof *s->envp);
    for (size_t i = 0; i < s->narg; i++)
        s->argv[i] = s->text.p + s->arg[i];
    s->l.path = AGENT_PATH;
    for (size_t i = 0; i < s->nenv; i++) {
        s->envp[i] = s->text.p + s->env[i];
        if (!strncmp(s->envp[i], "PATH=", 5))
            s->l.path = s->envp[i] + 5;
    }
    s->l.argv = s->argv, s->l.envp = s->envp;
}

static int parse_start(const struct req *q, struct start *s, struct proc *p, uint64_t *ret_cols, uint64_t *ret_rows, struct err *e)
{
    struct agent *a = q->a;
    struct rec r = q->rec;
    struct field f;
    if (path_user(a, q->rec, &s->l.user, e))
        return -1;
    while (rec_next(&r, &f))
        if (f.tag == T_ARG && add_text(s, &s->arg, &s->narg, ARGS_MAX, f.v, "argument", e))
            return -1;
    if (!s->narg || !s->text.p[s->arg[0]])
        return err_set(e, E_INVALID, "no command given");
    p->pty = rec_u64(q->rec, T_COLS, ret_cols);
    *ret_rows = rec_u64_or(q->rec, T_ROWS, 24);
    if (p->pty && (*ret_cols > 65535 || *ret_rows > 65535))
        return err_set(e, E_INVALID, "terminal size out of range");
    s->l.ngroups = user_groups(&a->users, &s->l.user, s->l.groups);
    if (build_env(a, s, &s->l.user, q->rec, p->pty, e))
        return -1;
    struct str cwd;
    s->l.cwd_asked = rec_get(q->rec, T_CWD, &cwd) && cwd.n;
    struct str who;
    bool other = rec_get(q->rec, T_USER, &who) && who.n && !(a->def_user && str_eqz(who, a->def_user));
    if (!s->l.cwd_asked)
        cwd = str_of(a->def_cwd && !other ? a->def_cwd : s->l.user.home);
    if (!(s->cwd = path_absolute(&s->l.user, cwd, "cwd", e)))
        return -1;
    s->l.cwd = s->cwd;
    finish_vectors(s);
    return 0;
}

static void describe(struct proc *p, const struct start *s, struct rec r, uint64_t cols)
{
    struct field f;
    rec_put_str(&p->desc, T_TAG, p->tag);
    for (size_t i = 0; i < s->narg && p->desc.n < DESC_MAX; i++)
        rec_put(&p->desc, T_ARG, s->argv[i], strnlen(s->argv[i], DESC_MAX - p->desc.n));
    while (rec_next(&r, &f))
        if (f.tag == T_ENV && p->desc.n + f.v.n < DESC_MAX)
            rec_put(&p->desc, T_ENV, f.v.p, f.v.n);
    rec_put_str(&p->desc, T_CWD, s->l.cwd);
    rec_put_str(&p->desc, T_USER, s->l.user.name);
    rec_put_u64(&p->desc, T_WALL_NS, (uint64_t)clock_wall());
    if (p->pty)
        rec_put_u64(&p->desc, T_COLS, cols);
}

static int pipe_pair(int *ours, int *theirs, bool we_read, uint32_t uid, struct err *e)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC))
        return err_sys(e, errno, "cannot create a pipe");
    *ours = fd[we_read ? 0 : 1], *theirs = fd[we_read ? 1 : 0];
    (void)fcntl(*ours, F_SETFL, O_NONBLOCK);
    if (uid)
        (void)!fchown(*theirs, uid, (gid_t)-1); /* or the user could not open /dev/stdout */
    return 0;
}

static int start_process(const struct req *q, struct start *s, struct proc *p, struct err *e)
{
    struct agent *a = q->a;
    uint64_t cols = 0, rows = 0;
    auto_fd in = -1, out = -1, er = -1;
    if (a->nprocs >= PROCS_MAX)
        return err_set(e, E_QUOTA, "%d processes started through the API are already running, the limit", PROCS_MAX);
    if (parse_start(q, s, p, &cols, &rows, e))
        return -1;
    if (p->pty) {
        p->out.fd = pty_open((unsigned)cols, (unsigned)rows, s->l.user.uid, &in, e);
        if (p->out.fd < 0)
            return -1;
        s->l.in = s->l.out = s->l.err = in;
        s->l.tty = true;
    } else {
        if (rec_u64_or(q->rec, T_STDIN, 0)) {
            if (pipe_pair(&p->in.fd, &in, false, s->l.user.uid, e))
                return -1;
        } else
            p->in_gone = true;
        if (pipe_pair(&p->out.fd, &out, true, s->l.user.uid, e) || pipe_pair(&p->err.fd, &er, true, s->l.user.uid, e))
            return -1;
        s->l.in = in >= 0 ? in : a->devnull, s->l.out = out, s->l.err = er;
    }
    s->l.vm = a->vm, s->l.scored = a->first;
    s->l.cgroup = group_join(a, p);
    pid_t pid = launch_start(&s->l, e);
    p->mark = s->l.mark;
    if (pid < 0)
        return -1;
    p->tag = rec_dup(q->rec, T_TAG);
    describe(p, s, q->rec, cols);
    proc_started(a, p, pid);
    return 0;
}

void op_start(const struct req *q)
{
    struct agent *a = q->a;
    struct start s = {0};
    struct err e = {0};
    if (a->chan.nstreams >= STREAMS_MAX) { /* before anything runs */
        err_set(&e, E_QUOTA, "too many open streams (%d)", STREAMS_MAX);
        reply_err(a, q->id, &e);
        return;
    }
    struct proc *p = proc_new();
    uint64_t ms = rec_u64_or(q->rec, T_TIMEOUT_MS, 0);
    if (start_process(q, &s, p, &e)) {
        procs_reap(a); /* a child that failed before exec; its cgroup must be empty before it can go */
        proc_free(a, p);
        reply_err(a, q->id, &e);
    } else {
        io_set(&a->loop, &p->out, EPOLLIN);
        io_set(&a->loop, &p->err, EPOLLIN);
        if (ms) {
            p->timer.fn = proc_on_timeout;
            timer_start(&a->loop, &p->timer, clock_mono() + (ms > 1ull << 40 ? 1ll << 40 : (int64_t)ms) * NS_PER_MS);
        }
        listen_new(q, p, 0);
    }
    start_fini(&s);
}

/* Answers the error itself. */
static struct proc *find(const struct req *q)
{
    struct err e = {0};
    struct proc *p = proc_find(q->a, q->rec, &e);
    if (!p)
        reply_err(q->a, q->id, &e);
    return p;
}

void op_attach(const struct req *q)
{
    struct err e = {0};
    struct proc *p = find(q);
    uint64_t offset = rec_u64_or(q->rec, T_OFFSET, UINT64_MAX);
    if (p && p->done && offset == UINT64_MAX - 1 && clock_mono() - p->done_at > RECENT_NS) {
        err_set(&e, E_NOT_FOUND, "process %d has ended", (int)p->pid);
        reply_err(q->a, q->id, &e);
    } else if (p)
        listen_new(q, p, offset);
}

static void put_proc(struct buf *b, const struct proc *p)
{
    size_t mark = rec_open(b, T_PROC);
    rec_put_u64(b, T_PID, (uint64_t)p->pid);
    buf_put(b, p->desc.p, p->desc.n);
    rec_put_u64(b, T_OFFSET, p->ring.head);
    if (p->done) {
        rec_put_u64(b, T_EXIT_KIND, p->kind);
        rec_put_u64(b, T_EXIT_CODE, (uint64_t)p->code);
    }
    rec_close(b, mark);
}

void op_procs(const struct req *q)
{
    struct buf *b = reply_begin(q->a);
    struct proc *p;
    list_each(p, &q->a->procs, all)
        if (b->n + p->desc.n < FRAME_MAX - 256)
            put_proc(b, p);
    list_each(p, &q->a->exited, all)
        if (b->n + p->desc.n < FRAME_MAX - 256)
            put_proc(b, p);
    reply_send(q->a, q->id);
}

static void answer(const struct req *q, int rc, const struct err *e)
{
    if (rc)
        reply_err(q->a, q->id, e);
    else
        reply_ok(q->a, q->id);
}

void op_signal(const struct req *q)
{
    struct err e = {0};
    struct proc *p = find(q);
    uint64_t sig;
    if (!p)
        return;
    uint64_t flags = rec_u64_or(q->rec, T_FLAGS, 0);
    bool one = flags & SIG_ONE;
    if ((flags & SIG_TREE) && rec_u64_or(q->rec, T_SIGNAL, 0) == SIGKILL)
        proc_kill_tree(q->a, p); /* what is left for below is the leader and its group */
    if (!rec_u64(q->rec, T_SIGNAL, &sig) || !sig || sig > 64)
        err_set(&e, E_INVALID, "signal out of range");
    else if (p->reaped && !p->done && !one) { /* the leader is gone, its group may not be; only it can keep the pid in use */
        if (kill(-p->pid, (int)sig))
            err_set(&e, E_GONE, "process %d has ended", (int)p->pid);
    } else if (p->reaped)
        err_set(&e, E_GONE, "process %d has ended", (int)p->pid);
    else if (kill(one ? p->pid : -p->pid, (int)sig) && kill(p->pid, (int)sig))
        err_sys(&e, errno, "process %d", (int)p->pid);
    if (!e.code && (sig == SIGTERM || sig == SIGKILL)) {
        p->ended = true;
        p->killed |= sig == SIGKILL;
        if (p->reaped)
            proc_end_now(q->a, p);
    }
    answer(q, e.code ? -1 : 0, &e);
}

void op_resize(const struct req *q)
{
    struct err e = {0};
    struct proc *p = find(q);
    uint64_t cols, rows;
    if (!p)
        return;
    if (!p->pty)
        err_set(&e, E_INVALID, "process %d has no terminal", (int)p->pid);
    else if (p->out.fd < 0)
        err_set(&e, E_GONE, "process %d has ended", (int)p->pid);
    else if (!rec_u64(q->rec, T_COLS, &cols) || !rec_u64(q->rec, T_ROWS, &rows) || cols > 65535 || rows > 65535)
        err_set(&e, E_INVALID, "terminal size out of range");
    else if (pty_resize(p->out.fd, (unsigned)cols, (unsigned)rows))
        err_sys(&e, errno, "terminal");
    answer(q, e.code ? -1 : 0, &e);
}

void op_input(const struct req *q)
{
    struct err e = {0};
    struct proc *p = find(q);
    struct str b;
    if (!p)
        return;
    if (!rec_get(q->rec, T_BYTES, &b))
        answer(q, err_set(&e, E_INVALID, "no bytes given"), &e);
    else
        answer(q, proc_input(q->a, p, 0, (const unsigned char *)b.p, (uint32_t)b.n, &e), &e);
}

void op_close_stdin(const struct req *q)
{
    struct proc *p = find(q);
    if (!p)
        return;
    proc_input_eof(q->a, p);
    reply_ok(q->a, q->id);
}
