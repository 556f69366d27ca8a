/* Heads, both directions. The verdict must not depend on how the bytes were
 * cut; what was accepted must be well-formed when looked at again. */
#include "http/parse.h"
#include "http/uri.h"
#include <stdlib.h>

struct verdict { enum http_parse r; int status; size_t used; struct http_parser p; };

static void run(struct verdict *v, enum http_kind kind, unsigned flags, const char *p, size_t n, size_t step)
{
    http_parser_init(&v->p, kind, flags);
    v->r = HTTP_PARSE_MORE;
    v->used = 0;
    while (v->used < n && v->r == HTTP_PARSE_MORE) {
        size_t take = n - v->used < step ? n - v->used : step, used;
        v->r = http_parse_push(&v->p, p + v->used, take, &used);
        if (used > take || (v->r == HTTP_PARSE_MORE && used != take))
            abort();
        v->used += used;
    }
    v->status = v->p.status;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
{
    if (n < 1)
        return 0;
    enum http_kind kind = data[0] & 1 ? HTTP_RESPONSE : HTTP_REQUEST;
    unsigned flags = data[0] >> 1 & 7;
    const char *p = (const char *)data + 1;
    n--;
    struct verdict whole, bytes;
    run(&whole, kind, flags, p, n, n ? n : 1);
    run(&bytes, kind, flags, p, n, 1);
    if (whole.r != bytes.r || whole.status != bytes.status)
        abort();
    if (whole.r == HTTP_PARSE_DONE) {
        const struct http_head *a = &whole.p.head, *b = &bytes.p.head;
        if (whole.used != bytes.used || a->framing != b->framing || a->length != b->length || a->nfields != b->nfields)
            abort();
        for (uint32_t i = 0; i < a->nfields; i++)
            if (!http_token_ok(a->fields[i].name) || !http_value_ok(a->fields[i].value))
                abort();
        if (a->framing == HTTP_BODY_CHUNKED && (a->minor != 1 || http_head_count(a, "content-length")))
            abort();
        struct buf store = {0};
        struct str seg[HTTP_SEGMENTS_MAX];
        int k = uri_split(a->path, &store, seg);
        for (int i = 0; i < k; i++)
            if (memchr(seg[i].p, 0, seg[i].n))
                abort();
        store.n = 0;
        (void)query_get(a->query, "a", &store);
        buf_free(&store);
    }
    http_parser_fini(&whole.p);
    http_parser_fini(&bytes.p);
    return 0;
}
