#include "gate/dgram.h"
#include "test.h"

static struct dgram of(const char *from, uint16_t fp, const char *to, uint16_t tp)
{
    struct dgram d = {.from_port = fp, .to_port = tp};
    CHECK(ip_parse(str_of(from), &d.from) && ip_parse(str_of(to), &d.to));
    return d;
}

/* The sum over everything, the checksum in it, is all ones: what a receiver computes. */
static uint32_t verify(const void *p, size_t n, uint32_t s)
{
    const uint8_t *b = p;
    for (size_t i = 0; i < n; i++)
        s += (uint32_t)b[i] << (i & 1 ? 0 : 8);
    while (s >> 16)
        s = (s & 0xffff) + (s >> 16);
    return s;
}

TEST(dgram, a_head_that_receivers_take)
{
    static const struct { const char *from, *to; } t[] = {{"192.0.2.7", "10.77.0.2"}, {"2001:db8::7", "fd68:7574:6368::2"}};
    for (size_t i = 0; i < 2; i++)
        for (size_t n = 0; n < 6; n++) {
            struct dgram d = of(t[i].from, 123, t[i].to, 40000);
            uint8_t m[DGRAM_HEAD + 8];
            dgram_head(&d, "hello", n, m);
            memcpy(m + DGRAM_HEAD, "hello", n);
            CHECK(m[0] == 0 && m[1] == 123 && m[4] == 0 && m[5] == 8 + n && (m[6] || m[7]));
            uint32_t s = verify(d.from.b, d.to.v6 ? 16 : 4, (uint32_t)(17 + 8 + n));
            s = verify(d.to.b, d.to.v6 ? 16 : 4, s);
            CHECK_INT(verify(m, DGRAM_HEAD + n, s), 0xffff);
        }
}

TEST(dgram, a_refusal_quotes_what_it_refuses)
{
    struct dgram d = of("10.77.0.2", 40000, "192.0.2.7", 443);
    uint8_t m[DGRAM_NO];
    CHECK_INT(dgram_refuse(&d, 5, DGRAM_PROHIBITED, m), 36);
    CHECK(m[0] == 3 && m[1] == 13);
    CHECK_INT(verify(m, 36, 0), 0xffff);
    CHECK_INT(verify(m + 8, 20, 0), 0xffff);
    CHECK(m[8] == 0x45 && m[17] == 17 && !memcmp(m + 20, d.from.b, 4) && !memcmp(m + 24, d.to.b, 4) && m[30] == 1 && m[31] == 187 && m[33] == 13);
    d = of("fd68:7574:6368::2", 40000, "2001:db8::7", 443);
    CHECK_INT(dgram_refuse(&d, 5, DGRAM_NO_PORT, m), 56);
    CHECK(m[0] == 1 && m[1] == 4 && m[8] == 0x60 && m[14] == 17 && !memcmp(m + 16, d.from.b, 16) && !memcmp(m + 32, d.to.b, 16) && m[50] == 1 && m[51] == 187);
}

TEST_MAIN
