/* Sandboxes as E2B's control plane has them: create, look, connect, end. */
#include "api/e2b/access.h"
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/render.h"
#include "api/params.h"
#include "api/preview/preview.h"
#include "base/clock.h"
#include "core/catalog/snapshot.h"
#include "core/network/network.h"
#include "core/volume/volume.h"
#include <stdio.h>

/* ---- rendering ---- */
static const char *template_of(const struct sandbox *sb)
{
    const char *id = kv_get(&sb->kept.dialect, "e2b.template");
    return id ? id : sb->template_id;
}
static const char *alias_of(const struct sandbox *sb)
{
    const char *alias = kv_get(&sb->kept.dialect, "e2b.alias");
    return alias ? alias : sb->template_name;
}

/* Not of E2B's: an operator's ceiling wins over what was asked for, and over the open internet that is the default. */
static void put_limited(struct jw *w, const struct sandbox *sb)
{
    char say[NETWORK_LIMITED_TEXT];
    if (network_limited(sb, say))
        jw_kv_str(w, "networkLimited", say);
}

/* Below which names of previews are: the SDK makes {port}-{id}.DOMAIN of it, and without one uses a
 * domain of E2B's. The operator's name, else what the client called us by; "api." before it is where
 * SDKs look for the control plane. An address cannot have names below it, but that of the own
 * machine has one that can. */
static void put_domain(struct jw *w, struct http_stream *s, const struct config *cfg)
{
    struct str authority = http_head(s)->host, host = gate_host_part(authority);
    if (*cfg->domain) {
        jw_kv_str(w, "domain", cfg->domain);
        return;
    }
    struct str port = {authority.p + host.n, authority.n - host.n};
    const char *listens = strrchr(cfg->listen, ':');
    auto_buf out = {0};
    if (host.n > 4 && str_ieqz((struct str){host.p, 4}, "api."))
        host.p += 4, host.n -= 4;
    if (str_eqz(host, "[::1]") || str_eqz(host, "127.0.0.1"))
        host = S("localhost");
    if (http_peer(s)->is_unix) /* it has no port of its own */
        host = S("localhost"), port = str_of(listens ? listens : "");
    buf_put(&out, host.p, host.n);
    buf_put(&out, port.p, port.n);
    jw_kv_strn(w, "domain", (struct str){out.p, out.n});
}

void e2b_put_sandbox(struct jw *w, struct http_stream *s, struct api *a, const struct sandbox *sb)
{
    char traffic[PREVIEW_DERIVED];
    preview_derived_token(sb, traffic);
    jw_obj(w);
    jw_kv_str(w, "sandboxID", sb->id);
    jw_kv_str(w, "templateID", template_of(sb));
    jw_kv_str(w, "alias", alias_of(sb));
    jw_kv_str(w, "clientID", "hutch");
    jw_kv_str(w, "envdVersion", E2B_ENVD_VERSION);
    jw_kv_str(w, "envdAccessToken", sb->token);
    jw_kv_str(w, "trafficAccessToken",
              traffic); /* of public ones too: the SDKs send it where they send no other */
    put_domain(w, s, core_config(api_core(a)));
    put_limited(w, sb);
    jw_end(w);
}

void e2b_reply_sandbox(struct http_stream *s, struct api *a, int status, const struct sandbox *sb)
{
    struct jw *w = reply_begin(s);
    e2b_put_sandbox(w, s, a, sb);
    reply_send(s, status);
}

/* endAt of one that is paused is the time of the pause. */
void put_listed(struct jw *w, const struct sandbox *sb, struct http_stream *s, bool token)
{
    bool paused = sb->state == SB_PAUSED || sb->state == SB_PAUSING;
    const char *net = kv_get(&sb->kept.dialect, "e2b.network"),
               *internet = kv_get(&sb->kept.dialect, "e2b.internet");
    jw_obj(w);
    jw_kv_str(w, "sandboxID", sb->id);
    jw_kv_str(w, "templateID", template_of(sb));
    jw_kv_str(w, "alias", alias_of(sb));
    jw_kv_str(w, "clientID", "hutch");
    put_time(w, "startedAt", sb->started_ns ? sb->started_ns : sb->created_ns);
    put_time(w, "endAt",
             paused && sb->life.paused_ns ? sb->life.paused_ns
             : sb->expires_ns             ? sb->expires_ns
                                          : sb->created_ns + (int64_t)sb->timeout_s * NS_PER_S);
    jw_kv_u64(w, "cpuCount", (sb->cpu_millis + 999) / 1000);
    jw_kv_u64(w, "memoryMB", sb->memory_mib);
    jw_kv_u64(w, "diskSizeMB", sb->disk_mib);
    jw_kv_str(w, "state", paused ? "paused" : "running");
    jw_kv_str(w, "envdVersion", E2B_ENVD_VERSION);
    jw_kv_obj(w, "metadata");
    for (size_t i = 0; i < sb->metadata.n; i++)
        jw_kv_str(w, sb->metadata.at[i].k, sb->metadata.at[i].v);
    jw_end(w);
    e2b_put_mounts(w, sb);
    if (s) {
        if (token)
            jw_kv_str(w, "envdAccessToken", sb->token);
        put_domain(w, s, core_config(sb->core));
        if (internet && *internet)
            jw_kv_bool(w, "allowInternetAccess", !strcmp(internet, "true"));
        else
            jw_kv_null(w, "allowInternetAccess");
        if (net)
            jw_kv_raw(w, "network", str_of(net));
        put_limited(w, sb);
        jw_kv_obj(w, "lifecycle");
        jw_kv_str(w, "onTimeout", on_timeout_name(sb->on_timeout));
        jw_kv_bool(w, "autoResume", sb->life.auto_resume);
        jw_end(w);
    }
    jw_end(w);
}

/* ---- finding ---- */
static bool alive(const struct sandbox *sb)
{
    return sb->state == SB_RUNNING || sb->state == SB_PAUSING || sb->state == SB_PAUSED;
}

static struct sandbox *find(struct api *a, const struct caller *who, struct str id, bool ended_too,
                            struct err *e)
{
    struct sandbox *sb = id_ok(id) ? sandbox_find_for(api_core(a), who, id.p, NULL) : NULL;
    if (sb && (ended_too || alive(sb)))
        return sb;
    err_set(e, E_NOT_FOUND, "Sandbox \"%.*s\" doesn't exist or you don't have access to it",
            (int)(id.n > 64 ? 64 : id.n), id.p ? id.p : "");
    return NULL;
}

struct sandbox *e2b_find_sandbox(struct api *a, const struct caller *who, struct str id,
                                 struct err *e)
{
    return find(a, who, id, false, e);
}

struct sandbox *e2b_find_any(struct api *a, struct http_stream *s)
{
    struct err e;
    struct caller who = api_caller(a, s);
    struct sandbox *sb = find(a, &who, http_param(s, "id"), true, &e);
    if (sb && !api_may_change(a, s, "sandbox", sandbox_tenant(sb), &e))
        return sb;
    api_fail(s, &e, ABOUT_SANDBOX);
    return NULL;
}

/* ---- create ---- */
struct creating {
    struct sandbox_spec sp;
    struct e2b_found t;
    struct network_spec net;
    struct volume_mount mounts[VOLUMES_PER_SANDBOX];
};

int e2b_read_timeout(struct api *a, struct json *j, const char *key, int64_t def, uint32_t *ret,
                     struct err *e)
{
    uint32_t max = core_config(api_core(a))->max_timeout_s;
    int64_t v;
    if (json_i64(j, key, INT32_MIN, INT32_MAX, def, &v, e))
        return -1;
    if (v > (int64_t)max)
        return err_set(e, E_INVALID, "Timeout cannot be greater than %u hours", max / 3600);
    *ret = v > 0 ? (uint32_t)v : 0;
    return 0;
}

static int read_lifecycle(struct json *j, struct sandbox_spec *sp, struct err *e)
{
    bool pause, memory, resume;
    struct json *ar = NULL;
    if (json_bool(j, "autoPause", false, &pause, e) ||
        json_bool(j, "autoPauseMemory", true, &memory, e) ||
        json_obj(j, "autoResume", &ar, false, e) || json_bool(ar, "enabled", false, &resume, e))
        return -1;
    if (!memory && !pause)
        return err_set(e, E_INVALID, "autoPauseMemory requires autoPause");
    if (!memory && resume)
        return err_set(e, E_INVALID, "autoPauseMemory: false cannot be combined with autoResume");
    sp->on_timeout = pause ? ON_TIMEOUT_PAUSE : ON_TIMEOUT_KILL;
    sp->files_only = !memory;
    sp->auto_resume = resume;
    return 0;
}

static int read_isolation(struct sandbox_spec *sp, struct err *e)
{
    const char *want = kv_get(&sp->metadata, "hutch.isolation");
    if (!want || !strcmp(want, "auto"))
        return 0;
    if (!(sp->tier = tier_find(want)))
        return err_set(e, E_INVALID, "metadata hutch.isolation: must be vm, gvisor or container");
    return 0;
}

/* What processes and users' tools look for inside. */
static void put_inside(struct kept *k, const struct e2b_found *t)
{
    char dot[120];
    (void)snprintf(dot, sizeof dot, "TEMPLATE_ID=%s\nBUILD_ID=%s\n", t->template_id, t->build_id);
    kv_set(&k->dialect, S("e2b"), S("1"));
    kv_set(&k->dialect, S("e2b.template"), str_of(t->template_id));
    kv_set(&k->dialect, S("e2b.alias"), str_of(t->alias));
    kv_set(&k->inside_env, S("E2B_SANDBOX"), S("true"));
    kv_set(&k->inside_env, S("E2B_SANDBOX_ID"), S("{sandbox}"));
    kv_set(&k->inside_env, S("E2B_TEMPLATE_ID"), str_of(t->template_id));
    kv_set(&k->inside_files, S("/run/e2b/.E2B_SANDBOX"), S("true"));
    kv_set(&k->inside_files, S("/run/e2b/.E2B_SANDBOX_ID"), S("{sandbox}"));
    kv_set(&k->inside_files, S("/run/e2b/.E2B_TEMPLATE_ID"), str_of(t->template_id));
    kv_set(&k->inside_files, S("/.e2b"), str_of(dot));
}

/* A snapshot, else a template. */
static int find_origin(struct api *a, const char *text, struct sandbox_spec *sp,
                       struct e2b_found *t, struct err *e)
{
    struct e2b_ref ref;
    sp->from = e2b_snapshot_find(a, sp->by, text);
    if (sp->from && !caller_changes(sp->by, snapshot_tenant(sp->from)))
        return caller_forbid(sp->by, "admin", e);
    if (sp->from)
        e2b_snapshot_found(sp->from, t);
    else if (catalogue_resolve(e2b_of(a), sp->by, text, t, e))
        return e->code == E_NOT_FOUND && e2b_snapshot_named(a, sp->by, text, &ref)
                   ? err_set(e, E_NOT_FOUND, "tag '%.60s' does not exist for template '%.120s'",
                             ref.tag, ref.name)
                   : -1;
    return 0;
}

static int read_create(struct api *a, struct json *j, bool v2, struct creating *c, struct err *e)
{
    struct sandbox_spec *sp = &c->sp;
    struct str ref = {0};
    struct json *mcp; /* the SDK itself starts the gateway */
    bool secure; /* checked, and every sandbox has its access token all the same (decision 042) */
    if (json_str(j, "templateID", &ref, true, e) ||
        e2b_read_timeout(a, j, "timeout", v2 ? 300 : 15, &sp->timeout_s, e))
        return -1;
    if (!sp->timeout_s)
        return err_set(e, E_INVALID, "Timeout must be greater than 0");
    if (find_origin(a, ref.p, sp, &c->t, e) || body_env(j, "envVars", &sp->env, e) ||
        body_meta(j, "metadata", &sp->metadata, e) || read_isolation(sp, e) ||
        read_lifecycle(j, sp, e) || e2b_network_read(a, sp->by, j, &sp->kept, &c->net, e) ||
        e2b_mounts_read(a, j, c->mounts, sp, e) || json_bool(j, "secure", true, &secure, e) ||
        json_obj(j, "mcp", &mcp, false, e))
        return -1;
    if (json_len(json_get(j, "iam")))
        return err_set(e, E_INVALID, "iam: workload identity is not supported");
    sp->template = c->t.core_id;
    sp->cpu_millis = c->t.cpu * 1000;
    sp->memory_mib = c->t.memory_mib;
    put_inside(&sp->kept, &c->t);
    return 0;
}

static void on_created(void *arg, struct sandbox *sb, const struct err *e)
{
    struct req *r = arg;
    if (!req_back(r)) {
        if (sb && !e2b_has_key(sb)) /* nobody knows its id */
            (void)sandbox_kill(sb, END_KILLED, "the client disconnected before it was created",
                               NULL, NULL, NULL);
        return;
    }
    if (!sb) {
        req_fail(r, e, ABOUT_REQUEST);
        return;
    }
    e2b_reply_sandbox(r->s, r->api, 201, sb);
    req_end(r);
}

static void create(struct http_stream *s, struct api *a, bool v2, const char *p, size_t n)
{
    struct err e;
    struct creating c = {0};
    c.sp.network = &c.net;
    struct caller who = api_caller(a, s);
    c.sp.tenant = who.tenant;
    c.sp.by = &who;
    auto_json j = json_parse_obj(p, n, &e);
    if (!j || read_create(a, j, v2, &c, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
    } else if (!e2b_idempotent(s, a, p, n, &c.sp.kept.dialect)) {
        struct req *r = req_new(a, s, sizeof *r, NULL);
        req_watch(r);
        req_hold(r);
        req_settle(r, sandbox_create(api_core(a), &c.sp, on_created, r, &e), &e, ABOUT_REQUEST);
    }
    kv_free(&c.sp.env), kv_free(&c.sp.metadata), kept_free(&c.sp.kept);
    network_spec_free(&c.net);
}
static void on_create(struct http_stream *s, void *a, const char *p, size_t n)
{
    create(s, a, false, p, n);
}
static void on_create_v2(struct http_stream *s, void *a, const char *p, size_t n)
{
    create(s, a, true, p, n);
}
void e2b_create(struct http_stream *s, void *a) { api_body(a, s, on_create); }
void e2b_create_v2(struct http_stream *s, void *a) { api_body(a, s, on_create_v2); }

/* ---- one ---- */
void e2b_get(struct http_stream *s, void *a)
{
    struct caller who = api_caller(a, s);
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct jw *w = reply_begin(s);
    put_listed(w, sb, s, caller_changes(&who, sandbox_tenant(sb)));
    reply_send(s, 200);
}

static void on_killed(void *arg, struct sandbox *sb, const struct err *e)
{
    struct req *r = arg;
    (void)sb;
    req_none(r, e, ABOUT_REQUEST);
}

void e2b_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    req_settle(r, sandbox_kill(sb, END_KILLED, "ended by request", on_killed, r, &e), &e,
               ABOUT_REQUEST);
}

/* ---- clocks ---- */
struct json *e2b_parse_or_empty(const char *p, size_t n, struct err *e)
{
    return n ? json_parse_obj(p, n, e) : json_parse_obj("{}", 2, e);
}

int e2b_extend(struct sandbox *sb, uint32_t seconds, struct err *e)
{
    return sandbox_keep_alive(sb, seconds, e);
}

static void on_timeout(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    uint32_t t;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = e2b_parse_or_empty(p, n, &e);
    if (!j || json_need(j, &e, "timeout", NULL) || e2b_read_timeout(a, j, "timeout", 0, &t, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    if (sandbox_set_timeout(sb, t, &e))
        e2b_problem(s, 404, "Sandbox \"%s\" is not running", sb->id);
    else
        reply_none(s);
}
void e2b_timeout(struct http_stream *s, void *a) { api_body(a, s, on_timeout); }

static void on_refresh(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    uint32_t t;
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = e2b_parse_or_empty(p, n, &e);
    if (!j || e2b_read_timeout(a, j, "duration", 15, &t, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    if (e2b_extend(sb, t, &e))
        e2b_problem(s, 404, "Sandbox \"%s\" is not running", sb->id);
    else
        reply_none(s);
}
void e2b_refresh(struct http_stream *s, void *a) { api_body(a, s, on_refresh); }

void e2b_health(struct http_stream *s, void *a)
{
    (void)a;
    http_reply(s, 200, "text/plain", "OK", 2);
}
