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
#include "api/dialect.h"
#include "api/problem.h"
#include "http/stream.h"
#include "json/write.h"

struct api;
struct req {
    struct api *api;
    const struct dialect *dialect; /* in which it is answered */
    struct http_stream *s;         /* referenced until the memory goes: replying late is harmless */
    void (*fini)(void *state);     /* may be NULL */
    unsigned holds;
    bool over;
};

/* Zeroed. */
void *req_new(struct api *a, struct http_stream *s, size_t size, void (*fini)(void *state));
/* The client leaving ends it: for whatever can be stopped, and while a body is read. A short unary
 * call does without, so that a client which has shut down its writing side still gets its answer. */
void req_watch(struct req *r);
void req_hold(struct req *r);
bool req_back(struct req *r); /* false: the request is over, do nothing */
void req_end(struct req *r);  /* again: nothing */
/* Tells it in the request's dialect, then end. */
void req_fail(struct req *r, const struct err *e, enum about about);
/* The end of a unary call: 204 or the problem. */
void req_none(struct req *r, const struct err *e, enum about about);
/* After req_hold and a core call that returned rc: if that is not 0 its callback will not fire, and
 * e is told. */
void req_settle(struct req *r, int rc, const struct err *e, enum about about);

/* A JSON answer: begin, write one value, send. Leaving without sending is fine. */
struct jw *reply_begin(struct http_stream *s);
void reply_send(struct http_stream *s, int status);
void req_send(struct req *r, int status); /* reply_send, then end */
/* One that was written elsewhere; takes the bytes. */
void reply_json(struct http_stream *s, int status, struct buf *json);
void req_json(struct req *r, int status, struct buf *json); /* likewise, then end */
void reply_none(struct http_stream *s);                     /* 204 */
