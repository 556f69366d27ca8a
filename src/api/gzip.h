/* Packing a reply's body with gzip, piece by piece. Quick rather than small: it runs on the main loop. */
#pragma once
#include "base/buf.h"
#include "http/stream.h"
#include <stdbool.h>

struct gzip;
struct gzip *gzip_new(void);
void gzip_free(struct gzip *g); /* NULL is fine */
void gzip_push(struct gzip *g, const void *p, size_t n, bool last, struct buf *out);
/* Did the client ask for gzip and nothing else? HTTP libraries offer a list of their own accord; whoever names the one means it. */
bool gzip_asked(struct http_stream *s);
