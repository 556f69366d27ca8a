/* The daemon itself: health, doctor, shutdown, the API's description. */
#include "api/native/native.h"
#include "api/openapi.h"
#include "api/params.h"
#include "base/version.h"
#include "core/doctor.h"
#include "core/network/preset.h"
#include <stdlib.h>
#include <unistd.h>

void health_get(struct http_stream *s, void *a)
{
    (void)a;
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_str(w, "status", "ok");
    jw_kv_str(w, "version", HUTCH_VERSION);
    jw_kv_str(w, "build", version_full);
    jw_kv_i64(w, "pid", getpid());
    jw_end(w);
    reply_send(s, 200);
}

void openapi_get(struct http_stream *s, void *a)
{
    struct buf b = {0};
    openapi_write(&b, &native_table, core_config(api_core(a)));
    reply_json(s, 200, &b);
}

/* ---- doctor: it looks at devices and runs programs, so it works in a job; before, hutch-spawn and the presets are asked ---- */
#define CHECKS_MAX 64
struct checkup { struct req r; struct config cfg; struct doctor_root root; struct doctor_check check[CHECKS_MAX]; size_t n; };

static void checkup_work(void *arg)
{
    struct checkup *st = arg;
    st->n = doctor_run(&st->cfg, &st->root, st->check, CHECKS_MAX);
}

static void checkup_done(void *arg)
{
    struct checkup *st = arg;
    if (!req_back(&st->r))
        return;
    st->n += presets_report(api_core(st->r.api), st->check + st->n, CHECKS_MAX - st->n);
    struct jw *w = reply_begin(st->r.s);
    jw_obj(w);
    jw_kv_arr(w, "checks");
    for (size_t i = 0; i < st->n && i < CHECKS_MAX; i++) {
        const struct doctor_check *c = &st->check[i];
        jw_obj(w);
        jw_kv_str(w, "name", c->name);
        jw_kv_str(w, "status", c->status);
        jw_kv_str(w, "found", c->found);
        jw_kv_str(w, "lost", c->lost);
        jw_kv_str(w, "fix", c->fix);
        jw_end(w);
    }
    jw_end(w);
    jw_end(w);
    req_send(&st->r, 200);
}

static void presets_asked(void *arg, const struct err *e)
{
    struct checkup *st = arg;
    (void)e; /* each has a row */
    if (!req_back(&st->r))
        return;
    req_hold(&st->r);
    job_run(api_jobs(st->r.api), checkup_work, checkup_done, st);
}

static void root_asked(void *arg, const struct doctor_root *root)
{
    struct checkup *st = arg;
    const char *name[PRESETS_MAX];
    if (!req_back(&st->r))
        return;
    st->root = *root;
    size_t n = presets_names(api_core(st->r.api), name, PRESETS_MAX);
    req_hold(&st->r);
    presets_load(api_core(st->r.api), name, n, presets_asked, st);
}

void doctor_get(struct http_stream *s, void *a)
{
    struct checkup *st = req_new(a, s, sizeof *st, NULL);
    st->cfg = *core_config(api_core(a));
    req_hold(&st->r);
    doctor_ask_root(api_core(a), root_asked, st);
}

/* ---- shutdown ---- */
struct down {
    bool keep;
};
static const struct field shutdown_rows[] = {
    FIELD("keep", F_BOOL, struct down, keep, .def = "false",
          .help = "Leave the sandboxes running for the next daemon."),
};
const struct shape shutdown_body = SHAPE_OF("Shutdown", struct down, shutdown_rows);

static void on_shutdown_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct down g = {0};
    auto_json j = native_body(a, p, n, &shutdown_body, &g, &e);
    if (!j) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    struct buf b = {0};
    buf_puts(&b, "{}");
    reply_json(s, 202, &b);
    api_shutdown(a, g.keep);
}
void shutdown_post(struct http_stream *s, void *a) { api_body(a, s, on_shutdown_body); }
