/* Processes by pid or tag: list, look, follow, feed, signal, resize. */
#include "api/feed.h"
#include "api/native/native.h"
#include "api/params.h"
#include <stdio.h>
#include <stdlib.h>

/* The capture {pid}, checked; NULL: the answer is out. Valid while the request is. */
static const char *which(struct http_stream *s)
{
    struct err e;
    struct str who = http_param(s, "pid");
    if (who.p && who_ok(who.p))
        return who.p;
    err_set(&e, E_INVALID, "a process is named by its pid or as tag:NAME");
    problem_about(s, &e, ABOUT_REQUEST);
    return NULL;
}

/* ---- list ---- */
static void put_process(struct jw *w, const struct proc_info *p)
{
    jw_obj(w);
    jw_kv_u64(w, "pid", p->pid);
    jw_kv_str(w, "tag", p->tag);
    jw_kv_arr(w, "cmd");
    for (char *const *v = p->argv; v && *v; v++)
        jw_strz(w, *v);
    jw_end(w);
    jw_kv_str(w, "cwd", p->cwd);
    jw_kv_str(w, "user", p->user);
    put_time(w, "started_at", p->started_wall_ns);
    jw_kv_u64(w, "output_bytes", p->output_bytes);
    jw_kv_bool(w, "running", p->running);
    jw_kv_bool(w, "pty", p->pty);
    jw_key(w, "exit");
    put_exit(w, p->running ? NULL : &p->exit);
    jw_end(w);
}

static void on_list(void *arg, const struct err *e, const struct proc_info *p, size_t n)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    if (e) {
        req_fail(r, e, ABOUT_SANDBOX);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "processes");
    for (size_t i = 0; i < n; i++)
        put_process(&w, &p[i]);
    jw_end(&w);
    jw_end(&w);
    req_json(r, 200, &b);
}

static void on_one(void *arg, const struct err *e, const struct proc_info *p, size_t n)
{
    struct req *r = arg;
    struct err none;
    if (!req_back(r))
        return;
    if (e) {
        req_fail(r, e, ABOUT_SANDBOX);
        return;
    }
    const char *who = http_param(r->s, "pid").p;
    const struct proc_info *hit = NULL;
    for (size_t i = 0; i < n; i++) {
        char pid[16];
        (void)snprintf(pid, sizeof pid, "%u", p[i].pid);
        bool is = !strncmp(who, "tag:", 4) ? p[i].tag && !strcmp(p[i].tag, who + 4) : !strcmp(pid, who);
        if (is && (!hit || p[i].running || !hit->running)) /* of equal tags a running one, else the latest */
            hit = &p[i];
    }
    if (!hit) {
        err_set(&none, E_NOT_FOUND, "process '%.140s' does not exist", who);
        req_fail(r, &none, ABOUT_PROCESS);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_process(&w, hit);
    req_json(r, 200, &b);
}

static void list(struct http_stream *s, struct api *a, void (*cb)(void *, const struct err *, const struct proc_info *, size_t))
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if (exec_list(sb, cb, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_SANDBOX);
    }
}
void processes_list(struct http_stream *s, void *a) { list(s, a, on_list); }
void processes_get(struct http_stream *s, void *a)
{
    if (which(s))
        list(s, a, on_one);
}

/* ---- follow ---- */
void processes_stream(struct http_stream *s, void *arg)
{
    struct err e;
    auto_buf b = {0};
    const char *who = which(s), *from = param_str(s, "offset", &b);
    uint64_t offset = 0;
    if (!who)
        return;
    if (from && !strcmp(from, "-1")) {
        offset = UINT64_MAX;
    } else if (param_u64(s, "offset", 0, UINT64_MAX - 1, 0, &offset, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct sandbox *sb = api_sandbox(arg, s);
    if (sb)
        exec_stream_attach(arg, s, sb, who, offset);
}

/* ---- unary ---- */
static void on_unary(void *arg, const struct err *e)
{
    struct req *r = arg;
    req_none(r, e, ABOUT_PROCESS);
}

static void settle(struct req *r, int failed, const struct err *e)
{
    if (failed) {
        (void)req_back(r); /* it will not come */
        req_fail(r, e, ABOUT_SANDBOX);
    }
}

static void on_signal_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct err e;
    struct str name = {0};
    int64_t num = 0;
    bool group;
    const char *who = which(s);
    struct sandbox *sb = who ? api_sandbox(arg, s) : NULL;
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "Signal", &e);
    struct json *sig = json_get(j, "signal");
    int bad = !j || json_bool(j, "group", true, &group, &e) || json_need(j, &e, "signal", NULL);
    if (!bad && json_kind(sig) == JSON_INT)
        bad = json_to_i64(sig, 1, 64, &num, &e);
    else if (!bad)
        bad = json_to_str(sig, &name, &e) || ((num = signal_number(name.p)) < 0 && json_fail(sig, &e, "not a signal; \"SIGTERM\", \"TERM\" or 15"));
    if (bad) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct req *r = req_new(arg, s, sizeof *r, NULL);
    req_hold(r);
    settle(r, exec_signal(sb, who, (int)num, group, on_unary, r, &e), &e);
}
void processes_signal(struct http_stream *s, void *a) { api_body(a, s, on_signal_body); }

static void on_resize_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct err e;
    unsigned cols, rows;
    const char *who = which(s);
    struct sandbox *sb = who ? api_sandbox(arg, s) : NULL;
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "WindowSize", &e);
    if (!j || json_need(j, &e, "cols", "rows", NULL) || body_winsize(j, &cols, &rows, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct req *r = req_new(arg, s, sizeof *r, NULL);
    req_hold(r);
    settle(r, exec_resize(sb, who, cols, rows, on_unary, r, &e), &e);
}
void processes_resize(struct http_stream *s, void *a) { api_body(a, s, on_resize_body); }

/* ---- stdin: the body, in order, at the process's pace ---- */
struct input { struct req r; struct feed *feed; bool paused, eof; };

static void input_fini(void *arg)
{
    struct input *st = arg;
    feed_drop(st->feed);
}

static void input_idle(void *arg)
{
    struct input *st = arg;
    if (st->paused) {
        st->paused = false;
        http_body_resume(st->r.s);
    }
}

static void input_done(void *arg, const struct err *e)
{
    struct input *st = arg;
    st->feed = NULL;
    if (e) {
        req_fail(&st->r, e, ABOUT_PROCESS);
        return;
    }
    reply_none(st->r.s);
    req_end(&st->r);
}

static void input_data(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct input *st = arg;
    if (st->r.over)
        return;
    feed_put(st->feed, p, n);
    if (!st->r.over && feed_busy(st->feed) && !st->paused) {
        st->paused = true;
        http_body_pause(s);
    }
}

static void input_end(struct http_stream *s, void *arg)
{
    struct input *st = arg;
    (void)s;
    if (!st->r.over)
        feed_finish(st->feed, st->eof);
}

void processes_stdin(struct http_stream *s, void *arg)
{
    static const struct feed_ops ops = {.idle = input_idle, .done = input_done};
    struct err e;
    bool eof;
    const char *who = which(s);
    struct sandbox *sb = who ? api_sandbox(arg, s) : NULL;
    if (!sb)
        return;
    if (param_bool(s, "eof", false, &eof, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct input *st = req_new(arg, s, sizeof *st, input_fini);
    st->eof = eof;
    st->feed = feed_new(arg, sb->id, who, &ops, st);
    req_watch(&st->r);
    http_body_stream(s, input_data, input_end, st);
}
