#include "gate/via.h"
#include "test.h"

static const char *chosen(const struct vias *v, const char *name, const char *addr)
{
    struct ip ip;
    CHECK(ip_parse(str_of(addr), &ip));
    const struct via *x = via_for(v, str_of(name), &ip);
    return x ? x->hosts : "-";
}

TEST(via, the_first_that_fits_and_what_needs_none)
{
    struct vias v = {0};
    CHECK(vias_add(&v, S("pypi.example"), S("192.0.2.1:3128"), S(""), false) && vias_add(&v, S("198.51.100.0/24"), S("192.0.2.2:80"), S("Basic eA=="), false));
    CHECK(vias_add(&v, S("*"), S("[2001:db8::1]:8080"), S(""), true));
    CHECK(!vias_add(&v, S("*"), S("proxy.example:80"), S(""), false)); /* a name would be somebody else's to resolve */
    CHECK(!vias_add(&v, S("*"), S("192.0.2.1:3128"), S("a\r\nb"), false));
    CHECK(vias_direct(&v, S(".corp.example")) && vias_direct(&v, S("203.0.113.0/24")) && vias_direct(&v, S("one.example")));
    CHECK_STR(chosen(&v, "pypi.example", "93.184.216.34"), "pypi.example");
    CHECK_STR(chosen(&v, "x.pypi.example", "93.184.216.34"), "*");
    CHECK_STR(chosen(&v, "", "198.51.100.7"), "198.51.100.0/24");
    CHECK_STR(chosen(&v, "a.corp.example", "93.184.216.34"), "-");
    CHECK_STR(chosen(&v, "corp.example", "93.184.216.34"), "-");
    CHECK_STR(chosen(&v, "notcorp.example", "93.184.216.34"), "*");
    CHECK_STR(chosen(&v, "two.example", "203.0.113.9"), "-");
    CHECK_STR(chosen(&v, "", "93.184.216.34"), "*");
    CHECK(vias_direct(&v, S("*")));
    CHECK_STR(chosen(&v, "pypi.example", "93.184.216.34"), "-");
    vias_free(&v);
}

TEST(via, it_is_asked_for_the_address_we_checked)
{
    struct via v = {.port = 1};
    struct ip a, b;
    struct buf q = {0};
    char auth[] = "Basic eA==";
    CHECK(ip_parse(S("93.184.216.34"), &a) && ip_parse(S("2001:db8::7"), &b));
    via_ask(&v, &a, S("example.org"), 443, &q);
    CHECK_STR(q.p, "CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\n\r\n");
    q.n = 0;
    v.by_name = true, v.auth = auth;
    via_ask(&v, &a, S("example.org"), 443, &q);
    CHECK_STR(q.p, "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\nProxy-Authorization: Basic eA==\r\n\r\n");
    q.n = 0;
    via_ask(&v, &b, S(""), 7, &q);
    CHECK(!strncmp(q.p, "CONNECT [2001:db8::7]:7 HTTP/1.1\r\n", 33));
    buf_free(&q);
}

TEST(via, answers)
{
    size_t n = 0;
    static const char ok[] = "HTTP/1.1 200 OK\r\nX: y\r\n\r\nSSH-2.0";
    for (size_t i = 1; i < sizeof ok - 8; i++)
        CHECK_INT(via_answer(ok, i, &n), 0);
    CHECK(via_answer(ok, sizeof ok - 1, &n) == 200 && n == sizeof ok - 8);
    CHECK_INT(via_answer("HTTP/1.0 407 no\r\n\r\n", 19, &n), 407);
    static const char *const bad[] = {"SSH-2.0-x\r\n\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1\r\n\r\n", "HTTP/1.1 999 OK\r\n\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_INT(via_answer(bad[i], strlen(bad[i]), &n), -1);
    char *big = malloc(VIA_ANSWER_MAX);
    memset(big, 'x', VIA_ANSWER_MAX);
    memcpy(big, "HTTP/1.1 200", 12);
    CHECK_INT(via_answer(big, VIA_ANSWER_MAX, &n), -1);
    free(big);
}

TEST_MAIN
