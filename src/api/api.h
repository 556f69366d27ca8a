/* The HTTP API: hands every request through the gate (Host, Origin, key) to a
 * handler of one of its route tables. The native tables are built in; dialects
 * add theirs with api_add. Lives on the main loop; core, jobs and config must
 * outlive it. All handlers get the struct api as arg. */
#pragma once
#include "api/problem.h"
#include "api/route.h"
#include "base/buf.h"
#include "core/core.h"
#include "http/router.h"
#include "http/stream.h"
#include <stdbool.h>

struct api;
struct sandbox;
struct volume;
struct e2b;

struct api *api_new(struct core *c, struct jobs *jobs);
void api_free(struct api *a); /* after the http server is gone */
void api_handler(struct http_stream *s, void *api); /* for struct http_config */
/* Further routes; flags as in route.h. The table must outlive the api. Earlier tables win ties. */
void api_add(struct api *a, const struct route *table, size_t n);
/* All that is served, one line each: "route METHOD PATTERN key|socket|open" (open: no key, it has another check or tells nothing), and
 * "port N NAME" for ports of a sandbox behind which the daemon itself is. */
void api_doors(struct buf *out);
/* POST /v1/shutdown was accepted: called once the answer is on its way. */
void api_on_shutdown(struct api *a, void (*fn)(void *arg, bool keep), void *arg);

/* -- for handlers -- */
struct core *api_core(struct api *a);
struct jobs *api_jobs(struct api *a);
struct e2b *api_e2b(struct api *a); /* the E2B dialect's own state */
void api_shutdown(struct api *a, bool keep);
/* The sandbox of the capture {id}; NULL: the answer is out. The pointer is good for this turn only. */
struct sandbox *api_sandbox(struct api *a, struct http_stream *s);
struct volume *api_volume(struct api *a, struct http_stream *s); /* likewise, of {volume} */
/* Whole JSON body, then fn as for http_body_collect; larger than PARAM_BODY_MAX is refused here. */
void api_body(struct api *a, struct http_stream *s, void (*fn)(struct http_stream *s, void *api, const char *p, size_t n));
