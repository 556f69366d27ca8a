#include "wire/rec.h"
#include "base/enc.h"
#include <string.h>

void rec_put(struct buf *b, uint8_t tag, const void *p, size_t n)
{
    unsigned char h[5] = {tag};
    put_le32(h + 1, (uint32_t)n);
    buf_put(b, h, sizeof h);
    buf_put(b, p, n);
}
void rec_put_str(struct buf *b, uint8_t tag, const char *z)
{
    if (z)
        rec_put(b, tag, z, strlen(z));
}
void rec_put_u64(struct buf *b, uint8_t tag, uint64_t v)
{
    unsigned char x[8];
    put_le64(x, v);
    rec_put(b, tag, x, sizeof x);
}
size_t rec_open(struct buf *b, uint8_t tag)
{
    rec_put(b, tag, "", 0);
    return b->n;
}
void rec_close(struct buf *b, size_t mark) { put_le32((unsigned char *)b->p + mark - 4, (uint32_t)(b->n - mark)); }

bool rec_next(struct rec *r, struct field *ret)
{
    if (!r->p || !r->n)
        return false;
    if (r->n < 5)
        goto bad;
    size_t len = get_le32(r->p + 1);
    if (len > r->n - 5)
        goto bad;
    *ret = (struct field){r->p[0], {(const char *)r->p + 5, len}};
    r->p += 5 + len, r->n -= 5 + len;
    return true;
bad:
    *r = (struct rec){0};
    return false;
}
bool rec_ok(struct rec r)
{
    struct field f;
    bool empty = !r.n;
    while (rec_next(&r, &f))
        ;
    return empty || r.p != NULL;
}
bool rec_get(struct rec r, uint8_t tag, struct str *ret)
{
    struct field f;
    while (rec_next(&r, &f))
        if (f.tag == tag) {
            *ret = f.v;
            return true;
        }
    return false;
}
bool field_u64(struct field f, uint64_t *ret)
{
    if (f.v.n != 8)
        return false;
    *ret = get_le64((const unsigned char *)f.v.p);
    return true;
}
bool rec_u64(struct rec r, uint8_t tag, uint64_t *ret)
{
    struct field f = {.tag = tag};
    return rec_get(r, tag, &f.v) && field_u64(f, ret);
}
uint64_t rec_u64_or(struct rec r, uint8_t tag, uint64_t otherwise)
{
    uint64_t v;
    return rec_u64(r, tag, &v) ? v : otherwise;
}
char *rec_dup(struct rec r, uint8_t tag)
{
    struct str s;
    if (!rec_get(r, tag, &s) || (s.n && memchr(s.p, 0, s.n)))
        return NULL;
    return xstrndup(s.p, s.n);
}
