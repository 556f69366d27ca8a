/* Pause, resume, recover, rollback. */
#include "api/native/native.h"
#include "api/params.h"
#include "core/pause.h"
#include "core/snapshot.h"

static void reply_one(struct req *r, const struct sandbox *sb)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_sandbox(&w, sb);
    req_json(r, 200, &b);
}

static void on_moved(void *arg, struct sandbox *sb, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    if (sb)
        reply_one(r, sb);
    else
        req_fail(r, e, ABOUT_STATE);
}

static void on_pause(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct pause_spec how = {0};
    bool memory;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "SandboxPause", &e);
    if (!j || json_bool(j, "memory", true, &memory, &e) || json_bool(j, "standby", false, &how.standby, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    how.files_only = !memory;
    how.memory_wanted = json_has(j, "memory") && memory;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    if (sb->state == SB_PAUSED && !sandbox_busy(sb) && (sb->life.paused == PAUSE_DISK || how.standby)) {
        reply_one(r, sb); /* as asked already */
        return;
    }
    req_hold(r);
    if (sandbox_pause(sb, &how, on_moved, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_STATE);
    }
}
void sandboxes_pause(struct http_stream *s, void *a) { api_body(a, s, on_pause); }

static void on_resume(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct resume_spec how = {0};
    bool memory;
    int64_t timeout;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "SandboxResume", &e);
    if (!j || json_bool(j, "memory", true, &memory, &e) || json_i64(j, "timeout_s", 1, core_config(api_core(a))->max_timeout_s, 0, &timeout, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    how.cold = !memory;
    how.timeout_s = (uint32_t)timeout;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    if (sb->state == SB_RUNNING && !sandbox_busy(sb)) {
        if (timeout && sandbox_set_timeout(sb, how.timeout_s, &e))
            req_fail(r, &e, ABOUT_STATE);
        else
            reply_one(r, sb); /* as asked already */
        return;
    }
    req_hold(r);
    if (sandbox_resume(sb, &how, on_moved, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_STATE);
    }
}
void sandboxes_resume(struct http_stream *s, void *a) { api_body(a, s, on_resume); }

/* ---- recover ---- */
static void reply_recovered(struct req *r, const struct sandbox *sb, unsigned lost)
{
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_key(&w, "sandbox");
    put_sandbox(&w, sb);
    jw_kv_arr(&w, "lost");
    recover_put_lost(&w, lost);
    jw_end(&w);
    jw_end(&w);
    req_json(r, 200, &b);
}

static void on_recovered(void *arg, struct sandbox *sb, unsigned lost, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    if (sb)
        reply_recovered(r, sb, lost);
    else
        req_fail(r, e, ABOUT_RECOVER);
}

static void on_recover(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    int64_t timeout;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "SandboxRecover", &e);
    if (!j || json_i64(j, "timeout_s", 1, core_config(api_core(a))->max_timeout_s, 0, &timeout, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if (sandbox_recover(sb, (uint32_t)timeout, on_recovered, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_RECOVER);
    }
}
void sandboxes_recover(struct http_stream *s, void *a) { api_body(a, s, on_recover); }

/* ---- rollback ---- */
static void on_rollback(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    const char *name;
    bool memory;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = body_parse(p, n, "SandboxRollback", &e);
    if (!j || body_name(j, "snapshot", &name, true, &e) || json_bool(j, "memory", true, &memory, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct snapshot *to = snapshot_find(api_core(a), name, &e);
    if (to && json_has(j, "memory") && memory && !to->memory) {
        err_set(&e, E_INVALID, "memory: the snapshot holds none");
        to = NULL;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    if (!to || sandbox_rollback(sb, to, !memory, on_moved, r, &e)) {
        (void)req_back(r); /* it will not come */
        req_fail(r, &e, ABOUT_SNAPSHOT);
    }
}
void sandboxes_rollback(struct http_stream *s, void *a) { api_body(a, s, on_rollback); }
