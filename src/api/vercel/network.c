#include "api/vercel/network.h"
#include "api/dialect.h"
#include "json/write.h"
#include <string.h>

static bool is_mode(struct json *j, const char *which)
{
    struct str s = {0};
    return json_kind(j) == JSON_STR && !json_to_str(j, &s, NULL) && str_eqz(s, which);
}
bool vercel_network_is(struct json *j)
{
    struct json *mode = json_kind(j) == JSON_STR ? j : json_get(j, "mode");
    return json_kind(j) == JSON_STR || is_mode(mode, "allow-all") || is_mode(mode, "deny-all") || is_mode(mode, "custom") || json_has(j, "subnets") ||
           json_kind(json_get(j, "allow")) == JSON_OBJ;
}

static int no_counterpart(struct json *j, struct err *e, const char *what)
{
    char path[160];
    return err_set(e, E_UNSUPPORTED, "%s: %s; leave it out, or use hutch's own form (docs/network.md)", json_path(j, path, sizeof path), what);
}

/* ---- rules of a domain ---------------------------------------------------------------------------------------------- */

struct match { struct json *methods; struct str path; bool exact; };

static int read_path(struct json *p, struct match *m, struct err *e)
{
    struct str exact = {0}, start = {0};
    if (json_kind(p) != JSON_OBJ)
        return json_fail(p, e, "an object with exact or startsWith");
    if (json_has(p, "regex"))
        return no_counterpart(p, e, "paths are matched by exact or startsWith, not by regex");
    if (json_only(p, e, "exact", "startsWith", NULL) || json_str(p, "exact", &exact, false, e) || json_str(p, "startsWith", &start, false, e))
        return -1;
    if (!exact.p == !start.p)
        return json_fail(p, e, "needs exactly one of exact and startsWith");
    m->exact = exact.p;
    m->path = exact.p ? exact : start;
    return 0;
}
static int read_match(struct json *rule, struct match *m, struct err *e)
{
    struct json *j = NULL, *path;
    if (json_obj(rule, "match", &j, false, e))
        return -1;
    if (json_get(j, "headers") || json_get(j, "queryString"))
        return no_counterpart(j, e, "requests are matched by path and method only");
    if (j && (json_only(j, e, "path", "method", "headers", "queryString", NULL) || json_arr(j, "method", &m->methods, false, e)))
        return -1;
    path = json_get(j, "path");
    return path ? read_path(path, m, e) : 0;
}

static void put_inject(struct jw *w, struct str domain, const struct match *m, struct str header, struct str value)
{
    jw_obj(w);
    jw_kv_strn(w, "domain", domain);
    if (m->methods) {
        struct buf text = {0};
        json_dump(m->methods, &text);
        jw_kv_raw(w, "methods", (struct str){text.p, text.n});
        buf_free(&text);
    }
    if (m->path.p) {
        struct buf text = {0};
        buf_printf(&text, m->exact ? "=%.*s" : "%.*s*", (int)m->path.n, m->path.p);
        jw_kv_arr(w, "paths");
        jw_str(w, (struct str){text.p, text.n});
        jw_end(w);
        buf_free(&text);
    }
    jw_kv_strn(w, "header", header);
    jw_kv_strn(w, "value", value);
    jw_end(w);
}
static int put_transform(struct jw *w, struct str domain, struct json *rule, struct err *e)
{
    struct match m = {0};
    struct json *list = NULL, *headers = NULL;
    struct str value;
    if (json_kind(rule) != JSON_OBJ)
        return json_fail(rule, e, "not an object");
    if (json_has(rule, "forwardURL") || json_has(rule, "response"))
        return no_counterpart(rule, e, "requests cannot be forwarded or answered here");
    if (json_only(rule, e, "match", "transform", NULL) || read_match(rule, &m, e) || json_arr(rule, "transform", &list, true, e))
        return -1;
    for (size_t i = 0; i < json_len(list); i++) {
        struct json *t = json_at(list, i);
        if (json_kind(t) != JSON_OBJ || json_only(t, e, "headers", NULL) || json_obj(t, "headers", &headers, true, e))
            return json_kind(t) != JSON_OBJ ? json_fail(t, e, "not an object") : -1;
        for (void *it = json_first(headers); it; it = json_next(headers, it)) {
            if (json_to_str(json_iter_value(headers, it), &value, e))
                return -1;
            put_inject(w, domain, &m, json_iter_key(it), value);
        }
    }
    return 0;
}
static int put_injects(struct jw *w, struct json *allow, struct err *e)
{
    if (json_kind(allow) != JSON_OBJ)
        return 0;
    jw_kv_arr(w, "inject");
    for (void *it = json_first(allow); it; it = json_next(allow, it)) {
        struct json *rules = json_iter_value(allow, it);
        if (json_kind(rules) != JSON_ARR)
            return json_fail(rules, e, "a list of rules; an empty one just allows");
        for (size_t i = 0; i < json_len(rules); i++)
            if (put_transform(w, json_iter_key(it), json_at(rules, i), e))
                return -1;
    }
    jw_end(w);
    return 0;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

static int put_allow(struct jw *w, struct json *allow, struct json *ranges, struct err *e)
{
    struct str s;
    jw_kv_arr(w, "allow");
    if (json_kind(allow) == JSON_OBJ)
        for (void *it = json_first(allow); it; it = json_next(allow, it))
            jw_str(w, json_iter_key(it));
    else if (allow && json_kind(allow) != JSON_ARR)
        return json_fail(allow, e, "a list of domains, or a map from domain to rules");
    else
        for (size_t i = 0; i < json_len(allow); i++) {
            if (json_to_str(json_at(allow, i), &s, e))
                return -1;
            jw_str(w, s);
        }
    for (size_t i = 0; i < json_len(ranges); i++) {
        if (json_to_str(json_at(ranges, i), &s, e))
            return -1;
        jw_obj(w);
        jw_kv_strn(w, "cidr", s);
        jw_end(w);
    }
    jw_end(w);
    return 0;
}
static int put_deny(struct jw *w, struct json *ranges, struct err *e)
{
    struct str s;
    jw_kv_arr(w, "deny");
    for (size_t i = 0; i < json_len(ranges); i++) {
        if (json_to_str(json_at(ranges, i), &s, e))
            return -1;
        jw_obj(w);
        jw_kv_strn(w, "cidr", s);
        jw_kv_bool(w, "final", true);
        jw_end(w);
    }
    jw_end(w);
    return 0;
}

int vercel_network(struct json *j, struct buf *out, struct err *e)
{
    struct jw w;
    struct json *mode = json_kind(j) == JSON_STR ? j : json_get(j, "mode"), *subnets = NULL, *yes = NULL, *no = NULL;
    bool all = is_mode(mode, "allow-all"), none = is_mode(mode, "deny-all");
    jw_init(&w, out);
    jw_obj(&w);
    if (all || none) {
        if (json_kind(j) == JSON_OBJ && json_only(j, e, "mode", NULL))
            return err_wrap(e, "%s cannot be combined with other rules",
                            all ? "allow-all" : "deny-all");
        jw_kv_str(&w, "mode", all ? "open" : "none");
        jw_end(&w);
        return 0;
    }
    if (json_kind(j) != JSON_OBJ || (mode && !is_mode(mode, "custom")))
        return json_fail(mode ? mode : j, e, "must be allow-all or deny-all, or an object with allow and subnets");
    if (json_only(j, e, "mode", "allow", "subnets", NULL) || json_obj(j, "subnets", &subnets, false, e) ||
        (subnets && json_only(subnets, e, "allow", "deny", NULL)) || json_arr(subnets, "allow", &yes, false, e) || json_arr(subnets, "deny", &no, false, e))
        return -1;
    jw_kv_str(&w, "mode", "allow");
    if (put_allow(&w, json_get(j, "allow"), yes, e) || put_deny(&w, no, e) || put_injects(&w, json_get(j, "allow"), e))
        return -1;
    jw_end(&w);
    return 0;
}

/* ---- the dialect: it has no calls yet ---- */
static bool claims_nothing(struct api *a, struct http_stream *s)
{
    (void)a, (void)s;
    return false;
}

static const struct policy_form policy = {vercel_network_is, vercel_network};
const struct dialect vercel_dialect = {
    .name = "vercel", .claims = claims_nothing, .fail = problem_about, .policy = &policy};
