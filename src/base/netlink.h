/* Netlink messages, as few as we need: a builder over a fixed buffer and one
 * exchange. The kernel answers inside sendmsg(), so nothing here waits. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NL_CAP 8192

struct nl { unsigned char b[NL_CAP] __attribute__((aligned(4))); size_t n, msg; uint32_t seq; bool full; };

/* A message with its fixed header; every message asks for an acknowledgement unless `quiet`. */
void nl_begin(struct nl *l, unsigned type, unsigned flags, const void *head, size_t n, bool quiet);
void nl_end(struct nl *l);
void nl_put(struct nl *l, unsigned attr, const void *p, size_t n);
void nl_str(struct nl *l, unsigned attr, const char *s);
void nl_u32(struct nl *l, unsigned attr, uint32_t v);  /* host byte order (rtnetlink) */
void nl_be32(struct nl *l, unsigned attr, uint32_t v); /* network byte order (nfnetlink) */
void nl_be64(struct nl *l, unsigned attr, uint64_t v);
size_t nl_nest(struct nl *l, unsigned attr);
void nl_nest_end(struct nl *l, size_t mark);

/* Sends all of it over a new socket of `family` in the current network namespace. 0 only if the kernel took every message. */
int nl_exchange(const struct nl *l, int family, struct err *e) __attribute__((warn_unused_result));
