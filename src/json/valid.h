/* Is this text one JSON value (RFC 8259), and nothing else? Reads no numbers
 * and builds no tree, so integers of any size pass and cost no memory: for
 * values that are handed on, not looked at. Valid UTF-8 is demanded; \u0000
 * and lone surrogates in escapes are not refused, because they are the
 * reader's business. A key that an object has twice is refused, however it is
 * spelled: two readers could see two values. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>

#define JSON_VALID_DEPTH 200
size_t json_extent(struct str text); /* bytes of the value that text begins with; 0: none */
/* The value of the first member of that name of the object that the text is, as text; its own depth is counted from there.
 * False: there is none, or this is no object. A name that is written with escapes is not recognised. */
bool json_member(struct str text, struct str name, struct str *ret);
int json_valid(struct str text, struct err *e) __attribute__((warn_unused_result)); /* -1: E_INVALID, with the byte */
