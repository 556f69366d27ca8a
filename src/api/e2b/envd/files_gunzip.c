#include "api/e2b/envd/files_gunzip.h"
#include "base/buf.h"
#include <stdint.h>
#include <zlib.h>

struct gunzip {
    z_stream z;
    bool whole, broken;
};

struct gunzip *gunzip_new(void)
{
    struct gunzip *g = xcalloc(1, sizeof *g);
    if (inflateInit2(&g->z, 15 + 16) != Z_OK)
        abort(); /* out of memory, as everywhere for small things */
    return g;
}

void gunzip_free(struct gunzip *g)
{
    if (!g)
        return;
    (void)inflateEnd(&g->z);
    free(g);
}

bool gunzip_whole(const struct gunzip *g) { return g->whole; }

long gunzip_step(struct gunzip *g, const char **p, size_t *n, char *out, size_t cap, struct err *e)
{
    uInt in = *n < 1u << 30 ? (uInt)*n : 1u << 30;
    if (g->broken)
        return err_set(e, E_INVALID, "the body is not valid gzip");
    if (g->whole && in) {
        (void)inflateReset(&g->z); /* another member */
        g->whole = false;
    }
    if (g->whole || (!in && !g->z.total_in))
        return 0;
    g->z.next_in = (Bytef *)(uintptr_t)*p; /* zlib does not write through it */
    g->z.avail_in = in;
    g->z.next_out = (Bytef *)out;
    g->z.avail_out = (uInt)cap;
    int r = inflate(&g->z, Z_NO_FLUSH);
    *p += in - g->z.avail_in;
    *n -= in - g->z.avail_in;
    if (r == Z_STREAM_END)
        g->whole = true;
    else if (r != Z_OK && r != Z_BUF_ERROR) {
        g->broken = true;
        return err_set(e, E_INVALID, "the body is not valid gzip");
    }
    return (long)(cap - g->z.avail_out);
}
