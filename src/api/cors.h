/* CORS for dialects that any page may call with a credential it was given. No
 * credential of ours is one that a browser sends on its own, so this opens
 * nothing. Call before anything is sent. */
#pragma once
#include "http/stream.h"
#include <stdbool.h>

void cors_open(struct http_stream *s);      /* pages of other sites may read the answer */
bool cors_asks(struct http_stream *s);      /* it is a browser's preflight */
void cors_preflight(struct http_stream *s); /* the whole answer to one */
