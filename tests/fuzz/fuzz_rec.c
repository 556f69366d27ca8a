/* Records from a hostile peer: every reader stays inside, and what rec_ok
 * accepts can be walked to its end and built again byte for byte. */
#include "wire/rec.h"
#include <stdlib.h>
#include <string.h>

static void walk(struct rec r, int depth)
{
    struct field f;
    uint64_t v;
    while (rec_next(&r, &f)) {
        (void)field_u64(f, &v);
        if (depth < 8)
            walk(field_rec(f), depth + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct rec r = {p, n}, at = r;
    struct field f;
    walk(r, 0);
    for (int tag = 0; tag < 64; tag++)
        free(rec_dup(r, (uint8_t)tag));
    if (!rec_ok(r))
        return 0;
    struct buf b = {0};
    while (rec_next(&at, &f))
        rec_put(&b, f.tag, f.v.p, f.v.n);
    if (b.n != n || (n && memcmp(b.p, p, n)))
        abort();
    buf_free(&b);
    return 0;
}
