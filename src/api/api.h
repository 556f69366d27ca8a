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
#include "core/host/rights.h"
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
/* Who asks (core/host/rights.h). Good for this turn; nobody, once its key was revoked. */
struct caller api_caller(struct api *a, struct http_stream *s);
/* ---- lookup.c: what the caller sees, and in a request that changes something, may change ---- */
/* The sandbox of the capture {id}; NULL: the answer is out. The pointer is good for this turn only. */
struct sandbox *api_sandbox(struct api *a, struct http_stream *s);
struct volume *api_volume(struct api *a, struct http_stream *s); /* likewise, of {volume} */
/* Likewise, by what stands elsewhere in the request; NULL + e. */
struct sandbox *api_find_sandbox(struct api *a, struct http_stream *s, struct str id,
                                 struct err *e);
struct snapshot *api_snapshot(struct api *a, struct http_stream *s, const char *id_or_name,
                              struct err *e);
struct secret *api_secret(struct api *a, struct http_stream *s, const char *id_or_name,
                          struct err *e);
struct template *api_template(struct api *a, struct http_stream *s, const char *name_or_id,
                              struct err *e);
/* -1: its key ended while the body came, and the request would change something. To be asked at the
 * end of every body; api_body does. A caller without a role has the operator's empty tenant, so
 * what it made would be for all. */
int api_still(struct api *a, struct http_stream *s, struct err *e);
int api_may_change(struct api *a, struct http_stream *s, const char *what /* "sandbox" */,
                   const char *tenant, struct err *e); /* -1: this request would, and may not */
bool api_changes(struct http_stream *s);               /* it is of a kind that changes something */
void api_set_changes(struct http_stream *s, bool changes);
/* The handler has checked a credential of its own, such as a volume's token: what it looks up from now on is for the
 * bearer of that. */
void api_vouch(struct http_stream *s);
bool api_vouched(struct http_stream *s);
typedef void api_body_fn(struct http_stream *s, void *api, const char *p, size_t n);
api_body_fn **api_body_then(
    struct http_stream *s); /* for api_body: where it notes what comes next */
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
