/* Chunked bodies: any cut gives the same data and the same end; our own
 * encoding of the data decodes to it again. */
#include "base/buf.h"
#include "http/body.h"
#include <stdlib.h>
#include <string.h>

static enum http_body_state run(const char *p, size_t n, size_t step, struct buf *out, size_t *at)
{
    struct http_body b;
    http_body_init(&b, HTTP_BODY_CHUNKED, 0);
    enum http_body_state r = HTTP_BODY_MORE;
    *at = 0;
    while (*at < n && r != HTTP_BODY_DONE && r != HTTP_BODY_ERROR) {
        size_t take = n - *at < step ? n - *at : step, used;
        struct str d;
        r = http_body_push(&b, p + *at, take, &used, &d);
        if (used > take)
            abort();
        if (r == HTTP_BODY_DATA)
            buf_put(out, d.p, d.n);
        *at += used;
    }
    return b.done ? HTTP_BODY_DONE : r == HTTP_BODY_ERROR ? r : HTTP_BODY_MORE;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    struct buf a = {0}, b = {0}, enc = {0};
    size_t ua, ub;
    enum http_body_state ra = run((const char *)data, n, n ? n : 1, &a, &ua), rb = run((const char *)data, n, 1, &b, &ub);
    if (ra != rb || a.n != b.n || (a.n && memcmp(a.p, b.p, a.n)) || (ra == HTTP_BODY_DONE && ua != ub))
        abort();
    if (n) {
        char head[HTTP_CHUNK_HEAD_MAX];
        buf_put(&enc, head, http_chunk_head(head, n));
        buf_put(&enc, data, n);
        buf_puts(&enc, "\r\n0\r\n\r\n");
        b.n = 0;
        if (run(enc.p, enc.n, 7, &b, &ub) != HTTP_BODY_DONE || b.n != n || memcmp(b.p, data, n))
            abort();
    }
    buf_free(&a);
    buf_free(&b);
    buf_free(&enc);
    return 0;
}
