/* What the gate sends back into a sandbox by raw sockets: a datagram's header,
 * and refusals that name the datagram they are about. Pure. */
#pragma once
#include "gate/ip.h"
#include <stddef.h>

#define DGRAM_HEAD 8
#define DGRAM_NO   64 /* fits any refusal */

struct dgram { struct ip from, to; uint16_t from_port, to_port; }; /* both of one family */

void dgram_head(const struct dgram *d, const void *body, size_t n, uint8_t out[DGRAM_HEAD]); /* with its checksum; n <= 65507 */

/* ICMP or ICMPv6 about datagram d of n bytes, for its sender; the kernel fills in ICMPv6's checksum. Returns its length. */
enum dgram_no { DGRAM_PROHIBITED, DGRAM_NO_PORT, DGRAM_NO_HOST };
size_t dgram_refuse(const struct dgram *d, size_t n, enum dgram_no why, uint8_t out[DGRAM_NO]);
