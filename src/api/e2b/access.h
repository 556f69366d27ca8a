/* Who may do what with a sandbox through its ports. Every request to a sandbox
 * goes through one of these before anything else happens, waking included:
 * traffic.c calls them, nobody else decides. docs/doors.md is the same table
 * for people, tests/e2e/test_doors.py walks it. */
#pragma once
#include "api/api.h"
#include "core/sandbox.h"
#include <stdbool.h>

#define E2B_PORT_ENVD        49983
#define E2B_PORT_INTERPRETER 49999
#define E2B_TRAFFIC_TOKEN    41 /* with the NUL */

/* What E2B's create and connect call trafficAccessToken. It is made of the access token (which it does not tell), so that it needs no
 * place of its own. It opens the ports inside of one that is not public, and the list of its contexts: E2B's SDKs send it there, and
 * no other credential. "" for a sandbox without an access token. */
void e2b_traffic_token(const struct sandbox *sb, char out[E2B_TRAFFIC_TOKEN]);

struct e2b_may {
    int status;      /* 0: yes; else the answer's */
    bool anyone;     /* yes, but nothing was proven: it wakes nobody, and pages of other sites may not read the answer */
    const char *say; /* why not, and what to send */
};
typedef struct e2b_may e2b_may_fn(struct api *a, struct http_stream *s, const struct sandbox *sb);
e2b_may_fn e2b_may_envd, e2b_may_interpreter, e2b_may_guest;

bool e2b_is_files(struct http_stream *s); /* what a signature opens: reading or writing /files */
/* The running sandbox whose token signed this request for /files; NULL: none. */
struct sandbox *e2b_signer(struct api *a, struct http_stream *s);

/* CORS of the ports that we serve ourselves: any page may use a sandbox it has a credential of (E2B's SDK runs in browsers). None is ever
 * sent by a browser on its own, so this opens nothing; e2b_cors_open is for answers to requests that brought one. */
void e2b_cors_open(struct http_stream *s);
void e2b_preflight(struct http_stream *s); /* the whole answer: what may be asked, before a credential can be sent */
