/* MCP at /mcp: routes and state. */
#include "api/mcp/mcp.h"
#include "base/enc.h"
#include "base/log.h"
#include "core/core.h"
#include "core/host/note.h"
#include <stdlib.h>

#define ROUTE(m, p, f, x) \
    { \
        .method = m, .pattern = p, .fn = f, .flags = x \
    }
static const struct api_route routes[] = {
    ROUTE("POST", "/mcp", mcp_post, 0),
    ROUTE("GET", "/mcp", mcp_get, ROUTE_CHANGES), /* who may only look has no session */
    ROUTE("DELETE", "/mcp", mcp_delete, 0),
    ROUTE("PUT", "/mcp/files/{link}", mcp_upload, ROUTE_OPEN),   /* the URL is sealed */
    ROUTE("GET", "/mcp/files/{link}", mcp_download, ROUTE_OPEN), /* likewise */
    ROUTE("GET", "/.well-known/{what}", mcp_oauth, ROUTE_OPEN),
    ROUTE("GET", "/.well-known/{what}/{rest*}", mcp_oauth, ROUTE_OPEN),
};

struct mcp *mcp_of(struct api *a) { return api_state(a, &mcp_dialect); }

struct mcp *mcp_ref(struct mcp *m)
{
    m->refs++;
    return m;
}
void mcp_unref(struct mcp *m)
{
    if (!--m->refs)
        free(m);
}

/* Also what SDKs ask for after a 401, to find an authorization server. */
static bool claims(struct api *a, struct http_stream *s)
{
    (void)a;
    struct str p = http_path(s);
    return str_eqz(p, "/mcp") || str_starts(p, "/mcp/") || str_starts(p, "/.well-known/oauth-") ||
           str_starts(p, "/.well-known/openid-");
}

static void *start(struct api *a)
{
    struct err e;
    struct mcp *m = xcalloc(1, sizeof *m);
    m->api = a;
    m->refs = 1;
    m->core = api_core(a);
    m->loop = core_loop(m->core);
    list_init(&m->listeners), list_init(&m->process_order), list_init(&m->artifacts);
    list_init(&m->waiting);
    if (core_keyfile(m->core, "mcp.key", m->key, &e)) {
        log_warn("sessions of MCP clients will not survive a restart: %s", e.msg);
        random_bytes(m->key, sizeof m->key);
    }
    tools_load(m);
    sessions_start(m);
    resources_start(m);
    return m;
}

static void stop(void *state)
{
    struct mcp *m = state;
    resources_stop(m);
    sessions_stop(m);
    tools_stop(m);
    processes_stop(m);
    map_free(&m->used_links);
    json_free(m->tools);
    m->tools = NULL;
    mcp_unref(m);
}

const struct dialect mcp_dialect = {
    .name = "mcp",
    .claims = claims,
    .routes = routes,
    .nroutes = sizeof routes / sizeof *routes,
    .fail = mcp_fail,
    .start = start,
    .stop = stop,
};
