/* The routes of E2B's control plane, and the state behind them. */
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "base/enc.h"
#include <stdlib.h>

const struct route e2b_routes[] = {
    {"POST", "/sandboxes", e2b_create, 0},
    {"POST", "/v2/sandboxes", e2b_create_v2, 0},
    {"GET", "/sandboxes", e2b_list, 0},
    {"GET", "/v2/sandboxes", e2b_list_v2, 0},
    {"GET", "/sandboxes/metrics", e2b_metrics_batch, 0},
    {"GET", "/sandboxes/{id}", e2b_get, 0},
    {"DELETE", "/sandboxes/{id}", e2b_delete, 0},
    {"POST", "/sandboxes/{id}/connect", e2b_connect, 0},
    {"POST", "/v2/sandboxes/{id}/connect", e2b_connect, 0},
    {"POST", "/sandboxes/{id}/resume", e2b_resume, 0},
    {"POST", "/sandboxes/{id}/timeout", e2b_timeout, 0},
    {"POST", "/sandboxes/{id}/refreshes", e2b_refresh, 0},
    {"PUT", "/sandboxes/{id}/network", e2b_network, 0},
    {"POST", "/sandboxes/{id}/pause", e2b_pause, 0},
    {"POST", "/sandboxes/{id}/fork", e2b_fork, 0},
    {"POST", "/sandboxes/{id}/snapshots", e2b_snapshot_take, 0},
    {"GET", "/sandboxes/{id}/metrics", e2b_metrics, 0},
    {"GET", "/sandboxes/{id}/logs", e2b_logs, 0},
    {"GET", "/v2/sandboxes/{id}/logs", e2b_logs_v2, 0},
    {"GET", "/snapshots", e2b_snapshots, 0},
    {"GET", "/volumes", e2b_volumes, 0},
    {"POST", "/volumes", e2b_volume_new, 0},
    {"GET", "/volumes/{volume}", e2b_volume_get, 0},
    {"DELETE", "/volumes/{volume}", e2b_volume_delete, 0},
    {"*", "/volumecontent/{volume}/{what}", e2b_volume_content, ROUTE_OPEN}, /* takes a volume's own token */
    {"GET", "/secrets", e2b_secrets, 0},
    {"POST", "/secrets", e2b_secret_new, 0},
    {"GET", "/secrets/{secret}", e2b_secret_get, 0},
    {"POST", "/secrets/{secret}", e2b_secret_update, 0},
    {"DELETE", "/secrets/{secret}", e2b_secret_delete, 0},
    {"GET", "/health", e2b_health, ROUTE_OPEN},
    {"GET", "/templates", e2b_templates, 0},
    {"GET", "/v2/templates", e2b_templates, 0},
    {"POST", "/v3/templates", e2b_template_new, 0},
    {"POST", "/v2/templates", e2b_template_new, 0},
    {"GET", "/templates/aliases/{alias}", e2b_template_alias, 0},
    {"POST", "/templates/tags", e2b_tags_set, 0},
    {"DELETE", "/templates/tags", e2b_tags_del, 0},
    {"GET", "/templates/{tid}", e2b_template_get, 0},
    {"PATCH", "/templates/{tid}", e2b_template_patch, 0},
    {"PATCH", "/v2/templates/{tid}", e2b_template_patch, 0},
    {"DELETE", "/templates/{tid}", e2b_template_delete, 0},
    {"GET", "/templates/{tid}/tags", e2b_template_tags, 0},
    {"GET", "/templates/{tid}/files/{hash}", e2b_build_file, 0},
    {"PUT", "/templates/{tid}/files/{hash}", e2b_build_upload, ROUTE_OPEN}, /* the URL is signed */
    {"POST", "/v2/templates/{tid}/builds/{bid}", e2b_build_start, 0},
    {"GET", "/templates/{tid}/builds/{bid}/status", e2b_build_status, 0},
    {"GET", "/templates/{tid}/builds/{bid}/logs", e2b_build_logs, 0},
};
const size_t e2b_nroutes = sizeof e2b_routes / sizeof *e2b_routes;

struct e2b *e2b_new(struct api *a)
{
    struct e2b *x = xcalloc(1, sizeof *x);
    x->api = a;
    list_init(&x->templates);
    random_bytes(x->secret, sizeof x->secret);
    metrics_start(x);
    return x;
}

void e2b_free(struct e2b *x)
{
    if (!x)
        return;
    metrics_stop(x);
    catalogue_free(x);
    free(x);
}
