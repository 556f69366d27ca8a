/* Ed25519 signatures (RFC 8032). OpenSSL stays behind this file. Any thread. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define SIGN_SECRET 32
#define SIGN_PUBLIC 32
#define SIGN_BYTES  64

/* The public key that belongs to 32 random bytes. */
void sign_public(const unsigned char secret[SIGN_SECRET], unsigned char ret[SIGN_PUBLIC]);
void sign_make(const unsigned char secret[SIGN_SECRET], const void *p, size_t n, unsigned char ret[SIGN_BYTES]);
bool sign_check(const unsigned char public[SIGN_PUBLIC], const void *p, size_t n, const unsigned char sig[SIGN_BYTES]);
