#include "gate/dgram.h"
#include <netinet/in.h>
#include <string.h>

static uint32_t sum(uint32_t s, const void *p, size_t n)
{
    const uint8_t *b = p;
    for (size_t i = 0; i + 1 < n; i += 2)
        s += (uint32_t)b[i] << 8 | b[i + 1];
    return n & 1 ? s + ((uint32_t)b[n - 1] << 8) : s;
}
static uint16_t fold(uint32_t s)
{
    s = (s & 0xffff) + (s >> 16);
    return (uint16_t)~((s & 0xffff) + (s >> 16));
}
static void put16(uint8_t *p, size_t v) { p[0] = (uint8_t)(v >> 8), p[1] = (uint8_t)v; }

void dgram_head(const struct dgram *d, const void *body, size_t n, uint8_t out[DGRAM_HEAD])
{
    size_t addr = d->to.v6 ? 16 : 4;
    put16(out, d->from_port), put16(out + 2, d->to_port), put16(out + 4, n + DGRAM_HEAD), put16(out + 6, 0);
    /* RFC 768, RFC 8200 8.1: a pseudo header of addresses, length and protocol; 0 would mean "none" */
    uint32_t s = sum(0, d->from.b, addr);
    s = sum(s, d->to.b, addr) + (uint32_t)(n + DGRAM_HEAD) + IPPROTO_UDP;
    uint16_t c = fold(sum(sum(s, out, DGRAM_HEAD), body, n));
    put16(out + 6, c ? c : 0xffff);
}

/* The head of the datagram as its sender sent it: that is how the sender finds its socket again. */
static size_t quote(const struct dgram *d, size_t n, uint8_t *out)
{
    size_t head = d->to.v6 ? 40 : 20;
    memset(out, 0, head + DGRAM_HEAD);
    if (d->to.v6) {
        out[0] = 0x60, out[6] = IPPROTO_UDP, out[7] = 64;
        put16(out + 4, n + DGRAM_HEAD);
        memcpy(out + 8, d->from.b, 16), memcpy(out + 24, d->to.b, 16);
    } else {
        out[0] = 0x45, out[8] = 64, out[9] = IPPROTO_UDP;
        put16(out + 2, head + n + DGRAM_HEAD);
        memcpy(out + 12, d->from.b, 4), memcpy(out + 16, d->to.b, 4);
        put16(out + 10, fold(sum(0, out, head)));
    }
    put16(out + head, d->from_port), put16(out + head + 2, d->to_port), put16(out + head + 4, n + DGRAM_HEAD);
    return head + DGRAM_HEAD;
}
size_t dgram_refuse(const struct dgram *d, size_t n, enum dgram_no why, uint8_t out[DGRAM_NO])
{
    static const uint8_t code4[] = {[DGRAM_PROHIBITED] = 13, [DGRAM_NO_PORT] = 3, [DGRAM_NO_HOST] = 1};
    static const uint8_t code6[] = {[DGRAM_PROHIBITED] = 1, [DGRAM_NO_PORT] = 4, [DGRAM_NO_HOST] = 3};
    memset(out, 0, 8);
    out[0] = d->to.v6 ? 1 : 3; /* destination unreachable */
    out[1] = d->to.v6 ? code6[why] : code4[why];
    size_t len = 8 + quote(d, n, out + 8);
    if (!d->to.v6)
        put16(out + 2, fold(sum(0, out, len)));
    return len;
}
