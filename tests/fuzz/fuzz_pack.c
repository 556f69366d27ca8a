/* Snapshot packs; the first byte chooses: the manifest alone, the stream as it
 * is, or a stream whose manifest the fuzzer's own key signs, so that what lies
 * behind the signature is reached too. */
#include "base/buf.h"
#include "image/pack.h"
#include <stdlib.h>
#include <string.h>

static const unsigned char secret[SIGN_SECRET] = {1};
static const struct pack *now;

static int on_signer(void *arg, const unsigned char key[SIGN_PUBLIC], struct err *e)
{
    (void)arg, (void)key, (void)e;
    return 0;
}
static int on_manifest(void *arg, const struct pack *p, struct err *e)
{
    (void)arg, (void)e;
    if (!p->nparts || p->nparts > PACK_PARTS_MAX || p->nmachines > PACK_MACHINES_MAX)
        abort();
    now = p;
    return 0;
}
static int on_block(void *arg, unsigned part, uint64_t number, const unsigned char *p, size_t n, struct err *e)
{
    (void)arg, (void)p, (void)e;
    if (!now || part >= now->nparts || !n || n > PACK_BLOCK || number > now->part[part].bytes / PACK_BLOCK || number * PACK_BLOCK + n > now->part[part].bytes)
        abort();
    return 0;
}
static int on_part(void *arg, unsigned part, struct err *e)
{
    (void)arg, (void)e;
    if (part >= now->nparts)
        abort();
    return 0;
}

static void stream(const char *p, size_t n, size_t step)
{
    static const struct pack_reader_ops ops = {on_signer, on_manifest, on_block, on_part};
    struct pack_reader *r = pack_reader_new(1 << 24, &ops, NULL);
    struct err e;
    int rc = 0;
    now = NULL;
    for (size_t i = 0; i < n && !rc; i += step)
        rc = pack_reader_push(r, p + i, n - i < step ? n - i : step, &e);
    if (!rc && !pack_reader_end(r, &e) && !now)
        abort();
    pack_reader_free(r);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    struct pack m;
    struct err e;
    if (n < 2)
        return 0;
    const char *p = (const char *)data + 2;
    size_t step = data[1] ? data[1] : 4096;
    switch (n -= 2, data[0] % 3) {
    case 0:
        if (!pack_parse(p, n, &m, &e)) {
            auto_buf text = {0}, again = {0};
            struct pack back;
            pack_format(&m, &text);
            if (pack_parse(text.p, text.n, &back, &e))
                abort();
            pack_format(&back, &again);
            if (again.n != text.n || memcmp(again.p, text.p, text.n))
                abort();
            pack_fini(&m), pack_fini(&back);
        }
        break;
    case 1:
        stream(p, n, step);
        break;
    default: {
        const char *end = memchr(p, '\n', n);
        size_t k = end ? (size_t)(end - p) : n;
        auto_buf b = {0};
        pack_sign(secret, (struct str){p, k}, &b);
        if (end)
            buf_put(&b, end + 1, n - k - 1);
        stream(b.p, b.n, step);
    }
    }
    return 0;
}
