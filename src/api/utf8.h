/* Cutting byte streams into JSON text. Output arrives in arbitrary pieces; a
 * piece may end inside a character. utf8_tail keeps those last bytes back (at
 * most 3) for the next piece, so that output which is valid UTF-8 as a whole
 * is always sent as text. A NUL counts as not text: many JSON readers, ours
 * among them, refuse \u0000. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>

size_t utf8_whole(const char *p, size_t n); /* n without an unfinished character at the end */

struct utf8_tail { char held[4]; unsigned n; };
/* Held bytes and p together, without the new unfinished end, are appended to out. */
void utf8_push(struct utf8_tail *t, const void *p, size_t n, struct buf *out);
void utf8_flush(struct utf8_tail *t, struct buf *out); /* nothing more comes */
