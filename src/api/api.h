/* The HTTP API: gives every request to the dialect that claims it (dialect.h),
 * checks Host, Origin and key as that dialect wants them, and calls the handler
 * of one of its routes. Lives on the main loop; core, jobs and config must
 * outlive it. All handlers get the struct api as arg. */
#pragma once
#include "api/dialect.h"
#include "api/problem.h"
#include "api/route.h"
#include "base/buf.h"
#include "core/core.h"
#include "http/router.h"
#include "http/stream.h"
#include <stdbool.h>

struct api *api_new(struct core *c, struct jobs *jobs); /* with the dialects of dialects.c */
/* With these. The table must outlive the api; at least one. */
struct api *api_new_with(struct core *c, struct jobs *jobs, const struct dialect *const *table,
                         size_t n);
void api_free(struct api *a);                       /* after the http server is gone */
void api_handler(struct http_stream *s, void *api); /* for struct http_config */
/* All that is served, one line each: "route METHOD PATTERN key|socket|open" (open: no key, it has
 * another check or tells nothing), and "port N NAME" for ports of a sandbox behind which the daemon
 * itself is. */
void api_doors(struct buf *out);
/* POST /v1/shutdown was accepted: called once the answer is on its way. */
void api_on_shutdown(struct api *a, void (*fn)(void *arg, bool keep), void *arg);
/* New API keys start with this, so that the clients of every dialect accept them. */
const char *api_key_prefix(void);

/* -- for handlers -- */
struct core *api_core(struct api *a);
struct jobs *api_jobs(struct api *a);
void api_shutdown(struct api *a, bool keep);
const char *api_preview_header(struct api *a); /* the header that takes a preview's token */
/* The sandbox of the capture {id}; NULL: the answer is out. The pointer is good for this turn only. */
struct sandbox *api_sandbox(struct api *a, struct http_stream *s);
struct volume *api_volume(struct api *a, struct http_stream *s); /* likewise, of {volume} */
/* Where the name is not in the path: what the caller with this tenant (gate_tenant) may see. The
 * operator, without a key or with the first one, sees everything; others what is theirs. */
bool api_sees(struct api *a, const char *caller, const char *tenant);
struct sandbox *api_find(struct api *a, const char *caller, struct str id_or_name, struct err *e);
/* Under which a port of a sandbox is reached. */
void api_preview_url(struct api *a, const struct sandbox *sb, unsigned port, char *out, size_t cap);
/* Whole JSON body, then fn as for http_body_collect; larger than PARAM_BODY_MAX is refused here. */
void api_body(struct api *a, struct http_stream *s,
              void (*fn)(struct http_stream *s, void *api, const char *p, size_t n));
/* Waits until sb is between no two states and, if it sleeps, wakes it; then fn with a copy of the n
 * bytes at ctx. sb NULL: it did not come up, e says why. Nothing is called once the client has
 * left. */
typedef void api_awake(struct api *a, struct http_stream *s, struct sandbox *sb,
                       const struct err *e, const void *ctx);
void api_wake(struct api *a, struct http_stream *s, struct sandbox *sb, api_awake *fn,
              const void *ctx, size_t n);
