#include "harness.h"
#include "http/client.h"
#include "base/sha1.h"
#include "base/enc.h"

/* One decoder run over bytes in pieces of `step`: "T:hello B:… P: C1000 E1002". */
static char *decode(const void *in, size_t n, size_t step, bool masked, size_t max)
{
    struct ws_dec d;
    struct buf out = {0};
    ws_dec_init(&d, masked, max);
    const char *p = in;
    while (n) {
        size_t take = step < n ? step : n, used;
        struct ws_event ev;
        enum ws_dec_state r = ws_dec_push(&d, p, take, &used, &ev);
        CHECK(used <= take);
        p += used, n -= used;
        if (r == WS_DEC_ERROR) {
            buf_printf(&out, "E%d ", d.close_code);
            break;
        }
        if (r == WS_DEC_EVENT) {
            if (ev.op == WS_CLOSE)
                buf_printf(&out, "C%d ", ev.code);
            else
                buf_printf(&out, "%c:%.*s ", ev.op == WS_TEXT ? 'T' : ev.op == WS_BINARY ? 'B' : ev.op == WS_PING ? 'P' : 'O', (int)ev.data.n, ev.data.p);
        }
    }
    ws_dec_fini(&d);
    return buf_take(&out);
}
static void check_dec(const void *in, size_t n, bool masked, const char *want)
{
    for (size_t step = 1; step <= n; step++) {
        char *got = decode(in, n, step, masked, 1000);
        CHECK_STR(got, want);
        free(got);
    }
}
#define DEC(bytes, masked, want) check_dec(bytes, sizeof(bytes) - 1, masked, want)

TEST(ws, computes_the_accept_key) /* RFC 6455 1.3 */
{
    char out[29];
    ws_accept_key(S("dGhlIHNhbXBsZSBub25jZQ=="), out);
    CHECK_STR(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    unsigned char d[20];
    char hex[41];
    sha1("", 0, d);
    hex_encode(d, 20, hex);
    CHECK_STR(hex, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
}
TEST(ws, reads_masked_text) { DEC("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", true, "T:Hello "); }
TEST(ws, reassembles_fragments_around_a_ping) { DEC("\x01\x03Hel\x89\x01x\x80\x02lo", false, "P:x T:Hello "); }
TEST(ws, refuses_unmasked_client_frames) { DEC("\x81\x05Hello", true, "E1002 "); }
TEST(ws, refuses_masked_server_frames) { DEC("\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", false, "E1002 "); }
TEST(ws, refuses_reserved_bits) { DEC("\xc1\x01x", false, "E1002 "); }
TEST(ws, refuses_unknown_opcodes) { DEC("\x83\x01x", false, "E1002 "); DEC("\x8b\x01x", false, "E1002 "); }
TEST(ws, refuses_fragmented_control) { DEC("\x09\x01x", false, "E1002 "); }
TEST(ws, refuses_long_control) { DEC("\x89\x7e\x00\x7e", false, "E1002 "); }
TEST(ws, refuses_continuation_without_start) { DEC("\x80\x01x", false, "E1002 "); }
TEST(ws, refuses_a_new_message_inside_one) { DEC("\x01\x01x\x81\x01y", false, "E1002 "); }
TEST(ws, refuses_lengths_that_are_not_minimal) { DEC("\x82\x7e\x00\x05hello", false, "E1002 "); DEC("\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x05hello", false, "E1002 "); }
TEST(ws, refuses_text_that_is_not_utf8) { DEC("\x81\x02\xc3\x28", false, "E1007 "); }
TEST(ws, accepts_utf8_split_over_fragments) { DEC("\x01\x01\xc3\x80\x01\xa4", false, "T:\xc3\xa4 "); }
TEST(ws, refuses_large_messages) { DEC("\x82\x7e\x04\x00x", false, "E1009 "); }
TEST(ws, reads_close_codes) { DEC("\x88\x02\x03\xe8", false, "C1000 "); DEC("\x88\x00", false, "C1005 "); DEC("\x88\x01x", false, "E1002 "); DEC("\x88\x02\x03\xed", false, "E1002 "); }
TEST(ws, frames_round_trip_at_every_length_class)
{
    static const size_t len[] = {0, 1, 125, 126, 65535, 65536, 200000};
    char *p = xcalloc(1, 200000);
    for (size_t i = 0; i < sizeof len / sizeof *len; i++)
        for (int mask = 0; mask < 2; mask++) {
            auto_buf b = {0};
            struct ws_dec d;
            struct ws_event ev;
            size_t used;
            ws_frame(&b, WS_BINARY, p, len[i], mask);
            ws_dec_init(&d, mask, 1 << 20);
            CHECK_INT(ws_dec_push(&d, b.p, b.n, &used, &ev), WS_DEC_EVENT);
            CHECK(used == b.n && ev.data.n == len[i] && !memcmp(ev.data.p, p, len[i]));
            ws_dec_fini(&d);
        }
    free(p);
}

/* ---- over real sockets ---- */
static atomic_int closes, close_code;
static void on_msg(struct http_stream *s, void *arg, bool text, const char *p, size_t n)
{
    (void)arg;
    if (text && n == 3 && !memcmp(p, "end", 3))
        ws_close(s, 4001, "asked");
    else if (text)
        CHECK(!ws_send_text(s, p, n));
    else
        CHECK(!ws_send_binary(s, p, n));
}
static void on_close(struct http_stream *s, void *arg, int code, struct str reason)
{
    (void)s, (void)arg, (void)reason;
    close_code = code;
    closes++;
}
static void handler(struct http_stream *s, void *arg) { (void)http_ws_accept(s, NULL, on_msg, on_close, arg); }
static struct http_client *dial(struct harness *h)
{
    struct err e;
    char addr[40];
    struct http_config cfg = {.handler = handler};
    harness_start(h, &cfg);
    snprintf(addr, sizeof addr, "http://127.0.0.1:%d", h->port);
    struct http_client *c = http_client_open(addr, NULL, &e);
    CHECK(c);
    CHECK(!http_client_ws(c, "/ws", NULL, &e));
    return c;
}
TEST(ws, echoes_over_a_real_connection)
{
    struct harness h;
    struct err e;
    struct str d;
    int op, code;
    struct http_client *c = dial(&h);
    CHECK(!http_client_ws_send(c, WS_TEXT, "hello", 5, &e));
    CHECK_INT(http_client_ws_recv(c, true, &op, &d, &code, &e), 1);
    CHECK(op == WS_TEXT && str_eqz(d, "hello"));
    CHECK_INT(http_client_ws_recv(c, false, &op, &d, &code, &e), 0);
    char *big = xcalloc(1, 3 << 20);
    CHECK(!http_client_ws_send(c, WS_BINARY, big, 3 << 20, &e));
    CHECK_INT(http_client_ws_recv(c, true, &op, &d, &code, &e), 1);
    CHECK(op == WS_BINARY && d.n == 3 << 20);
    free(big);
    CHECK(!http_client_ws_send(c, WS_CLOSE, "\x03\xe8", 2, &e));
    CHECK_INT(http_client_ws_recv(c, true, &op, &d, &code, &e), 1);
    CHECK(op == WS_CLOSE && code == 1000);
    CHECK(http_client_ws_recv(c, true, &op, &d, &code, &e) < 0); /* the server hangs up */
    CHECK(wait_for(&closes, 1));
    CHECK_INT(close_code, 1000);
    http_client_close(c);
    harness_stop(&h);
    CHECK_INT(closes, 1);
}
TEST(ws, closes_from_the_server)
{
    struct harness h;
    struct err e;
    struct str d;
    int op, code;
    struct http_client *c = dial(&h);
    CHECK(!http_client_ws_send(c, WS_TEXT, "end", 3, &e));
    CHECK_INT(http_client_ws_recv(c, true, &op, &d, &code, &e), 1);
    CHECK(op == WS_CLOSE && code == 4001 && str_eqz(d, "asked"));
    CHECK(!http_client_ws_send(c, WS_CLOSE, "\x0f\xa1", 2, &e));
    CHECK(wait_for(&closes, 1));
    http_client_close(c);
    harness_stop(&h);
    CHECK_INT(closes, 1);
}
TEST(ws, reports_a_lost_connection_as_abnormal)
{
    struct harness h;
    struct http_client *c = dial(&h);
    http_client_close(c);
    CHECK(wait_for(&closes, 1));
    CHECK_INT(close_code, WS_ABNORMAL);
    harness_stop(&h);
    CHECK_INT(closes, 1);
}
TEST(ws, closes_on_a_protocol_error)
{
    struct harness h;
    struct err e;
    struct str d;
    int op, code;
    struct http_client *c = dial(&h);
    CHECK(send(http_client_fd(c), "\x81\x01x", 3, 0) == 3); /* unmasked */
    CHECK_INT(http_client_ws_recv(c, true, &op, &d, &code, &e), 1);
    CHECK(op == WS_CLOSE && code == WS_PROTOCOL);
    http_client_close(c);
    harness_stop(&h);
    CHECK_INT(closes, 1);
}
TEST(ws, refuses_a_plain_get)
{
    struct harness h;
    struct http_config cfg = {.handler = handler};
    harness_start(&h, &cfg);
    char *r = exchange(&h, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    CHECK(strstr(r, "426 Upgrade Required"));
    free(r);
    r = exchange(&h, "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n\r\n");
    CHECK(strstr(r, "400 Bad Request"));
    free(r);
    harness_stop(&h);
}
TEST_MAIN
