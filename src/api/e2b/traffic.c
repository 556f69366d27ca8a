/* E2B's own ways to name a port of a sandbox, beside the host name that previews have: the headers
 * E2b-Sandbox-Id and E2b-Sandbox-Port, and for /files the signature. Headers are believed only on
 * hosts that cannot be a user's page: localhost, an address, sandbox.*, and the names the operator
 * gave this daemon. */
#include "api/cors.h"
#include "api/e2b/access.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/preview/preview.h"
#include <stdio.h>

bool e2b_host_trusted(struct str authority)
{
    struct str h = gate_host_part(authority);
    return gate_host_literal(h) || str_ieqz(h, "localhost") ||
           (h.n > 8 && str_ieqz((struct str){h.p, 8}, "sandbox."));
}

static bool ours(struct api *a, struct http_stream *s)
{
    struct str host = http_head(s)->host;
    return e2b_host_trusted(host) || gate_host_ok(core_config(api_core(a)), host);
}

static bool marked(struct http_stream *s)
{
    return http_req_header(s, "E2b-Sandbox-Id").p || http_req_header(s, "E2b-Sandbox-Port").p;
}

/* A browser asks before it sends our headers, and cannot send them along with the question. */
static bool asks_first(struct http_stream *s)
{
    struct str ask = http_req_header(s, "Access-Control-Request-Headers");
    return cors_asks(s) && ask.n && memmem(ask.p, ask.n, "e2b-sandbox-id", 14);
}

/* A signed URL of /files, or the question before one, without a sandbox in its name. */
static bool is_signed(struct http_stream *s)
{
    return e2b_is_files(s) || (str_eqz(http_path(s), "/files") && http_is(s, "OPTIONS"));
}

bool e2b_claims(struct api *a, struct http_stream *s)
{
    return marked(s) || e2b_path(http_path(s)) || ((asks_first(s) || is_signed(s)) && ours(a, s));
}

static int by_headers(struct http_stream *s, struct preview_target *t)
{
    struct str id = http_req_header(s, "E2b-Sandbox-Id"),
               port = http_req_header(s, "E2b-Sandbox-Port");
    uint64_t n;
    if (!id.p || !port.p) {
        e2b_problem(s, 400, "missing header");
        return -1;
    }
    if (!str_u64(port, &n) || !n || n > 65535) {
        e2b_problem(s, 400, "Invalid sandbox port");
        return -1;
    }
    (void)snprintf(t->id, sizeof t->id, "%.*s", (int)(id.n < sizeof t->id ? id.n : 0), id.p);
    if (!preview_id_ok(t->id)) {
        e2b_problem(s, 400, "Invalid sandbox ID");
        return -1;
    }
    t->port = (unsigned)n;
    return 0;
}

/* Whose token signed it says whose it is. */
void e2b_signed_files(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct preview_target t = {.port = E2B_PORT_ENVD};
    if (http_is(s, "OPTIONS")) {
        cors_preflight(s);
        return;
    }
    const struct sandbox *sb = e2b_signer(a, s);
    auto_buf signature = {0};
    if (sb) {
        (void)snprintf(t.id, sizeof t.id, "%s", sb->id);
        preview_deliver(a, s, &t, false);
    } else {
        e2b_problem(s, 401,
                    http_query_get(s, "signature", &signature)
                        ? "invalid signature"
                        : "missing signature query parameter");
    }
}

/* Hosts that name a sandbox are not here any more: previews claimed them. */
bool e2b_serve(struct api *a, struct http_stream *s)
{
    struct preview_target t = {0};
    if (marked(s)) {
        if (!ours(a, s))
            e2b_problem(s, 400, "Invalid host");
        else if (!by_headers(s, &t))
            preview_deliver(a, s, &t, true);
        return true;
    }
    if (!ours(a, s) || !(asks_first(s) || is_signed(s)))
        return false;
    if (is_signed(s))
        e2b_signed_files(s, a);
    else
        cors_preflight(s);
    return true;
}
