/* The first bytes of a guest's connection. The verdict on a prefix never
 * contradicts the verdict on more: "more" may become anything, the rest stays. */
#include "gate/hello.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct hello h, prev;
    const char *why = NULL;
    enum hello_result last = HELLO_MORE;
    for (size_t k = 0; k <= n && k < 600; k++) {
        enum hello_result r = hello_parse(p, k, &h, &why);
        if (last != HELLO_MORE && last != HELLO_GOT && r != last)
            abort();
        if (last == HELLO_GOT && r == HELLO_GOT && strcmp(prev.sni, h.sni))
            abort();
        char again[NAME_MAX_LEN + 1];
        if (r == HELLO_GOT && h.sni[0] && (!name_canon(str_of(h.sni), again) || strcmp(again, h.sni)))
            abort();
        if (r == HELLO_BAD && !why)
            abort();
        last = r, prev = h;
    }
    (void)hello_parse(p, n, &h, &why);
    int http = 0;
    for (size_t k = 0; k <= n && k < 64; k++) {
        int r = hello_is_http(p, k);
        if (k && http >= 0 && r != http)
            abort();
        http = r;
    }
    return 0;
}
