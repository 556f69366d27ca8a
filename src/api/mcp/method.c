/* What a client can ask for. */
#include "api/mcp/mcp.h"

#define INSTRUCTIONS \
    "Isolated Linux sandboxes. Files and interpreter state persist between calls in one sandbox; " \
    "pass its id as `sandbox`. Long commands return process_id; use read_process."

/* ---- saying who we are ---- */
static void put_capabilities(struct jw *w, bool legacy)
{
    jw_kv_obj(w, "capabilities");
    jw_kv_obj(w, "tools");
    jw_end(w);
    jw_kv_obj(w, "resources");
    jw_kv_bool(w, "subscribe", true);
    jw_kv_bool(w, "listChanged", true);
    jw_end(w);
    if (legacy) {
        jw_kv_obj(w, "logging");
        jw_end(w);
    }
    jw_end(w);
}

static void initialize(struct mcall *k)
{
    struct str wanted = {0};
    struct post *p = k->post;
    if (json_str(k->params, "protocolVersion", &wanted, true, NULL)) {
        mcall_errorf(k, RPC_PARAMS, "protocolVersion: missing, or not a string");
        return;
    }
    int v = mcp_version_find(wanted);
    if (v < 0 || mcp_is_modern((enum mcp_version)v))
        v = MCP_2025_11_25;
    struct session *ss = session_new(k->m, p->tenant, (enum mcp_version)v);
    k->version = p->version = (enum mcp_version)v;
    (void)http_header(p->s, "Mcp-Session-Id", ss->id); /* visible ASCII, nothing is sent yet */
    struct jw *w = mcall_result(k);
    jw_kv_str(w, "protocolVersion", mcp_version_name((enum mcp_version)v));
    put_capabilities(w, true);
    jw_kv_obj(w, "serverInfo");
    jw_kv_str(w, "name", "hutch");
    if (v >= MCP_2025_06_18)
        jw_kv_str(w, "title", "Hutch sandboxes");
    jw_kv_str(w, "version", HUTCH_VERSION);
    jw_end(w);
    jw_kv_str(w, "instructions", INSTRUCTIONS);
    mcall_result_send(k);
}

static void discover(struct mcall *k)
{
    struct jw *w = mcall_result(k);
    jw_key(w, "supportedVersions");
    rpc_put_versions(w);
    put_capabilities(w, false);
    jw_kv_str(w, "instructions", INSTRUCTIONS);
    mcall_cache(k, w, true);
    mcall_result_send(k);
}

/* ---- small ones ---- */
static void nothing(struct mcall *k)
{
    (void)mcall_result(k);
    mcall_result_send(k);
}

static void set_level(struct mcall *k)
{
    static const char *const levels[] = {"debug", "info",     "notice", "warning",
                                         "error", "critical", "alert",  "emergency"};
    struct str level = {0};
    if (!json_str(k->params, "level", &level, true, NULL))
        for (int i = 0; i < 8; i++)
            if (str_eqz(level, levels[i])) {
                k->ss->level = i;
                nothing(k);
                return;
            }
    mcall_errorf(k, RPC_PARAMS,
                 "level: must be debug, info, notice, warning, error, critical, "
                 "alert or emergency");
}

static void prompts_list(struct mcall *k)
{
    struct jw *w = mcall_result(k);
    jw_kv_arr(w, "prompts");
    jw_end(w);
    mcall_cache(k, w, true);
    mcall_result_send(k);
}

static void prompts_get(struct mcall *k) { mcall_errorf(k, RPC_PARAMS, "there are no prompts"); }
static void subscribe(struct mcall *k) { resources_subscribe(k, true); }
static void unsubscribe(struct mcall *k) { resources_subscribe(k, false); }

/* ---- the table ---- */
enum { LEGACY = 1, MODERN = 2, BOTH = 3 };
static const struct {
    const char *name;
    int eras;
    void (*fn)(struct mcall *k);
} methods[] = {
    {"initialize", LEGACY, initialize},
    {"ping", LEGACY, nothing},
    {"logging/setLevel", LEGACY, set_level},
    {"resources/subscribe", LEGACY, subscribe},
    {"resources/unsubscribe", LEGACY, unsubscribe},
    {"server/discover", MODERN, discover},
    {"subscriptions/listen", MODERN, resources_listen},
    {"tools/list", BOTH, tools_list},
    {"tools/call", BOTH, tools_call},
    {"resources/list", BOTH, resources_list},
    {"resources/templates/list", BOTH, resources_templates},
    {"resources/read", BOTH, resources_read},
    {"prompts/list", BOTH, prompts_list},
    {"prompts/get", BOTH, prompts_get},
};

static int find(struct str method, enum mcp_version v)
{
    int era = mcp_is_modern(v) ? MODERN : LEGACY;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if ((methods[i].eras & era) && str_eqz(method, methods[i].name))
            return (int)i;
    return -1;
}

bool mcp_method_known(struct str method, enum mcp_version v) { return find(method, v) >= 0; }

void mcp_begin(struct mcall *k)
{
    int i = find(k->method, k->version);
    if (i < 0)
        mcall_errorf(k, RPC_NO_METHOD, "there is no method '%.*s'",
                     (int)(k->method.n > 80 ? 80 : k->method.n), k->method.p);
    else
        methods[i].fn(k);
}
