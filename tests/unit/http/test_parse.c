#include "http/parse.h"
#include "http/body.h"
#include "http/uri.h"
#include "vectors.h"

static unsigned flags_of(const char *kind)
{
    return (strstr(kind, "absolute") ? HTTP_ALLOW_ABSOLUTE : 0u) | (strstr(kind, "connect") ? HTTP_ALLOW_CONNECT : 0u) |
           (strstr(kind, "+head") ? HTTP_NO_BODY : 0u);
}
/* step: bytes per push; 0: one cut at `cut` */
static void parse_verdict(const struct vector *v, size_t step, size_t cut, char *out, size_t cap)
{
    static const char *const framing[] = {"none", "length", "chunked", "close"};
    struct http_parser p;
    http_parser_init(&p, strncmp(v->kind, "response", 8) ? HTTP_REQUEST : HTTP_RESPONSE, flags_of(v->kind));
    size_t at = 0;
    enum http_parse r = HTTP_PARSE_MORE;
    while (at < v->in.n && r == HTTP_PARSE_MORE) {
        size_t n = step ? step : at < cut ? cut : v->in.n - at, used;
        if (n > v->in.n - at)
            n = v->in.n - at;
        r = http_parse_push(&p, v->in.p + at, n, &used);
        CHECK(used <= n && (r != HTTP_PARSE_MORE || used == n));
        at += used;
    }
    if (r == HTTP_PARSE_ERROR)
        snprintf(out, cap, "%d", p.status);
    else if (r == HTTP_PARSE_MORE)
        snprintf(out, cap, "more");
    else {
        size_t rest = v->in.n - at;
        int n = snprintf(out, cap, "ok %s %llu %s", framing[p.head.framing], (unsigned long long)p.head.length,
                         p.head.keep_alive ? "keep" : "close");
        if (rest)
            snprintf(out + n, cap - (size_t)n, " rest=%zu", rest);
    }
    http_parser_fini(&p);
}
static int failures;
static void expect(const struct vector *v, const char *got, const char *how)
{
    if (!strcmp(got, v->out))
        return;
    printf("# %s (%s): got \"%s\", want \"%s\"\n", v->name, how, got, v->out);
    failures++;
}
static void run_parse(struct vector *v)
{
    char out[256];
    parse_verdict(v, v->in.n, 0, out, sizeof out);
    expect(v, out, "whole");
    parse_verdict(v, 1, 0, out, sizeof out);
    expect(v, out, "bytewise");
    for (size_t cut = 1; cut < v->in.n; cut++) {
        parse_verdict(v, 0, cut, out, sizeof out);
        expect(v, out, "cut");
    }
}
TEST(parse, agrees_with_the_vectors)
{
    CHECK(vectors_each("tests/vectors/http/parse.txt", run_parse) >= 70);
    CHECK_INT(failures, 0);
}

static void body_verdict(const struct vector *v, size_t step, size_t cut, char *out, size_t cap)
{
    struct http_body b;
    struct buf data = {0};
    http_body_init(&b, HTTP_BODY_CHUNKED, 0);
    size_t at = 0;
    enum http_body_state r = HTTP_BODY_MORE;
    while (at < v->in.n && r != HTTP_BODY_DONE && r != HTTP_BODY_ERROR) {
        size_t n = step ? step : at < cut ? cut - at : v->in.n - at, used;
        if (n > v->in.n - at)
            n = v->in.n - at;
        struct str d;
        r = http_body_push(&b, v->in.p + at, n, &used, &d);
        CHECK(used <= n && (r != HTTP_BODY_MORE || used == n));
        if (r == HTTP_BODY_DATA)
            buf_put(&data, d.p, d.n);
        at += used;
    }
    const char *text = data.n ? data.p : "-";
    if (r == HTTP_BODY_ERROR)
        snprintf(out, cap, "error");
    else if (!b.done)
        snprintf(out, cap, "more %s", text);
    else if (at < v->in.n)
        snprintf(out, cap, "done %s rest=%zu", text, v->in.n - at);
    else
        snprintf(out, cap, "done %s", text);
    buf_free(&data);
}
static void run_body(struct vector *v)
{
    char out[256];
    body_verdict(v, v->in.n, 0, out, sizeof out);
    expect(v, out, "whole");
    body_verdict(v, 1, 0, out, sizeof out);
    expect(v, out, "bytewise");
    for (size_t cut = 1; cut < v->in.n; cut++) {
        body_verdict(v, 0, cut, out, sizeof out);
        expect(v, out, "cut");
    }
}
TEST(body, agrees_with_the_vectors)
{
    CHECK(vectors_each("tests/vectors/http/body.txt", run_body) >= 20);
    CHECK_INT(failures, 0);
}
TEST(body, caps_extensions_and_trailers)
{
    struct vector v = {.out = "error"};
    buf_puts(&v.in, "3;");
    for (unsigned i = 0; i <= HTTP_CHUNK_EXT_MAX; i++)
        buf_putc(&v.in, 'x');
    run_body(&v);
    v.in.n = 0;
    buf_puts(&v.in, "0\r\n");
    for (unsigned i = 0; i < HTTP_TRAILER_MAX / 7 + 2; i++)
        buf_puts(&v.in, "Abc: d\r\n");
    char out[64];
    body_verdict(&v, v.in.n, 0, out, sizeof out);
    CHECK_STR(out, "error");
    CHECK_INT(failures, 0);
    buf_free(&v.in);
}
TEST(body, ends_at_the_length)
{
    struct http_body b;
    struct str d;
    size_t used;
    http_body_init(&b, HTTP_BODY_LENGTH, 3);
    CHECK_INT(http_body_push(&b, "abcdef", 6, &used, &d), HTTP_BODY_DATA);
    CHECK(used == 3 && d.n == 3 && b.done);
    CHECK_INT(http_body_push(&b, "def", 3, &used, &d), HTTP_BODY_DONE);
    CHECK_INT(used, 0);
    http_body_init(&b, HTTP_BODY_LENGTH, 3);
    CHECK(!http_body_eof(&b));
    http_body_init(&b, HTTP_BODY_CLOSE, 0);
    CHECK(http_body_eof(&b));
}
TEST(body, writes_chunk_heads)
{
    char t[HTTP_CHUNK_HEAD_MAX + 1] = {0};
    CHECK_INT(http_chunk_head(t, 26), 4);
    CHECK_STR(t, "1a\r\n");
}

static int status_of(const struct buf *b, struct http_limits lim)
{
    struct http_parser p;
    size_t used;
    http_parser_init(&p, HTTP_REQUEST, 0);
    p.limits = lim;
    enum http_parse r = http_parse_push(&p, b->p, b->n, &used);
    int st = r == HTTP_PARSE_ERROR ? p.status : r == HTTP_PARSE_DONE ? 200 : 0;
    http_parser_fini(&p);
    return st;
}
TEST(parse, caps_lines_headers_and_the_head)
{
    struct buf b = {0};
    buf_puts(&b, "GET /");
    for (int i = 0; i < 16 * 1024; i++)
        buf_putc(&b, 'a');
    CHECK_INT(status_of(&b, HTTP_LIMITS_DEFAULT), 414);
    b.n = 0;
    buf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\nX: ");
    for (int i = 0; i < 16 * 1024; i++)
        buf_putc(&b, 'a');
    CHECK_INT(status_of(&b, HTTP_LIMITS_DEFAULT), 431);
    b.n = 0;
    buf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 99; i++)
        buf_puts(&b, "X: y\r\n");
    size_t hundred = b.n;
    buf_puts(&b, "\r\n");
    CHECK_INT(status_of(&b, HTTP_LIMITS_DEFAULT), 200);
    b.n = hundred;
    buf_puts(&b, "X: y\r\n\r\n");
    CHECK_INT(status_of(&b, HTTP_LIMITS_DEFAULT), 431);
    b.n = 0;
    buf_puts(&b, "GET / HTTP/1.1\r\nHost: a\r\n");
    for (int i = 0; i < 90; i++) {
        buf_puts(&b, "X: ");
        for (int j = 0; j < 1000; j++)
            buf_putc(&b, 'z');
        buf_puts(&b, "\r\n");
    }
    CHECK_INT(status_of(&b, HTTP_LIMITS_DEFAULT), 431);
    buf_free(&b);
}
TEST(parse, fills_the_head)
{
    static const char in[] = "GET http://h:81/p/q?a=b&c HTTP/1.1\r\nHost: other\r\nX-A:  one \r\nx-a: two\r\nConnection: Upgrade, x\r\n\r\n";
    struct http_parser p;
    size_t used;
    http_parser_init(&p, HTTP_REQUEST, HTTP_ALLOW_ABSOLUTE);
    CHECK_INT(http_parse_push(&p, in, sizeof in - 1, &used), HTTP_PARSE_DONE);
    CHECK(str_eqz(p.head.path, "/p/q") && str_eqz(p.head.query, "a=b&c") && str_eqz(p.head.host, "h:81"));
    CHECK(str_eqz(http_head_get(&p.head, "X-A"), "one"));
    CHECK_INT(http_head_count(&p.head, "x-a"), 2);
    CHECK(p.head.upgrade && http_head_has_token(&p.head, "connection", "X"));
    CHECK(http_hop_by_hop(&p.head, S("X")) && http_hop_by_hop(&p.head, S("TE")) && !http_hop_by_hop(&p.head, S("x-a")));
    http_parser_reset(&p);
    CHECK_INT(http_parse_push(&p, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 27, &used), HTTP_PARSE_DONE);
    CHECK_INT(p.head.nfields, 1);
    http_parser_fini(&p);
}

TEST(uri, decodes_after_splitting)
{
    struct str seg[HTTP_SEGMENTS_MAX];
    struct buf st = {0};
    CHECK_INT(uri_split(S("/a%2Fb/%E4/"), &st, seg), 3);
    CHECK(str_eqz(seg[0], "a/b") && str_eqz(seg[1], "\xe4") && !seg[2].n);
    st.n = 0;
    CHECK_INT(uri_split(S("/a%00"), &st, seg), -1);
    CHECK_INT(uri_split(S("/a%4"), &st, seg), -1);
    CHECK_INT(uri_split(S("/a%zz"), &st, seg), -1);
    buf_free(&st);
}
TEST(uri, reads_queries)
{
    auto_buf b = {0};
    CHECK(query_get(S("x=1&path=%2Fa+b%2Bc&path=2&flag"), "path", &b));
    CHECK_STR(b.p, "/a b+c");
    b.n = 0;
    CHECK(query_get(S("x=1&flag"), "flag", &b) && !b.n);
    auto_buf none = {0};
    CHECK(uri_decode((struct str){"", 0}, true, &none) && none.p && !*none.p); /* a string, of whatever length */
    CHECK(!query_get(S("x=1&flag"), "y", &b));
    CHECK(!query_get(S("x=%zz"), "x", &b));
    CHECK(query_get(S("a%5Bb%5D=1"), "a[b]", &b));
    b.n = 0;
    uri_encode(S("a b/c~"), true, &b);
    CHECK_STR(b.p, "a%20b/c~");
}
TEST_MAIN
