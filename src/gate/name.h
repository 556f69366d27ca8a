/* Host names as they may come from a guest or from JSON. Pure. */
#pragma once
#include "base/str.h"
#include <stdbool.h>

#define NAME_MAX_LEN 253

/* Canonical form into out: lower case, one trailing dot dropped. Letters, digits, hyphen and underscore, labels of 1 to 63;
 * what ends in a number ("1.2.3.4", "127.1", "0x7f000001") is an address to somebody and no name. False: not a name. */
bool name_canon(struct str s, char out[NAME_MAX_LEN + 1]);
/* "*.suffix" and "*" too: for patterns. */
bool name_pattern_canon(struct str s, char out[NAME_MAX_LEN + 3]);
/* pattern and name are canonical. "*.a.b" matches x.a.b and y.x.a.b, not a.b; "*" matches all. */
bool name_match(struct str pattern, struct str name);
/* Names that have no meaning on the public internet: one label, .local, .internal, .localhost, .home.arpa, … */
bool name_special(struct str name);

/* "host", "host:port", "[v6]:port" as in Host and CONNECT. host borrowed, without brackets; *ret_port keeps its value if none. */
bool name_split_port(struct str s, struct str *ret_host, uint16_t *ret_port);
