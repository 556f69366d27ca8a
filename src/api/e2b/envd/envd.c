/* Port 49983 of a sandbox, for whoever access.c let in: files, RPC, or one of the
 * small endpoints here. Answers 502, and only then 502, when the sandbox is gone. */
#include "api/e2b/e2b.h"
#include "api/preview/preview.h"
#include "api/e2b/envd/envd.h"
#include "api/e2b/access.h"
#include "base/clock.h"
#include "core/catalog/template.h"
#include <stdio.h>

#define METRICS_GAP_NS (100 * NS_PER_MS) /* between the two looks that make a CPU figure */

void envd_gone(struct http_stream *s, const char *id)
{
    preview_refuse(s, 502, id, 0, "The sandbox was not found");
}

bool envd_alive(struct api *a, const char *id)
{
    struct sandbox *sb = sandbox_find(api_core(a), id, NULL);
    return sb && sb->state == SB_RUNNING && !strcmp(sb->id, id);
}

const char *envd_workdir(struct sandbox *sb)
{
    const struct template *t = template_find(sb->core, sb->template_id, NULL);
    return t && t->workdir && *t->workdir ? t->workdir : NULL;
}

const char *envd_path(struct sandbox *sb, const char *path, struct err *e)
{
    if (*path == '~' && path[1] && path[1] != '/') {
        err_set(e, E_INVALID, "invalid path '%.150s': only the own home can be named by '~'", path);
        return NULL;
    }
    if (*path)
        return path;
    const char *workdir = envd_workdir(sb);
    return workdir ? workdir : "~";
}

bool envd_no_user(const struct err *e)
{
    return e->code == E_NOT_FOUND && !strncmp(e->msg, "user '", 6);
}

/* ---- the small ones ---- */
static void envs(struct http_stream *s, const struct sandbox *sb)
{
    const char *template = kv_get(&sb->kept.dialect, "e2b.template");
    struct jw *w = reply_begin(s);
    jw_obj(w);
    for (size_t i = 0; i < sb->env.n; i++)
        if (strcmp(sb->env.at[i].k, "E2B_SANDBOX") && strcmp(sb->env.at[i].k, "E2B_SANDBOX_ID") &&
            strcmp(sb->env.at[i].k, "E2B_TEMPLATE_ID"))
            jw_kv_str(w, sb->env.at[i].k, sb->env.at[i].v);
    jw_kv_str(w, "E2B_SANDBOX", "true"); /* these three are ours, whatever the user set */
    jw_kv_str(w, "E2B_SANDBOX_ID", sb->id);
    jw_kv_str(w, "E2B_TEMPLATE_ID", template ? template : sb->template_id);
    jw_end(w);
    reply_send(s, 200);
}

struct metrics {
    struct req r;
    char id[22];
    struct timer gap;
    bool second;
    uint64_t cpu_ns;
    int64_t at;
};

static void metrics_fini(void *arg)
{
    struct metrics *st = arg;
    timer_stop(&st->gap);
}

static void put_metrics(struct metrics *st, const struct sandbox_metrics *m)
{
    double pct = 0, spent = (double)(clock_mono() - st->at);
    if (m->cpu_ns > st->cpu_ns && spent > 0)
        pct = (double)(m->cpu_ns - st->cpu_ns) / spent * 100;
    struct jw *w = reply_begin(st->r.s);
    jw_obj(w);
    jw_kv_i64(w, "ts", clock_wall() / NS_PER_S);
    jw_kv_u64(w, "cpu_count", m->cpu_count);
    jw_kv_f64(w, "cpu_used_pct", (double)(int64_t)(pct * 100 + 0.5) / 100);
    jw_kv_u64(w, "mem_total", m->mem_total);
    jw_kv_u64(w, "mem_used", m->mem_used);
    jw_kv_u64(w, "mem_cache", m->mem_cache);
    jw_kv_u64(w, "mem_total_mib", m->mem_total >> 20);
    jw_kv_u64(w, "mem_used_mib", m->mem_used >> 20);
    jw_kv_u64(w, "disk_used", m->disk_used);
    jw_kv_u64(w, "disk_total", m->disk_total);
    jw_end(w);
    req_send(&st->r, 200);
}

static void metrics_fail(struct metrics *st, const struct err *e)
{
    if (!envd_alive(st->r.api, st->id))
        envd_gone(st->r.s, st->id);
    else
        e2b_problem(st->r.s, 500, "%s", e->msg);
    req_end(&st->r);
}

static void on_metrics(void *arg, const struct err *e, const struct sandbox_metrics *m)
{
    struct metrics *st = arg;
    if (!req_back(&st->r))
        return;
    if (e) {
        metrics_fail(st, e);
    } else if (st->second) {
        put_metrics(st, m);
    } else {
        st->cpu_ns = m->cpu_ns;
        st->at = clock_mono();
        st->second = true;
        timer_arm(&st->gap, METRICS_GAP_NS);
    }
}

static void metrics_ask(void *arg)
{
    struct metrics *st = arg;
    struct err e = {0};
    struct sandbox *sb = sandbox_find(api_core(st->r.api), st->id, &e);
    req_hold(&st->r);
    if (!sb || sandbox_metrics(sb, on_metrics, st, &e)) {
        (void)req_back(&st->r); /* the callback will not fire */
        metrics_fail(st, &e);
    }
}

static void metrics(struct api *a, struct http_stream *s, const struct sandbox *sb)
{
    struct metrics *st = req_new(a, s, sizeof *st, metrics_fini);
    memcpy(st->id, sb->id, sizeof st->id);
    timer_init(&st->gap, http_loop(s), metrics_ask, st);
    req_watch(&st->r);
    metrics_ask(st);
}

/* ---- the door ---- */
static void files(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    if (http_is(s, "POST"))
        e2b_files_post(a, s, sb);
    else
        e2b_files_get(a, s, sb);
}

void e2b_envd(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port)
{
    struct str path = http_path(s);
    bool get = http_is(s, "GET") || http_is(s, "HEAD");
    (void)port;
    if (get && str_eqz(path, "/health"))
        reply_none(s);
    else if (e2b_is_files(s))
        files(a, s, sb);
    else if (http_is(s, "POST") && str_eqz(path, "/files/compose"))
        e2b_files_compose(a, s, sb);
    else if (get && str_eqz(path, "/metrics"))
        metrics(a, s, sb);
    else if (get && str_eqz(path, "/envs"))
        envs(s, sb);
    else if (!e2b_rpc(a, s, sb))
        e2b_problem(s, 404, "not found");
}
