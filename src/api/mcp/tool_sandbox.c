/* Sandboxes and their states: create, list, kill, expose_port, snapshot, fork, restore. */
#include "api/mcp/args.h"
#include "api/mcp/mcp.h"
#include "api/params.h"
#include "api/render.h"
#include "base/cleanup.h"
#include "core/catalog/snapshot.h"
#include "core/core.h"
#include "core/life/fork.h"
#include "core/network/network.h"
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 1000
#define LIFE_S   3600u /* of one that names none */

/* ---- how a sandbox is shown ---- */
void tool_put_sandbox(struct jw *w, const struct sandbox *sb)
{
    static const char *const modes[] = {
        [POLICY_NONE] = "none", [POLICY_ALLOW] = "allow", [POLICY_OPEN] = "open"};
    jw_kv_str(w, "id", sb->id);
    if (sb->name)
        jw_kv_str(w, "name", sb->name);
    jw_kv_str(w, "state", state_name(sb->state));
    if (sb->template_name)
        jw_kv_str(w, "template", sb->template_name);
    if (sb->tier && (!strcmp(sb->tier->name, "vm") || !strcmp(sb->tier->name, "container")))
        jw_kv_str(w, "isolation", sb->tier->name);
    jw_kv_str(w, "network", modes[network_mode(sb)]);
    if (sb->created_ns)
        put_time(w, "created_at", sb->created_ns);
    if (sb->expires_ns && sb->state != SB_PAUSED)
        put_time(w, "expires_at", sb->expires_ns);
}

static void put_object(struct jw *w, const struct sandbox *sb)
{
    jw_obj(w);
    tool_put_sandbox(w, sb);
    jw_end(w);
}

static void answer_sandbox(struct mcall *k, const struct sandbox *sb, const char *what, int created)
{
    mcall_textf(k, "[%s] %s%s%s: %s, template %s%s.", sb->id, what, sb->name ? " " : "",
                sb->name ? sb->name : "", state_name(sb->state), sb->template_name,
                sb->tier ? "" : "");
    struct jw *w = mcall_structured(k);
    tool_put_sandbox(w, sb);
    if (created >= 0)
        jw_kv_bool(w, "created", created);
    mcall_done(k);
}

/* ---- policies ---- */
/* {"mode":…,"allow":[…],"presets":[…]} of core, out of ours: "@pip" names a preset. */
static int read_network(struct mcall *k, const char *tenant, const char *key,
                        struct network_spec *ret, struct err *e)
{
    struct str mode = args_str(k->schema, k->args, key), one;
    struct json *allow = json_get(k->args, "allow");
    auto_buf text = {0};
    struct jw w;
    struct caller who = mcall_caller(k);
    if (!mode.p && !allow)
        return network_parse(k->m->core, &who, tenant, NULL, ret, e);
    if (allow && mode.p && !str_eqz(mode, "allow"))
        return err_set(e, E_INVALID, "allow: only with %s \"allow\"", key);
    jw_init(&w, &text);
    jw_obj(&w);
    jw_kv_str(&w, "mode", mode.p ? mode.p : "allow");
    jw_kv_arr(&w, "allow");
    for (size_t i = 0; i < json_len(allow); i++)
        if (!json_to_str(json_at(allow, i), &one, NULL) && *one.p != '@')
            jw_str(&w, one);
    jw_end(&w);
    jw_kv_arr(&w, "presets");
    for (size_t i = 0; i < json_len(allow); i++)
        if (!json_to_str(json_at(allow, i), &one, NULL) && *one.p == '@')
            jw_strz(&w, one.p + 1);
    jw_end(&w);
    jw_end(&w);
    auto_json j = json_parse_obj(text.p, text.n, e);
    return j ? network_parse(k->m->core, &who, tenant, j, ret, e) : -1;
}

/* ---- create_sandbox ---- */
static void sandbox_created(void *arg, struct sandbox *sb, const struct err *e)
{
    struct mcall *k = arg;
    if (!mcall_back(k)) {
        if (sb && !sb->name) /* nobody knows its id */
            (void)sandbox_kill(sb, END_KILLED, "the call that made it was cancelled", NULL, NULL,
                               NULL);
        return;
    }
    if (!sb) {
        mcall_fail(k, e, e->code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_SANDBOX);
        return;
    }
    resources_changed(k->m, k->post->tenant);
    answer_sandbox(k, sb, "Created", true);
}

static int read_spec(struct mcall *k, struct sandbox_spec *sp, struct network_spec *net,
                     enum about *about, struct err *e)
{
    struct str snapshot = args_str(k->schema, k->args, "snapshot");
    struct str tier = args_str(k->schema, k->args, "isolation");
    uint32_t longest = core_config(k->m->core)->max_timeout_s;
    double life = args_num(k->schema, k->args, "timeout_s", longest < LIFE_S ? longest : LIFE_S);
    sp->template = args_str(k->schema, k->args, "template").p;
    sp->name = args_str(k->schema, k->args, "name").p;
    sp->tenant = k->post->tenant;
    sp->cpu_millis = (uint32_t)(args_num(k->schema, k->args, "cpu", 0) * 1000 + 0.5);
    sp->memory_mib = (uint32_t)args_num(k->schema, k->args, "memory_mib", 0);
    sp->timeout_s = (uint32_t)life;
    sp->idle_s = (uint32_t)args_num(k->schema, k->args, "idle_timeout_s", 0);
    sp->network = net;
    *about = ABOUT_REQUEST;
    if (sp->name && !name_ok(str_of(sp->name)))
        return err_set(e, E_INVALID, "name: must match [a-z0-9][a-z0-9-]{0,62}");
    if (tier.p && !(sp->tier = tier_find(tier.p)))
        return err_set(e, E_INVALID, "isolation: this daemon has no '%s'", tier.p);
    if (snapshot.p && sp->template)
        return err_set(e, E_INVALID,
                       "template: cannot be combined with snapshot, which has its own");
    *about = ABOUT_SNAPSHOT;
    if (snapshot.p && !(sp->from = mcall_snapshot(k, snapshot, e)))
        return -1;
    *about = ABOUT_NETWORK;
    if (read_network(k, k->post->tenant, "network", net, e))
        return -1;
    *about = ABOUT_REQUEST;
    return body_env(k->args, "env", &sp->env, e);
}

void tool_create_sandbox(struct mcall *k, struct sandbox *none)
{
    struct err e;
    enum about about;
    struct network_spec net = {0};
    struct caller who = mcall_caller(k);
    struct sandbox_spec sp = {.by = &who};
    struct str name = args_str(k->schema, k->args, "name");
    struct sandbox *living = name_ok(name) ? mcall_sandbox(k, name, NULL) : none;
    if (living && living->state <= SB_PAUSED && mcall_owns(k, living)) {
        answer_sandbox(k, living, "Exists already", false);
        return;
    }
    if (read_spec(k, &sp, &net, &about, &e)) {
        mcall_fail(k, &e, about);
    } else {
        mcall_hold(k);
        int rc = sandbox_create(k->m->core, &sp, sandbox_created, k, &e);
        mcall_settle(k, rc, &e, rc && e.code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_SANDBOX);
    }
    kv_free(&sp.env);
    network_spec_free(&net);
}

/* ---- list_sandboxes ---- */
static size_t list_own(struct mcall *k, struct sandbox **ret)
{
    bool more;
    struct caller who = mcall_caller(k);
    struct sandbox_filter f = {.who = &who};
    size_t n = 0, all = sandbox_list(k->m->core, &f, ret, LIST_MAX, &more, NULL);
    for (size_t i = 0; all <= LIST_MAX && i < all; i++)
        if (mcall_sees(k, sandbox_tenant(ret[i])))
            ret[n++] = ret[i];
    return n;
}

static void put_snapshots(struct mcall *k, struct jw *w, struct buf *text)
{
    auto_free struct snapshot **sn = xcalloc(LIST_MAX, sizeof(struct snapshot *));
    bool more;
    size_t n = snapshot_list(
        k->m->core, &(struct snapshot_filter){.limit = LIST_MAX, .whole = true}, sn, &more, NULL);
    for (size_t i = 0; n <= LIST_MAX && i < n; i++) {
        if (!mcall_sees(k, snapshot_tenant(sn[i])))
            continue;
        jw_obj(w);
        jw_kv_str(w, "id", sn[i]->id);
        if (sn[i]->name)
            jw_kv_str(w, "name", sn[i]->name);
        if (*sn[i]->sandbox)
            jw_kv_str(w, "sandbox", sn[i]->sandbox);
        put_time(w, "created_at", sn[i]->created_ns);
        jw_kv_u64(w, "bytes", sn[i]->memory_bytes + sn[i]->disk_bytes);
        jw_end(w);
        buf_printf(text, "snapshot %s%s%s of %s\n", sn[i]->id, sn[i]->name ? " " : "",
                   sn[i]->name ? sn[i]->name : "", sn[i]->sandbox);
    }
}

void tool_list_sandboxes(struct mcall *k, struct sandbox *none)
{
    auto_free struct sandbox **sb = xcalloc(LIST_MAX, sizeof(struct sandbox *));
    auto_buf text = {0};
    size_t n = list_own(k, sb);
    (void)none;
    buf_printf(&text, "%zu sandboxes\n", n);
    struct jw *w = mcall_structured(k);
    jw_kv_arr(w, "sandboxes");
    for (size_t i = 0; i < n; i++) {
        put_object(w, sb[i]);
        buf_printf(&text, "%s%s%s · %s · %s\n", sb[i]->id, sb[i]->name ? " " : "",
                   sb[i]->name ? sb[i]->name : "", state_name(sb[i]->state), sb[i]->template_name);
    }
    jw_end(w);
    jw_kv_arr(w, "snapshots");
    put_snapshots(k, w, &text);
    jw_end(w);
    mcall_text(k, (struct str){text.p, text.n});
    mcall_done(k);
}

/* ---- kill_sandbox ---- */
static void answer_gone(struct mcall *k, const char *id)
{
    mcall_textf(k, "[%s] is gone.", id);
    struct jw *w = mcall_structured(k);
    jw_kv_str(w, "id", id);
    jw_kv_str(w, "state", "gone");
    mcall_done(k);
}

static void sandbox_killed(void *arg, struct sandbox *sb, const struct err *e)
{
    struct mcall *k = arg;
    (void)sb;
    if (!mcall_back(k))
        return;
    if (e)
        mcall_fail(k, e, ABOUT_SANDBOX);
    else
        answer_gone(k, k->sandbox);
}

/* By name also one that is gone: to kill it again changes nothing. */
static struct sandbox *find_even_gone(struct mcall *k, struct str name, struct err *e)
{
    struct sandbox *hit[1], *sb = mcall_sandbox(k, name, e);
    struct sandbox_filter f = {.states = 1u << SB_GONE, .name = name.p};
    bool more;
    if (sb || !name_ok(name))
        return sb;
    size_t n = sandbox_list(k->m->core, &f, hit, 1, &more, NULL);
    return n == 1 && mcall_sees(k, sandbox_tenant(hit[0])) ? hit[0] : NULL;
}

void tool_kill_sandbox(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    sb = find_even_gone(k, args_str(k->schema, k->args, "sandbox"), &e);
    if (!sb) {
        mcall_fail(k, &e, ABOUT_SANDBOX);
        return;
    }
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    if (sb->state == SB_GONE) {
        answer_gone(k, sb->id);
        return;
    }
    mcall_hold(k);
    mcall_settle(k, sandbox_kill(sb, END_KILLED, "ended by request", sandbox_killed, k, &e), &e,
                 ABOUT_SANDBOX);
}

/* ---- expose_port ---- */
void tool_expose_port(struct mcall *k, struct sandbox *sb)
{
    unsigned port = (unsigned)args_num(k->schema, k->args, "port", 0);
    const char *token = sb->kept.preview_token;
    char url[300];
    api_preview_url(k->m->api, sb, port, url, sizeof url);
    mcall_textf(k, "[%s] Port %u is reached at %s%s%s%s%s", sb->id, port, url,
                token ? " with the header " : "", token ? api_preview_header(k->m->api) : "",
                token ? ": " : "", token ? token : "");
    struct jw *w = mcall_structured(k);
    jw_kv_str(w, "sandbox", sb->id);
    jw_kv_u64(w, "port", port);
    jw_kv_str(w, "url", url);
    if (token) {
        jw_kv_obj(w, "headers");
        jw_kv_str(w, api_preview_header(k->m->api), token);
        jw_end(w);
    }
    mcall_done(k);
}

/* ---- snapshot_sandbox, fork_sandbox, restore_sandbox ---- */
static void snapshot_taken(void *arg, struct snapshot *sn, const struct err *e)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return; /* it stays, and can be found in the list */
    if (!sn) {
        mcall_fail(k, e, ABOUT_SNAPSHOT);
        return;
    }
    uint64_t bytes = sn->memory_bytes + sn->disk_bytes;
    mcall_textf(k, "[%s] Snapshot %s%s%s, %s, %llu bytes.", k->sandbox, sn->id, sn->name ? " " : "",
                sn->name ? sn->name : "", sn->memory ? "with memory" : "files only",
                (unsigned long long)bytes);
    struct jw *w = mcall_structured(k);
    jw_kv_str(w, "snapshot", sn->id);
    if (sn->name)
        jw_kv_str(w, "name", sn->name);
    jw_kv_str(w, "sandbox", k->sandbox);
    jw_kv_u64(w, "bytes", bytes);
    mcall_done(k);
}

void tool_snapshot_sandbox(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    struct str name = args_str(k->schema, k->args, "name");
    struct snapshot_spec how = {.name = name.p,
                                .files_only = !args_bool(k->schema, k->args, "memory")};
    if (name.p && !name_ok(name)) {
        mcall_refuse(k, "name: must match [a-z0-9][a-z0-9-]{0,62}.");
        return;
    }
    mcall_hold(k);
    mcall_settle(k, snapshot_take(sb, &how, snapshot_taken, k, &e), &e, ABOUT_SNAPSHOT);
}

static void sandbox_forked(void *arg, const struct snapshot *of, const struct fork_child *child,
                           unsigned n, const struct err *e)
{
    struct mcall *k = arg;
    struct core *c = k->m->core;
    unsigned failed = 0;
    const char *why = "";
    (void)of;
    if (!mcall_back(k)) {
        fork_undo(c, child, n); /* nobody knows their ids */
        return;
    }
    if (e) {
        mcall_fail(k, e, ABOUT_SNAPSHOT);
        return;
    }
    auto_buf text = {0};
    struct jw *w = mcall_structured(k);
    jw_kv_arr(w, "sandboxes");
    for (unsigned i = 0; i < n; i++) {
        struct sandbox *sb = *child[i].id ? sandbox_find(c, child[i].id, NULL) : NULL;
        if (sb)
            put_object(w, sb), buf_printf(&text, "%s\n", sb->id);
        else
            failed++, why = child[i].err.msg;
    }
    jw_end(w);
    jw_kv_u64(w, "failed", failed);
    if (failed)
        buf_printf(&text, "%u failed: %s\n", failed, why);
    mcall_textf(k, "[%s] Copies:\n%s", k->sandbox, text.n ? text.p : "");
    resources_changed(k->m, k->post->tenant);
    mcall_done(k);
}

void tool_fork_sandbox(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    struct caller who = mcall_caller(k);
    struct fork_spec how = {.count = (unsigned)args_num(k->schema, k->args, "count", 1),
                            .by = &who};
    mcall_hold(k);
    mcall_settle(k, sandbox_fork(sb, &how, sandbox_forked, k, &e), &e, ABOUT_SNAPSHOT);
}

static void sandbox_restored(void *arg, struct sandbox *sb, const struct err *e)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    if (sb)
        answer_sandbox(k, sb, "Restored", -1);
    else
        mcall_fail(k, e, ABOUT_STATE);
}

void tool_restore_sandbox(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    sb = mcall_sandbox(k, args_str(k->schema, k->args, "sandbox"), &e);
    if (!sb) {
        mcall_fail(k, &e, ABOUT_SANDBOX);
        return;
    }
    struct snapshot *to = mcall_snapshot(k, args_str(k->schema, k->args, "snapshot"), &e);
    if (!to) {
        mcall_fail(k, &e, ABOUT_SNAPSHOT);
        return;
    }
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    mcall_hold(k);
    mcall_settle(k, sandbox_rollback(sb, to, false, sandbox_restored, k, &e), &e, ABOUT_SNAPSHOT);
}

/* ---- set_network ---- */
static void network_changed(void *arg, const struct err *e, uint64_t cut)
{
    struct mcall *k = arg;
    struct json *allow = json_get(k->over ? NULL : k->args, "allow");
    struct err gone;
    if (!mcall_back(k))
        return;
    struct sandbox *sb = mcall_own_sandbox(k, &gone);
    if (e || !sb) {
        mcall_fail(k, e ? e : &gone, ABOUT_SANDBOX);
        return;
    }
    const char *mode = args_str(k->schema, k->args, "mode").p;
    mcall_textf(k, "[%s] Network: %s; %llu connections were cut.", sb->id, mode,
                (unsigned long long)cut);
    struct jw *w = mcall_structured(k);
    jw_kv_str(w, "sandbox", sb->id);
    jw_kv_str(w, "mode", mode);
    if (allow) {
        jw_key(w, "allow");
        jw_json(w, allow);
    }
    jw_kv_u64(w, "cut", cut);
    mcall_done(k);
}

void tool_set_network(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    struct network_spec net = {0};
    if (read_network(k, sandbox_tenant(sb), "mode", &net, &e)) {
        mcall_fail(k, &e, ABOUT_NETWORK);
        return;
    }
    mcall_hold(k);
    mcall_settle(k, network_set(sb, &net, network_changed, k, &e), &e, ABOUT_SANDBOX);
    network_spec_free(&net);
}
