/* A route of the API with what the OpenAPI document says about it: one row,
 * two uses, so the document cannot list a route that does not exist. */
#pragma once
#include "http/router.h"

enum { ROUTE_OPEN = 1 /* no key needed */, ROUTE_SOCKET = 2 /* unix socket only */,
       ROUTE_WAKE = 4 /* needs the sandbox {id} awake: waits for a pause or resume under way, resumes it if it asked for that */ };

struct api_route {
    const char *method, *pattern;
    http_handler *fn;      /* arg: struct api * */
    unsigned flags;
    const char *id, *summary;
    const char *query;     /* parameters, as a member list of api/schema.h; NULL: none. "x.*" is a family */
    const char *body;      /* schema, "bytes", "form", or NULL */
    /* One or more of { status [ what { "|" what } ] } separated by ";". what: a schema (JSON), "lines" and a schema (NDJSON),
     * "events" (SSE), "bytes", "text", "socket" (WebSocket). */
    const char *reply;
};
