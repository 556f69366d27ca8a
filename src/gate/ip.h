/* Addresses of both families as one value, and the ranges that stay closed.
 * Pure. An IPv4 address in any IPv6 disguise that the kernel or a gateway would
 * turn back into IPv4 (mapped, compatible, NAT64) is judged by the IPv4 inside;
 * see ip_closed. */
#pragma once
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct ip { uint8_t b[16]; bool v6; }; /* v4: the first four bytes, the rest zero */
struct cidr { struct ip ip; uint8_t bits; };

#define IP_TEXT 48 /* fits any ip_text with its NUL */
bool ip_parse(struct str s, struct ip *ret);     /* strict dotted quad or RFC 4291; no zone, no octal, no short forms */
bool cidr_parse(struct str s, struct cidr *ret); /* address or address/bits; bits beyond the mask must be zero */
void ip_text(const struct ip *a, char out[IP_TEXT]);
void cidr_text(const struct cidr *c, char out[IP_TEXT]);
bool ip_eq(const struct ip *a, const struct ip *b);
bool cidr_has(const struct cidr *c, const struct ip *a);
bool cidr_within(const struct cidr *inner, const struct cidr *outer);

struct ip ip_plain(const struct ip *a); /* v4-mapped becomes v4, anything else is itself */
bool ip_from_sockaddr(const struct sockaddr *sa, struct ip *ret, uint16_t *ret_port); /* ip_plain is applied */
socklen_t ip_to_sockaddr(const struct ip *a, uint16_t port, struct sockaddr_storage *ret);

/* Why no sandbox may go there, in words ("private network 10.0.0.0/8"), or NULL if it is an ordinary public address.
 * Loopback, RFC 1918, link-local with metadata services, CGNAT, unspecified, multicast, reserved, benchmark, ULA,
 * site-local, discard, 6to4, Teredo, local NAT64, and IPv6 forms that carry one of these IPv4 addresses. */
const char *ip_closed(const struct ip *a);
