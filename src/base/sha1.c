#include "base/sha1.h"
#include "base/enc.h"
#include <stdint.h>
#include <string.h>

static uint32_t rol(uint32_t v, int n) { return v << n | v >> (32 - n); }

static void block(uint32_t h[5], const unsigned char *p)
{
    uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = rol(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) { /* FIPS 180-4 6.1.2 */
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        uint32_t t = rol(a, 5) + f + e + k + w[i];
        e = d, d = c, c = rol(b, 30), b = a, a = t;
    }
    h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e;
}

void sha1(const void *data, size_t n, unsigned char out[20])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const unsigned char *p = data;
    unsigned char tail[128] = {0};
    size_t left = n;
    for (; left >= 64; left -= 64, p += 64)
        block(h, p);
    if (left)
        memcpy(tail, p, left);
    tail[left] = 0x80;
    size_t blocks = left < 56 ? 1 : 2;
    put_be64(tail + 64 * blocks - 8, (uint64_t)n * 8);
    for (size_t i = 0; i < blocks; i++)
        block(h, tail + 64 * i);
    for (int i = 0; i < 5; i++)
        put_be32(out + 4 * i, h[i]);
}
