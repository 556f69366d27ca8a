/* A dialect: one way of speaking to core. hutch's own API, another product's API
 * and the ports of sandboxes are all of this form. To add one, make a folder in
 * src/api with a `const struct dialect NAME_dialect` and add its line to the
 * table in dialects.c; nothing else names it.
 *
 * A request belongs to the first dialect in the table that claims it. From then
 * on everything that is said to the client goes through it: req_fail, req_none,
 * req_settle, api_fail, api_sandbox, api_volume and api_body ask the request's
 * dialect. Main loop only. */
#pragma once
#include "api/problem.h"
#include "api/route.h"
#include "base/err.h"
#include "base/str.h"
#include "http/stream.h"
#include <stdbool.h>

struct api;
struct caller;
struct sandbox;
struct volume;

enum {
    /* Any web page may call: preflights are answered, and instead of Origin only Host is checked.
     * For dialects whose SDKs run in browsers; a credential is still needed. */
    DIALECT_CORS = 1,
    DIALECT_OWN_AUTH = 2, /* its handlers check a credential of their own instead of an API key */
    DIALECT_STRICT_TYPE = 4, /* a body must be sent as application/json, which a form cannot do */
};

/* A door: a port of a sandbox, who may come in, and what is behind it: called for a running
 * sandbox, after `may` said yes. A door without a check cannot be added. docs/doors.md is the same
 * table for people, tests/e2e/test_doors.py walks it. */
struct may {
    int status; /* 0: yes; 401: no; 403: the preview token is missing or wrong; 404: no, and it is
                   not told that there is such a sandbox */
    bool
        anyone; /* yes, but nothing was proven: wakes nobody, pages of other sites cannot read it */
    bool forbidden;  /* with 403: the role of the key does not allow it */
    const char *say; /* why not, and what to send */
};
typedef struct may door_may(struct api *a, struct http_stream *s, const struct sandbox *sb);
typedef void door_serve(struct api *a, struct http_stream *s, struct sandbox *sb, unsigned port);
struct door {
    unsigned port; /* 0: all that no other door has */
    const char *name;
    door_may *may;
    door_serve *serve;
};

/* A form of a network policy that is not ours; the native API takes it wherever it takes ours. */
struct json;
struct buf;
struct policy_form {
    bool (*is)(struct json *j);                                       /* this form, and not ours */
    int (*read)(struct json *j, struct buf *ret_json, struct err *e); /* in our form, as text */
};

struct dialect {
    const char *name;
    unsigned flags;
    /* By host, header or path; reads the request, changes nothing. NULL: whatever nobody before it
     * claimed. */
    bool (*claims)(struct api *a, struct http_stream *s);
    /* For what is not a route. Called before Host, Origin and the key are checked, so it checks for
     * itself. True: it has answered, or will. NULL: there is nothing of that kind. */
    bool (*serve)(struct api *a, struct http_stream *s);
    const struct api_route *routes; /* matched among themselves only */
    size_t nroutes;
    const struct door *doors; /* ports of sandboxes that it serves itself */
    size_t ndoors;
    /* Tells an error in its own form. ABOUT_METHOD: the status is 405. */
    void (*fail)(struct http_stream *s, const struct err *e, enum about about);
    /* What {id} and {volume} of a path stand for; NULL + e: nothing. Members may be NULL: by id or
     * name. Only what `who` sees. */
    struct sandbox *(*sandbox)(struct api *a, const struct caller *who, struct str id,
                               struct err *e);
    struct volume *(*volume)(struct api *a, const struct caller *who, struct str id, struct err *e);
    const struct policy_form *policy; /* NULL: none of its own */
    const char *key_prefix;     /* its clients accept only keys that start with this; NULL: any */
    const char *preview_header; /* in which its clients send the token of a preview; NULL: none */
    /* What it keeps while the daemon runs: api_state returns it. Both may be NULL. */
    void *(*start)(struct api *a);
    void (*stop)(void *state);
};

/* dialects.c: in the order in which they are asked. The last claims everything. */
extern const struct dialect *const dialects[];
extern const size_t ndialects;

/* -- for handlers -- */
const struct dialect *api_dialect(struct http_stream *s);       /* of this request */
void api_speak(struct http_stream *s, const struct dialect *d); /* from now on it is of this one */
const struct dialect *const *api_dialects(struct api *a, size_t *n);
void *api_state(struct api *a, const struct dialect *d); /* what its start returned */
void api_fail(struct http_stream *s, const struct err *e, enum about about);
