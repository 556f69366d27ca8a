/* gzip (or zlib) request bodies, bounded: a bomb is E_TOO_LARGE, not memory. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
int inflate_all(const void *p, size_t n, size_t max, struct buf *out, struct err *e);
