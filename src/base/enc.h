/* Encodings and little-endian integers; random bytes from the kernel. */
#pragma once
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void random_bytes(void *p, size_t n); /* getrandom(2); aborts if the kernel has none */
void hex_encode(const void *p, size_t n, char *out /* 2n+1 */);
bool hex_decode(const char *s, size_t n, void *out /* n/2 */);
void base64_encode(const void *p, size_t n, struct buf *out);
bool base64_decode(const char *s, size_t n, struct buf *out); /* standard alphabet, padding optional */

static inline void put_le32(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)v, p[1] = (unsigned char)(v >> 8), p[2] = (unsigned char)(v >> 16), p[3] = (unsigned char)(v >> 24);
}
static inline uint32_t get_le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void put_le64(unsigned char *p, uint64_t v) { put_le32(p, (uint32_t)v), put_le32(p + 4, (uint32_t)(v >> 32)); }
static inline uint64_t get_le64(const unsigned char *p) { return (uint64_t)get_le32(p) | (uint64_t)get_le32(p + 4) << 32; }
static inline void put_be32(unsigned char *p, uint32_t v)
{
    p[3] = (unsigned char)v, p[2] = (unsigned char)(v >> 8), p[1] = (unsigned char)(v >> 16), p[0] = (unsigned char)(v >> 24);
}
static inline uint32_t get_be32(const unsigned char *p)
{
    return (uint32_t)p[3] | (uint32_t)p[2] << 8 | (uint32_t)p[1] << 16 | (uint32_t)p[0] << 24;
}
static inline void put_be64(unsigned char *p, uint64_t v) { put_be32(p + 4, (uint32_t)v), put_be32(p, (uint32_t)(v >> 32)); }
