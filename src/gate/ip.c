#include "gate/ip.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

/* Own parser for dotted quads: inet_pton is strict enough, but wants NUL-terminated text. */
bool ip_parse(struct str s, struct ip *ret)
{
    char z[IP_TEXT];
    if (!s.n || s.n >= sizeof z || memchr(s.p, 0, s.n))
        return false;
    memcpy(z, s.p, s.n);
    z[s.n] = 0;
    struct ip a = {0};
    a.v6 = strchr(z, ':') != NULL;
    if (inet_pton(a.v6 ? AF_INET6 : AF_INET, z, a.b) != 1)
        return false;
    *ret = a;
    return true;
}

static unsigned ip_bits(const struct ip *a) { return a->v6 ? 128 : 32; }

static bool same_bits(const struct ip *a, const struct ip *b, unsigned bits)
{
    unsigned whole = bits / 8, rest = bits % 8;
    if (memcmp(a->b, b->b, whole))
        return false;
    return !rest || !((a->b[whole] ^ b->b[whole]) >> (8 - rest));
}

bool cidr_parse(struct str s, struct cidr *ret)
{
    const char *slash = memchr(s.p ? s.p : "", '/', s.n);
    struct cidr c = {0};
    if (!ip_parse((struct str){s.p, slash ? (size_t)(slash - s.p) : s.n}, &c.ip))
        return false;
    unsigned max = ip_bits(&c.ip);
    uint64_t bits = max;
    if (slash) {
        struct str n = {slash + 1, s.n - (size_t)(slash + 1 - s.p)};
        if (!str_u64(n, &bits) || bits > max || (n.n > 1 && n.p[0] == '0'))
            return false;
    }
    c.bits = (uint8_t)bits;
    for (unsigned i = c.bits; i < max; i++)
        if (c.ip.b[i / 8] & (0x80u >> (i % 8)))
            return false;
    *ret = c;
    return true;
}

void ip_text(const struct ip *a, char out[IP_TEXT]) { (void)inet_ntop(a->v6 ? AF_INET6 : AF_INET, a->b, out, IP_TEXT); }

void cidr_text(const struct cidr *c, char out[IP_TEXT])
{
    ip_text(&c->ip, out);
    size_t n = strlen(out);
    if (c->bits != ip_bits(&c->ip))
        (void)snprintf(out + n, IP_TEXT - n, "/%u", c->bits);
}

bool ip_eq(const struct ip *a, const struct ip *b) { return a->v6 == b->v6 && !memcmp(a->b, b->b, sizeof a->b); }
bool cidr_has(const struct cidr *c, const struct ip *a) { return c->ip.v6 == a->v6 && same_bits(&c->ip, a, c->bits); }
bool cidr_within(const struct cidr *inner, const struct cidr *outer) { return inner->bits >= outer->bits && cidr_has(outer, &inner->ip); }

static struct ip v4_at(const uint8_t *p)
{
    struct ip a = {0};
    memcpy(a.b, p, 4);
    return a;
}

struct ip ip_plain(const struct ip *a)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return a->v6 && !memcmp(a->b, mapped, 12) ? v4_at(a->b + 12) : *a;
}

bool ip_from_sockaddr(const struct sockaddr *sa, struct ip *ret, uint16_t *ret_port)
{
    struct ip a = {0};
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)sa;
        memcpy(a.b, &in->sin_addr, 4);
        *ret_port = ntohs(in->sin_port);
    } else if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)sa;
        a.v6 = true;
        memcpy(a.b, &in6->sin6_addr, 16);
        *ret_port = ntohs(in6->sin6_port);
    } else
        return false;
    *ret = ip_plain(&a);
    return true;
}

socklen_t ip_to_sockaddr(const struct ip *a, uint16_t port, struct sockaddr_storage *ret)
{
    memset(ret, 0, sizeof *ret);
    if (a->v6) {
        struct sockaddr_in6 *in6 = (void *)ret;
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        memcpy(&in6->sin6_addr, a->b, 16);
        return sizeof *in6;
    }
    struct sockaddr_in *in = (void *)ret;
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
    memcpy(&in->sin_addr, a->b, 4);
    return sizeof *in;
}

/* ---- closed ranges ---------------------------------------------------------------------------------------------
 * IANA's special-purpose registries, less the documentation ranges, which lead nowhere. First match wins. */
struct range { uint8_t b[16]; uint8_t bits; const char *why; };

static const struct range closed4[] = {
    {{0}, 8, "this network 0.0.0.0/8"},
    {{10}, 8, "private network 10.0.0.0/8"},
    {{100, 64}, 10, "carrier network 100.64.0.0/10"},
    {{127}, 8, "loopback 127.0.0.0/8"},
    {{169, 254}, 16, "link-local and metadata services 169.254.0.0/16"},
    {{172, 16}, 12, "private network 172.16.0.0/12"},
    {{192, 0, 0}, 24, "protocol assignments 192.0.0.0/24"},
    {{192, 88, 99}, 24, "6to4 relays 192.88.99.0/24"},
    {{192, 168}, 16, "private network 192.168.0.0/16"},
    {{198, 18}, 15, "benchmark network 198.18.0.0/15"},
    {{224}, 4, "multicast 224.0.0.0/4"},
    {{240}, 4, "reserved 240.0.0.0/4 and broadcast"},
    /* Metadata and platform endpoints that some clouds put on public addresses. */
    {{168, 63, 129, 16}, 32, "platform endpoint 168.63.129.16"},
};
static const struct range closed6[] = {
    {{0}, 128, "unspecified address ::"},
    {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128, "loopback ::1"},
    {{0x01, 0x00}, 64, "discard 100::/64"},
    {{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, "local NAT64 64:ff9b:1::/48"},
    {{0x20, 0x01, 0x00, 0x00}, 32, "Teredo 2001::/32"},
    {{0x20, 0x01, 0x00, 0x02}, 48, "benchmark network 2001:2::/48"},
    {{0x20, 0x01, 0x00, 0x10}, 28, "ORCHID 2001:10::/28"},
    {{0x20, 0x01, 0x00, 0x20}, 28, "ORCHID 2001:20::/28"},
    {{0x20, 0x02}, 16, "6to4 2002::/16"},
    {{0x5f, 0x00}, 16, "segment routing 5f00::/16"},
    {{0xfc}, 7, "private network fc00::/7"},
    {{0xfe, 0x80}, 10, "link-local fe80::/10"},
    {{0xfe, 0xc0}, 10, "site-local fec0::/10"},
    {{0xff}, 8, "multicast ff00::/8"},
};

static const char *look(const struct range *r, size_t n, const struct ip *a)
{
    for (size_t i = 0; i < n; i++) {
        struct ip base = {.v6 = a->v6};
        memcpy(base.b, r[i].b, 16);
        if (same_bits(&base, a, r[i].bits))
            return r[i].why;
    }
    return NULL;
}

static const char *closed_v4(const struct ip *a) { return look(closed4, sizeof closed4 / sizeof *closed4, a); }

const char *ip_closed(const struct ip *a)
{
    static const uint8_t nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    static const uint8_t isatap[4] = {0x00, 0x00, 0x5e, 0xfe};
    struct ip p = ip_plain(a);
    if (!p.v6)
        return closed_v4(&p);
    const char *why = look(closed6, sizeof closed6 / sizeof *closed6, &p);
    if (why)
        return why;
    static const uint8_t zero[12];
    if (!memcmp(p.b, zero, 12)) /* ::a.b.c.d, deprecated: nothing good lives there */
        return "IPv4-compatible ::/96";
    struct ip in = v4_at(p.b + 12);
    uint8_t iid[4] = {(uint8_t)(p.b[8] & ~2u), p.b[9], p.b[10], p.b[11]};
    if (!memcmp(p.b, nat64, 12) || !memcmp(iid, isatap, 4))
        return closed_v4(&in);
    return NULL;
}
