/* What the host's proxy answers. A prefix of an answer asks for more or is wrong
 * already; once it is whole, more bytes change nothing. */
#include "gate/via.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    int last = 0;
    size_t head = 0;
    for (size_t k = 1; k <= n && k < 300; k++) {
        int r = via_answer((const char *)p, k, &head);
        if (last && r != last)
            abort();
        if (r > 0 && (r < 100 || r > 599 || head > k))
            abort();
        last = r;
    }
    if (n)
        (void)via_answer((const char *)p, n, &head);
    return 0;
}
