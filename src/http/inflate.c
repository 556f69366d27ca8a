/* Unpacks in blocks and looks at the bound before each is kept, so a bomb costs
 * one block. Trailing bytes after the stream are an error. */
#include "http/inflate.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

int inflate_all(const void *p, size_t n, size_t max, struct buf *out, struct err *e)
{
    z_stream z;
    memset(&z, 0, sizeof z);
    if (n > UINT32_MAX / 2)
        return err_set(e, E_TOO_LARGE, "compressed body too large");
    if (inflateInit2(&z, 15 + 32) != Z_OK) /* 32: gzip or zlib, by the header */
        return err_set(e, E_INTERNAL, "zlib failed to start");
    size_t start = out->n;
    char block[16384];
    int r;
    z.next_in = (Bytef *)(uintptr_t)p; /* zlib does not write through it */
    z.avail_in = (uInt)n;
    do {
        z.next_out = (Bytef *)block;
        z.avail_out = sizeof block;
        r = inflate(&z, Z_NO_FLUSH);
        size_t got = sizeof block - z.avail_out;
        if (got > max - (out->n - start)) {
            inflateEnd(&z);
            out->n = start;
            return err_set(e, E_TOO_LARGE, "the body unpacks to more than %zu bytes", max);
        }
        buf_put(out, block, got);
    } while (r == Z_OK);
    bool whole = r == Z_STREAM_END && !z.avail_in;
    inflateEnd(&z);
    if (whole)
        return 0;
    out->n = start;
    return err_set(e, E_INVALID, "the body is not valid gzip");
}
