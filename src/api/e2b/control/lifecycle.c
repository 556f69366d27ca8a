/* Pause, connect, resume as E2B's control plane has them. */
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "core/life/pause.h"

/* ---- pause ---- */
static void on_paused(void *arg, struct sandbox *sb, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    if (!sb) {
        req_fail(r, e, ABOUT_REQUEST);
        return;
    }
    reply_none(r->s);
    req_end(r);
}

static void on_pause(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct pause_spec how = {0};
    bool memory;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = e2b_parse_or_empty(p, n, &e);
    if (!j || json_bool(j, "memory", true, &memory, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    if (sb->state == SB_PAUSED && !sandbox_busy(sb)) {
        e2b_problem(s, 409, "Sandbox \"%s\" is already paused", sb->id);
        return;
    }
    how.files_only = !memory;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, sandbox_pause(sb, &how, on_paused, r, &e), &e, ABOUT_REQUEST);
}
void e2b_pause(struct http_stream *s, void *a) { api_body(a, s, on_pause); }

/* ---- connect, resume ---- */
struct resuming {
    struct req r;
    uint32_t timeout_s;
    bool auto_pause, has_auto_pause;
};

static void on_resumed(void *arg, struct sandbox *sb, const struct err *e)
{
    struct resuming *st = arg;
    if (!req_back(&st->r))
        return;
    if (!sb) {
        req_fail(&st->r, e, ABOUT_REQUEST);
        return;
    }
    if (st->has_auto_pause)
        sandbox_set_on_timeout(sb, st->auto_pause ? ON_TIMEOUT_PAUSE : ON_TIMEOUT_KILL);
    e2b_reply_sandbox(st->r.s, st->r.api, 201, sb);
    req_end(&st->r);
}

static int read_resume(struct api *a, struct json *j, struct resuming *st, struct resume_spec *how,
                       struct err *e)
{
    bool memory;
    if (e2b_read_timeout(a, j, "timeout", 300, &how->timeout_s, e) ||
        json_bool(j, "memory", true, &memory, e) ||
        json_bool(j, "autoPause", false, &st->auto_pause, e))
        return -1;
    st->has_auto_pause = json_get(j, "autoPause") != NULL;
    how->cold = !memory;
    if (!how->timeout_s)
        how->timeout_s = 1;
    return 0;
}

static void connect_or_resume(struct http_stream *s, struct api *a, bool connect, const char *p,
                              size_t n)
{
    struct err e;
    struct resume_spec how = {0};
    struct sandbox *sb = e2b_find_any(a, s);
    if (!sb)
        return;
    if (sb->state == SB_STOPPING) {
        e2b_problem(s, 409, "Sandbox \"%s\" is being killed", sb->id);
        return;
    }
    if (!api_sandbox(a, s))
        return;
    struct resuming *st = req_new(a, s, sizeof *st, NULL);
    auto_json j = e2b_parse_or_empty(p, n, &e);
    if (!j || read_resume(a, j, st, &how, &e)) {
        req_fail(&st->r, &e, ABOUT_REQUEST);
        return;
    }
    if (sb->state == SB_RUNNING && !sandbox_busy(sb)) {
        if (!connect)
            e2b_problem(s, 409, "Sandbox \"%s\" is already running", sb->id);
        else if (e2b_extend(sb, how.timeout_s, &e))
            api_fail(s, &e, ABOUT_REQUEST);
        else
            e2b_reply_sandbox(s, a, 200, sb);
        req_end(&st->r);
        return;
    }
    req_hold(&st->r);
    req_settle(&st->r, sandbox_resume(sb, &how, on_resumed, st, &e), &e, ABOUT_REQUEST);
}
static void on_connect(struct http_stream *s, void *a, const char *p, size_t n)
{
    connect_or_resume(s, a, true, p, n);
}
static void on_resume(struct http_stream *s, void *a, const char *p, size_t n)
{
    connect_or_resume(s, a, false, p, n);
}
void e2b_connect(struct http_stream *s, void *a) { api_body(a, s, on_connect); }
void e2b_resume(struct http_stream *s, void *a) { api_body(a, s, on_resume); }
