/* Pause, resume, recover, rollback. */
#include "api/native/native.h"
#include "core/life/pause.h"
#include "core/catalog/snapshot.h"

static void reply_one(struct req *r, const struct sandbox *sb)
{
    struct jw *w = reply_begin(r->s);
    put_sandbox(w, sb);
    req_send(r, 200);
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

#define OWN_TIMEOUT "Its timeout from now on. Default: the one it has."

struct pause {
    struct pause_spec how;
    bool memory;
};
static const struct field pause_rows[] = {
    FIELD(
        "memory", F_BOOL, struct pause, memory,
        .help =
            "true: keep its memory and processes, or refuse. false: files only. Default: what its isolation can keep."),
    FIELD("standby", F_BOOL, struct pause, how.standby, .def = "false",
          .help = "Keep its memory in memory: it resumes at once."),
};
const struct shape pause_body = SHAPE_OF("SandboxPause", struct pause, pause_rows);

static void on_pause(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct pause g = {.memory = true};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &pause_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct pause_spec how = g.how;
    how.files_only = !g.memory;
    how.memory_wanted = json_has(j, "memory") && g.memory;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    if (sb->state == SB_PAUSED && !sandbox_busy(sb) && (sb->life.paused == PAUSE_DISK || how.standby)) {
        reply_one(r, sb); /* as asked already */
        return;
    }
    req_hold(r);
    req_settle(r, sandbox_pause(sb, &how, on_moved, r, &e), &e, ABOUT_STATE);
}
void sandboxes_pause(struct http_stream *s, void *a) { api_body(a, s, on_pause); }

struct resume {
    struct resume_spec how;
    bool memory;
};
static const struct field resume_rows[] = {
    FIELD_TIMEOUT(struct resume, how.timeout_s, OWN_TIMEOUT),
    FIELD("memory", F_BOOL, struct resume, memory, .def = "true",
          .help = "Continue with its memory. false: boot from its files."),
};
const struct shape resume_body = SHAPE_OF("SandboxResume", struct resume, resume_rows);

static void on_resume(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct resume g = {0};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &resume_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct resume_spec how = g.how;
    how.cold = !g.memory;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    if (sb->state == SB_RUNNING && !sandbox_busy(sb)) {
        if (how.timeout_s && sandbox_set_timeout(sb, how.timeout_s, &e))
            req_fail(r, &e, ABOUT_STATE);
        else
            reply_one(r, sb); /* as asked already */
        return;
    }
    req_hold(r);
    req_settle(r, sandbox_resume(sb, &how, on_moved, r, &e), &e, ABOUT_STATE);
}
void sandboxes_resume(struct http_stream *s, void *a) { api_body(a, s, on_resume); }

/* ---- recover ---- */
static void reply_recovered(struct req *r, const struct sandbox *sb, unsigned lost)
{
    struct jw *w = reply_begin(r->s);
    jw_obj(w);
    jw_key(w, "sandbox");
    put_sandbox(w, sb);
    jw_kv_arr(w, "lost");
    recover_put_lost(w, lost);
    jw_end(w);
    jw_end(w);
    req_send(r, 200);
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

struct recover {
    uint32_t timeout_s;
};
static const struct field recover_rows[] = {FIELD_TIMEOUT(struct recover, timeout_s, OWN_TIMEOUT)};
const struct shape recover_body = SHAPE_OF("SandboxRecover", struct recover, recover_rows);

static void on_recover(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct recover g = {0};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &recover_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, sandbox_recover(sb, g.timeout_s, on_recovered, r, &e), &e, ABOUT_RECOVER);
}
void sandboxes_recover(struct http_stream *s, void *a) { api_body(a, s, on_recover); }

/* ---- rollback ---- */
struct rollback {
    const char *snapshot;
    bool memory;
};
static const struct field rollback_rows[] = {
    FIELD("snapshot", F_NAME, struct rollback, snapshot, .flags = F_REQUIRED,
          .help = "Name or id of a snapshot of this sandbox."),
    FIELD(
        "memory", F_BOOL, struct rollback, memory,
        .help =
            "true: continue with its memory, or refuse. false: boot from its files. Default: with memory if the snapshot has any."),
};
const struct shape rollback_body = SHAPE_OF("SandboxRollback", struct rollback, rollback_rows);

static void on_rollback(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct rollback g = {.memory = true};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = native_body(a, p, n, &rollback_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct snapshot *to = api_snapshot(a, s, g.snapshot, &e);
    if (to && json_has(j, "memory") && g.memory && !to->memory) {
        err_set(&e, E_INVALID, "memory: the snapshot has none");
        to = NULL;
    }
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, !to || sandbox_rollback(sb, to, !g.memory, on_moved, r, &e), &e, ABOUT_SNAPSHOT);
}
void sandboxes_rollback(struct http_stream *s, void *a) { api_body(a, s, on_rollback); }
