/* What a handler keeps between turns. A state struct starts with a struct req
 * and has exactly one exit, req_end: the reply is out, the client left, or the
 * sandbox died; fini then stops what still runs below and frees the members.
 *
 *   core operations with a cancel:  store the handle; set it to NULL in `done`;
 *                                   fini cancels it if it is not NULL.
 *   unary core calls:               req_hold before, `if (!req_back(r)) return;`
 *                                   first thing in the callback.
 *
 * The memory goes at the end of the turn in which the request is over and the
 * last hold is back, so no callback of that turn can meet a freed state. */
#pragma once
#include "api/problem.h"
#include "http/stream.h"

struct api;
struct req {
    struct api *api;
    struct http_stream *s; /* referenced until the memory goes: replying late is harmless */
    void (*fini)(void *state); /* may be NULL */
    unsigned holds;
    bool over;
};

void *req_new(struct api *a, struct http_stream *s, size_t size, void (*fini)(void *state)); /* zeroed */
/* The client leaving ends it: for whatever can be stopped, and while a body is read. A short unary call does without, so
 * that a client which has shut down its writing side still gets its answer. */
void req_watch(struct req *r);
void req_hold(struct req *r);
bool req_back(struct req *r); /* false: the request is over, do nothing */
void req_end(struct req *r);  /* again: nothing */
void req_fail(struct req *r, const struct err *e, enum about about);         /* problem, then end */
void req_none(struct req *r, const struct err *e, enum about about);         /* the end of a unary call: 204 or the problem */
void req_json(struct req *r, int status, struct buf *json);                  /* reply, then end; takes the bytes */
void reply_json(struct http_stream *s, int status, struct buf *json);        /* takes the bytes */
void reply_none(struct http_stream *s);                                      /* 204 */
