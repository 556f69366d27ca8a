/* Hashes, message authentication and tokens; OpenSSL stays behind this file.
 * Any thread. Algorithms are fetched once per process: the implicit fetch of
 * OpenSSL 3.0 takes locks and is slow when several threads hash. A libcrypto
 * without SHA-256 aborts: nothing here can go on without it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_HEX   65 /* with the NUL */

void sha256(const void *p, size_t n, unsigned char out[SHA256_BYTES]);
void sha256_hex(const void *p, size_t n, char out[SHA256_HEX]);

/* Piece by piece; sha256_free drops an unfinished one. */
struct sha256;
struct sha256 *sha256_new(void);
void sha256_add(struct sha256 *h, const void *p, size_t n);
void sha256_end(struct sha256 *h, unsigned char out[SHA256_BYTES]); /* frees h */
void sha256_end_hex(struct sha256 *h, char out[SHA256_HEX]);        /* frees h */
void sha256_free(struct sha256 *h);                                 /* NULL is fine */

void hmac_sha256(const void *key, size_t nkey, const void *p, size_t n, unsigned char out[SHA256_BYTES]);

/* Time depends on n only, never on the bytes. */
bool mem_eq_ct(const void *a, const void *b, size_t n);

/* prefix + nbytes random bytes as lower-case hex + NUL; out holds strlen(prefix) + 2 * nbytes + 1. nbytes at most 64. */
void token_make(const char *prefix, size_t nbytes, char *out);
