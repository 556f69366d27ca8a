#include "image/jks.h"
#include "base/enc.h"
#include "base/sha1.h"
#include <string.h>
#include <strings.h>

#define MAGIC    0xfeedfeedu
#define PASSWORD "changeit"
#define PHRASE   "Mighty Aphrodite"
enum { HEAD = 12, ENTRY_KEY = 1, ENTRY_TRUSTED = 2, CHAIN_MAX = 64 };

struct cursor { const unsigned char *p; size_t n; };

static bool skip(struct cursor *c, size_t n)
{
    if (n > c->n)
        return false;
    c->p += n, c->n -= n;
    return true;
}
static bool u32(struct cursor *c, uint32_t *ret)
{
    if (c->n < 4)
        return false;
    *ret = get_be32(c->p);
    return skip(c, 4);
}
static bool string(struct cursor *c, struct str *ret)
{
    if (c->n < 2)
        return false;
    size_t n = (size_t)(c->p[0] << 8 | c->p[1]);
    if (!skip(c, 2) || n > c->n)
        return false;
    *ret = (struct str){(const char *)c->p, n};
    return skip(c, n);
}
static bool bytes(struct cursor *c)
{
    uint32_t n;
    return u32(c, &n) && skip(c, n);
}
static bool certificate(struct cursor *c, uint32_t version)
{
    struct str type;
    return (version == 1 || string(c, &type)) && bytes(c);
}

static bool entry(struct cursor *c, uint32_t version, struct str *alias)
{
    uint32_t tag, n = 0;
    if (!u32(c, &tag) || !string(c, alias) || !skip(c, 8))
        return false;
    if (tag == ENTRY_TRUSTED)
        return certificate(c, version);
    bool ok = tag == ENTRY_KEY && bytes(c) && u32(c, &n) && n <= CHAIN_MAX;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = certificate(c, version);
    return ok;
}

static void digest(const void *p, size_t n, unsigned char out[SHA1_BYTES])
{
    auto_buf b = {0};
    for (const char *c = PASSWORD; *c; c++)
        buf_putc(&b, 0), buf_putc(&b, *c);
    buf_puts(&b, PHRASE);
    buf_put(&b, p, n);
    sha1(b.p, b.n, out);
}

static void put_u32(struct buf *b, uint32_t v)
{
    unsigned char raw[4];
    put_be32(raw, v);
    buf_put(b, raw, sizeof raw);
}
static void put_string(struct buf *b, const char *z)
{
    size_t n = strlen(z);
    buf_putc(b, (char)(n >> 8)), buf_putc(b, (char)n);
    buf_put(b, z, n);
}

static void put_trusted(struct buf *b, uint32_t version, const char *alias, struct str der, uint64_t now_ms)
{
    put_u32(b, ENTRY_TRUSTED);
    put_string(b, alias);
    put_u32(b, (uint32_t)(now_ms >> 32)), put_u32(b, (uint32_t)now_ms);
    if (version > 1)
        put_string(b, "X.509");
    put_u32(b, (uint32_t)der.n);
    buf_put(b, der.p, der.n);
}

static int invalid(struct err *e, const char *what) { return err_set(e, E_INVALID, "Java key store: %s", what); }

int jks_trust(struct str store, const char *alias, struct str der, uint64_t now_ms, struct buf *ret, struct err *e)
{
    unsigned char sum[SHA1_BYTES];
    uint32_t magic, version, count, kept = 0;
    size_t want = strlen(alias);
    ret->n = 0;
    if (store.n > JKS_MAX)
        return invalid(e, "too large");
    if (store.n < HEAD + SHA1_BYTES)
        return invalid(e, "cut off");
    struct cursor c = {(const unsigned char *)store.p, store.n - SHA1_BYTES};
    digest(c.p, c.n, sum);
    if (!u32(&c, &magic) || !u32(&c, &version) || !u32(&c, &count) || magic != MAGIC || version < 1 || version > 2)
        return invalid(e, "of another format");
    if (memcmp(sum, store.p + store.n - SHA1_BYTES, sizeof sum))
        return invalid(e, "its password is not the usual one, or it is damaged");
    buf_put(ret, store.p, HEAD);
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *from = c.p;
        struct str name;
        if (!entry(&c, version, &name))
            return invalid(e, "an unknown entry");
        if (name.n == want && !strncasecmp(name.p, alias, want))
            continue;
        buf_put(ret, from, (size_t)(c.p - from));
        kept++;
    }
    if (c.n)
        return invalid(e, "bytes after the last entry");
    put_trusted(ret, version, alias, der, now_ms);
    put_be32((unsigned char *)ret->p + 8, kept + 1);
    digest(ret->p, ret->n, sum);
    buf_put(ret, sum, sizeof sum);
    return 0;
}
