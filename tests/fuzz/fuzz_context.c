/* Build contexts: any bytes are an archive of some kind; reading them is
 * bounded, sees every byte, and says the same twice. Of the input an archive
 * with right sums is made (16 bytes a header, then data), or nothing behind the
 * first header would ever be reached; an input that begins with 0xff is taken
 * as it is. */
#include "base/buf.h"
#include "crypto/digest.h"
#include "image/context.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void header(struct buf *out, const unsigned char d[16])
{
    char h[512] = {0};
    unsigned n = 8 * ' ';
    memcpy(h, d, 10);
    memcpy(h + 257, d[13] & 1 ? "ustar\00000" : "ustar  ", 8);
    if (d[13] & 2)
        memcpy(h + 345, d, 8);
    (void)snprintf(h + 100, 8, "%07o", d[14] * 8u);
    (void)snprintf(h + 124, 12, "%011o", d[11] * 8u);
    h[156] = "0052LK1x"[d[10] & 7];
    memcpy(h + 157, d + 4, 6);
    for (size_t i = 0; i < 512; i++)
        n += i >= 148 && i < 156 ? 0 : (unsigned char)h[i];
    (void)snprintf(h + 148, 8, "%06o", n);
    h[155] = ' ';
    buf_put(out, h, sizeof h);
}

static void archive(const unsigned char *p, size_t n, struct buf *out)
{
    while (n >= 16) {
        size_t size = p[11] * 8u;
        header(out, p);
        p += 16, n -= 16;
        size_t k = size < n ? size : n;
        buf_put(out, p, k);
        p += k, n -= k;
        while (out->n % 512)
            buf_putc(out, 0);
    }
    for (int i = 0; n && i < 1024; i++) /* an end, or none */
        buf_putc(out, 0);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    char *src[] = {(char[]){"a*/[b]?"}, (char[]){"."}, (char[]){"../x"}};
    unsigned char key[2][CONTEXT_KEY], all[CONTEXT_KEY], want[CONTEXT_KEY];
    auto_buf b = {0};
    if (n && *data == 0xff)
        buf_put(&b, data, n);
    else
        archive(data, n, &b);
    int fd = memfd_create("context", MFD_CLOEXEC);
    if (fd < 0 || write(fd, b.p, b.n) != (ssize_t)b.n)
        abort();
    sha256(b.p, b.n, want);
    for (size_t i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            struct sha256 *h = sha256_new();
            struct context *c = context_scan(fd, h);
            context_key(c, src, i + 1, key[k]);
            context_free(c);
            sha256_end(h, all);
        }
        if (memcmp(key[0], key[1], CONTEXT_KEY) || memcmp(all, want, CONTEXT_KEY))
            abort();
    }
    close(fd);
    return 0;
}
