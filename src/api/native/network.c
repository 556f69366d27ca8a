/* What sandboxes may reach and what they did: policy, egress log, previews, secrets. */
#include "api/native/native.h"
#include "api/params.h"
#include "api/schema.h"
#include "api/vercel/network.h"
#include "base/cleanup.h"
#include "core/egress_log.h"
#include "core/network.h"
#include "core/secret.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EGRESS_MAX 1000

/* ---- policy ---- */
int native_network(struct api *a, struct json *j, struct network_spec *ret, struct err *e)
{
    auto_buf text = {0};
    auto_json ours = NULL;
    if (vercel_network_is(j)) {
        if (vercel_network(j, &text, e) || !(j = ours = json_parse_obj(text.p, text.n, e)))
            return -1;
    } else if (json_kind(j) != JSON_OBJ)
        return json_fail(j, e, "not an object");
    return schema_only(j, "Network", e) ? -1 : network_parse(api_core(a), j, ret, e);
}

void network_get(struct http_stream *s, void *a)
{
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    network_put(&w, sb);
    reply_json(s, 200, &b);
}

struct changing { struct req r; char id[22]; };

static void on_changed(void *arg, const struct err *e, uint64_t cut)
{
    struct changing *g = arg;
    if (!req_back(&g->r))
        return;
    struct sandbox *sb = sandbox_find(api_core(g->r.api), g->id, NULL);
    if (e || !sb) {
        struct err gone;
        if (!e)
            err_set(&gone, E_GONE, "the sandbox ended meanwhile");
        req_fail(&g->r, e ? e : &gone, ABOUT_SANDBOX);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_key(&w, "network");
    network_put(&w, sb);
    jw_kv_u64(&w, "cut", cut);
    jw_end(&w);
    req_json(&g->r, 200, &b);
}

static void on_network_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct network_spec spec = {0};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = n ? json_parse(p, n, &e) : json_parse("{}", 2, &e);
    if (!j || native_network(a, j, &spec, &e)) {
        problem_about(s, &e, ABOUT_NETWORK);
        return;
    }
    struct changing *g = req_new(a, s, sizeof *g, NULL);
    memcpy(g->id, sb->id, sizeof g->id);
    req_hold(&g->r);
    if (network_set(sb, &spec, on_changed, g, &e)) {
        (void)req_back(&g->r); /* it will not come */
        req_fail(&g->r, &e, ABOUT_SANDBOX);
    }
    network_spec_free(&spec);
}
void network_put_handler(struct http_stream *s, void *a) { api_body(a, s, on_network_body); }

/* ---- what it did ---- */
static void on_page(void *arg, const struct err *e, const struct egress_page *p)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    if (e) {
        req_fail(r, e, ABOUT_NETWORK);
        return;
    }
    struct buf b = {0};
    char next[24];
    buf_printf(&b, "{\"records\":[%s]", p->lines.n ? p->lines.p : "");
    if (p->next)
        (void)snprintf(next, sizeof next, "%llu", (unsigned long long)p->next);
    buf_printf(&b, ",\"next\":%s%s%s", p->next ? "\"" : "", p->next ? next : "null", p->next ? "\"" : "");
    buf_printf(&b, ",\"verified\":%llu}", (unsigned long long)p->verified);
    req_json(r, 200, &b);
}

void egress_get(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct err e;
    auto_buf kind = {0}, verdict = {0}, name = {0}, cursor = {0};
    const char *after = NULL;
    uint64_t limit;
    struct egress_query q = {0};
    struct str id = http_param(s, "id");
    char own[22];
    struct sandbox *sb = name_ok(id) ? sandbox_find(api_core(a), id.p, &e) : NULL;
    if (!sb && !id_ok(id)) { /* the log of one that is forgotten can still be asked for by id */
        err_set(&e, E_NOT_FOUND, "sandbox '%.*s' does not exist", (int)(id.n > 63 ? 63 : id.n), id.p ? id.p : "");
        problem_about(s, &e, ABOUT_SANDBOX);
        return;
    }
    (void)snprintf(own, sizeof own, "%s", sb ? sb->id : id.p);
    q.sandbox = own;
    if (param_text(s, "kind", 16, &kind, &q.kind, &e) || param_text(s, "verdict", 16, &verdict, &q.verdict, &e) ||
        param_text(s, "name", 255, &name, &q.name, &e) || param_text(s, "cursor", 20, &cursor, &after, &e) ||
        param_u64(s, "limit", 1, EGRESS_MAX, 100, &limit, &e) || param_bool(s, "verify", false, &q.verify, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    if (after && !str_u64(str_of(after), &q.after)) {
        err_set(&e, E_INVALID, "cursor: not one that a list returned");
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    q.limit = (unsigned)limit;
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    egress_log_query(api_core(a), &q, on_page, r);
}

/* ---- previews ---- */
void url_get(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct err e;
    uint64_t port;
    struct sandbox *sb = api_sandbox(a, s);
    const struct config *cfg = core_config(api_core(a));
    if (!sb)
        return;
    if (param_u64(s, "port", 1, 65535, 0, &port, &e) || (!port && err_set(&e, E_INVALID, "port: missing"))) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    const char *colon = strrchr(cfg->listen, ':'), *token = kv_get(&sb->options, "e2b.traffic_token");
    struct buf b = {0};
    char url[300], host[200];
    (void)snprintf(host, sizeof host, "%u-%s.%s", (unsigned)port, sb->id, *cfg->domain ? cfg->domain : "localhost");
    if (*cfg->domain && strchr(cfg->domain, ':'))
        (void)snprintf(url, sizeof url, "http://%s/", host);
    else
        (void)snprintf(url, sizeof url, "http://%s%s/", host, colon ? colon : "");
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "url", url);
    jw_kv_str(&w, "token", token);
    jw_kv_str(&w, "header", token ? "e2b-traffic-access-token" : NULL);
    jw_end(&w);
    reply_json(s, 200, &b);
}

/* ---- secrets: names and numbers come out, values never ---- */
static void put_secret(struct jw *w, const struct secret *k)
{
    jw_obj(w);
    jw_kv_str(w, "name", k->name);
    put_time(w, "created_at", k->created_ns);
    put_time(w, "updated_at", k->updated_ns);
    jw_kv_u64(w, "calls_max", k->calls_max);
    jw_kv_u64(w, "bytes_max", k->bytes_max);
    jw_kv_u64(w, "calls", k->calls);
    jw_kv_u64(w, "bytes", k->bytes);
    jw_end(w);
}

struct naming { struct req r; char name[64]; };

static void on_secret_stored(void *arg, const struct err *e)
{
    struct naming *g = arg;
    if (!req_back(&g->r))
        return;
    const struct secret *k = secret_find(api_core(g->r.api), g->name);
    if (e || !k) {
        struct err gone;
        if (!e)
            err_set(&gone, E_GONE, "it was deleted meanwhile");
        req_fail(&g->r, e ? e : &gone, ABOUT_SECRET);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    put_secret(&w, k);
    req_json(&g->r, 200, &b);
}

static void on_secret_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct str name = http_param(s, "name"), value = {0};
    int64_t calls, bytes;
    auto_json j = body_parse(p, n, "SecretPut", &e);
    struct secret_spec sp = {.name = name.p};
    if (!j || json_str(j, "value", &value, true, &e) || json_i64(j, "calls_max", 0, INT64_MAX, 0, &calls, &e) ||
        json_i64(j, "bytes_max", 0, INT64_MAX, 0, &bytes, &e)) {
        problem_about(s, &e, ABOUT_SECRET);
        return;
    }
    sp.value = value, sp.calls_max = (uint64_t)calls, sp.bytes_max = (uint64_t)bytes;
    struct naming *g = req_new(a, s, sizeof *g, NULL);
    (void)snprintf(g->name, sizeof g->name, "%.*s", (int)(name.n > 63 ? 63 : name.n), name.p ? name.p : "");
    req_hold(&g->r);
    if (secret_put(api_core(a), &sp, on_secret_stored, g, &e)) {
        (void)req_back(&g->r); /* it will not come */
        req_fail(&g->r, &e, ABOUT_SECRET);
    }
}
void secrets_put(struct http_stream *s, void *a) { api_body(a, s, on_secret_body); }

static void on_refreshed(void *arg)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    auto_free struct secret **k = xcalloc(SECRETS_MAX, sizeof(struct secret *));
    size_t n = secret_list(api_core(r->api), k, SECRETS_MAX);
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "secrets");
    for (size_t i = 0; i < n; i++)
        put_secret(&w, k[i]);
    jw_end(&w);
    jw_end(&w);
    req_json(r, 200, &b);
}

void secrets_list(struct http_stream *s, void *a)
{
    struct req *r = req_new(a, s, sizeof *r, NULL);
    req_hold(r);
    secret_refresh(api_core(a), on_refreshed, r);
}

void secrets_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct str name = http_param(s, "name");
    if (secret_delete(api_core(a), name.p ? name.p : "", &e))
        problem_about(s, &e, ABOUT_SECRET);
    else
        reply_none(s);
}
