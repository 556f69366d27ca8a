/* The OpenAPI 3.1 document, made from the route table and the schemas. */
#pragma once
#include "api/route.h"
#include "base/buf.h"
void openapi_write(struct buf *out, const struct api_route *routes, size_t n);
