#pragma once
#include "api/route.h"
#include "base/buf.h"

/* The OpenAPI 3.1 document of a table; cfg (may be NULL) holds the limits that an operator sets. */
void openapi_write(struct buf *out, const struct api_table *t, const struct config *cfg);

#define SHAPES_MAX 256
/* Every named shape that the routes use, each once, after what uses it. */
size_t api_shapes(const struct api_table *t, const struct shape *ret[SHAPES_MAX]);
