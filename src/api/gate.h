/* Who may come in: Host, Origin, then the key; before any handler runs.
 *
 * Host: a page whose name was rebound to 127.0.0.1 sends its own name here, so
 * only names that can be ours pass: localhost, 127.0.0.1, [::1], the listen
 * address, HUTCH_DOMAIN and HUTCH_HOSTS. A daemon that listens on all addresses
 * takes any IP literal too: an address cannot be rebound.
 * Origin: browsers name the page that calls. A page from elsewhere is refused,
 * key or not, and so is every change it tries without one (Sec-Fetch-Site). */
#pragma once
#include "api/problem.h"
#include "base/err.h"
#include "base/str.h"
#include "core/host/config.h"
#include "http/stream.h"
#include <stdbool.h>

struct caller;
struct core;
bool gate_host_ok(const struct config *cfg, struct str authority /* host[:port] */);
bool gate_host_literal(struct str host);         /* an address, not a name */
struct str gate_host_part(struct str authority); /* without the port; p == NULL: malformed */
bool gate_origin_ok(const struct config *cfg, struct str origin, struct str host /* of the request */);
struct str gate_key(struct http_stream *s); /* what the client sent as its key; p == NULL if nothing */

int gate_host(const struct config *cfg, struct http_stream *s, struct err *e); /* Host */
int gate_site(const struct config *cfg, struct http_stream *s, enum about *about, struct err *e);  /* Host and Origin */
/* Who it is: the bearer of the key that was sent, else a trusted peer of the socket, who is admin. A key decides alone: a proxy in
 * front, whose peer is root, does not lend its rights to who sends one. The strings are good for this turn. */
int gate_caller(struct core *c, struct http_stream *s, struct caller *ret, struct err *e);
