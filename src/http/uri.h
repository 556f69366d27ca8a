/* Percent-decoding, paths and queries. A path is split at '/' before anything
 * is decoded, so an encoded slash stays inside its segment. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include <stdbool.h>

#define HTTP_SEGMENTS_MAX 64

/* Appends; false on a broken %xx or a decoded NUL. */
bool uri_decode(struct str in, bool plus_is_space, struct buf *out);
void uri_encode(struct str in, bool keep_slash, struct buf *out); /* all but unreserved */

/* "/a/b%20c/" -> "a", "b c", "" ; decoded bytes go to store. -1: broken escape, NUL or too many segments. */
int uri_split(struct str path, struct buf *store, struct str seg[HTTP_SEGMENTS_MAX]);

/* The first value of a key, decoded into out; false if absent or broken. Queries read '+' as space (forms do). */
bool query_get(struct str query, const char *key, struct buf *out);
/* One pair after another: *rest starts as the query; false at the end. Undecoded. */
bool query_next(struct str *rest, struct str *key, struct str *value);
