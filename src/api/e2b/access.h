/* Who may do what through the two ports of a sandbox that this dialect serves.
 * Every request to one goes through these before anything else happens, waking
 * included: api/preview calls them, nobody else decides. docs/doors.md is the
 * same table for people, tests/e2e/test_doors.py walks it. */
#pragma once
#include "api/api.h"
#include "core/sandbox/sandbox.h"
#include <stdbool.h>

#define E2B_PORT_ENVD        49983
#define E2B_PORT_INTERPRETER 49999

door_may e2b_may_envd, e2b_may_interpreter;

bool e2b_is_files(struct http_stream *s); /* what a signature opens: reading or writing /files */
/* The running sandbox whose token signed this request for /files; NULL: none. */
struct sandbox *e2b_signer(struct api *a, struct http_stream *s);
