/* Previews: the ports of a sandbox, for every dialect. A request for one names
 * it by host, {port}-{id}.<any domain>, which this dialect claims; another
 * dialect may know further ways to name it and hands over with preview_deliver.
 * Behind a port is a server in the guest, unless a dialect serves that port
 * itself (struct door). */
#pragma once
#include "api/api.h"
#include "core/sandbox/sandbox.h"

struct preview_target {
    unsigned port;
    char id[64];
};
enum preview_host {
    PREVIEW_HOST_PLAIN,
    PREVIEW_HOST_TARGET,
    PREVIEW_HOST_BAD_PORT,
    PREVIEW_HOST_BAD_ID
};
/* {port}-{id}.rest */
enum preview_host preview_host_parse(struct str authority, struct preview_target *ret);
bool preview_id_ok(const char *id); /* small letters and digits */

/* traffic.c: the one way to a port. Asks the door before anything happens to the sandbox, waking
 * included. may_wait: it may be woken. */
void preview_deliver(struct api *a, struct http_stream *s, const struct preview_target *t,
                     bool may_wait);
/* It can be worked with, which keeps it from being idle. False: the 502 (or 409 while it changes
 * state) is out. */
bool preview_reachable(struct http_stream *s, struct sandbox *sb);

/* access.c */
#define PREVIEW_DERIVED 41 /* with the NUL */
/* A token that is made of the access token (which it does not tell), so that it needs no place of
 * its own. It opens the ports of one that is not public, besides its preview token. "" for a
 * sandbox without an access token. */
void preview_derived_token(const struct sandbox *sb, char out[PREVIEW_DERIVED]);
/* The request brings it. */
bool preview_has_derived(struct api *a, struct http_stream *s, const struct sandbox *sb);
/* A credential of ours, which is not passed on to the guest: an API key, whatever the header, and
 * the tokens of sandboxes, previews and volumes where clients send them. Authorization with anything
 * else is the guest's. */
bool preview_keeps(struct api *a, const struct http_field *f);
door_may preview_may_guest;

extern const struct dialect preview_dialect;

/* page.c: traffic that cannot be taken. JSON, or a page for a browser that goes there; port 0: not
 * about one. The id is a checked one. */
void preview_refuse(struct http_stream *s, int status, const char *id, unsigned port,
                    const char *message);
void preview_no_token(struct api *a, struct http_stream *s, const char *id); /* 403 */
/* {"code":400,"message":"…"} */
void preview_problem(struct http_stream *s, int status, const char *message);

/* ingress.c: HTTP and WebSocket to a server in the guest */
door_serve preview_ingress;
/* A Set-Cookie without its Domain: for the host that set it, and no neighbour. */
void preview_cookie_own(struct str set_cookie, struct buf *out);
