#include "base/str.h"
#include "base/enc.h"

bool str_eq(struct str a, struct str b) { return a.n == b.n && (!a.n || !memcmp(a.p, b.p, a.n)); }
bool str_eqz(struct str a, const char *b) { return str_eq(a, str_of(b)); }
bool str_starts(struct str a, const char *prefix)
{
    size_t n = strlen(prefix);
    return a.n >= n && !memcmp(a.p, prefix, n);
}
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }
bool str_ieqz(struct str a, const char *b)
{
    if (a.n != strlen(b))
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b[i]))
            return false;
    return true;
}
struct str str_trim(struct str a)
{
    while (a.n && (*a.p == ' ' || *a.p == '\t'))
        a.p++, a.n--;
    while (a.n && (a.p[a.n - 1] == ' ' || a.p[a.n - 1] == '\t'))
        a.n--;
    return a;
}
bool str_u64(struct str a, uint64_t *ret)
{
    uint64_t v = 0;
    if (!a.n)
        return false;
    for (size_t i = 0; i < a.n; i++) {
        if (a.p[i] < '0' || a.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) || __builtin_add_overflow(v, (uint64_t)(a.p[i] - '0'), &v))
            return false;
    }
    *ret = v;
    return true;
}
bool str_i64(struct str a, int64_t *ret)
{
    bool neg = a.n && *a.p == '-';
    uint64_t v;
    if (neg)
        a.p++, a.n--;
    if (!str_u64(a, &v) || v > (uint64_t)INT64_MAX)
        return false;
    *ret = neg ? -(int64_t)v : (int64_t)v;
    return true;
}
bool str_utf8(struct str a)
{
    const unsigned char *p = (const unsigned char *)a.p, *end = p + a.n;
    while (p < end) {
        unsigned c = *p++;
        if (!c)
            return false;
        if (c < 0x80)
            continue;
        int more = c >= 0xf0 && c <= 0xf4 ? 3 : c >= 0xe0 && c < 0xf0 ? 2 : c >= 0xc2 && c < 0xe0 ? 1 : 0;
        if (!more || end - p < more)
            return false;
        /* the second byte rules out overlong forms, surrogates and > U+10FFFF (RFC 3629 §4) */
        if ((c == 0xe0 && p[0] < 0xa0) || (c == 0xed && p[0] > 0x9f) || (c == 0xf0 && p[0] < 0x90) || (c == 0xf4 && p[0] > 0x8f))
            return false;
        for (int i = 0; i < more; i++)
            if ((*p++ & 0xc0) != 0x80)
                return false;
    }
    return true;
}
static bool lower_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool name_ok(struct str a)
{
    if (!a.n || a.n > 63 || a.p[0] == '-')
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (!lower_alnum(a.p[i]) && a.p[i] != '-')
            return false;
    return true;
}
bool id_ok(struct str a)
{
    if (a.n != 21 || a.p[0] < 'a' || a.p[0] > 'z')
        return false;
    for (size_t i = 1; i < a.n; i++)
        if (!lower_alnum(a.p[i]))
            return false;
    return true;
}
void id_make(char kind, char out[22])
{
    static const char set[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    out[0] = kind;
    for (int i = 1; i <= 20;) {
        unsigned char r[32];
        random_bytes(r, sizeof r);
        for (unsigned j = 0; j < sizeof r && i <= 20; j++)
            if (r[j] < 252) /* 7 * 36: no modulo bias */
                out[i++] = set[r[j] % 36];
    }
    out[21] = 0;
}
