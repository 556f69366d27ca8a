/* multipart/form-data with boundary "b": any cut gives the same parts. */
#include "http/multipart.h"
#include <stdlib.h>
#include <string.h>

static int on_part(void *arg, struct str name, struct str file, struct str type)
{
    buf_putc(arg, '[');
    buf_put(arg, name.p, name.n);
    buf_putc(arg, '|');
    buf_put(arg, file.p, file.n);
    buf_putc(arg, '|');
    buf_put(arg, type.p, type.n);
    buf_putc(arg, ']');
    return 0;
}
static int on_data(void *arg, const char *p, size_t n)
{
    buf_put(arg, p, n);
    return 0;
}
static int on_part_end(void *arg)
{
    buf_putc(arg, '$');
    return 0;
}
static int run(const char *p, size_t n, size_t step, struct buf *log)
{
    static const struct multipart_cb cb = {on_part, on_data, on_part_end};
    struct err e;
    struct multipart *m = multipart_new(S("multipart/form-data; boundary=b"), &cb, log, &e);
    int r = 0;
    for (size_t at = 0; at < n && !r; at += step)
        r = multipart_push(m, p + at, n - at < step ? n - at : step, &e);
    r = r ? r : multipart_end(m, &e);
    multipart_free(m);
    return r;
}
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    struct buf a = {0}, b = {0}, c = {0};
    int ra = run((const char *)data, n, n ? n : 1, &a), rb = run((const char *)data, n, 1, &b), rc = run((const char *)data, n, 5, &c);
    if (ra != rb || rb != rc)
        abort();
    if (!ra && (a.n != b.n || b.n != c.n || (a.n && (memcmp(a.p, b.p, a.n) || memcmp(a.p, c.p, a.n)))))
        abort();
    buf_free(&a);
    buf_free(&b);
    buf_free(&c);
    return 0;
}
