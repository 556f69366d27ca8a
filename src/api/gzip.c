#include "api/gzip.h"
#include "base/str.h"
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

struct gzip { z_stream z; };

struct gzip *gzip_new(void)
{
    struct gzip *g = xcalloc(1, sizeof *g);
    if (deflateInit2(&g->z, Z_BEST_SPEED, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort(); /* out of memory, as everywhere for small things */
    return g;
}

void gzip_free(struct gzip *g)
{
    if (!g)
        return;
    (void)deflateEnd(&g->z);
    free(g);
}

void gzip_push(struct gzip *g, const void *p, size_t n, bool last, struct buf *out)
{
    unsigned char block[16384];
    const unsigned char *at = p;
    do {
        uInt in = n < 1u << 30 ? (uInt)n : 1u << 30;
        g->z.next_in = (Bytef *)(uintptr_t)at; /* zlib does not write through it */
        g->z.avail_in = in;
        do {
            g->z.next_out = block;
            g->z.avail_out = sizeof block;
            (void)deflate(&g->z, last && in == n ? Z_FINISH : Z_NO_FLUSH); /* cannot fail on a stream that was set up */
            buf_put(out, block, sizeof block - g->z.avail_out);
        } while (!g->z.avail_out);
        at += in, n -= in;
    } while (n);
}

bool gzip_asked(struct http_stream *s) { return str_ieqz(str_trim(http_req_header(s, "Accept-Encoding")), "gzip"); }
