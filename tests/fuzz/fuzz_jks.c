/* A Java key store with the right sum, so that the reader of entries gets the bytes: what is accepted is accepted again with the
 * certificate in it, and then stays as it is. */
#include "image/jks.h"
#include "base/sha1.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const char salt[] = "\0c\0h\0a\0n\0g\0e\0i\0tMighty Aphrodite";
    unsigned char sum[SHA1_BYTES];
    struct buf all = {0}, out = {0}, again = {0};
    struct err e;
    buf_put(&all, salt, sizeof salt - 1);
    buf_put(&all, "\xfe\xed\xfe\xed\0\0\0", 7);
    buf_put(&all, p, n);
    sha1(all.p, all.n, sum);
    buf_put(&all, sum, sizeof sum);
    buf_drop(&all, sizeof salt - 1);
    if (!jks_trust((struct str){all.p, all.n}, "hutch-gate", S("certificate"), 7, &out, &e) &&
        (jks_trust((struct str){out.p, out.n}, "hutch-gate", S("certificate"), 7, &again, &e) || again.n != out.n || memcmp(again.p, out.p, out.n)))
        abort();
    buf_free(&all), buf_free(&out), buf_free(&again);
    return 0;
}
