#pragma once
#include "api/route.h"
#include "base/buf.h"

/* The reference part of docs/api.md: every route with its request, answer and members, then every object. */
void apidoc_write(struct buf *out, const struct api_table *t);
