#include "core/network.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/box.h"
#include "core/egress.h"
#include "core/internal.h"
#include "core/network_int.h"
#include "core/preset.h"
#include "core/secret.h"
#include "core/snapshot.h"
#include "core/tenant.h"
#include "core/trust.h"
#include "crypto/x509.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CA_DAYS  3650
#define OPT_TEXT "network"
#define OPT_CERT "network.ca"
#define OPT_KEY  "network.ca_key" /* sealed */

/* ---- the client's form -------------------------------------------------------------------------------------------- */

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
            return json_fail(v, e, "there is apt, pip, npm, git, and what the operator set as HUTCH_PRESET_…");
        if (n)
            n->preset[n->npresets++] = xstrndup(s.p, s.n);
    }
    return 0;
}

/* One inject rule, a literal value replaced by the name of a secret made for it. */
static int put_inject(struct core *c, struct jw *w, struct json *v, struct kv *values, struct err *e)
{
    struct str literal = {0}, name = {0};
    if (json_kind(v) != JSON_OBJ)
        return json_fail(v, e, "not an object");
    if (json_str(v, "value", &literal, false, e) || json_str(v, "secret", &name, false, e))
        return -1;
    if (!!literal.p == !!name.p)
        return json_fail(v, e, "give either \"secret\" (the name of one) or \"value\"");
    if (name.p && !secret_find(c, name.p))
        return json_fail(json_get(v, "secret"), e, "there is no such secret");
    jw_obj(w);
    for (void *it = json_first(v); it; it = json_next(v, it)) {
        auto_buf text = {0};
        if (str_eqz(json_iter_key(it), "value"))
            continue;
        json_dump(json_iter_value(v, it), &text);
        jw_key_str(w, json_iter_key(it));
        jw_raw(w, (struct str){text.p, text.n});
    }
    if (literal.p) {
        char made[22];
        if (!literal.n || literal.n > GATE_SECRET_MAX)
            return json_fail(json_get(v, "value"), e, "1 to 8192 bytes");
        id_make('x', made);
        kv_set(values, str_of(made), literal);
        jw_kv_str(w, "secret", made);
    }
    jw_end(w);
    return 0;
}

static int put_injects(struct core *c, struct jw *w, struct json *arr, struct kv *values, struct err *e)
{
    if (json_kind(arr) != JSON_ARR)
        return json_fail(arr, e, "not an array");
    jw_arr(w);
    for (size_t i = 0; i < json_len(arr); i++)
        if (put_inject(c, w, json_at(arr, i), values, e))
            return -1;
    jw_end(w);
    return 0;
}

static int normalise(struct core *c, struct json *obj, struct buf *out, struct kv *values, struct err *e)
{
    struct jw w;
    bool some = json_len(json_get(obj, "allow")) || json_len(json_get(obj, "presets"));
    jw_init(&w, out);
    jw_obj(&w);
    if (!json_get(obj, "mode"))
        jw_kv_str(&w, "mode", some ? "allow" : "none");
    for (void *it = json_first(obj); it; it = json_next(obj, it)) {
        struct json *v = json_iter_value(obj, it);
        auto_buf text = {0};
        if (json_kind(v) == JSON_NIL || str_eqz(json_iter_key(it), "limited") || str_eqz(json_iter_key(it), "leads_to")) /* of our own rendering */
            continue;
        jw_key_str(&w, json_iter_key(it));
        if (str_eqz(json_iter_key(it), "inject")) {
            if (put_injects(c, &w, v, values, e))
                return -1;
            continue;
        }
        json_dump(v, &text);
        jw_raw(&w, (struct str){text.p, text.n});
    }
    jw_end(&w);
    return 0;
}

/* The gate's form: presets resolved into rules, or just left out. */
static void gate_form(struct core *c, const struct network *n, bool presets, struct buf *out)
{
    struct err e;
    struct jw w;
    auto_json obj = json_parse_obj(n->text, strlen(n->text), &e);
    struct json *allow = json_get(obj, "allow");
    jw_init(&w, out);
    jw_obj(&w);
    for (void *it = obj ? json_first(obj) : NULL; it; it = json_next(obj, it)) {
        auto_buf text = {0};
        if (str_eqz(json_iter_key(it), "presets") || str_eqz(json_iter_key(it), "allow"))
            continue;
        json_dump(json_iter_value(obj, it), &text);
        jw_key_str(&w, json_iter_key(it));
        jw_raw(&w, (struct str){text.p, text.n});
    }
    jw_kv_arr(&w, "allow");
    for (size_t i = 0; i < json_len(allow); i++) {
        auto_buf text = {0};
        json_dump(json_at(allow, i), &text);
        jw_raw(&w, (struct str){text.p, text.n});
    }
    for (size_t i = 0; presets && i < n->npresets; i++) {
        const struct preset *p = preset_get(c, n->preset[i]);
        if (p)
            preset_put_rules(&w, p);
    }
    jw_end(&w);
    jw_end(&w);
}

static struct policy *parse_policy(struct core *c, const struct network *n, bool presets, struct err *e)
{
    auto_buf text = {0};
    gate_form(c, n, presets, &text);
    return policy_parse(text.p, text.n, 0, e);
}

void network_spec_free(struct network_spec *s)
{
    free(s->text);
    for (size_t i = 0; i < s->values.n; i++)
        explicit_bzero(s->values.at[i].v, strlen(s->values.at[i].v));
    kv_free(&s->values);
    *s = (struct network_spec){0};
}

int network_parse(struct core *c, struct json *obj, struct network_spec *ret, struct err *e)
{
    auto_json none = NULL;
    struct buf text = {0};
    struct network n = {0};
    *ret = (struct network_spec){0};
    if (!obj)
        obj = none = json_parse_obj("{}", 2, e);
    int rc = read_presets(c, obj, NULL, e) || normalise(c, obj, &text, &ret->values, e) ? -1 : 0;
    ret->text = buf_take(&text);
    if (!rc && strlen(ret->text) > POLICY_TEXT_MAX / 2)
        rc = err_set(e, E_TOO_LARGE, "network: the policy is longer than %u bytes", POLICY_TEXT_MAX / 2);
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

/* ---- the object ----------------------------------------------------------------------------------------------------- */

static struct network *network_new(struct core *c, const char *text)
{
    struct network *n = xcalloc(1, sizeof *n);
    struct err e;
    auto_json obj = json_parse_obj(text, strlen(text), &e);
    n->text = xstrdup(text);
    if (!obj || read_presets(c, obj, n, &e) || !(n->policy = parse_policy(c, n, false, &e))) {
        log_error("a stored network policy is damaged and taken as none: %s", e.msg);
        free(n->text);
        n->text = xstrdup("{\"mode\":\"none\"}");
        n->policy = policy_parse(n->text, strlen(n->text), 0, &e);
    }
    return n;
}

static void network_delete(struct network *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < n->npresets; i++)
        free(n->preset[i]);
    policy_unref(n->policy);
    free(n->text), free(n->ca_cert);
    if (n->ca_key)
        explicit_bzero(n->ca_key, strlen(n->ca_key));
    free(n->ca_key);
    free(n);
}

enum policy_mode network_mode(const struct sandbox *sb) { return policy_mode(sb->net->policy); }

/* Made when a policy first needs it, kept for the sandbox's life. */
static int need_ca(struct sandbox *sb, struct network *n, struct err *e)
{
    struct buf cert = {0}, key = {0}, sealed = {0};
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
    secret_seal(sb->core, sb->id, n->ca_key, &sealed);
    kv_set(&sb->options, S(OPT_CERT), str_of(n->ca_cert));
    kv_set(&sb->options, S(OPT_KEY), str_of(sealed.p));
    buf_free(&sealed);
    return 0;
}

static void load_ca(struct sandbox *sb, struct network *n)
{
    const char *cert = kv_get(&sb->options, OPT_CERT), *sealed = kv_get(&sb->options, OPT_KEY);
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

static void keep_values(struct sandbox *sb, const struct kv *values)
{
    struct err e;
    for (size_t i = 0; i < values->n; i++) {
        struct secret_spec s = {.name = values->at[i].k, .value = str_of(values->at[i].v), .sandbox = sb->id};
        if (secret_put(sb->core, &s, NULL, NULL, &e))
            log_error("sandbox %s: a value to inject: %s", sb->id, e.msg);
    }
}

/* Hidden secrets belong to one sandbox: the copy gets its own, under other names. Ids occur nowhere else in the text. */
struct copying { struct network_spec *to; char *at; };
static void copy_value(void *arg, const char *name, struct str value, const struct gate_budget *budget)
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
        const struct secret *s = id_ok(str_of(name)) && p[22] == '"' ? secret_find(sb->core, name) : NULL;
        k.at = p + 1;
        if (s && !strcmp(s->sandbox, sb->id))
            (void)secret_open(sb->core, name, copy_value, &k); /* one that does not open is not injected there either */
    }
}

static void on_later(void *arg);

void network_init(struct sandbox *sb, const struct network_spec *s)
{
    timer_init(&sb->net_later, sb->core->loop, on_later, sb);
    sb->net = network_new(sb->core, s && s->text ? s->text : "{\"mode\":\"none\"}");
    kv_set(&sb->options, S(OPT_TEXT), str_of(sb->net->text));
    if (s)
        keep_values(sb, &s->values);
}

void network_load(struct sandbox *sb)
{
    const char *text = kv_get(&sb->options, OPT_TEXT);
    timer_init(&sb->net_later, sb->core->loop, on_later, sb);
    sb->net = network_new(sb->core, text ? text : "{\"mode\":\"none\"}");
    load_ca(sb, sb->net);
}

void network_ended(struct sandbox *sb)
{
    timer_stop(&sb->net_later);
    secrets_of_sandbox_drop(sb->core, sb->id);
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
    const struct { const char *text, *whose; } all[] = {{sb->core->cfg.ceiling, "operator's ceiling"}, {t ? t->ceiling : NULL, "operator's ceiling for this tenant"}};
    const char *mode = NULL;
    int least = POLICY_OPEN;
    struct err e;
    for (size_t i = 0; i < 2 && network_mode(sb) != POLICY_NONE; i++) {
        struct policy *p = all[i].text ? policy_parse(all[i].text, strlen(all[i].text), POLICY_CEILING, &e) : NULL;
        if (p && (int)policy_mode(p) < least) {
            least = (int)policy_mode(p);
            mode = policy_mode_name(policy_mode(p)); /* a constant */
            *ret_whose = all[i].whose;
        } else if (p && !mode && policy_denies(p)) {
            mode = "open, less what it denies";
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
        (void)snprintf(say, NETWORK_LIMITED_TEXT, "the %s (mode %s) applies as well: what it does not allow stays closed", whose, mode);
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

void network_put(struct jw *w, const struct sandbox *sb)
{
    struct err e;
    auto_json obj = json_parse_obj(sb->net->text, strlen(sb->net->text), &e);
    char say[NETWORK_LIMITED_TEXT];
    jw_obj(w);
    for (void *it = obj ? json_first(obj) : NULL; it; it = json_next(obj, it)) {
        auto_buf text = {0};
        json_dump(json_iter_value(obj, it), &text);
        jw_key_str(w, json_iter_key(it));
        jw_raw(w, (struct str){text.p, text.n});
    }
    put_leads_to(w, sb);
    if (network_limited(sb, say))
        jw_kv_str(w, "limited", say);
    jw_end(w);
}

/* ---- in force ------------------------------------------------------------------------------------------------------- */

static void to_gate(struct sandbox *sb, struct network *n, egress_cb *cb, void *arg)
{
    auto_buf text = {0};
    gate_form(sb->core, n, true, &text);
    struct egress_box b = {.box = sb->box_id, .sandbox = sb->id, .tenant = sandbox_tenant(sb), .policy = {text.p, text.n}, .ca_cert = str_of(n->ca_cert), .ca_key = str_of(n->ca_key)};
    egress_put(sb->core, &b, cb, arg);
}

static void on_later(void *arg)
{
    struct sandbox *sb = arg;
    if (sb->box && sb->box->phase == BOX_LIVE)
        to_gate(sb, sb->net, NULL, NULL);
}

/* Two things at once: the box is configured, the gate takes it on. */
struct joint { struct core *core; char id[22]; box_cb *cb; void *arg; bool box_pending, gate_pending, told, creating; struct box *box; struct err err; };

static void joint_tell(struct joint *j, const struct err *e)
{
    if (j->told)
        return;
    j->told = true;
    j->cb(j->arg, j->box, e);
}

static void trusted(void *arg, const struct err *e)
{
    struct joint *j = arg;
    joint_tell(j, e);
    free(j);
}

static void joint_step(struct joint *j)
{
    struct sandbox *sb = map_get(&j->core->sandboxes, j->id);
    if (j->box_pending || j->gate_pending)
        return;
    bool alive = sb && sb->box && sb->box == j->box && sb->box->agent;
    if (!j->err.code && !j->told && j->creating && alive && sb->net->ca_cert) {
        if (!trust_install(sb->box->agent, sb->net->ca_cert, trusted, j, &j->err))
            return;
    }
    joint_tell(j, j->err.code ? &j->err : NULL);
    sb = map_get(&j->core->sandboxes, j->id);
    if (!j->err.code && sb && sb->box && network_mode(sb) == POLICY_NONE)
        timer_arm(&sb->net_later, LATER_NS);
    free(j);
}

static void joint_box(void *arg, struct box *b, const struct err *e)
{
    struct joint *j = arg;
    j->box_pending = false;
    j->box = b;
    if (e) { /* who asked must hear of it while the box is still there */
        j->err = *e;
        joint_tell(j, e);
    }
    joint_step(j);
}

static void joint_gate(void *arg, const struct err *e, uint64_t cut)
{
    struct joint *j = arg;
    (void)cut;
    j->gate_pending = false;
    if (e && !j->err.code) {
        j->err = *e;
        err_wrap(&j->err, "network");
    }
    joint_step(j);
}

static void begin(void *arg, const struct err *e)
{
    struct joint *j = arg;
    struct sandbox *sb = map_get(&j->core->sandboxes, j->id);
    struct err why = {0};
    if (e)
        why = *e;
    else if (!sb || !sb->box || sb->box->removing)
        err_set(&why, E_CANCELED, "it was removed meanwhile");
    else if (need_ca(sb, sb->net, &why))
        (void)err_wrap(&why, "network");
    if (why.code) {
        j->box = sb ? sb->box : NULL;
        joint_tell(j, &why);
        free(j);
        return;
    }
    j->creating = sb->state == SB_CREATING || sandbox_rolling_back(sb);
    j->box_pending = true;
    if (network_mode(sb) != POLICY_NONE) {
        j->gate_pending = true;
        to_gate(sb, sb->net, joint_gate, j);
    }
    sandbox_configure_box(sb, joint_box, j);
}

void sandbox_configure(struct sandbox *sb, box_cb *cb, void *arg)
{
    struct joint *j = xcalloc(1, sizeof *j);
    *j = (struct joint){.core = sb->core, .cb = cb, .arg = arg};
    memcpy(j->id, sb->id, sizeof j->id);
    if (!sb->net->npresets) {
        begin(j, NULL);
        return;
    }
    presets_load(sb->core, (const char *const *)sb->net->preset, sb->net->npresets, begin, j);
}

/* ---- a live change -------------------------------------------------------------------------------------------------- */

struct change { struct core *core; char id[22]; struct network *next; struct kv values; network_cb *cb; void *arg; bool env; };

static void change_over(struct change *g, const struct err *e, uint64_t cut)
{
    struct sandbox *sb = map_get(&g->core->sandboxes, g->id);
    if (sb)
        sb->net_changing = false;
    g->cb(g->arg, e, cut);
    network_delete(g->next);
    for (size_t i = 0; i < g->values.n; i++)
        explicit_bzero(g->values.at[i].v, strlen(g->values.at[i].v));
    kv_free(&g->values);
    free(g);
}

static bool is_live(const struct sandbox *sb) { return sb->box && sb->box->phase == BOX_LIVE && sb->state == SB_RUNNING; }

static void keep(struct change *g, struct sandbox *sb)
{
    network_delete(sb->net);
    sb->net = take_ptr(&g->next);
    kv_set(&sb->options, S(OPT_TEXT), str_of(sb->net->text));
    sandbox_store(sb, NULL, NULL);
    auto_buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    network_put(&w, sb);
    event_emit(sb->core, "network.policy", sb->id, b.p);
}

static void change_env_set(void *arg, struct box *b, const struct err *e)
{
    (void)arg, (void)b;
    if (e)
        log_warn("network: the sandbox's environment: %s", e->msg);
}

static void change_in_force(void *arg, const struct err *e, uint64_t cut)
{
    struct change *g = arg;
    struct sandbox *sb = map_get(&g->core->sandboxes, g->id);
    struct err gone;
    if (!sb) {
        err_set(&gone, E_GONE, "the sandbox ended meanwhile");
        change_over(g, &gone, 0);
        return;
    }
    /* closing needs nobody: without a gate nothing leaves anyway */
    bool closes = e && e->code == E_UNAVAILABLE && policy_mode(g->next->policy) == POLICY_NONE;
    if (e && !closes) {
        if (is_live(sb) && e->code != E_CANCELED)
            to_gate(sb, sb->net, NULL, NULL); /* what was in force stays so */
        change_over(g, e, 0);
        return;
    }
    keep(g, sb);
    if (g->env && is_live(sb))
        sandbox_tell_identity(sb, change_env_set, NULL);
    change_over(g, NULL, cut);
}

static void change_trusted(void *arg, const struct err *e)
{
    struct change *g = arg;
    struct sandbox *sb = map_get(&g->core->sandboxes, g->id);
    struct err gone;
    if (!e && (!sb || !is_live(sb))) {
        err_set(&gone, E_GONE, "the sandbox ended meanwhile");
        e = &gone;
    }
    if (e) {
        change_over(g, e, 0);
        return;
    }
    keep_values(sb, &g->values);
    to_gate(sb, g->next, change_in_force, g);
}

static void change_begin(void *arg, const struct err *e)
{
    struct change *g = arg;
    struct sandbox *sb = map_get(&g->core->sandboxes, g->id);
    struct err why = {0};
    if (e)
        why = *e;
    else if (!sb || sb->state == SB_GONE || sb->state == SB_STOPPING || sb->state == SB_FAILED)
        err_set(&why, E_GONE, "the sandbox ended meanwhile");
    bool had = sb && g->next->ca_cert;
    if (why.code || need_ca(sb, g->next, &why)) {
        change_over(g, &why, 0);
        return;
    }
    if (!is_live(sb)) { /* paused: it counts when it wakes up */
        keep_values(sb, &g->values);
        keep(g, sb);
        change_over(g, NULL, 0);
        return;
    }
    g->env = g->next->npresets || (g->next->ca_cert && !had);
    if (!g->next->ca_cert || had)
        change_trusted(g, NULL);
    else if (trust_install(sb->box->agent, g->next->ca_cert, change_trusted, g, &why))
        change_over(g, &why, 0);
}

int network_set(struct sandbox *sb, const struct network_spec *s, network_cb *cb, void *arg, struct err *e)
{
    if (sb->state != SB_RUNNING && sb->state != SB_PAUSED)
        return err_set(e, sb->state == SB_GONE ? E_NOT_FOUND : E_CONFLICT, "sandbox %s is %s", sb->id, state_name(sb->state));
    if (sb->net_changing)
        return err_set(e, E_CONFLICT, "another change of this sandbox's network is under way");
    struct change *g = xcalloc(1, sizeof *g);
    *g = (struct change){.core = sb->core, .cb = cb, .arg = arg, .next = network_new(sb->core, s->text)};
    memcpy(g->id, sb->id, sizeof g->id);
    kv_copy(&g->values, &s->values);
    load_ca(sb, g->next);
    sb->net_changing = true;
    timer_stop(&sb->net_later);
    presets_load(sb->core, (const char *const *)g->next->preset, g->next->npresets, change_begin, g);
    return 0;
}
