/* Which names an address was given out for, per sandbox. A connection under a
 * name is good only if its address is bound to that name. A binding outlives
 * its TTL by BIND_GRACE_S, because programs keep addresses longer than they
 * should. Bounded: the binding that ends first makes room. */
#pragma once
#include "gate/ip.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BIND_MAX     4096
#define BIND_GRACE_S 3600

struct binding;
struct binds { struct binding **slot; size_t n; }; /* zeroed is empty */
void binds_add(struct binds *b, const struct ip *a, const char *name, uint32_t ttl_s, int64_t now);
bool binds_has(struct binds *b, const struct ip *a, const char *name, int64_t now);
size_t binds_names(struct binds *b, const struct ip *a, int64_t now, const char **out, size_t cap); /* borrowed until the next add */
void binds_free(struct binds *b);
