/* A route of the API with all that is said about it: one row makes the router's entry, the OpenAPI operation and the
 * section in docs/api.md, so no document lists a route that does not exist. */
#pragma once
#include "api/fields.h"
#include "http/router.h"

enum { ROUTE_OPEN = 1 /* no key needed */, ROUTE_SOCKET = 2 /* unix socket only */,
       ROUTE_WAKE = 4 /* needs the sandbox {id} awake: waits for a pause or resume under way, resumes it if it asked for that */,
       /* Who may, where "GET: viewer, else: member" is not the answer (core/host/rights.h): */
       ROUTE_ADMIN = 8, ROUTE_HOST = 16 /* operator or admin */, ROUTE_SCRAPE = 32 /* and metrics */,
       ROUTE_CHANGES = 64 /* a GET that changes something, or hands out what can */ };

enum answer_kind {
    ANSWER_NONE,
    ANSWER_JSON,
    ANSWER_LINES /* NDJSON */,
    ANSWER_EVENTS /* SSE */,
    ANSWER_BYTES,
    ANSWER_TEXT,
    ANSWER_SOCKET
};
struct api_answer {
    int status;
    enum answer_kind kind;
    const struct shape *of; /* the object, or that of each line or event */
};

struct api_route {
    const char *method, *pattern;
    http_handler *fn;      /* arg: struct api * */
    unsigned flags;
    const char *tag, *id, *summary;
    const struct shape *query, *body; /* NULL: none */
    struct api_answer answer[4];      /* status 0 ends them */
    const char *more;                 /* further sentences; NULL: the summary says it all */
    const char *ex_query, *ex_body;   /* an example; NULL: without */
};
/* All of them, with what stands in braces in their patterns. */
struct api_table {
    const struct api_route *routes;
    size_t n;
    const struct shape *captures, *problem;
    const char *const *tags;
};
