/* What sandboxes may reach and what they did: policy, egress log, previews, secrets. */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/network/egress_log.h"
#include "core/network/network.h"
#include "core/network/secret.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EGRESS_MAX 1000

/* ---- policy ---- */
static const struct policy_form *policy_form(struct api *a, struct json *j)
{
    size_t n;
    const struct dialect *const *d = api_dialects(a, &n);
    for (size_t i = 0; i < n; i++)
        if (d[i]->policy && d[i]->policy->is(j))
            return d[i]->policy;
    return NULL;
}

int native_network(struct api *a, const struct caller *who, const char *tenant, struct json *j,
                   struct network_spec *ret, struct err *e)
{
    auto_buf text = {0};
    auto_json ours = NULL;
    const struct policy_form *foreign = policy_form(a, j);
    if (foreign) {
        if (foreign->read(j, &text, e) || !(j = ours = json_parse_obj(text.p, text.n, e)))
            return -1;
    } else if (json_kind(j) != JSON_OBJ)
        return json_fail(j, e, "not an object");
    return fields_known(j, &network_shape, e) ? -1
                                              : network_parse(api_core(a), who, tenant, j, ret, e);
}

void network_get(struct http_stream *s, void *a)
{
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    struct jw *w = reply_begin(s);
    network_put(w, sb);
    reply_send(s, 200);
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
            err_set(&gone, E_GONE, "the sandbox ended in the meantime");
        req_fail(&g->r, e ? e : &gone, ABOUT_SANDBOX);
        return;
    }
    struct jw *w = reply_begin(g->r.s);
    jw_obj(w);
    jw_key(w, "network");
    network_put(w, sb);
    jw_kv_u64(w, "cut", cut);
    jw_end(w);
    req_send(&g->r, 200);
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
    struct caller who = api_caller(a, s);
    if (!j || native_network(a, &who, sandbox_tenant(sb), j, &spec, &e)) {
        problem_about(s, &e, ABOUT_NETWORK);
        return;
    }
    struct changing *g = req_new(a, s, sizeof *g, NULL);
    memcpy(g->id, sb->id, sizeof g->id);
    req_hold(&g->r);
    req_settle(&g->r, network_set(sb, &spec, on_changed, g, &e), &e, ABOUT_SANDBOX);
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

struct egress_args {
    struct egress_query q;
    const char *cursor;
};
static const struct field egress_rows[] = {
    FIELD("kind", F_STR, struct egress_args, q.kind, .max = 16,
          .help = "Only records of this kind: dns, open, close, deny, http, fail, cut or policy."),
    FIELD("verdict", F_STR, struct egress_args, q.verdict, .max = 16, .help = "`allow` or `deny`."),
    FIELD("name", F_STR, struct egress_args, q.name, .max = 255,
          .help = "A host name or an address; `*.example.org` matches all below it."),
    FIELD("limit", F_INT, struct egress_args, q.limit, .min = 1, .max = EGRESS_MAX, .def = "100",
          .help = "At most so many."),
    FIELD("cursor", F_STR, struct egress_args, cursor, .max = 20,
          .help = "`next` of the page before."),
    FIELD("verify", F_BOOL, struct egress_args, q.verify, .def = "false",
          .help = "Check the chain of hashes as well."),
};
const struct shape egress_query = SHAPE_OF(NULL, struct egress_args, egress_rows);

void egress_get(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct err e;
    struct egress_args q = {0};
    struct str id = http_param(s, "id");
    char own[22];
    struct caller who = api_caller(a, s);
    struct sandbox *sb = name_ok(id) ? sandbox_find_for(api_core(a), &who, id.p, &e) : NULL;
    if (!sb &&
        !(id_ok(id) &&
          caller_all(
              &who))) { /* the log of one that is forgotten can still be asked for by id; whose it was
                                                      is forgotten with it */
        err_set(&e, E_NOT_FOUND, "sandbox '%.*s' does not exist", (int)(id.n > 63 ? 63 : id.n), id.p ? id.p : "");
        problem_about(s, &e, ABOUT_SANDBOX);
        return;
    }
    (void)snprintf(own, sizeof own, "%s", sb ? sb->id : id.p);
    if (native_query(a, s, &egress_query, &q, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
    } else if (q.cursor && !str_u64(str_of(q.cursor), &q.q.after)) {
        err_set(&e, E_INVALID, "cursor: not one that this list returned");
        problem_about(s, &e, ABOUT_REQUEST);
    } else {
        struct req *r = req_new(a, s, sizeof *r, NULL);
        q.q.sandbox = own;
        req_hold(r);
        egress_log_query(api_core(a), &q.q, on_page, r);
    }
    query_free(&egress_query, &q);
}

/* ---- previews ---- */
struct inside {
    unsigned port;
};
static const struct field url_rows[] = {
    FIELD("port", F_INT, struct inside, port, .flags = F_REQUIRED, .min = 1, .max = 65535,
          .help = "The port inside the sandbox."),
};
const struct shape url_query = SHAPE_OF(NULL, struct inside, url_rows);

void url_get(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct err e;
    struct inside q = {0};
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    if (native_query(a, s, &url_query, &q, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    const char *token = sb->kept.preview_token;
    char url[300];
    api_preview_url(a, sb, q.port, url, sizeof url);
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_str(w, "url", url);
    jw_kv_str(w, "token", token);
    jw_kv_str(w, "header", token ? api_preview_header(a) : NULL);
    jw_end(w);
    reply_send(s, 200);
}

/* ---- secrets: names and numbers come out, values never ---- */
static void put_secret(struct jw *w, const struct secret *k)
{
    jw_obj(w);
    jw_kv_str(w, "name", k->label);
    jw_kv_str(w, "id", k->id);
    jw_kv_str(w, "tenant", *k->tenant ? k->tenant : NULL);
    put_time(w, "created_at", k->created_ns);
    put_time(w, "updated_at", k->updated_ns);
    jw_kv_u64(w, "calls_max", k->calls_max);
    jw_kv_u64(w, "bytes_max", k->bytes_max);
    jw_kv_u64(w, "calls", k->calls);
    jw_kv_u64(w, "bytes", k->bytes);
    jw_end(w);
}

struct naming {
    struct req r;
    char name[FULL_NAME];
};

static void on_secret_stored(void *arg, const struct err *e)
{
    struct naming *g = arg;
    if (!req_back(&g->r))
        return;
    const struct secret *k = secret_find(api_core(g->r.api), g->name);
    if (e || !k) {
        struct err gone;
        if (!e)
            err_set(&gone, E_GONE, "it was deleted in the meantime");
        req_fail(&g->r, e ? e : &gone, ABOUT_SECRET);
        return;
    }
    struct jw *w = reply_begin(g->r.s);
    put_secret(w, k);
    req_send(&g->r, 200);
}

static const struct field secret_rows[] = {
    FIELD("value", F_TEXT, struct secret_spec, value, .flags = F_REQUIRED, .max = GATE_SECRET_MAX,
          .help = "The secret. It is stored encrypted and never shown."),
    FIELD("calls_max", F_INT, struct secret_spec, calls_max, .max = INT64_MAX, .def = "0",
          .help = "How many requests may use it. 0: no limit."),
    FIELD("bytes_max", F_INT, struct secret_spec, bytes_max, .max = INT64_MAX, .def = "0",
          .help = "How many bytes such requests may send. 0: no limit."),
};
const struct shape secret_body = SHAPE_OF("SecretPut", struct secret_spec, secret_rows);

static void on_secret_body(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct str name = http_param(s, "name");
    struct caller who = api_caller(a, s);
    struct secret_spec sp = {.name = name.p, .tenant = who.tenant};
    auto_json j = native_body(a, p, n, &secret_body, &sp, &e);
    struct err none = {0};
    /* A name is one's own: who sees all must not write into another's. By id it may. */
    const struct secret *have = j && id_ok(name) ? api_secret(a, s, name.p, &none) : NULL;
    if (j && id_ok(name) && !have && none.code != E_NOT_FOUND) { /* somebody's that this key may not change, or more than one */
        e = none;
        problem_about(s, &e, ABOUT_SECRET);
        return;
    }
    if (!j) {
        problem_about(s, &e, ABOUT_SECRET);
        return;
    }
    if (have)
        sp.name = have->label, sp.tenant = have->tenant;
    struct naming *g = req_new(a, s, sizeof *g, NULL);
    (void)full_name(sp.tenant, name.n > 63 ? "" : sp.name, g->name);
    req_hold(&g->r);
    req_settle(&g->r, secret_put(api_core(a), &sp, on_secret_stored, g, &e), &e, ABOUT_SECRET);
}
void secrets_put(struct http_stream *s, void *a) { api_body(a, s, on_secret_body); }

static void on_refreshed(void *arg)
{
    struct req *r = arg;
    if (!req_back(r))
        return;
    auto_free struct secret **k = xcalloc(SECRETS_MAX, sizeof(struct secret *));
    struct caller who = api_caller(r->api, r->s);
    size_t n = secret_list(api_core(r->api), &who, k, SECRETS_MAX);
    struct jw *w = reply_begin(r->s);
    jw_obj(w);
    jw_kv_arr(w, "secrets");
    for (size_t i = 0; i < n; i++)
        put_secret(w, k[i]);
    jw_end(w);
    jw_end(w);
    req_send(r, 200);
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
    struct secret *k = api_secret(a, s, name.p ? name.p : "", &e);
    if (!k) {
        problem_about(s, &e, ABOUT_SECRET);
        return;
    }
    secret_delete(api_core(a), k);
    reply_none(s);
}
