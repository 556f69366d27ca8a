/* SHA-1, only where a format wants it (RFC 6455's handshake, Java's key stores); not for security. */
#pragma once
#include <stddef.h>
#define SHA1_BYTES 20
void sha1(const void *p, size_t n, unsigned char out[SHA1_BYTES]);
