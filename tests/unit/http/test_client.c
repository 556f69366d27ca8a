#include "harness.h"
#include "http/client.h"
#include "http/inflate.h"
#include "http/multipart.h"
#include <zlib.h>

static void on_whole(struct http_stream *s, void *arg, const char *p, size_t n)
{
    (void)arg;
    http_reply(s, 200, "text/plain", p, n);
}
static void handler(struct http_stream *s, void *arg)
{
    struct str path = http_path(s);
    if (str_eqz(path, "/chunks")) {
        CHECK(!http_reply_start(s, 201, "text/plain"));
        for (int i = 0; i < 1000; i++)
            CHECK(!http_write(s, "0123456789", 10));
        http_end(s);
    } else if (str_eqz(path, "/cut")) {
        CHECK(!http_reply_start(s, 200, "text/plain"));
        CHECK(!http_write(s, "abc", 3));
        http_abort(s);
    } else if (str_eqz(path, "/refuse")) {
        http_reply(s, 403, "text/plain", "no", 2);
    } else {
        http_body_collect(s, 8u << 20, on_whole, arg);
    }
}
static struct http_client *dial(struct harness *h)
{
    struct err e;
    char addr[40];
    struct http_config cfg = {.handler = handler};
    harness_start(h, &cfg);
    snprintf(addr, sizeof addr, "127.0.0.1:%d", h->port);
    struct http_client *c = http_client_open(addr, NULL, &e);
    CHECK(c);
    return c;
}

TEST(client, exchanges_several_requests_on_one_connection)
{
    struct harness h;
    struct err e;
    struct http_client *c = dial(&h);
    for (int i = 0; i < 3; i++) {
        auto_buf b = {0};
        const char *const headers[] = {"X-A: b", NULL};
        CHECK_INT(http_client_call(c, "POST", "/echo", headers, "hello", 5, &b, &e), 200);
        CHECK_STR(b.p, "hello");
        b.n = 0;
        CHECK_INT(http_client_call(c, "GET", "/chunks", NULL, NULL, 0, &b, &e), 201);
        CHECK_INT(b.n, 10000);
        b.n = 0;
        CHECK_INT(http_client_call(c, "HEAD", "/chunks", NULL, NULL, 0, &b, &e), 201);
        CHECK_INT(b.n, 0);
    }
    http_client_close(c);
    harness_stop(&h);
}
static ssize_t source(void *arg, char *p, size_t cap, struct err *e)
{
    int *left = arg;
    (void)e;
    if (!*left)
        return 0;
    size_t n = (size_t)*left < cap ? (size_t)*left : cap;
    memset(p, 'x', n);
    *left -= (int)n;
    return (ssize_t)n;
}
TEST(client, sends_a_chunked_body_from_a_callback)
{
    struct harness h;
    struct err e;
    int left = 300000;
    auto_buf b = {0};
    struct http_client *c = dial(&h);
    CHECK(!http_client_send_stream(c, "POST", "/echo", NULL, source, &left, &e));
    CHECK(!http_client_body(c, 1 << 20, &b, &e));
    CHECK_INT(b.n, 300000);
    http_client_close(c);
    harness_stop(&h);
}
TEST(client, reads_the_refusal_of_an_upload)
{
    struct harness h;
    struct err e;
    int left = 200 << 20;
    struct http_client *c = dial(&h);
    CHECK(!http_client_send_stream(c, "POST", "/refuse", NULL, source, &left, &e));
    const struct http_head *hd = http_client_head(c, &e);
    CHECK(hd && hd->status == 403);
    http_client_close(c);
    harness_stop(&h);
}
TEST(client, tells_a_cut_answer_from_a_whole_one)
{
    struct harness h;
    struct err e;
    auto_buf b = {0};
    struct http_client *c = dial(&h);
    CHECK(!http_client_send(c, "GET", "/cut", NULL, NULL, 0, &e));
    CHECK(http_client_body(c, 1000, &b, &e) < 0);
    CHECK_INT(e.code, E_UNAVAILABLE);
    http_client_close(c);
    harness_stop(&h);
}
TEST(client, refuses_header_injection)
{
    struct harness h;
    struct err e;
    struct http_client *c = dial(&h);
    const char *const headers[] = {"X: a\r\nY: b", NULL};
    CHECK(http_client_send(c, "GET", "/", headers, NULL, 0, &e) < 0);
    CHECK(http_client_send(c, "GET", "/a b", NULL, NULL, 0, &e) < 0);
    http_client_close(c);
    harness_stop(&h);
}
TEST(client, reports_nobody_there)
{
    struct err e;
    CHECK(!http_client_open("/nonexistent/hutch.sock", NULL, &e));
    CHECK(!http_client_open("https://127.0.0.1:1", NULL, &e) && e.code == E_UNSUPPORTED);
    CHECK_INT(e.code, E_UNSUPPORTED);
}

/* ---- multipart ---- */
static struct buf log_;
static int on_part(void *arg, struct str name, struct str file, struct str type)
{
    (void)arg;
    buf_printf(&log_, "[%.*s|%.*s|%.*s]", (int)name.n, name.p, file.p ? (int)file.n : 1, file.p ? file.p : "-", (int)type.n, type.p ? type.p : "");
    return 0;
}
static int on_data(void *arg, const char *p, size_t n)
{
    (void)arg;
    buf_put(&log_, p, n);
    return 0;
}
static int on_part_end(void *arg)
{
    (void)arg;
    buf_puts(&log_, "$");
    return 0;
}
static const struct multipart_cb cb = {on_part, on_data, on_part_end};
/* All splits; returns 0 and the log, or -1. */
static int feed(const char *ct, const char *body, size_t step)
{
    struct err e;
    log_.n = 0;
    buf_puts(&log_, "");
    struct multipart *m = multipart_new(str_of(ct), &cb, NULL, &e);
    if (!m)
        return -1;
    int r = 0;
    for (size_t n = strlen(body), at = 0; at < n && !r; at += step)
        r = multipart_push(m, body + at, n - at < step ? n - at : step, &e);
    r = r ? r : multipart_end(m, &e);
    multipart_free(m);
    return r;
}
#define CT "multipart/form-data; boundary=XX"
TEST(multipart, splits_parts_however_they_arrive)
{
    static const char body[] = "preamble\r\n--XX\r\nContent-Disposition: form-data; name=\"path\"\r\n\r\n/tmp\r\n--XX\r\n"
                               "Content-Disposition: form-data; name=\"file\"; filename=\"dir/a \\\"b\\\".txt\"\r\nContent-Type: text/plain\r\n\r\n"
                               "line\r\n--X\r\n--XY\r\n\r\n--XX--\r\nepilogue";
    for (size_t step = 1; step < sizeof body; step++) {
        CHECK_INT(feed(CT, body, step), 0);
        CHECK_STR(log_.p, "[path|-|]/tmp$[file|dir/a \"b\".txt|text/plain]line\r\n--X\r\n--XY\r\n$");
    }
    buf_free(&log_);
}
TEST(multipart, accepts_a_quoted_boundary_at_the_very_start)
{
    CHECK_INT(feed("Multipart/Form-Data; charset=x; boundary=\"a b\"", "--a b\r\nContent-Disposition: form-data; name=n\r\n\r\n\r\n--a b--", 1), 0);
    CHECK_STR(log_.p, "[n|-|]$");
    buf_free(&log_);
}
TEST(multipart, refuses_what_is_malformed)
{
    CHECK(feed("text/plain", "", 1));
    CHECK(feed("multipart/form-data", "", 1));
    CHECK(feed("multipart/form-data; boundary=\"a\x01\"", "", 1));
    CHECK(feed(CT, "--XX\r\nContent-Disposition: form-data; name=n\r\n\r\nabc", 3)); /* no end */
    CHECK(feed(CT, "--XX\r\nX: y\r\n\r\nabc\r\n--XX--", 3));                          /* no name */
    CHECK(feed(CT, "--XXjunk\r\n", 3));
    CHECK(feed(CT, "--XX\r\nnocolon\r\n\r\nabc\r\n--XX--", 3));
    struct buf b = {0};
    buf_puts(&b, "--XX\r\nX: ");
    for (int i = 0; i < 9000; i++)
        buf_putc(&b, 'x');
    CHECK(feed(CT, b.p, 100));
    CHECK(feed(CT, b.p, 10000));
    buf_free(&b);
    buf_free(&log_);
}
TEST(multipart, passes_a_large_part_through)
{
    struct buf b = {0};
    buf_puts(&b, "--XX\r\nContent-Disposition: form-data; name=n\r\n\r\n");
    for (int i = 0; i < 200000; i++)
        buf_puts(&b, i % 7 ? "\r\n--" : "abcd");
    buf_puts(&b, "\r\n--XX--");
    CHECK_INT(feed(CT, b.p, b.n), 0);
    CHECK_INT(log_.n, 800000 + 7);
    CHECK_INT(feed(CT, b.p, 1000), 0);
    CHECK_INT(log_.n, 800000 + 7);
    buf_free(&b);
    buf_free(&log_);
}

/* ---- inflate ---- */
TEST(inflate, unpacks_within_its_bound)
{
    static unsigned char raw[200000], packed[300000];
    z_stream z;
    memset(&z, 0, sizeof z);
    CHECK(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_in = raw, z.avail_in = sizeof raw, z.next_out = packed, z.avail_out = sizeof packed;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    size_t n = sizeof packed - z.avail_out;
    deflateEnd(&z);
    auto_buf b = {0};
    struct err e;
    CHECK(!inflate_all(packed, n, sizeof raw, &b, &e));
    CHECK_INT(b.n, sizeof raw);
    b.n = 0;
    CHECK(inflate_all(packed, n, sizeof raw - 1, &b, &e) < 0);
    CHECK_INT(e.code, E_TOO_LARGE);
    CHECK(inflate_all(packed, n - 1, sizeof raw, &b, &e) < 0);
    CHECK(inflate_all("junk", 4, 100, &b, &e) < 0);
    CHECK_INT(b.n, 0);
}
TEST_MAIN
