#include "api/utf8.h"

size_t utf8_whole(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    /* The last lead byte can be at most three bytes from the end of an unfinished character. */
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned c = u[n - back];
        if ((c & 0xc0) == 0x80)
            continue;
        size_t want = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 1;
        return want > back ? n - back : n;
    }
    return n;
}

void utf8_push(struct utf8_tail *t, const void *p, size_t n, struct buf *out)
{
    size_t at = out->n;
    buf_put(out, t->held, t->n);
    buf_put(out, p, n);
    size_t whole = utf8_whole(out->p + at, out->n - at);
    t->n = (unsigned)(out->n - at - whole);
    memcpy(t->held, out->p + at + whole, t->n);
    out->n = at + whole;
    out->p[out->n] = 0;
}

void utf8_flush(struct utf8_tail *t, struct buf *out)
{
    buf_put(out, t->held, t->n);
    t->n = 0;
}
