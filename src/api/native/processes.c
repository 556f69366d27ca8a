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
    struct jw *w = reply_begin(r->s);
    jw_obj(w);
    jw_kv_arr(w, "processes");
    for (size_t i = 0; i < n; i++)
        put_process(w, &p[i]);
    jw_end(w);
    jw_end(w);
    req_send(r, 200);
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
    struct jw *w = reply_begin(r->s);
    put_process(w, hit);
    req_send(r, 200);
}

static void list(struct http_stream *s, struct api *a, void (*cb)(void *, const struct err *, const struct proc_info *, size_t))
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, exec_list(sb, cb, r, &e), &e, ABOUT_SANDBOX);
}
void processes_list(struct http_stream *s, void *a) { list(s, a, on_list); }
void processes_get(struct http_stream *s, void *a)
{
    if (which(s))
        list(s, a, on_one);
}

/* ---- follow ---- */
struct following {
    int64_t offset;
};
static const struct field stream_rows[] = {
    FIELD("offset", F_INT, struct following, offset, .min = -1, .max = INT64_MAX, .def = "0",
          .help = "From this byte of its output on. 0: all that is still held. -1: from now."),
};
const struct shape stream_query = SHAPE_OF(NULL, struct following, stream_rows);

void processes_stream(struct http_stream *s, void *arg)
{
    struct err e;
    struct following q;
    const char *who = which(s);
    if (!who)
        return;
    if (native_query(arg, s, &stream_query, &q, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    uint64_t offset = q.offset < 0 ? UINT64_MAX : (uint64_t)q.offset;
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

struct kill {
    int signal;
    bool group;
};
static const struct field signal_rows[] = {
    FIELD("signal", F_SIGNAL, struct kill, signal, .flags = F_REQUIRED,
          .help = "`SIGTERM`, `TERM` or 15."),
    FIELD("group", F_BOOL, struct kill, group, .def = "true", .help = "Its whole process group."),
};
const struct shape signal_body = SHAPE_OF("Signal", struct kill, signal_rows);

static void on_signal_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct err e;
    struct kill g = {0};
    const char *who = which(s);
    struct sandbox *sb = who ? api_sandbox(arg, s) : NULL;
    if (!sb)
        return;
    auto_json j = native_body(arg, p, n, &signal_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct req *r = req_new(arg, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, exec_signal(sb, who, g.signal, g.group, on_unary, r, &e), &e, ABOUT_SANDBOX);
}
void processes_signal(struct http_stream *s, void *a) { api_body(a, s, on_signal_body); }

static const struct field resize_rows[] = {
    FIELD("cols", F_INT, struct exec_spec, cols, .flags = F_REQUIRED, .min = 1,
          .max = PARAM_WINDOW_MAX, .help = "Columns."),
    FIELD("rows", F_INT, struct exec_spec, rows, .flags = F_REQUIRED, .min = 1,
          .max = PARAM_WINDOW_MAX, .help = "Rows."),
};
const struct shape resize_body = SHAPE_OF("Resize", struct exec_spec, resize_rows);

static void on_resize_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct err e;
    struct exec_spec g = {0};
    const char *who = which(s);
    struct sandbox *sb = who ? api_sandbox(arg, s) : NULL;
    if (!sb)
        return;
    auto_json j = native_body(arg, p, n, &resize_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct req *r = req_new(arg, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, exec_resize(sb, who, g.cols, g.rows, on_unary, r, &e), &e, ABOUT_SANDBOX);
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

struct stdin_opts {
    bool eof;
};
static const struct field stdin_rows[] = {
    FIELD("eof", F_BOOL, struct stdin_opts, eof, .def = "false",
          .help = "Close its stdin afterwards."),
};
const struct shape stdin_query = SHAPE_OF(NULL, struct stdin_opts, stdin_rows);

void processes_stdin(struct http_stream *s, void *arg)
{
    static const struct feed_ops ops = {.idle = input_idle, .done = input_done};
    struct err e;
    struct stdin_opts q;
    const char *who = which(s);
    struct sandbox *sb = who ? api_sandbox(arg, s) : NULL;
    if (!sb)
        return;
    if (native_query(arg, s, &stdin_query, &q, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct input *st = req_new(arg, s, sizeof *st, input_fini);
    st->eof = q.eof;
    st->feed = feed_new(arg, sb->id, who, &ops, st);
    req_watch(&st->r);
    http_body_stream(s, input_data, input_end, st);
}
