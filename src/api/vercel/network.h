/* Vercel's forms of a network policy, as ours (gate/policy.h):
 *
 *   "allow-all", {"mode": "allow-all"}      mode open
 *   "deny-all", {"mode": "deny-all"}        mode none
 *   {"allow": ["example.org", "*.example.org"] or {"example.org": [RULE…]}, "subnets": {"allow": [CIDR], "deny": [CIDR]}}
 *       mode allow: the domains, the ranges, and denies that nothing overrules
 *   RULE {"match": {"path": {"exact" | "startsWith": …}, "method": […]}, "transform": [{"headers": {…}}]}
 *       the headers are put in at the gate, over TLS, for requests that match; the values are kept as secrets of the sandbox
 *
 * What has no counterpart is refused, not left out: regex, query and header matchers, forwardURL, response. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "json/read.h"
#include <stdbool.h>

bool vercel_network_is(struct json *j);                                     /* one of these forms, and none of ours */
int vercel_network(struct json *j, struct buf *ret_json, struct err *e); /* our form, as text */
struct dialect;
extern const struct dialect vercel_dialect;
