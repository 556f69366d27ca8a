/* What is read and written again must read as the same text; arbitrary bytes
 * written as a string must be JSON. */
#include "json/read.h"
#include "json/write.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    struct err e;
    struct buf a = {0}, b = {0};
    struct json *j = json_parse((const char *)data, n, &e);
    if (j) {
        json_dump(j, &a);
        struct json *k = json_parse(a.p, a.n, &e);
        if (!k)
            abort();
        json_dump(k, &b);
        if (a.n != b.n || memcmp(a.p, b.p, a.n))
            abort();
        struct str s = {0};
        int64_t v;
        (void)json_str(j, "a", &s, true, &e);
        (void)json_i64(json_get(j, "b"), "c", -5, 5, 0, &v, &e);
        (void)json_only(j, &e, "a", "b", NULL);
        for (size_t i = 0; i < json_len(j) && i < 10; i++)
            (void)json_to_str(json_at(j, i), &s, &e);
        json_free(k);
        json_free(j);
    }
    if (!memchr(data, 0, n)) {
        for (int ascii = 0; ascii < 2; ascii++) {
            struct jw w;
            a.n = 0;
            jw_init(&w, &a);
            w.ascii = ascii;
            jw_str(&w, (struct str){(const char *)data, n});
            j = json_parse(a.p, a.n, &e);
            if (!j || json_kind(j) != JSON_STR)
                abort();
            json_free(j);
        }
    }
    buf_free(&a);
    buf_free(&b);
    return 0;
}
