/* Build contexts: any bytes are an archive of some kind; reading them is
 * bounded, sees every byte, and says the same twice. */
#include "crypto/digest.h"
#include "image/context.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    char *src[] = {(char[]){"a*/[b]?"}, (char[]){"."}, (char[]){"../x"}};
    unsigned char key[2][CONTEXT_KEY], all[CONTEXT_KEY], want[CONTEXT_KEY];
    int fd = memfd_create("context", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    for (size_t i = 0; i < 3; i++) {
        for (int k = 0; k < 2; k++) {
            struct sha256 *h = sha256_new();
            struct context *c = context_scan(fd, h);
            context_key(c, src, i + 1, key[k]);
            context_free(c);
            sha256_end(h, all);
        }
        sha256(data, n, want);
        if (memcmp(key[0], key[1], CONTEXT_KEY) || memcmp(all, want, CONTEXT_KEY))
            abort();
    }
    close(fd);
    return 0;
}
