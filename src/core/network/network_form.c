/* A policy's forms: the client's, which is stored; the same as an object; the
 * gate's, in which presets have become rules. */
#include "base/buf.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/host/rights.h"
#include "core/sandbox/object.h"
#include "core/network/object.h"
#include "core/network/secret.h"
#include <stdlib.h>
#include <string.h>

static int read_presets(struct core *c, struct json *obj, struct network *n, struct err *e)
{
    struct json *arr = NULL;
    struct str s;
    if (json_arr(obj, "presets", &arr, false, e))
        return -1;
    if (json_len(arr) > PRESETS_MAX)
        return json_fail(arr, e, "too many");
    for (size_t i = 0; i < json_len(arr); i++) {
        struct json *v = json_at(arr, i);
        if (json_to_str(v, &s, e))
            return -1;
        if (!preset_known(c, s))
            return json_fail(
                v, e,
                "unknown; there are apt, pip, npm, git and what the operator defined as HUTCH_PRESET_…");
        if (n)
            n->preset[n->npresets++] = xstrndup(s.p, s.n);
    }
    return 0;
}

/* Who sets a policy, and for whom. */
struct setting {
    struct core *core;
    const struct caller *who;
    const char *tenant;
};

static const struct secret *nameable(const struct setting *g, const char *name)
{
    const struct secret *s = secret_of_tenant(g->core, g->tenant, name);
    return s || g->who->role != ROLE_ADMIN ? s : secret_of_tenant(g->core, "", name);
}

/* One inject rule, a literal value replaced by the name of a secret made for it. A secret is bound here, by its
 * full name: what is called so later, by somebody else, is not meant. */
static int put_inject(const struct setting *g, struct jw *w, struct json *v, struct kv *values,
                      struct err *e)
{
    struct str literal = {0}, name = {0};
    if (json_kind(v) != JSON_OBJ)
        return json_fail(v, e, "not an object");
    if (json_str(v, "value", &literal, false, e) || json_str(v, "secret", &name, false, e))
        return -1;
    if (!!literal.p == !!name.p)
        return json_fail(v, e, "give either \"secret\" (its name) or \"value\"");
    const struct secret *secret = name.p ? nameable(g, name.p) : NULL;
    if (name.p && !secret)
        return json_fail(json_get(v, "secret"), e, "this secret does not exist");
    jw_obj(w);
    for (void *it = json_first(v); it; it = json_next(v, it)) {
        if (str_eqz(json_iter_key(it), "value") || str_eqz(json_iter_key(it), "secret"))
            continue;
        jw_key_str(w, json_iter_key(it));
        jw_json(w, json_iter_value(v, it));
    }
    if (secret)
        jw_kv_str(w, "secret", secret->name);
    if (literal.p) {
        const char *fault = secret_value_fault(literal);
        char made[22];
        if (fault)
            return json_fail(json_get(v, "value"), e, fault);
        id_make('x', made);
        kv_set(values, str_of(made), literal);
        jw_kv_str(w, "secret", made);
    }
    jw_end(w);
    return 0;
}

static int put_injects(const struct setting *g, struct jw *w, struct json *arr, struct kv *values,
                       struct err *e)
{
    if (json_kind(arr) != JSON_ARR)
        return json_fail(arr, e, "not an array");
    jw_arr(w);
    for (size_t i = 0; i < json_len(arr); i++)
        if (put_inject(g, w, json_at(arr, i), values, e))
            return -1;
    jw_end(w);
    return 0;
}

static int normalise(const struct setting *g, struct json *obj, struct buf *out, struct kv *values,
                     struct err *e)
{
    struct jw w;
    bool some = json_len(json_get(obj, "allow")) || json_len(json_get(obj, "presets"));
    jw_init(&w, out);
    jw_obj(&w);
    if (!json_get(obj, "mode"))
        jw_kv_str(&w, "mode", some ? "allow" : "none");
    for (void *it = json_first(obj); it; it = json_next(obj, it)) {
        struct json *v = json_iter_value(obj, it);
        if (json_kind(v) == JSON_NIL || str_eqz(json_iter_key(it), "limited") ||
            str_eqz(json_iter_key(it), "leads_to") || /* of our own rendering */
            str_eqz(json_iter_key(it), NETWORK_KEY_CEILING))
            continue;
        jw_key_str(&w, json_iter_key(it));
        if (str_eqz(json_iter_key(it), "inject")) {
            if (put_injects(g, &w, v, values, e))
                return -1;
            continue;
        }
        jw_json(&w, v);
    }
    if (g->who->scope && g->who->scope->network)
        jw_kv_raw(&w, NETWORK_KEY_CEILING, str_of(g->who->scope->network));
    jw_end(&w);
    return 0;
}

/* The gate's form: presets resolved into rules, or just left out. */
void network_gate_form(struct core *c, const struct network *n, bool presets, struct buf *out)
{
    struct err e;
    struct jw w;
    auto_json obj = json_parse_obj(n->text, strlen(n->text), &e);
    struct json *allow = json_get(obj, "allow");
    jw_init(&w, out);
    jw_obj(&w);
    for (void *it = obj ? json_first(obj) : NULL; it; it = json_next(obj, it)) {
        if (str_eqz(json_iter_key(it), "presets") || str_eqz(json_iter_key(it), "allow") ||
            str_eqz(json_iter_key(it), NETWORK_KEY_CEILING))
            continue;
        jw_key_str(&w, json_iter_key(it));
        jw_json(&w, json_iter_value(obj, it));
    }
    jw_kv_arr(&w, "allow");
    for (size_t i = 0; i < json_len(allow); i++) {
        jw_json(&w, json_at(allow, i));
    }
    for (size_t i = 0; presets && i < n->npresets; i++) {
        const struct preset *p = preset_get(c, n->preset[i]);
        if (p)
            preset_put_rules(&w, p);
    }
    jw_end(&w);
    jw_end(&w);
}

static struct policy *parse_policy(struct core *c, const struct network *n, bool presets,
                                   struct err *e)
{
    auto_buf text = {0};
    network_gate_form(c, n, presets, &text);
    return policy_parse(text.p, text.n, 0, e);
}

void network_values_free(struct kv *values)
{
    for (size_t i = 0; i < values->n; i++)
        explicit_bzero(values->at[i].v, strlen(values->at[i].v));
    kv_free(values);
}

void network_spec_free(struct network_spec *s)
{
    free(s->text);
    network_values_free(&s->values);
    *s = (struct network_spec){0};
}

int network_parse(struct core *c, const struct caller *who, const char *tenant, struct json *obj,
                  struct network_spec *ret, struct err *e)
{
    struct setting g = {c, who, tenant};
    auto_json none = NULL;
    struct buf text = {0};
    struct network n = {0};
    *ret = (struct network_spec){0};
    if (!obj)
        obj = none = json_parse_obj("{}", 2, e);
    int rc = read_presets(c, obj, NULL, e) || normalise(&g, obj, &text, &ret->values, e) ? -1 : 0;
    ret->text = buf_take(&text);
    if (!rc && ret->values.n > secrets_room(c))
        rc = err_set(
            e, E_QUOTA,
            "network: values to inject count as secrets, and there are already %d, the limit",
            SECRETS_MAX);
    if (!rc && strlen(ret->text) > POLICY_TEXT_MAX / 2)
        rc = err_set(e, E_TOO_LARGE, "network: the policy is longer than %u bytes",
                     POLICY_TEXT_MAX / 2);
    if (!rc) {
        n.text = ret->text;
        struct policy *p = parse_policy(c, &n, false, e);
        if (!p)
            rc = err_wrap(e, "network");
        policy_unref(p);
    }
    if (rc)
        network_spec_free(ret);
    return rc;
}

struct network *network_new(struct core *c, const char *text)
{
    struct network *n = xcalloc(1, sizeof *n);
    struct err e;
    auto_json obj = json_parse_obj(text, strlen(text), &e);
    n->text = xstrdup(text);
    if (!obj || read_presets(c, obj, n, &e) || !(n->policy = parse_policy(c, n, false, &e))) {
        log_error("a stored network policy is damaged; using none instead: %s", e.msg);
        while (n->npresets)
            free(n->preset[--n->npresets]);
        free(n->text);
        n->text = xstrdup("{\"mode\":\"none\"}");
        n->policy = policy_parse(n->text, strlen(n->text), 0, &e);
    } else if (json_get(obj, NETWORK_KEY_CEILING)) {
        struct buf ceiling = {0};
        json_dump(json_get(obj, NETWORK_KEY_CEILING), &ceiling);
        n->ceiling = buf_take(&ceiling);
    }
    return n;
}

void network_delete(struct network *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->npresets; i++)
        free(n->preset[i]);
    policy_unref(n->policy);
    free(n->text), free(n->ceiling), free(n->ca_cert);
    if (n->ca_key)
        explicit_bzero(n->ca_key, strlen(n->ca_key));
    free(n->ca_key);
    free(n);
}
