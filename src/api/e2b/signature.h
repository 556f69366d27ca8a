/* Signed file URLs: "v1_" + unpadded base64 of SHA-256 over
 * path:op:user:token[:expiration], path and user exactly as in the query. */
#pragma once
#include "base/str.h"
#include <stdbool.h>

#define E2B_SIGNATURE_MAX 48 /* with the NUL */

/* expiration.p == NULL: the URL has none. */
void e2b_signature(struct str path, const char *op, struct str user, const char *token, struct str expiration, char out[E2B_SIGNATURE_MAX]);

/* What a /files request brings to prove itself; strings point into the caller's buffers. */
struct signed_url { struct str path, user, signature, expiration; const char *op; };
bool e2b_signature_matches(const struct signed_url *u, const char *token);
bool e2b_signature_expired(const struct signed_url *u, int64_t now_s); /* also when the expiration is not a number */
