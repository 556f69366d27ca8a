#include "base/crc.h"
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

uint32_t crc32c_plain(uint32_t before, const void *p, size_t n)
{
    const unsigned char *at = p;
    uint32_t c = ~before;
    while (n--) {
        c ^= *at++;
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? POLYNOMIAL : 0);
    }
    return ~c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_fast(uint32_t before, const unsigned char *at, size_t n)
{
    uint64_t c = (uint32_t)~before;
    for (; n >= 8; at += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, at, 8);
        c = __builtin_ia32_crc32di(c, v);
    }
    for (; n; at++, n--)
        c = __builtin_ia32_crc32qi((uint32_t)c, *at);
    return ~(uint32_t)c;
}

uint32_t crc32c(uint32_t before, const void *p, size_t n)
{
    return __builtin_cpu_supports("sse4.2") ? crc_fast(before, p, n) : crc32c_plain(before, p, n);
}
#else
uint32_t crc32c(uint32_t before, const void *p, size_t n) { return crc32c_plain(before, p, n); }
#endif
