#include "gate/hello.h"
#include <string.h>

enum { REC_HANDSHAKE = 22, HS_CLIENT_HELLO = 1, EXT_SNI = 0, EXT_ECH = 0xfe0d, EXT_ESNI = 0xffce };

#define METHOD_MAX 32 /* letters: what is longer is no request */

struct cut { const uint8_t *p; size_t n; };

static bool take(struct cut *c, size_t n, struct cut *ret)
{
    if (c->n < n)
        return false;
    *ret = (struct cut){c->p, n};
    c->p += n, c->n -= n;
    return true;
}
static bool take_u(struct cut *c, int bytes, size_t *ret)
{
    struct cut v;
    if (!take(c, (size_t)bytes, &v))
        return false;
    *ret = 0;
    for (int i = 0; i < bytes; i++)
        *ret = *ret << 8 | v.p[i];
    return true;
}
/* A vector with its length in `bytes` bytes before it. */
static bool take_v(struct cut *c, int bytes, struct cut *ret)
{
    size_t n;
    return take_u(c, bytes, &n) && take(c, n, ret);
}

static const char *server_name(struct cut ext, struct hello *h)
{
    struct cut list, name;
    size_t type;
    if (!take_v(&ext, 2, &list) || ext.n || !take_u(&list, 1, &type) || type != 0 || !take_v(&list, 2, &name) || list.n)
        return "a server name extension that is not one host name";
    if (!name_canon((struct str){(const char *)name.p, name.n}, h->sni))
        return "a server name that is not a host name";
    return NULL;
}

static const char *extensions(struct cut c, struct hello *h)
{
    uint16_t seen[64];
    size_t nseen = 0;
    const char *why = NULL;
    while (c.n && !why) {
        size_t type;
        struct cut body;
        if (!take_u(&c, 2, &type) || !take_v(&c, 2, &body))
            return "malformed extensions";
        for (size_t i = 0; i < nseen; i++)
            if (seen[i] == type)
                return "an extension twice";
        if (nseen == 64)
            return "more than 64 extensions";
        seen[nseen++] = (uint16_t)type;
        if (type == EXT_SNI)
            why = server_name(body, h);
        if (type == EXT_ECH || type == EXT_ESNI)
            h->ech = true;
    }
    return why;
}

static const char *client_hello(struct cut c, struct hello *h)
{
    struct cut random, session, suites, methods, ext;
    size_t version;
    if (!take_u(&c, 2, &version) || version >> 8 != 3 || !take(&c, 32, &random) || !take_v(&c, 1, &session) || session.n > 32 ||
        !take_v(&c, 2, &suites) || suites.n < 2 || suites.n % 2 || !take_v(&c, 1, &methods) || !methods.n)
        return "a malformed client hello";
    if (!c.n)
        return NULL; /* very old, without extensions: no name */
    if (!take_v(&c, 2, &ext) || c.n)
        return "a malformed client hello";
    return extensions(ext, h);
}

enum hello_result hello_parse(const uint8_t *p, size_t n, struct hello *ret, const char **why)
{
    static const char too_long[] = "a client hello that is too long", not_hello[] = "a TLS stream that does not begin with a client hello";
    uint8_t hs[HELLO_MAX];
    size_t have = 0;
    *ret = (struct hello){0};
    if (n && p[0] != REC_HANDSHAKE)
        return HELLO_NOT_TLS;
    for (size_t at = 0; n - at >= 5;) {
        size_t len = (size_t)p[at + 3] << 8 | p[at + 4], got = n - at - 5 < len ? n - at - 5 : len;
        if (p[at] != REC_HANDSHAKE || p[at + 1] != 3 || !len || len > 16384) {
            *why = at ? "a client hello interrupted by something else" : not_hello;
            return at ? HELLO_BAD : HELLO_NOT_TLS;
        }
        if (got > sizeof hs - have) {
            *why = too_long;
            return HELLO_BAD;
        }
        memcpy(hs + have, p + at + 5, got);
        have += got;
        if (have && hs[0] != HS_CLIENT_HELLO) {
            *why = not_hello;
            return HELLO_BAD;
        }
        if (have >= 4) {
            size_t want = (size_t)hs[1] << 16 | (size_t)hs[2] << 8 | hs[3];
            if (want > sizeof hs - 4) {
                *why = too_long;
                return HELLO_BAD;
            }
            if (have >= want + 4) { /* nothing may follow before the server has answered */
                *why = have > want + 4 ? "bytes after the client hello in its record" : client_hello((struct cut){hs + 4, want}, ret);
                return *why ? HELLO_BAD : HELLO_GOT;
            }
        }
        at += 5 + got;
        if (got < len)
            break;
    }
    if (n >= HELLO_MAX) {
        *why = too_long;
        return HELLO_BAD;
    }
    return HELLO_MORE;
}

int hello_is_http(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n && i < METHOD_MAX && ((p[i] >= 'A' && p[i] <= 'Z') || p[i] == '-'))
        i++;
    if (i == n && n < METHOD_MAX)
        return -1;
    return i > 0 && i < METHOD_MAX && p[i] == ' '; /* i < n: the same whether the rest has come or not */
}
