/* Const table -> handler. Patterns: "/v1/sandboxes/{id}/exec" captures one
 * decoded segment, a last "{rest*}" captures the remainder (decoded, joined by
 * '/'; refuses "..", "." and encoded slashes, may be empty). A literal segment
 * wins over a capture, a capture over a remainder. HEAD falls to GET. */
#pragma once
#include "http/stream.h"

struct route {
    const char *method;  /* "GET"; "*": any */
    const char *pattern;
    http_handler *fn;
    unsigned flags;      /* the caller's: auth needed, … see router_match */
};
struct router;
struct router *router_new(const struct route *table, size_t n); /* the table must outlive the router */
void router_add(struct router *r, const struct route *table, size_t n); /* further tables; earlier ones win ties */
void router_free(struct router *r);

struct route_match {
    const struct route *route; /* NULL: no match */
    int status;                /* then 404, 405 or 400 */
    char allow[96];            /* for 405: "GET, HEAD, POST" */
};
/* Fills the stream's captures (http_param). */
void router_match(const struct router *r, struct http_stream *s, struct route_match *m);
/* Match and call with arg; a miss is answered with a small JSON problem (and Allow). */
void router_dispatch(const struct router *r, struct http_stream *s, void *arg);
