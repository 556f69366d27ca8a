/* Renderings that dialects share. */
#pragma once
#include "json/write.h"
#include <stdint.h>

void put_time(struct jw *w, const char *key, int64_t wall_ns); /* RFC 3339; 0: null */
