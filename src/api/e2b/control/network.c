/* E2B's network options as a policy of ours, and back. Their default is the
 * open internet; here that is mode open behind the gate, so private ranges,
 * metadata, the host and neighbours stay closed and everything is written down. */
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "base/cleanup.h"
#include "core/network/network.h"
#include "crypto/digest.h"
#include "gate/ip.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET_OPEN "${e2b.secrets."
#define ALL4        "0.0.0.0/0"
#define ALL6        "::/0"
#define MASK        "********"

static const char *const egress_keys[] = {"allowOut", "denyOut", "rules", "egressProxy", NULL};

static bool is_all(struct str s) { return str_eqz(s, ALL4) || str_eqz(s, ALL6); }

/* ---- lists ---- */
struct lists {
    struct json *allow, *deny;
    bool deny_all, allow_all, names;
};

static int read_lists(struct json *net, bool internet, struct lists *l, struct err *e)
{
    struct str s;
    struct cidr c;
    *l = (struct lists){.deny_all = !internet};
    if (json_arr(net, "allowOut", &l->allow, false, e) ||
        json_arr(net, "denyOut", &l->deny, false, e))
        return -1;
    for (size_t i = 0; i < json_len(l->deny); i++) {
        if (json_to_str(json_at(l->deny, i), &s, e))
            return -1;
        if (!cidr_parse(s, &c))
            return err_set(e, E_INVALID, "invalid denied CIDR %.64s", s.p);
        l->deny_all |= is_all(s);
    }
    for (size_t i = 0; i < json_len(l->allow); i++) {
        if (json_to_str(json_at(l->allow, i), &s, e))
            return -1;
        l->allow_all |= is_all(s);
        l->names |= !cidr_parse(s, &c);
    }
    if (l->names && !l->deny_all)
        return err_set(e, E_INVALID, "allowOut contains a domain, so denyOut must contain " ALL4);
    return 0;
}

static void put_lists(struct jw *w, const struct lists *l)
{
    struct str s;
    struct cidr c;
    bool closed = l->deny_all && !l->allow_all;
    jw_kv_str(w, "mode", !closed ? "open" : json_len(l->allow) ? "allow" : "none");
    jw_kv_arr(w, "allow");
    for (size_t i = 0; i < json_len(l->allow); i++) {
        (void)json_to_str(json_at(l->allow, i), &s, NULL);
        if (is_all(s))
            continue;
        jw_obj(w);
        jw_kv_strn(w, cidr_parse(s, &c) ? "cidr" : "domain", s);
        jw_end(w);
    }
    jw_end(w);
    if (closed)
        return;
    jw_kv_arr(w, "deny");
    for (size_t i = 0; i < json_len(l->deny); i++) {
        (void)json_to_str(json_at(l->deny, i), &s, NULL);
        if (!is_all(s))
            jw_str(w, s);
    }
    jw_end(w);
}

/* ---- rules ---- */
/* "Bearer ${e2b.secrets.name}": a secret of that name in a format; any other text is a value of its own. */
static int put_header(struct jw *w, struct str host, struct str header, struct json *v,
                      struct err *e)
{
    struct str text;
    if (json_to_str(v, &text, e))
        return -1;
    if (memmem(text.p, text.n, "${e2b.identity.", 15))
        return json_fail(v, e, "workload identity tokens are not supported");
    jw_obj(w);
    jw_kv_strn(w, "domain", host);
    jw_kv_strn(w, "header", header);
    const char *at = memmem(text.p, text.n, SECRET_OPEN, sizeof SECRET_OPEN - 1);
    const char *end = at ? memchr(at, '}', text.n - (size_t)(at - text.p)) : NULL;
    if (at && end) {
        auto_buf format = {0};
        const char *name = at + sizeof SECRET_OPEN - 1;
        buf_put(&format, text.p, (size_t)(at - text.p));
        buf_puts(&format, "{secret}");
        buf_put(&format, end + 1, text.n - (size_t)(end + 1 - text.p));
        jw_kv_strn(w, "secret", (struct str){name, (size_t)(end - name)});
        jw_kv_strn(w, "format", (struct str){format.p, format.n});
    } else {
        jw_kv_strn(w, "value", text);
    }
    jw_end(w);
    return 0;
}

static int put_rule(struct jw *w, struct str host, struct json *rule, struct err *e)
{
    struct json *transform = NULL, *headers = NULL;
    if (json_kind(rule) != JSON_OBJ)
        return json_fail(rule, e, "not an object");
    if (json_only(rule, e, "transform", NULL) || json_obj(rule, "transform", &transform, true, e) ||
        json_only(transform, e, "headers", NULL) ||
        json_obj(transform, "headers", &headers, true, e))
        return -1;
    for (void *it = json_first(headers); it; it = json_next(headers, it))
        if (put_header(w, host, json_iter_key(it), json_iter_value(headers, it), e))
            return -1;
    return 0;
}

static int put_rules(struct jw *w, struct json *net, struct err *e)
{
    struct json *rules = NULL;
    if (json_obj(net, "rules", &rules, false, e))
        return -1;
    if (!json_len(rules))
        return 0;
    jw_kv_arr(w, "inject");
    for (void *it = json_first(rules); it; it = json_next(rules, it)) {
        struct json *list = json_iter_value(rules, it);
        if (json_kind(list) != JSON_ARR)
            return json_fail(list, e, "not an array");
        for (size_t i = 0; i < json_len(list); i++)
            if (put_rule(w, json_iter_key(it), json_at(list, i), e))
                return -1;
    }
    jw_end(w);
    return 0;
}

/* ---- whole ---- */
static int refuse(struct json *net, struct err *e)
{
    if (json_get(net, "egressProxy"))
        return err_set(
            e, E_INVALID,
            "network.egressProxy is not supported: sandboxes leave through hutch's own gate");
    if (json_len(json_get(net, "httpsPorts")))
        return err_set(
            e, E_INVALID,
            "network.httpsPorts is not supported: services inside are reached over plain HTTP");
    if (json_len(json_get(net, "dnsServers")))
        return err_set(e, E_INVALID,
                       "network.dnsServers is not supported: hutch's own gate answers all names");
    return 0;
}

int e2b_policy_read(struct api *a, const struct caller *who, const char *tenant, struct json *net,
                    bool internet, struct network_spec *ret, struct err *e)
{
    auto_buf text = {0};
    struct lists l;
    struct jw w;
    if (refuse(net, e) || read_lists(net, internet, &l, e))
        return -1;
    jw_init(&w, &text);
    jw_obj(&w);
    put_lists(&w, &l);
    if (put_rules(&w, net, e))
        return -1;
    jw_end(&w);
    auto_json obj = json_parse_obj(text.p, text.n, e);
    return obj ? network_parse(api_core(a), who, tenant, obj, ret, e) : -1;
}

/* Values of headers are secrets: what is shown again has stars instead. */
static void put_masked(struct jw *w, struct json *rules)
{
    jw_kv_obj(w, "rules");
    for (void *it = json_first(rules); it; it = json_next(rules, it)) {
        struct json *list = json_iter_value(rules, it);
        jw_key_str(w, json_iter_key(it));
        jw_arr(w);
        for (size_t i = 0; i < json_len(list); i++) {
            struct json *headers = json_get(json_get(json_at(list, i), "transform"), "headers");
            jw_obj(w);
            jw_kv_obj(w, "transform");
            jw_kv_obj(w, "headers");
            for (void *h = headers ? json_first(headers) : NULL; h; h = json_next(headers, h)) {
                struct str v = {0};
                (void)json_to_str(json_iter_value(headers, h), &v, NULL);
                jw_key_str(w, json_iter_key(h));
                jw_str(w, v.p && strstr(v.p, SECRET_OPEN) ? v : S(MASK));
            }
            jw_end(w);
            jw_end(w);
            jw_end(w);
        }
        jw_end(w);
    }
    jw_end(w);
}

static bool is_egress(struct str key)
{
    for (size_t i = 0; egress_keys[i]; i++)
        if (str_eqz(key, egress_keys[i]))
            return true;
    return false;
}

static void put_members(struct jw *w, struct json *net, bool want_egress, bool want_ingress)
{
    for (void *it = net ? json_first(net) : NULL; it; it = json_next(net, it)) {
        struct str key = json_iter_key(it);
        if (!(is_egress(key) ? want_egress : want_ingress) || str_eqz(key, "allow_internet_access"))
            continue;
        if (str_eqz(key, "rules")) {
            put_masked(w, json_iter_value(net, it));
            continue;
        }
        jw_key_str(w, key);
        jw_json(w, json_iter_value(net, it));
    }
}

void e2b_network_text(struct json *ingress, struct json *egress, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w);
    put_members(&w, ingress, false, true);
    put_members(&w, egress, true, false);
    jw_end(&w);
}

static bool host_mask_ok(struct str v)
{
    for (size_t i = 0; i < v.n; i++)
        if (v.p[i] <= ' ' || v.p[i] > '~' || strchr("/\\\"<>@#?", v.p[i]))
            return false;
    return v.n > 0 && v.n < 256;
}

static int read_ingress(struct json *net, struct kept *k, struct err *e)
{
    struct str mask = {0};
    bool public;
    if (json_bool(net, "allowPublicTraffic", true, &public, e) ||
        json_str(net, "maskRequestHost", &mask, false, e))
        return -1;
    if (mask.p && !host_mask_ok(mask))
        return err_set(e, E_INVALID, "network.maskRequestHost: not a host name");
    if (mask.p)
        kept_set(&k->preview_mask_host, mask.p);
    if (!public) {
        char token[41];
        token_make("", 20, token);
        kept_set(&k->preview_token, token);
    }
    return 0;
}

int e2b_network_read(struct api *a, const struct caller *who, struct json *j, struct kept *k,
                     struct network_spec *ret,
                     struct err *e)
{
    struct json *net = NULL;
    bool internet;
    if (json_bool(j, "allow_internet_access", true, &internet, e) ||
        json_obj(j, "network", &net, false, e))
        return -1;
    if (json_get(j, "allow_internet_access"))
        kv_set(&k->dialect, S("e2b.internet"), internet ? S("true") : S("false"));
    if (net) {
        auto_buf text = {0};
        if (read_ingress(net, k, e))
            return -1;
        e2b_network_text(net, net, &text);
        kv_set(&k->dialect, S("e2b.network"), (struct str){text.p, text.n});
    }
    return e2b_policy_read(a, who, who->tenant, net, internet, ret, e);
}

/* ---- PUT …/network: egress replaced as a whole, ingress stays ---- */
struct change {
    struct req r;
    char id[22];
    char *text;
    const char *internet;
};

static void fini(void *state)
{
    struct change *g = state;
    free(g->text);
}

static void on_changed(void *arg, const struct err *e, uint64_t cut)
{
    struct change *g = arg;
    (void)cut;
    if (!req_back(&g->r))
        return;
    struct sandbox *sb = sandbox_find(api_core(g->r.api), g->id, NULL);
    if (e) {
        req_fail(&g->r, e, ABOUT_REQUEST);
        return;
    }
    if (sb) {
        sandbox_keep(sb, "e2b.network", g->text);
        sandbox_keep(sb, "e2b.internet", g->internet);
    }
    char say[NETWORK_LIMITED_TEXT];
    if (sb && network_limited(sb, say))
        (void)http_header(g->r.s, "X-Hutch-Network-Limited", say);
    reply_none(g->r.s);
    req_end(&g->r);
}

static void on_network(struct http_stream *s, void *arg, const char *p, size_t n)
{
    struct api *a = arg;
    struct err e;
    struct network_spec spec = {0};
    bool internet;
    struct caller who = api_caller(a, s);
    struct sandbox *sb = api_sandbox(a, s);
    if (!sb)
        return;
    auto_json j = json_parse_obj(n ? p : "{}", n ? n : 2, &e);
    if (!j || json_bool(j, "allow_internet_access", true, &internet, &e) ||
        e2b_policy_read(a, &who, sandbox_tenant(sb), j, internet, &spec, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    const char *old = kv_get(&sb->kept.dialect, "e2b.network");
    auto_json had = old ? json_parse_obj(old, strlen(old), NULL) : NULL;
    struct buf text = {0};
    e2b_network_text(had, j, &text);
    struct change *g = req_new(a, s, sizeof *g, fini);
    memcpy(g->id, sb->id, sizeof g->id);
    g->text = buf_take(&text);
    g->internet = !json_get(j, "allow_internet_access") ? "" : internet ? "true" : "false";
    req_hold(&g->r);
    req_settle(&g->r, network_set(sb, &spec, on_changed, g, &e), &e, ABOUT_REQUEST);
    network_spec_free(&spec);
}
void e2b_network(struct http_stream *s, void *a) { api_body(a, s, on_network); }
