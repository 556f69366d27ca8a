#include "base/buf.h"
#include "gate/hello.h"
#include "test.h"

static void p8(struct buf *b, unsigned v) { buf_putc(b, (char)v); }
static void p16(struct buf *b, unsigned v) { p8(b, v >> 8), p8(b, v & 255); }
static void ext_sni(struct buf *b, const char *name, size_t n)
{
    p16(b, 0), p16(b, (unsigned)n + 5), p16(b, (unsigned)n + 3), p8(b, 0), p16(b, (unsigned)n);
    buf_put(b, name, n);
}
/* The handshake message around the given extensions. */
static void hello_msg(struct buf *out, const struct buf *ext)
{
    struct buf b = {0};
    char random[32] = {0};
    p16(&b, 0x0303);
    buf_put(&b, random, 32);
    p8(&b, 32), buf_put(&b, random, 32);
    p16(&b, 4), p16(&b, 0x1301), p16(&b, 0x1302);
    p8(&b, 1), p8(&b, 0);
    p16(&b, (unsigned)ext->n), buf_put(&b, ext->p, ext->n);
    p8(out, 1), p8(out, 0), p16(out, (unsigned)b.n);
    buf_put(out, b.p, b.n);
    buf_free(&b);
}
static void records(struct buf *out, const struct buf *msg, size_t piece)
{
    for (size_t at = 0; at < msg->n; at += piece) {
        size_t n = msg->n - at < piece ? msg->n - at : piece;
        p8(out, 22), p16(out, 0x0301), p16(out, (unsigned)n);
        buf_put(out, msg->p + at, n);
    }
}
static enum hello_result parse(const struct buf *b, struct hello *h, const char **why) { return hello_parse((const uint8_t *)b->p, b->n, h, why); }

TEST(hello, finds_the_name_however_it_is_cut)
{
    struct buf ext = {0}, msg = {0};
    p16(&ext, 43), p16(&ext, 3), p8(&ext, 2), p16(&ext, 0x0304);
    ext_sni(&ext, "Files.Example.ORG", 17);
    hello_msg(&msg, &ext);
    for (size_t piece = 1; piece <= msg.n; piece++) {
        struct buf wire = {0};
        struct hello h;
        const char *why = NULL;
        records(&wire, &msg, piece);
        for (size_t n = 0; n < wire.n; n++)
            CHECK_INT(hello_parse((uint8_t *)wire.p, n, &h, &why), HELLO_MORE);
        CHECK_INT(parse(&wire, &h, &why), HELLO_GOT);
        CHECK_STR(h.sni, "files.example.org");
        CHECK(!h.ech);
        buf_free(&wire);
    }
    buf_free(&ext), buf_free(&msg);
}

static enum hello_result with(const struct buf *ext, struct hello *h, const char **why)
{
    struct buf msg = {0}, wire = {0};
    hello_msg(&msg, ext);
    records(&wire, &msg, 16384);
    enum hello_result r = parse(&wire, h, why);
    buf_free(&msg), buf_free(&wire);
    return r;
}

TEST(hello, names_that_are_none_are_refused)
{
    static const struct { const char *p; size_t n; } bad[] = {{"127.0.0.1", 9}, {"a b", 3}, {"", 0}, {"a\0b.example", 11}, {"[::1]", 5}, {"a..b", 4}, {"2130706433", 10}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct buf ext = {0};
        struct hello h;
        const char *why = NULL;
        ext_sni(&ext, bad[i].p, bad[i].n);
        CHECK_INT(with(&ext, &h, &why), HELLO_BAD);
        CHECK(why);
        buf_free(&ext);
    }
}

TEST(hello, two_names_or_two_extensions_are_refused)
{
    struct buf ext = {0};
    struct hello h;
    const char *why;
    ext_sni(&ext, "a.example", 9), ext_sni(&ext, "b.example", 9);
    CHECK_INT(with(&ext, &h, &why), HELLO_BAD);
    CHECK_STR(why, "an extension twice");
    buf_free(&ext);
    /* one extension, two entries */
    p16(&ext, 0), p16(&ext, 2 + 2 * 12), p16(&ext, 2 * 12);
    for (int i = 0; i < 2; i++)
        p8(&ext, 0), p16(&ext, 9), buf_puts(&ext, "a.example");
    CHECK_INT(with(&ext, &h, &why), HELLO_BAD);
    buf_free(&ext);
}

TEST(hello, no_name_and_encrypted_hello_are_told)
{
    struct buf ext = {0};
    struct hello h;
    const char *why;
    p16(&ext, 10), p16(&ext, 0);
    CHECK_INT(with(&ext, &h, &why), HELLO_GOT);
    CHECK_STR(h.sni, "");
    ext_sni(&ext, "a.example", 9);
    p16(&ext, 0xfe0d), p16(&ext, 1), p8(&ext, 0);
    CHECK_INT(with(&ext, &h, &why), HELLO_GOT);
    CHECK(h.ech);
    CHECK_STR(h.sni, "a.example");
    buf_free(&ext);
}

TEST(hello, what_is_not_a_hello)
{
    struct hello h;
    const char *why;
    CHECK_INT(hello_parse((const uint8_t *)"GET / HTTP/1.1\r\n", 16, &h, &why), HELLO_NOT_TLS);
    CHECK_INT(hello_parse((const uint8_t *)"SSH-2.0-x\r\n", 11, &h, &why), HELLO_NOT_TLS);
    static const uint8_t alert[] = {21, 3, 1, 0, 2, 2, 40}, server[] = {22, 3, 1, 0, 5, 2, 0, 0, 1, 0}, empty[] = {22, 3, 1, 0, 0}, huge[] = {22, 3, 1, 0, 4, 1, 255, 255, 255};
    CHECK_INT(hello_parse(alert, sizeof alert, &h, &why), HELLO_NOT_TLS);
    CHECK_INT(hello_parse(server, sizeof server, &h, &why), HELLO_BAD);
    CHECK_INT(hello_parse(empty, sizeof empty, &h, &why), HELLO_NOT_TLS);
    CHECK_INT(hello_parse(huge, sizeof huge, &h, &why), HELLO_BAD);
    CHECK_INT(hello_parse(alert, 0, &h, &why), HELLO_MORE);
}

TEST(hello, http_is_known_by_its_method)
{
    CHECK_INT(hello_is_http((const uint8_t *)"GET /", 5), 1);
    CHECK_INT(hello_is_http((const uint8_t *)"M-SEARCH * ", 11), 1);
    CHECK_INT(hello_is_http((const uint8_t *)"GE", 2), -1);
    CHECK_INT(hello_is_http((const uint8_t *)"", 0), -1);
    CHECK_INT(hello_is_http((const uint8_t *)"SSH-2.0-OpenSSH", 15), 0);
    CHECK_INT(hello_is_http((const uint8_t *)"\x16\x03", 2), 0);
    CHECK_INT(hello_is_http((const uint8_t *)" GET", 4), 0);
    CHECK_INT(hello_is_http((const uint8_t *)"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", 40), 0);
    /* a prefix and the whole say the same */
    const uint8_t *longest = (const uint8_t *)"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA /", *longer = (const uint8_t *)"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA /";
    CHECK_INT(hello_is_http(longest, 31), -1);
    CHECK_INT(hello_is_http(longest, 32), 1);
    CHECK_INT(hello_is_http(longer, 31), -1);
    CHECK_INT(hello_is_http(longer, 32), 0);
    CHECK_INT(hello_is_http(longer, 33), 0);
}
TEST_MAIN
