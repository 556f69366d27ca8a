#include "test.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/err.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/map.h"
#include "base/quote.h"
#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

TEST(err, wrap_keeps_code_and_prefixes)
{
    struct err e = {0};
    CHECK_INT(err_set(&e, E_NOT_FOUND, "sandbox %s", "x"), -1);
    CHECK_INT(err_wrap(&e, "exec"), -1);
    CHECK_INT(e.code, E_NOT_FOUND);
    CHECK_STR(e.msg, "exec: sandbox x");
}
TEST(err, wrap_truncates_the_cause_not_the_context)
{
    struct err e = {0};
    char big[400];
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = 0;
    err_set(&e, E_INTERNAL, "%s", big);
    err_wrap(&e, "ctx");
    CHECK_INT(strlen(e.msg), sizeof e.msg - 1);
    CHECK(!strncmp(e.msg, "ctx: aaa", 8));
}
TEST(err, every_code_round_trips_by_name)
{
    for (int c = 0; c < E_CODE_MAX; c++)
        CHECK_INT(err_from_name(err_name((enum err_code)c)), c);
    CHECK_INT(err_from_errno(ENOSPC), E_QUOTA);
}
TEST(err, null_is_accepted)
{
    CHECK_INT(err_set(NULL, E_GONE, "x"), -1);
    CHECK_INT(err_sys(NULL, EPERM, "x"), -1);
    CHECK_INT(err_wrap(NULL, "x"), -1);
}
TEST(str, numbers_are_strict)
{
    uint64_t u;
    int64_t i;
    CHECK(str_u64(S("18446744073709551615"), &u) && u == UINT64_MAX);
    CHECK(!str_u64(S("18446744073709551616"), &u));
    CHECK(!str_u64(S(""), &u) && !str_u64(S("+1"), &u) && !str_u64(S("1 "), &u) && !str_u64(S("0x1"), &u));
    CHECK(str_i64(S("-5"), &i) && i == -5);
    CHECK(!str_i64(S("--5"), &i));
}
TEST(str, names)
{
    CHECK(name_ok(S("a")) && name_ok(S("my-box-1")) && name_ok(S("0a")));
    CHECK(!name_ok(S("")) && !name_ok(S("-a")) && !name_ok(S("A")) && !name_ok(S("a/b")) && !name_ok(S("a_b")) && !name_ok(S("..")));
    char long_name[65];
    memset(long_name, 'a', 64);
    long_name[64] = 0;
    CHECK(!name_ok(str_of(long_name)));
}
TEST(str, ids_are_distinct_and_valid)
{
    char a[22], b[22];
    id_make('i', a), id_make('i', b);
    CHECK(id_ok(str_of(a)) && id_ok(str_of(b)) && strcmp(a, b));
    CHECK(!id_ok(S("i")) && !id_ok(S("i0123456789012345678-")));
}
TEST(str, utf8_rejects_what_rfc3629_rejects)
{
    CHECK(str_utf8(S("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x90\x87")));
    CHECK(!str_utf8(S("\xc0\xaf")) && !str_utf8(S("\xed\xa0\x80")) && !str_utf8(S("\xf4\x90\x80\x80")) && !str_utf8(S("\xe2\x82")));
    CHECK(!str_utf8((struct str){"a\0b", 3}));
}
TEST(quote, makes_one_word_of_anything)
{
    static const char *const in[] = {"", "plain", "a b", "it's", "''", "$(id) `id` \\ \"x\" ; & | * ~", "two\nlines", "-n"};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) {
        struct buf cmd = {0};
        char out[64] = "";
        buf_puts(&cmd, "printf '%s|' ");
        shell_quote(&cmd, in[i]);
        FILE *f = popen(cmd.p, "r");
        CHECK(f);
        size_t n = fread(out, 1, sizeof out - 1, f);
        CHECK_INT(pclose(f), 0);
        CHECK(n == strlen(in[i]) + 1 && out[n - 1] == '|' && !strncmp(out, in[i], n - 1));
        buf_free(&cmd);
    }
}

TEST(buf, grows_drops_and_takes)
{
    struct buf b = {0};
    for (int i = 0; i < 1000; i++)
        buf_printf(&b, "%d,", i);
    buf_drop(&b, 4);
    CHECK(!strncmp(b.p, "2,3,", 4));
    char *s = buf_take(&b);
    CHECK(!b.p && strlen(s) > 1000);
    free(s);
}
TEST(enc, base64_and_hex)
{
    struct buf b = {0}, d = {0};
    base64_encode("hello", 5, &b);
    CHECK_STR(b.p, "aGVsbG8=");
    CHECK(base64_decode(b.p, b.n, &d) && d.n == 5 && !memcmp(d.p, "hello", 5));
    CHECK(!base64_decode("a", 1, &d) && !base64_decode("a*==", 4, &d));
    char h[9];
    hex_encode("\x00\xff\x10\x0a", 4, h);
    CHECK_STR(h, "00ff100a");
    unsigned char back[4];
    CHECK(hex_decode(h, 8, back) && back[1] == 0xff);
    CHECK(!hex_decode("0g", 2, back) && !hex_decode("000", 3, back));
    buf_free(&b), buf_free(&d);
}
TEST(map, set_get_delete_and_grow)
{
    struct map m = {0};
    char k[16];
    static int v[3000];
    for (int i = 0; i < 3000; i++) {
        snprintf(k, sizeof k, "k%d", i);
        CHECK(!map_set(&m, k, &v[i]));
    }
    for (int i = 0; i < 3000; i += 2) {
        snprintf(k, sizeof k, "k%d", i);
        CHECK(map_del(&m, k) == &v[i]);
    }
    CHECK_INT(m.n, 1500);
    CHECK(map_get(&m, "k1") == &v[1] && !map_get(&m, "k2") && map_get_n(&m, "k12345", 3) == NULL);
    CHECK(map_get_n(&m, "k133x", 4) == &v[133]);
    size_t i = 0, n = 0;
    while (map_next(&m, &i))
        n++;
    CHECK_INT(n, 1500);
    map_free(&m);
}
TEST(list, deletes_while_walking)
{
    struct item { int v; struct list l; } it[3] = {{1, {0}}, {2, {0}}, {3, {0}}}, *p;
    struct list h = LIST_INIT(h);
    for (int i = 0; i < 3; i++)
        list_add_tail(&h, &it[i].l);
    int sum = 0;
    list_each(p, &h, l) {
        sum += p->v;
        list_del(&p->l);
    }
    CHECK_INT(sum, 6);
    CHECK(list_empty(&h));
    list_del(&it[0].l);
}
TEST(fd, passes_descriptors_and_closes_surplus)
{
    int sv[2], p[2], got[1], n = 1;
    char c;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) && !pipe(p));
    CHECK_INT(fd_send(sv[0], "x", 1, p, 2, 0), 1);
    CHECK_INT(fd_recv(sv[1], &c, 1, got, &n, 0), 1);
    CHECK_INT(n, 1);
    CHECK(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    CHECK_INT(write(p[1], "y", 1), 1);
    CHECK_INT(read(got[0], &c, 1), 1);
    CHECK(c == 'y');
}
TEST(clock, rfc3339)
{
    char s[32];
    clock_rfc3339(1754042400123 * NS_PER_MS, s);
    CHECK_STR(s, "2025-08-01T10:00:00.123Z");
}
TEST_MAIN
