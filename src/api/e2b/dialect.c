/* The dialect: routes of the control plane, doors, and the state behind them. */
#include "api/e2b/access.h"
#include "api/e2b/control/catalogue.h"
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "base/enc.h"
#include <stdlib.h>

/* What the daemon serves itself of a sandbox's ports. */
static const struct door doors[] = {
    {E2B_PORT_ENVD, "envd", e2b_may_envd, e2b_envd},
    {E2B_PORT_INTERPRETER, "interpreter", e2b_may_interpreter, e2b_interpreter},
};

#define ROUTE(m, p, f, x) \
    { \
        .method = m, .pattern = p, .fn = f, .flags = x \
    }
static const struct api_route routes[] = {
    ROUTE("POST", "/sandboxes", e2b_create, 0),
    ROUTE("POST", "/v2/sandboxes", e2b_create_v2, 0),
    ROUTE("GET", "/sandboxes", e2b_list, 0),
    ROUTE("GET", "/v2/sandboxes", e2b_list_v2, 0),
    ROUTE("GET", "/sandboxes/metrics", e2b_metrics_batch, 0),
    ROUTE("GET", "/sandboxes/{id}", e2b_get, 0),
    ROUTE("DELETE", "/sandboxes/{id}", e2b_delete, 0),
    ROUTE("POST", "/sandboxes/{id}/connect", e2b_connect, 0),
    ROUTE("POST", "/v2/sandboxes/{id}/connect", e2b_connect, 0),
    ROUTE("POST", "/sandboxes/{id}/resume", e2b_resume, 0),
    ROUTE("POST", "/sandboxes/{id}/timeout", e2b_timeout, 0),
    ROUTE("POST", "/sandboxes/{id}/refreshes", e2b_refresh, 0),
    ROUTE("PUT", "/sandboxes/{id}/network", e2b_network, 0),
    ROUTE("POST", "/sandboxes/{id}/pause", e2b_pause, 0),
    ROUTE("POST", "/sandboxes/{id}/fork", e2b_fork, 0),
    ROUTE("POST", "/sandboxes/{id}/snapshots", e2b_snapshot_take, 0),
    ROUTE("GET", "/sandboxes/{id}/metrics", e2b_metrics, 0),
    ROUTE("GET", "/sandboxes/{id}/logs", e2b_logs, 0),
    ROUTE("GET", "/v2/sandboxes/{id}/logs", e2b_logs_v2, 0),
    ROUTE("GET", "/snapshots", e2b_snapshots, 0),
    ROUTE("GET", "/volumes", e2b_volumes, 0),
    ROUTE("POST", "/volumes", e2b_volume_new, 0),
    ROUTE("GET", "/volumes/{volume}", e2b_volume_get, 0),
    ROUTE("DELETE", "/volumes/{volume}", e2b_volume_delete, 0),
    ROUTE("*", "/volumecontent/{volume}/{what}", e2b_volume_content,
          ROUTE_OPEN), /* takes a volume's own token */
    ROUTE("GET", "/secrets", e2b_secrets, 0),
    ROUTE("POST", "/secrets", e2b_secret_new, 0),
    ROUTE("GET", "/secrets/{secret}", e2b_secret_get, 0),
    ROUTE("POST", "/secrets/{secret}", e2b_secret_update, 0),
    ROUTE("DELETE", "/secrets/{secret}", e2b_secret_delete, 0),
    ROUTE("GET", "/health", e2b_health, ROUTE_OPEN),
    ROUTE(
        "*", "/files", e2b_signed_files,
        ROUTE_OPEN), /* takes a signature; e2b_serve calls it, for names that routes do not have */
    ROUTE("GET", "/templates", e2b_templates, 0),
    ROUTE("GET", "/v2/templates", e2b_templates, 0),
    ROUTE("POST", "/v3/templates", e2b_template_new, 0),
    ROUTE("POST", "/v2/templates", e2b_template_new, 0),
    ROUTE("GET", "/templates/aliases/{alias}", e2b_template_alias, 0),
    ROUTE("POST", "/templates/tags", e2b_tags_set, 0),
    ROUTE("DELETE", "/templates/tags", e2b_tags_del, 0),
    ROUTE("GET", "/templates/{tid}", e2b_template_get, 0),
    ROUTE("PATCH", "/templates/{tid}", e2b_template_patch, 0),
    ROUTE("PATCH", "/v2/templates/{tid}", e2b_template_patch, 0),
    ROUTE("DELETE", "/templates/{tid}", e2b_template_delete, 0),
    ROUTE("GET", "/templates/{tid}/tags", e2b_template_tags, 0),
    ROUTE("GET", "/templates/{tid}/files/{hash}", e2b_build_file,
          ROUTE_CHANGES), /* hands out a place to write to */
    ROUTE("PUT", "/templates/{tid}/files/{hash}", e2b_build_upload,
          ROUTE_OPEN), /* the URL is signed */
    ROUTE("POST", "/v2/templates/{tid}/builds/{bid}", e2b_build_start, 0),
    ROUTE("GET", "/templates/{tid}/builds/{bid}/status", e2b_build_status, 0),
    ROUTE("GET", "/templates/{tid}/builds/{bid}/logs", e2b_build_logs, 0),
};

struct e2b *e2b_of(struct api *a) { return api_state(a, &e2b_dialect); }

static void *start(struct api *a)
{
    struct e2b *x = xcalloc(1, sizeof *x);
    x->api = a;
    list_init(&x->templates);
    random_bytes(x->secret, sizeof x->secret);
    metrics_start(x);
    return x;
}

static void stop(void *state)
{
    struct e2b *x = state;
    metrics_stop(x);
    catalogue_free(x);
    free(x);
}

const struct dialect e2b_dialect = {
    .name = "e2b",
    .flags = DIALECT_CORS, /* its SDK runs in browsers */
    .claims = e2b_claims,
    .serve = e2b_serve,
    .routes = routes,
    .nroutes = sizeof routes / sizeof *routes,
    .doors = doors,
    .ndoors = sizeof doors / sizeof *doors,
    .fail = e2b_fail,
    .sandbox = e2b_find_sandbox,
    .volume = e2b_find_volume,
    .key_prefix = "e2b_", /* the SDKs refuse others */
    .preview_header = "e2b-traffic-access-token",
    .start = start,
    .stop = stop,
};
