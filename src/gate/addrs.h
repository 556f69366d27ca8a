/* The addresses of a name, both families, asked by the gate itself: for proxy
 * requests, and to see whether an address that was never given out belongs to
 * the name that a connection claims. */
#pragma once
#include "gate/resolve.h"

#define ADDRS_MAX 16
struct addrs { struct ip ip[ADDRS_MAX]; uint32_t ttl[ADDRS_MAX]; size_t n; const char *why; /* n == 0: what the resolver said */ };

struct addr_lookup;
typedef void addrs_done(void *arg, const struct addrs *a);
struct addr_lookup *addr_lookup_start(struct loop *l, struct resolver *r, const char *name, addrs_done *done, void *arg); /* canonical name */
void addr_lookup_cancel(struct addr_lookup *l); /* NULL is fine */
