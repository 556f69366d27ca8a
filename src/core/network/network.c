/* A sandbox's network as an object: its policy, its certificate authority, its
 * literal values, and what is said of them. Its text forms: network_form.c; how a
 * change of it comes into force: core/life/network_change.c. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/network/object.h"
#include "core/network/secret.h"
#include "core/host/tenant.h"
#include "core/agent/trust.h"
#include "crypto/x509.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CA_DAYS 3650
#define LATER_NS \
    (20 * NS_PER_MS) /* after a create, so that it does not pay for the log of a closed sandbox */

enum policy_mode network_mode(const struct sandbox *sb) { return policy_mode(sb->net->policy); }

int network_need_ca(struct sandbox *sb, struct network *n, struct err *e)
{
    struct buf cert = {0}, key = {0};
    char name[64];
    bool looks = policy_intercepts(n->policy);
    for (size_t i = 0; i < n->npresets && !looks; i++) {
        const struct preset *p = preset_get(sb->core, n->preset[i]);
        looks = p && preset_looks(p);
    }
    if (!looks || n->ca_cert)
        return 0;
    (void)snprintf(name, sizeof name, "hutch gate of %s", sb->id);
    if (x509_ca_make(name, CA_DAYS, &cert, &key, e)) {
        buf_free(&cert), buf_free(&key);
        return -1;
    }
    n->ca_cert = buf_take(&cert);
    n->ca_key = buf_take(&key);
    return 0;
}

void network_keep_ca(struct sandbox *sb)
{
    auto_buf sealed = {0};
    const char *had = sb->kept.ca_cert;
    if (!sb->net->ca_cert || (had && !strcmp(had, sb->net->ca_cert)))
        return;
    secret_seal(sb->core, sb->id, sb->net->ca_key, &sealed);
    kept_set(&sb->kept.ca_cert, sb->net->ca_cert);
    kept_set(&sb->kept.ca_key, sealed.p);
}

void network_load_ca(struct sandbox *sb, struct network *n)
{
    const char *cert = sb->kept.ca_cert, *sealed = sb->kept.ca_key;
    struct buf key = {0};
    struct err e;
    if (!cert || !sealed)
        return;
    if (secret_unseal(sb->core, sb->id, sealed, &key, &e)) {
        log_error("sandbox %s: its certificate authority: %s", sb->id, e.msg);
        buf_free(&key);
        return;
    }
    n->ca_cert = xstrdup(cert);
    n->ca_key = buf_take(&key);
}

void network_keep_values(struct sandbox *sb, const struct kv *values)
{
    struct err e;
    for (size_t i = 0; i < values->n; i++) {
        struct secret_spec s = {
            .name = values->at[i].k, .value = str_of(values->at[i].v), .sandbox = sb->id};
        if (secret_put(sb->core, &s, NULL, NULL, &e))
            log_error("sandbox %s: a value to inject: %s", sb->id, e.msg);
    }
}

/* Hidden secrets belong to one sandbox: the copy gets its own, under other names. Ids occur nowhere else in the text. */
struct copying {
    struct network_spec *to;
    char *at;
};
static void copy_value(void *arg, const char *name, struct str value,
                       const struct gate_budget *budget)
{
    struct copying *k = arg;
    char made[22];
    (void)name, (void)budget;
    id_make('x', made);
    kv_set(&k->to->values, str_of(made), value);
    memcpy(k->at, made, strlen(made));
}

void network_copy(const struct sandbox *sb, struct network_spec *ret)
{
    struct copying k = {.to = ret};
    ret->text = xstrdup(sb->net->text);
    for (char *p = ret->text; (p = strchr(p, '"')); p++) {
        char name[22];
        (void)snprintf(name, sizeof name, "%.21s", p + 1);
        const struct secret *s =
            id_ok(str_of(name)) && p[22] == '"' ? secret_find(sb->core, name) : NULL;
        k.at = p + 1;
        if (s && !strcmp(s->sandbox, sb->id))
            (void)secret_open(sb->core, name, copy_value,
                              &k); /* one that does not open is not injected there either */
    }
}

/* ---- in force ---- */
void network_enforce(struct sandbox *sb, const struct network *n, egress_cb *cb, void *arg)
{
    auto_buf text = {0};
    network_gate_form(sb->core, n, true, &text);
    struct egress_box b = {.box = sb->box_id,
                           .sandbox = sb->id,
                           .tenant = sandbox_tenant(sb),
                           .ceiling = n->ceiling,
                           .policy = {text.p, text.n},
                           .ca_cert = str_of(n->ca_cert),
                           .ca_key = str_of(n->ca_key)};
    egress_put(sb->core, &b, cb, arg);
}

static void enforce_now(void *arg)
{
    struct sandbox *sb = arg;
    if (sb->box && sb->box->phase == BOX_LIVE)
        network_enforce(sb, sb->net, NULL, NULL);
}

void network_enforce_later(struct sandbox *sb) { timer_arm(&sb->net_later, LATER_NS); }

struct preparing {
    struct core *core;
    char id[22];
    void (*cb)(void *arg, const struct err *e);
    void *arg;
};

static void presets_there(void *arg, const struct err *e)
{
    struct preparing p = *(struct preparing *)arg;
    struct sandbox *sb = sandbox_at(p.core, p.id);
    struct err why = {0};
    free(arg);
    if (e)
        why = *e;
    else if (!sb || !sb->box || sb->box->removing)
        err_set(&why, E_CANCELED, "it was removed in the meantime");
    else if (network_need_ca(sb, sb->net, &why))
        (void)err_wrap(&why, "network");
    else
        network_keep_ca(sb);
    p.cb(p.arg, why.code ? &why : NULL);
}

void network_prepare(struct sandbox *sb, void (*cb)(void *arg, const struct err *e), void *arg)
{
    struct preparing *p = xcalloc(1, sizeof *p);
    *p = (struct preparing){.core = sb->core, .cb = cb, .arg = arg};
    memcpy(p->id, sb->id, sizeof p->id);
    if (sb->net->npresets)
        presets_load(sb->core, (const char *const *)sb->net->preset, sb->net->npresets,
                     presets_there, p);
    else
        presets_there(p, NULL);
}

/* ---- with its sandbox ---- */
void network_init(struct sandbox *sb, const struct network_spec *s)
{
    timer_init(&sb->net_later, sb->core->loop, enforce_now, sb);
    sb->net = network_new(sb->core, s && s->text ? s->text : "{\"mode\":\"none\"}");
    kept_set(&sb->kept.policy, sb->net->text);
    if (s)
        network_keep_values(sb, &s->values);
}

void network_load(struct sandbox *sb)
{
    const char *text = sb->kept.policy;
    timer_init(&sb->net_later, sb->core->loop, enforce_now, sb);
    sb->net = network_new(sb->core, text ? text : "{\"mode\":\"none\"}");
    network_load_ca(sb, sb->net);
}

void network_ended(struct sandbox *sb)
{
    timer_stop(&sb->net_later);
    secrets_of_sandbox_drop(sb->core, sb->id, NULL);
}

void network_free(struct sandbox *sb)
{
    timer_stop(&sb->net_later);
    network_delete(sb->net);
    sb->net = NULL;
}

void network_env(const struct sandbox *sb, struct kv *env)
{
    const struct network *n = sb->net;
    for (size_t i = 0; i < n->npresets; i++) {
        const struct preset *p = preset_get(sb->core, n->preset[i]);
        for (size_t k = 0; p && k < p->env.n; k++)
            kv_set(env, str_of(p->env.at[k].k), str_of(p->env.at[k].v));
    }
    if (n->ca_cert)
        trust_env(env);
}

/* What the strictest ceiling leaves, and whose it is; NULL: none takes anything. */
static const char *strictest(const struct sandbox *sb, const char **ret_whose)
{
    const struct tenant *t = tenant_find(&sb->core->tenants, sandbox_tenant(sb));
    const struct {
        const char *text, *whose;
    } all[] = {{sb->core->cfg.ceiling, "operator's ceiling"},
               {t ? t->ceiling : NULL, "operator's ceiling for this tenant"},
               {sb->net->ceiling, "ceiling of the key that set it"}};
    const char *mode = NULL;
    int least = POLICY_OPEN;
    struct err e;
    for (size_t i = 0; i < sizeof all / sizeof *all && network_mode(sb) != POLICY_NONE; i++) {
        struct policy *p =
            all[i].text ? policy_parse(all[i].text, strlen(all[i].text), POLICY_CEILING, &e) : NULL;
        if (p && (int)policy_mode(p) < least) {
            least = (int)policy_mode(p);
            mode = policy_mode_name(policy_mode(p)); /* a constant */
            *ret_whose = all[i].whose;
        } else if (p && !mode && policy_denies(p)) {
            mode = "open, except for what it denies";
            *ret_whose = all[i].whose;
        }
        policy_unref(p);
    }
    return mode;
}

const char *network_limited(const struct sandbox *sb, char say[NETWORK_LIMITED_TEXT])
{
    const char *whose = "", *mode = strictest(sb, &whose);
    if (mode)
        (void)snprintf(say, NETWORK_LIMITED_TEXT,
                       "the %s (mode %s) applies as well: only what both allow is open", whose,
                       mode);
    return mode ? say : NULL;
}

/* Where the presets lead on this host, once they are known. */
static void put_leads_to(struct jw *w, const struct sandbox *sb)
{
    const struct network *n = sb->net;
    if (!n->npresets)
        return;
    jw_kv_arr(w, "leads_to");
    for (size_t i = 0; i < n->npresets; i++) {
        const struct preset *p = preset_get(sb->core, n->preset[i]);
        for (size_t k = 0; p && k < p->nrules; k++)
            jw_strz(w, p->rule[k].host);
        for (const char *at = p && p->text ? p->text : ""; *at; at += strspn(at, ", ")) {
            size_t len = strcspn(at, ", ");
            if (len)
                jw_str(w, (struct str){at, len});
            at += len;
        }
    }
    jw_end(w);
}

/* With the names that their owner gave the secrets. */
static void put_injects(struct jw *w, struct json *arr)
{
    jw_arr(w);
    for (size_t i = 0; i < json_len(arr); i++) {
        struct json *v = json_at(arr, i);
        struct str name = {0};
        jw_obj(w);
        for (void *it = json_first(v); it; it = json_next(v, it)) {
            jw_key_str(w, json_iter_key(it));
            if (str_eqz(json_iter_key(it), "secret") &&
                !json_to_str(json_iter_value(v, it), &name, NULL))
                jw_str(w, (struct str){name.p, full_name_len(name.p)});
            else
                jw_json(w, json_iter_value(v, it));
        }
        jw_end(w);
    }
    jw_end(w);
}

void network_put(struct jw *w, const struct sandbox *sb)
{
    struct err e;
    auto_json obj = json_parse_obj(sb->net->text, strlen(sb->net->text), &e);
    char say[NETWORK_LIMITED_TEXT];
    jw_obj(w);
    for (void *it = obj ? json_first(obj) : NULL; it; it = json_next(obj, it)) {
        if (str_eqz(json_iter_key(it), NETWORK_KEY_CEILING))
            continue;
        jw_key_str(w, json_iter_key(it));
        if (str_eqz(json_iter_key(it), "inject"))
            put_injects(w, json_iter_value(obj, it));
        else
            jw_json(w, json_iter_value(obj, it));
    }
    put_leads_to(w, sb);
    if (network_limited(sb, say))
        jw_kv_str(w, "limited", say);
    jw_end(w);
}
