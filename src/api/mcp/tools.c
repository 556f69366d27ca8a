/* Tools: which there are, how they are shown, and what happens before each of them begins. */
#include "api/mcp/args.h"
#include "api/mcp/mcp.h"
#include "api/mcp/tools_text.h"
#include "base/clock.h"
#include "core/catalog/template.h"
#include "core/core.h"
#include "core/life/pause.h"
#include "core/network/network.h"
#include <stdio.h>
#include <stdlib.h>

static const struct tool table[] = {
    {"run_code", tool_run_code, TOOL_BOX},
    {"run_command", tool_run_command, TOOL_BOX},
    {"read_process", tool_read_process, TOOL_ALONE},
    {"stop_process", tool_stop_process, TOOL_ALONE},
    {"read_file", tool_read_file, TOOL_BOX},
    {"write_file", tool_write_file, TOOL_BOX},
    {"edit_file", tool_edit_file, TOOL_BOX},
    {"list_files", tool_list_files, TOOL_BOX},
    {"create_sandbox", tool_create_sandbox, TOOL_ALONE},
    {"list_sandboxes", tool_list_sandboxes, TOOL_ALONE},
    {"kill_sandbox", tool_kill_sandbox, TOOL_ALONE},
    {"expose_port", tool_expose_port, TOOL_BOX},
    {"snapshot_sandbox", tool_snapshot_sandbox, TOOL_BOX},
    {"fork_sandbox", tool_fork_sandbox, TOOL_BOX},
    {"restore_sandbox", tool_restore_sandbox, TOOL_ALONE},
    {"upload_file", tool_upload_file, TOOL_BOX},
    {"download_file", tool_download_file, TOOL_BOX},
    {"set_network", tool_set_network, TOOL_BOX},
    {"read_egress", tool_read_egress, TOOL_BOX},
};
#define NTOOLS (sizeof table / sizeof *table)

/* ---- definitions ---- */
void tools_load(struct mcp *m)
{
    struct err e;
    m->tools = json_parse_obj(mcp_tools_text, strlen(mcp_tools_text), &e);
    if (!m->tools)
        abort(); /* it is part of the program */
}

struct json *tool_definition(struct mcp *m, const char *name)
{
    struct json *all = json_get(m->tools, "tools");
    struct str s;
    for (size_t i = 0; i < json_len(all); i++)
        if (!json_str(json_at(all, i), "name", &s, true, NULL) && str_eqz(s, name))
            return json_at(all, i);
    return NULL;
}

static const struct tool *find_tool(struct str name)
{
    for (size_t i = 0; i < NTOOLS; i++)
        if (str_eqz(name, table[i].name))
            return &table[i];
    return NULL;
}

/* ---- profiles: minimal < standard < full, or names ---- */
static int rank(struct str s)
{
    return str_eqz(s, "minimal") ? 0 : str_eqz(s, "standard") ? 1 : str_eqz(s, "full") ? 2 : -1;
}

static bool next_name(const char **p, struct str *ret)
{
    size_t n = strcspn(*p, ",");
    *ret = str_trim((struct str){*p, n});
    bool any = **p;
    *p += n + ((*p)[n] == ',');
    return any;
}

int tools_profile_ok(struct mcp *m, const char *text, struct err *e)
{
    struct str one;
    (void)m;
    if (rank(str_of(text)) >= 0)
        return 0;
    for (const char *p = text; next_name(&p, &one);)
        if (!find_tool(one))
            return err_set(e, E_INVALID,
                           "tools: '%.*s' is not minimal, standard, full or the name of a tool",
                           (int)(one.n > 40 ? 40 : one.n), one.p);
    return 0;
}

static bool offered(const struct post *p, struct mcp *m, const char *name)
{
    struct str set = {0}, one;
    int want = p->tools ? rank(str_of(p->tools)) : 1;
    if (want < 0) {
        for (const char *q = p->tools; next_name(&q, &one);)
            if (str_eqz(one, name))
                return true;
        return false;
    }
    (void)json_str(tool_definition(m, name), "set", &set, true, NULL); /* each has one */
    return rank(set) <= want;
}

static void put_definition(struct jw *w, struct json *def, enum mcp_version v)
{
    jw_obj(w);
    for (void *it = json_first(def); it; it = json_next(def, it)) {
        struct str key = json_iter_key(it);
        if (str_eqz(key, "set") ||
            (v < MCP_2025_06_18 && (str_eqz(key, "title") || str_eqz(key, "outputSchema"))) ||
            (v < MCP_2025_03_26 && str_eqz(key, "annotations")))
            continue;
        jw_key_str(w, key);
        jw_json(w, json_iter_value(def, it));
    }
    jw_end(w);
}

void tools_list(struct mcall *k)
{
    struct str one;
    const char *names = k->post->tools;
    if (json_has(k->params, "cursor")) {
        mcall_errorf(k, RPC_PARAMS, "cursor: there is only one page");
        return;
    }
    struct jw *w = mcall_result(k);
    jw_kv_arr(w, "tools");
    if (names && rank(str_of(names)) < 0) { /* in the order that was asked for */
        for (const char *p = names; next_name(&p, &one);)
            put_definition(w, tool_definition(k->m, find_tool(one)->name), k->version);
    } else {
        for (size_t i = 0; i < NTOOLS; i++)
            if (offered(k->post, k->m, table[i].name))
                put_definition(w, tool_definition(k->m, table[i].name), k->version);
    }
    jw_end(w);
    mcall_cache(k, w, true);
    mcall_result_send(k);
}

/* ---- a call ---- */
void tools_call(struct mcall *k)
{
    struct str name = {0};
    struct err e;
    if (json_str(k->params, "name", &name, true, NULL)) {
        mcall_errorf(k, RPC_PARAMS, "name: missing, or not a string");
        return;
    }
    k->tool = find_tool(name);
    if (!k->tool || !offered(k->post, k->m, k->tool->name)) {
        mcall_errorf(k, RPC_PARAMS, "unknown tool '%.*s'", (int)(name.n > 60 ? 60 : name.n),
                     name.p);
        return;
    }
    k->args = json_get(k->params, "arguments");
    if (k->args && json_kind(k->args) != JSON_OBJ) {
        mcall_errorf(k, RPC_PARAMS, "arguments must be an object");
        return;
    }
    k->schema = json_get(tool_definition(k->m, k->tool->name), "inputSchema");
    if (args_check(k->schema, k->args, &e)) {
        mcall_refuse(k, "%s: %s.", k->tool->name, e.msg);
        return;
    }
    post_may_stream(k->post, k->progress != NULL);
    if (k->tool->needs == TOOL_BOX)
        tool_with_sandbox(k);
    else
        k->tool->fn(k, NULL);
}

/* ---- the way to a sandbox ---- */
static void sandbox_awake(void *arg, struct sandbox *sb, const struct err *e)
{
    struct mcall *k = arg;
    if (!mcall_back(k))
        return;
    if (!sb) {
        mcall_fail(k, e, ABOUT_STATE);
        return;
    }
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    k->tool->fn(k, sb);
}

/* ---- waiting for one that somebody else is creating ---- */
struct waiting {
    struct list link;
    struct mcall *k; /* held */
    char id[22];
};
static void go_on_with(struct mcall *k, struct sandbox *sb);

static void wait_created(struct mcall *k, const struct sandbox *sb)
{
    struct waiting *w = xcalloc(1, sizeof *w);
    w->k = k;
    memcpy(w->id, sb->id, sizeof w->id);
    list_add_tail(&k->m->waiting, &w->link);
    mcall_hold(k);
}

/* Some sandbox changed: whoever waited for it goes on. */
void tools_look(void *arg)
{
    struct mcp *m = arg;
    struct waiting *w;
    struct err e;
    list_each(w, &m->waiting, link) {
        struct mcall *k = w->k;
        struct sandbox *sb = sandbox_find(m->core, w->id, &e);
        if (sb && sb->state == SB_CREATING)
            continue;
        list_del(&w->link);
        free(w);
        if (!mcall_back(k))
            continue;
        if (sb)
            go_on_with(k, sb);
        else
            mcall_fail(k, &e, ABOUT_SANDBOX);
    }
}

void tools_stop(struct mcp *m)
{
    struct waiting *w;
    list_each(w, &m->waiting, link) {
        list_del(&w->link);
        (void)mcall_back(w->k); /* it was cancelled with its session or stream */
        free(w);
    }
}

static void go_on_with(struct mcall *k, struct sandbox *sb)
{
    struct err e;
    if (sb->state > SB_PAUSED) {
        err_why(&e, REASON_ENDED, E_GONE, "Sandbox %s has ended%s%s", sb->id,
                sb->end_message ? ": " : "", sb->end_message ? sb->end_message : "");
        mcall_fail(k, &e, ABOUT_SANDBOX);
        return;
    }
    if (sb->state == SB_CREATING) {
        wait_created(k, sb);
        return;
    }
    memcpy(k->sandbox, sb->id, sizeof k->sandbox);
    if (sb->state == SB_RUNNING && !sandbox_busy(sb)) {
        k->tool->fn(k, sb);
        return;
    }
    mcall_hold(k);
    sandbox_wake(sb, sandbox_awake, k);
}

/* A sandbox that a call made, and those that came meanwhile and want the same one. */
struct making {
    struct mcp *m;
    struct mcall *k;              /* held until it is back */
    char session[MCP_SESSION_ID]; /* "": of no session */
};

static void sandbox_made(void *arg, struct sandbox *sb, const struct err *e)
{
    struct making *g = arg;
    struct mcall *k = g->k;
    struct session *ss = *g->session ? map_get(&g->m->sessions, g->session) : NULL;
    bool bound = *g->session || (sb && sb->name);
    mcp_unref(g->m);
    free(g);
    if (ss && sb)
        memcpy(ss->sandbox, sb->id, sizeof ss->sandbox);
    if (!mcall_back(k)) { /* cancelled: one that can be found again stays */
        if (sb && !bound)
            (void)sandbox_kill(sb, END_KILLED, "the call that made it was cancelled", NULL, NULL,
                               NULL);
        return;
    }
    if (!sb) {
        mcall_fail(k, e, e->code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_SANDBOX);
        return;
    }
    k->sandbox_made = true;
    go_on_with(k, sb);
}

/* HUTCH_MCP_TEMPLATE, else code-interpreter if it is built, else base. */
static const char *default_template(struct mcall *k)
{
    const char *set = core_config(k->m->core)->mcp_template;
    if (k->post->template)
        return k->post->template;
    if (*set)
        return set;
    return template_find(k->m->core, "code-interpreter", NULL) ? "code-interpreter" : "base";
}

#define HOUR 3600u
/* How long one lives that nobody asked for: a session's until it is idle for an hour, one with a
 * name then sleeps and can be found again for a week, a modern call's for an hour at most. */
static void set_lease(struct mcall *k, struct sandbox_spec *sp)
{
    uint32_t longest = core_config(k->m->core)->max_timeout_s, day = 24 * HOUR;
    sp->timeout_s = longest < day ? longest : day;
    sp->idle_s = HOUR;
    if (sp->name) {
        sp->on_timeout = sp->on_idle = ON_TIMEOUT_PAUSE;
        sp->auto_resume = true;
        sp->lifetime_s = 7 * day;
    } else if (!k->ss) {
        sp->timeout_s = longest < HOUR ? longest : HOUR;
        sp->idle_s = 600;
    }
}

static void make_sandbox(struct mcall *k, const char *name)
{
    struct err e;
    struct network_spec net;
    struct caller who = mcall_caller(k);
    struct sandbox_spec sp = {.name = name, .template = default_template(k), .by = &who};
    if (network_parse(k->m->core, &who, k->post->tenant, NULL, &net, &e)) {
        mcall_fail(k, &e, ABOUT_NETWORK);
        return;
    }
    struct making *g = xcalloc(1, sizeof *g);
    g->m = mcp_ref(k->m), g->k = k;
    sp.tenant = k->post->tenant;
    sp.network = &net;
    set_lease(k, &sp);
    if (k->ss && !name) {
        (void)snprintf(g->session, sizeof g->session, "%s", k->ss->id);
        kv_set(&sp.kept.dialect, S(OPT_MCP_SESSION), str_of(k->ss->id));
    }
    mcall_hold(k);
    int rc = sandbox_create(k->m->core, &sp, sandbox_made, g, &e);
    kept_free(&sp.kept);
    network_spec_free(&net);
    if (rc)
        mcp_unref(g->m), free(g);
    mcall_settle(k, rc, &e, rc && e.code == E_NOT_FOUND ? ABOUT_TEMPLATE : ABOUT_SANDBOX);
}

void tool_with_sandbox(struct mcall *k)
{
    struct err e = {0};
    struct str named = args_str(k->schema, k->args, "sandbox");
    struct str own = str_of(k->post->sandbox);
    struct sandbox *sb = NULL;
    if (named.n) {
        sb = mcall_sandbox(k, named, &e);
        if (!sb) {
            mcall_fail(k, &e, ABOUT_SANDBOX);
            return;
        }
    } else if (own.n) {
        sb = mcall_sandbox(k, own, &e);
        if (sb && !id_ok(own) && !mcall_owns(k, sb))
            sb = NULL; /* an administrator sees others' too: a name is one's own */
        if (!sb || sb->state > SB_PAUSED) {
            if (name_ok(own) && !id_ok(own)) {
                make_sandbox(k, own.p);
            } else {
                if (sb)
                    err_set(&e, E_GONE, "sandbox '%s' has ended", sb->id);
                mcall_fail(k, &e, ABOUT_SANDBOX);
            }
            return;
        }
    } else if (k->ss) {
        sb = session_sandbox(k->ss);
    }
    if (sb)
        go_on_with(k, sb);
    else
        make_sandbox(k, NULL);
}
