/* Port 49983 of a sandbox: token, then files, RPC, or one of the small
 * endpoints here. Answers 502, and only then 502, when the sandbox is gone. */
#include "api/e2b/envd.h"
#include "api/e2b/control.h"
#include "api/e2b/signature.h"
#include "base/clock.h"
#include "core/template.h"
#include "crypto/digest.h"
#include <stdio.h>

#define SEARCH_PAGE 128
#define METRICS_GAP_NS (100 * NS_PER_MS) /* between the two looks that make a CPU figure */

void envd_gone(struct http_stream *s, const char *id) { e2b_no_traffic(s, 502, id, 0, "The sandbox was not found"); }

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

bool envd_no_user(const struct err *e) { return e->code == E_NOT_FOUND && !strncmp(e->msg, "user '", 6); }

/* ---- who may ---- */
static bool token_ok(struct http_stream *s, const struct sandbox *sb)
{
    struct str t = http_req_header(s, "X-Access-Token");
    size_t n = strlen(sb->token);
    if (!e2b_secure(sb))
        return true;
    return t.p && n && t.n == n && mem_eq_ct(t.p, sb->token, n);
}

static void refuse_token(struct http_stream *s)
{
    e2b_problem(s, 401, "unauthorized access, please provide a valid access token or method signing if supported");
}

struct url_bufs { struct buf path, user, signature, expiration; };
static void url_fini(struct url_bufs *b)
{
    buf_free(&b->path), buf_free(&b->user), buf_free(&b->signature), buf_free(&b->expiration);
}
#define auto_url __attribute__((cleanup(url_fini))) struct url_bufs

static struct str query_text(struct http_stream *s, const char *key, struct buf *b)
{
    if (!http_query_get(s, key, b))
        return (struct str){0};
    return (struct str){b->n ? b->p : "", b->n};
}

static struct signed_url url_read(struct http_stream *s, struct url_bufs *b)
{
    struct signed_url u = {.op = http_is(s, "POST") ? "write" : "read"};
    u.path = query_text(s, "path", &b->path);
    u.user = query_text(s, "username", &b->user);
    u.signature = query_text(s, "signature", &b->signature);
    u.expiration = query_text(s, "signature_expiration", &b->expiration);
    return u;
}

/* A token that was sent decides alone. Do not reorder: an expired URL must first prove that it was ours. */
static bool files_allowed(struct http_stream *s, const struct sandbox *sb)
{
    if (!e2b_secure(sb))
        return true;
    if (http_req_header(s, "X-Access-Token").p) {
        if (token_ok(s, sb))
            return true;
        refuse_token(s);
        return false;
    }
    auto_url b = {0};
    struct signed_url u = url_read(s, &b);
    const char *why = !u.signature.p                              ? "missing signature query parameter"
                      : !e2b_signature_matches(&u, sb->token)     ? "invalid signature"
                      : e2b_signature_expired(&u, clock_wall() / NS_PER_S) ? "signature is already expired"
                                                                  : NULL;
    if (why)
        e2b_problem(s, 401, "%s", why);
    return !why;
}

static void files(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    if (http_is(s, "POST"))
        e2b_files_post(a, s, sb);
    else
        e2b_files_get(a, s, sb);
}

static bool is_files(struct http_stream *s)
{
    return str_eqz(http_path(s), "/files") && (http_is(s, "GET") || http_is(s, "HEAD") || http_is(s, "POST"));
}

/* Browsers: any page may use a sandbox it has the token of. */
static void cors(struct http_stream *s)
{
    (void)http_header(s, "Access-Control-Allow-Origin", "*"); /* nothing is sent yet: it cannot be too late */
    (void)http_header(s, "Access-Control-Expose-Headers", "*");
}

static void preflight(struct http_stream *s)
{
    struct str asked = http_req_header(s, "Access-Control-Request-Headers");
    cors(s);
    (void)http_header(s, "Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE");
    if (asked.p && asked.n < 4096)
        (void)http_headerf(s, "Access-Control-Allow-Headers", "%.*s", (int)asked.n, asked.p);
    else
        (void)http_header(s, "Access-Control-Allow-Headers", "*");
    (void)http_header(s, "Access-Control-Max-Age", "7200");
    reply_none(s);
}

bool e2b_signed_files(struct api *a, struct http_stream *s)
{
    struct sandbox *page[SEARCH_PAGE];
    struct sandbox_filter f = {.states = 1u << SB_RUNNING};
    char cursor[24];
    bool more = true;
    if (str_eqz(http_path(s), "/files") && http_is(s, "OPTIONS")) {
        preflight(s);
        return true;
    }
    if (!is_files(s))
        return false;
    auto_url b = {0};
    struct signed_url u = url_read(s, &b);
    cors(s);
    if (!u.signature.p) {
        e2b_problem(s, 401, "missing signature query parameter");
        return true;
    }
    while (more) {
        size_t n = sandbox_list(api_core(a), &f, page, SEARCH_PAGE, &more, NULL);
        if (!n || n == SIZE_MAX)
            break;
        for (size_t i = 0; i < n; i++) {
            if (page[i]->state != SB_RUNNING || !e2b_signature_matches(&u, page[i]->token))
                continue;
            if (files_allowed(s, page[i]))
                files(a, s, page[i]);
            return true;
        }
        (void)snprintf(cursor, sizeof cursor, "%lld", (long long)page[n - 1]->created_ns);
        f.cursor = cursor;
    }
    e2b_problem(s, 401, "invalid signature");
    return true;
}

/* ---- the small ones ---- */
static void envs(struct http_stream *s, const struct sandbox *sb)
{
    const char *template = kv_get(&sb->options, "e2b.template");
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    for (size_t i = 0; i < sb->env.n; i++)
        if (strcmp(sb->env.at[i].k, "E2B_SANDBOX") && strcmp(sb->env.at[i].k, "E2B_SANDBOX_ID") && strcmp(sb->env.at[i].k, "E2B_TEMPLATE_ID"))
            jw_kv_str(&w, sb->env.at[i].k, sb->env.at[i].v);
    jw_kv_str(&w, "E2B_SANDBOX", "true"); /* these three are ours, whatever the user set */
    jw_kv_str(&w, "E2B_SANDBOX_ID", sb->id);
    jw_kv_str(&w, "E2B_TEMPLATE_ID", template ? template : sb->template_id);
    jw_end(&w);
    reply_json(s, 200, &b);
}

struct metrics { struct req r; char id[22]; struct timer gap; bool second; uint64_t cpu_ns; int64_t at; };

static void metrics_fini(void *arg)
{
    struct metrics *st = arg;
    timer_stop(&st->gap);
}

static void put_metrics(struct metrics *st, const struct sandbox_metrics *m)
{
    struct buf b = {0};
    struct jw w;
    double pct = 0, spent = (double)(clock_mono() - st->at);
    if (m->cpu_ns > st->cpu_ns && spent > 0)
        pct = (double)(m->cpu_ns - st->cpu_ns) / spent * 100;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_i64(&w, "ts", clock_wall() / NS_PER_S);
    jw_kv_u64(&w, "cpu_count", m->cpu_count);
    jw_kv_f64(&w, "cpu_used_pct", (double)(int64_t)(pct * 100 + 0.5) / 100);
    jw_kv_u64(&w, "mem_total", m->mem_total);
    jw_kv_u64(&w, "mem_used", m->mem_used);
    jw_kv_u64(&w, "mem_cache", m->mem_cache);
    jw_kv_u64(&w, "mem_total_mib", m->mem_total >> 20);
    jw_kv_u64(&w, "mem_used_mib", m->mem_used >> 20);
    jw_kv_u64(&w, "disk_used", m->disk_used);
    jw_kv_u64(&w, "disk_total", m->disk_total);
    jw_end(&w);
    req_json(&st->r, 200, &b);
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
        (void)req_back(&st->r); /* it will not come */
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
void e2b_envd(struct api *a, struct http_stream *s, const char *id)
{
    struct str path = http_path(s);
    bool get = http_is(s, "GET") || http_is(s, "HEAD");
    struct sandbox *sb = sandbox_find(api_core(a), id, NULL);
    if (http_is(s, "OPTIONS")) {
        preflight(s);
        return;
    }
    cors(s);
    if (!sb || sb->state != SB_RUNNING || strcmp(sb->id, id)) { /* by id only: a name is not in this dialect */
        envd_gone(s, id);
        return;
    }
    if (get && str_eqz(path, "/health")) {
        reply_none(s);
        return;
    }
    if (is_files(s)) {
        if (files_allowed(s, sb))
            files(a, s, sb);
        return;
    }
    if (!token_ok(s, sb))
        refuse_token(s);
    else if (http_is(s, "POST") && str_eqz(path, "/files/compose"))
        e2b_files_compose(a, s, sb);
    else if (get && str_eqz(path, "/metrics"))
        metrics(a, s, sb);
    else if (get && str_eqz(path, "/envs"))
        envs(s, sb);
    else if (!e2b_rpc(a, s, sb))
        e2b_problem(s, 404, "not found");
}
