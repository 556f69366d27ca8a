/* Back-pressure: output is written with blocking writes, so a slow reader here
 * stops our reading and, credit by credit, the command. Input goes up one POST
 * at a time; each is answered when the guest took it. The two directions are
 * independent threads: `cat` with much input would deadlock otherwise. */
#include "cli/stream.h"
#include "base/cleanup.h"
#include "base/enc.h"
#include "base/fd.h"
#include "cli/args.h"
#include "cli/ndjson.h"
#include "cli/out.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

bool at_terminal(struct args *a)
{
    return !args_str(a, "timeout", NULL) && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

bool stdin_worth_forwarding(void)
{
    struct stat st;
    if (isatty(STDIN_FILENO) || fstat(STDIN_FILENO, &st))
        return false;
    return !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

int json_env(struct cli *x, struct jw *w, const char *key, struct args *a, const char *opt)
{
    int i = 0;
    const char *kv;
    jw_kv_obj(w, key);
    while (a && (kv = args_list(a, opt, &i))) {
        const char *eq = strchr(kv, '='), *value = eq ? eq + 1 : NULL;
        if (!eq && !strcmp(opt, "env"))
            value = getenv(kv); /* --env NAME passes ours on */
        if (kv == eq || !*kv || !value) {
            while (w->depth)
                jw_end(w);
            return err_set(&x->err, E_INVALID, "--%s: must be NAME=VALUE", opt);
        }
        jw_key_str(w, (struct str){kv, eq ? (size_t)(eq - kv) : strlen(kv)});
        jw_strz(w, value);
    }
    return 0; /* the caller may add more, then jw_end */
}

int exec_body(struct cli *x, const struct exec_req *q, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    jw_kv_arr(&w, "cmd");
    for (int i = 0; i < q->argc; i++)
        jw_strz(&w, q->argv[i]);
    jw_end(&w);
    if (json_env(x, &w, "env", q->args, "env"))
        return -1;
    for (const char *const *kv = q->env; kv && *kv; kv++) {
        const char *eq = strchr(*kv, '=');
        jw_key_str(&w, (struct str){*kv, (size_t)(eq - *kv)});
        jw_strz(&w, eq + 1);
    }
    jw_end(&w);
    if (q->user)
        jw_kv_str(&w, "user", q->user);
    if (q->cwd)
        jw_kv_str(&w, "cwd", q->cwd);
    if (q->timeout_ms)
        jw_kv_i64(&w, "timeout_ms", q->timeout_ms);
    if (q->background)
        jw_kv_bool(&w, "background", true);
    else
        jw_kv_bool(&w, "stream", true);
    if (q->keep_stdin)
        jw_kv_bool(&w, "keep_stdin", true);
    jw_end(&w);
    return 0;
}

int exit_status(struct json *exit, bool quiet)
{
    const char *kind = jget_str(exit, "kind", "");
    int64_t sig = jget_i64(exit, "signal", 9);
    if (!strcmp(kind, "exit"))
        return (int)(jget_i64(exit, "code", 1) & 0xff);
    if (!strcmp(kind, "timeout")) {
        if (!quiet)
            (void)fprintf(stderr, "hutch: the command took longer than %.10g s and was killed\n", jget_f64(exit, "timeout_ms", 0) / 1000);
        return 124;
    }
    if (!strcmp(kind, "oom")) {
        if (!quiet)
            (void)fprintf(stderr, "hutch: the command was killed: the sandbox ran out of memory\n");
        return 137;
    }
    if (!strcmp(kind, "signal"))
        return 128 + (int)(sig & 0x7f);
    return err_exit(E_INTERNAL); /* a kind we do not know is no success */
}

/* -- standard input -- */

/* Shared by the pump and the reader of the stream; whoever leaves last frees it. A refused write must not leave the command
 * waiting for ever, nor end its input early as if that were all: the pump then cuts the stream (which kills the command) and
 * leaves the reason here. */
struct pump {
    struct cli x; /* url, key, err and hint of the last write: the pump's own */
    char *target;
    int fd;
    pthread_mutex_t mu;
    int refs;
    int cut_fd;  /* socket of the stream, -1 once the reader has left */
    bool failed; /* x.err is why */
};

static void pump_unref(struct pump *p)
{
    pthread_mutex_lock(&p->mu);
    int left = --p->refs;
    pthread_mutex_unlock(&p->mu);
    if (left)
        return;
    pthread_mutex_destroy(&p->mu);
    free(p->x.url);
    free(p->x.key);
    free(p->x.ca);
    free(p->target);
    free(p);
}

static int post_stdin(struct pump *p, const char *data, size_t n, bool eof)
{
    const char *headers[3] = {"Content-Type: application/octet-stream", NULL, NULL};
    char key[256];
    if (p->x.key) {
        (void)snprintf(key, sizeof key, "X-API-Key: %s", p->x.key);
        headers[1] = key;
    }
    auto_free char *t = xasprintf("%s%s", p->target, eof ? "?eof=1" : "");
    auto_client c = api_connect(&p->x, &p->x.err);
    auto_buf b = {0};
    if (!c)
        return -1;
    int status = http_client_call(c, "POST", t, headers, data, n, &b, &p->x.err);
    if (status >= 400)
        api_problem(&p->x, status, b.p, b.n);
    return status >= 200 && status < 300 ? 0 : -1;
}

static void pump_fail(struct pump *p)
{
    /* It ended, or closed its input: its own business, and the stream tells the end. */
    if (p->x.err.code == E_NOT_FOUND || p->x.err.code == E_GONE || p->x.err.code == E_CONFLICT)
        return;
    pthread_mutex_lock(&p->mu);
    if (p->cut_fd >= 0) {
        p->failed = true;
        (void)shutdown(p->cut_fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&p->mu);
}

static void *pump_main(void *arg)
{
    struct pump *p = arg;
    char data[65536];
    ssize_t n = 0;
    int rc = 0;
    while (!rc && ((n = read(p->fd, data, sizeof data)) > 0 || (n < 0 && errno == EINTR)))
        if (n > 0)
            rc = post_stdin(p, data, (size_t)n, false);
    if (rc || post_stdin(p, "", 0, true))
        pump_fail(p);
    pump_unref(p);
    return NULL;
}

static struct pump *pump_start(struct cli *x, const struct exec_run *r, int64_t pid, int cut_fd)
{
    char num[24];
    (void)snprintf(num, sizeof num, "%lld", (long long)pid);
    struct pump *p = xcalloc(1, sizeof *p);
    p->x.url = xstrdup(x->url); /* its own: it may outlive main */
    p->x.key = x->key ? xstrdup(x->key) : NULL;
    p->x.ca = x->ca ? xstrdup(x->ca) : NULL;
    p->fd = r->stdin_fd;
    p->cut_fd = cut_fd;
    p->refs = 2;
    p->target = url("/v1/sandboxes/{}/processes/{}/stdin", r->id, num);
    api_about(&p->x, p->target);
    pthread_mutex_init(&p->mu, NULL);
    pthread_t t;
    int rc = pthread_create(&t, NULL, pump_main, p);
    if (rc) {
        p->refs = 1;
        pump_unref(p);
        (void)err_sys(&x->err, rc, "cannot start the input thread");
        return NULL;
    }
    (void)pthread_detach(t); /* it may sit in read(2) for ever; exit ends it */
    return p;
}

/* The reader leaves: no cutting any more. True if it was the pump that cut; then x->err says why. */
static bool pump_leave(struct cli *x, struct pump *p)
{
    pthread_mutex_lock(&p->mu);
    p->cut_fd = -1;
    bool failed = p->failed;
    if (failed) {
        x->err = p->x.err;
        memcpy(x->hint, p->x.hint, sizeof x->hint);
    }
    pthread_mutex_unlock(&p->mu);
    pump_unref(p);
    return failed;
}

/* -- output -- */

/* Lines stay lines. */
static void escape_lines(struct buf *text)
{
    auto_buf out = {0};
    for (const char *p = text->p, *end = p + text->n; p < end;) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *to = nl ? nl : end;
        esc_put(&out, (struct str){p, (size_t)(to - p)});
        if (nl)
            buf_putc(&out, '\n');
        p = to + (nl != NULL);
    }
    struct buf old = *text;
    *text = out;
    out = old;
}

static int put_bytes(struct cli *x, struct exec_run *r, int fd, struct json *line)
{
    auto_buf raw = {0};
    const char *text = jget_str(line, "data", NULL), *b64 = jget_str(line, "data_base64", NULL);
    size_t n;
    if (b64) {
        if (!base64_decode(b64, strlen(b64), &raw))
            return err_set(&x->err, E_INTERNAL, "the server sent output that is not base64");
        text = raw.p, n = raw.n;
    } else
        n = text ? strlen(text) : 0;
    auto_buf shown = {0};
    if (r->escape_err && fd == r->err_fd && n) {
        buf_put(&shown, text, n);
        escape_lines(&shown);
        text = shown.p, n = shown.n;
    }
    if (fd < 0 || !n || fd_write_all(fd, text, n))
        return 0;
    r->pipe_broken = errno == EPIPE;
    r->status = 128 + SIGPIPE;
    return err_sys(&x->err, errno, "cannot write the output");
}

static void send_signal(struct cli *x, const struct exec_run *r, int64_t pid, int sig)
{
    struct cli y = {.url = x->url, .key = x->key, .ca = x->ca, .no_start = true};
    char num[24];
    (void)snprintf(num, sizeof num, "%lld", (long long)pid);
    auto_free char *t = url("/v1/sandboxes/{}/processes/{}/signal", r->id, num);
    auto_buf b = {0};
    buf_printf(&b, "{\"signal\":%d,\"group\":true}", sig);
    (void)api_call(&y, "POST", t, &b, NULL); /* if it is gone already, the stream says so */
}

/* 1: the stream is complete, 0: go on, -1: x->err */
static int on_line(struct cli *x, struct exec_run *r, struct http_client *c, struct str line, int64_t *pid, struct pump **pump)
{
    auto_json j = json_parse_obj(line.p, line.n, &x->err);
    if (!j)
        return err_wrap(&x->err, "the server's stream");
    const char *ev = jget_str(j, "event", "");
    if (!strcmp(ev, "stdout"))
        return put_bytes(x, r, r->out_fd, j);
    if (!strcmp(ev, "stderr"))
        return put_bytes(x, r, r->err_fd, j);
    if (!strcmp(ev, "started")) {
        *pid = jget_i64(j, "pid", 0);
        if (r->stdin_fd >= 0 && !*pump && !(*pump = pump_start(x, r, *pid, http_client_fd(c))))
            return -1;
        return 0;
    }
    if (!strcmp(ev, "lost")) {
        (void)fprintf(stderr, "hutch: %lld bytes of output were lost\n", (long long)jget_i64(j, "bytes", 0));
        return 0;
    }
    if (!strcmp(ev, "exit")) {
        r->status = exit_status(json_get(j, "exit"), false);
        r->ended = true;
        return 1;
    }
    if (!strcmp(ev, "interrupted")) {
        api_problem_json(x, json_get(j, "error"));
        return -1;
    }
    return 0; /* keepalive, and events of later versions */
}

int exec_stream(struct cli *x, struct exec_run *r)
{
    auto_buf body = r->body;
    r->body = (struct buf){0};
    auto_free char *t = url("/v1/sandboxes/{}/exec", r->id);
    auto_client c = api_open(x);
    if (!c || api_send(x, c, "POST", t, &body) || api_check(x, c))
        return -1;
    struct lines l = {.c = c, .sigfd = x->sigfd > 0 ? x->sigfd : -1};
    struct str line;
    int64_t pid = 0;
    struct pump *pump = NULL;
    int rc = 0, signals = 0;
    if (x->caught) {
        r->left_by = x->caught;
        r->status = 128 + x->caught;
        rc = 1;
    }
    while (rc == 0) {
        switch (lines_next(&l, -1, &line, &x->err)) {
        case LINES_LINE:
            rc = on_line(x, r, c, line, &pid, &pump);
            break;
        case LINES_SIGNAL: {
            int sig = signals_take(x->sigfd);
            if (sig && r->forward_signals && pid && ++signals == 1 && sig != SIGHUP) {
                send_signal(x, r, pid, sig);
                break;
            }
            if (sig) {
                r->left_by = sig;
                r->status = 128 + sig;
                rc = 1;
            }
            break;
        }
        case LINES_TICK:
            break;
        case LINES_END:
            rc = err_set(&x->err, E_UNAVAILABLE, "the stream ended without an exit status");
            break;
        case LINES_BROKEN:
            rc = -1;
            break;
        }
    }
    splitter_free(&l.split);
    if (pump && pump_leave(x, pump) && rc < 0)
        return err_wrap(&x->err, "standard input");
    return rc < 0 && !r->pipe_broken ? -1 : 0;
}
