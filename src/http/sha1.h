/* SHA-1, only because RFC 6455 wants it in a handshake; not for security. */
#pragma once
#include <stddef.h>
void sha1(const void *p, size_t n, unsigned char out[20]);
