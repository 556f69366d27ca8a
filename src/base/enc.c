#include "base/enc.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void random_bytes(void *p, size_t n)
{
    unsigned char *c = p;
    while (n) {
        ssize_t r = getrandom(c, n, 0);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            abort();
        c += r, n -= (size_t)r;
    }
}

void hex_encode(const void *p, size_t n, char *out)
{
    static const char d[] = "0123456789abcdef";
    const unsigned char *c = p;
    for (size_t i = 0; i < n; i++)
        out[2 * i] = d[c[i] >> 4], out[2 * i + 1] = d[c[i] & 15];
    out[2 * n] = 0;
}

static int hexval(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool hex_decode(const char *s, size_t n, void *out)
{
    unsigned char *o = out;
    if (n % 2)
        return false;
    for (size_t i = 0; i < n; i += 2) {
        int h = hexval(s[i]), l = hexval(s[i + 1]);
        if (h < 0 || l < 0)
            return false;
        o[i / 2] = (unsigned char)(h << 4 | l);
    }
    return true;
}

void base64_encode(const void *p, size_t n, struct buf *out)
{
    static const char d[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *c = p;
    buf_reserve(out, n / 3 * 4 + 4);
    char *o = out->p + out->n;
    size_t i = 0;
    for (; i + 2 < n; i += 3) {
        uint32_t v = (uint32_t)c[i] << 16 | (uint32_t)c[i + 1] << 8 | c[i + 2];
        *o++ = d[v >> 18], *o++ = d[v >> 12 & 63], *o++ = d[v >> 6 & 63], *o++ = d[v & 63];
    }
    if (i < n) {
        uint32_t v = (uint32_t)c[i] << 16 | (i + 1 < n ? (uint32_t)c[i + 1] << 8 : 0);
        *o++ = d[v >> 18], *o++ = d[v >> 12 & 63], *o++ = i + 1 < n ? d[v >> 6 & 63] : '=', *o++ = '=';
    }
    out->n = (size_t)(o - out->p);
    *o = 0;
}

static int b64val(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? c - 'a' + 26 : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *s, size_t n, struct buf *out)
{
    while (n && s[n - 1] == '=')
        n--;
    if (n % 4 == 1)
        return false;
    buf_reserve(out, n / 4 * 3 + 3);
    uint32_t acc = 0;
    int bits = 0;
    for (size_t i = 0; i < n; i++) {
        int v = b64val(s[i]);
        if (v < 0)
            return false;
        acc = acc << 6 | (uint32_t)v, bits += 6;
        if (bits >= 8) {
            bits -= 8;
            buf_putc(out, (char)(acc >> bits & 0xff));
        }
    }
    return true;
}
