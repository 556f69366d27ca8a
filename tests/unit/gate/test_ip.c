#include "gate/ip.h"
#include "gate/name.h"
#include "test.h"

static bool closed(const char *text)
{
    struct ip a;
    CHECK(ip_parse(str_of(text), &a));
    return ip_closed(&a) != NULL;
}

TEST(ip, parses_only_the_strict_forms)
{
    static const char *const bad[] = {"", "1", "1.2.3", "127.1", "0177.0.0.1", "0x7f.0.0.1", "1.2.3.4.", " 1.2.3.4", "1.2.3.4 ", "256.1.1.1",
                                      "1.2.3.04", "fe80::1%eth0", "[::1]", ":::", "1::2::3", "12345::", "1.2.3.4/32"};
    struct ip a;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ip_parse(str_of(bad[i]), &a))
            printf("# took number %zu\n", i);
        CHECK(!ip_parse(str_of(bad[i]), &a));
    }
    char text[IP_TEXT];
    CHECK(ip_parse(S("2001:DB8:0:0::1"), &a));
    ip_text(&a, text);
    CHECK_STR(text, "2001:db8::1");
    CHECK(!ip_parse((struct str){"1.2.3.4\0", 8}, &a));
}

TEST(ip, ranges_hold_what_they_should)
{
    struct cidr c, d;
    struct ip a;
    CHECK(cidr_parse(S("192.0.2.0/25"), &c));
    CHECK(ip_parse(S("192.0.2.127"), &a) && cidr_has(&c, &a));
    CHECK(ip_parse(S("192.0.2.128"), &a) && !cidr_has(&c, &a));
    CHECK(ip_parse(S("::ffff:192.0.2.1"), &a) && !cidr_has(&c, &a)); /* as written; ip_plain makes it one */
    a = ip_plain(&a);
    CHECK(cidr_has(&c, &a));
    CHECK(cidr_parse(S("0.0.0.0/0"), &d) && cidr_within(&c, &d) && !cidr_within(&d, &c));
    CHECK(!cidr_parse(S("192.0.2.1/24"), &c));
    CHECK(!cidr_parse(S("192.0.2.0/33"), &c));
    CHECK(!cidr_parse(S("192.0.2.0/024"), &c));
    CHECK(!cidr_parse(S("192.0.2.0/"), &c));
    CHECK(!cidr_parse((struct str){NULL, 0}, &c));
    CHECK(cidr_parse(S("::/0"), &c) && c.bits == 0 && c.ip.v6);
    CHECK(!cidr_within(&d, &c)); /* another family */
}

TEST(ip, closed_ranges_are_closed_in_every_disguise)
{
    static const char *const shut[] = {
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "169.254.169.254",
        "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.168.1.1", "198.18.0.1", "198.19.255.255", "224.0.0.251", "239.1.1.1",
        "240.0.0.1", "255.255.255.255", "168.63.129.16", "192.88.99.1",
        "::", "::1", "fe80::1", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254", "fdff::1", "ff02::1", "ff05::1:3", "100::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.1.2.3", "::127.0.0.1", "::7f00:1",
        "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::", "2001::1", "2001:0:1::",
        "2001:db8::5efe:10.0.0.1", "2001:db8::200:5efe:127.0.0.1", "2001:10::1", "2001:2::1", "5f00::1"};
    for (size_t i = 0; i < sizeof shut / sizeof *shut; i++) {
        if (!closed(shut[i]))
            printf("# open: %s\n", shut[i]);
        CHECK(closed(shut[i]));
    }
    static const char *const open[] = {"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1",
                                       "172.15.255.255", "172.32.0.0", "192.0.2.1", "198.51.100.1", "203.0.113.1", "198.17.255.255",
                                       "223.255.255.255", "2606:4700::1111", "2001:db8::1", "2a00:1450::1", "64:ff9b::1.1.1.1", "::ffff:1.1.1.1",
                                       "2001:db8::5efe:1.1.1.1"};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        if (closed(open[i]))
            printf("# closed: %s\n", open[i]);
        CHECK(!closed(open[i]));
    }
}

TEST(name, canonical_form_or_no_name)
{
    char out[NAME_MAX_LEN + 3];
    CHECK(name_canon(S("Example.ORG."), out));
    CHECK_STR(out, "example.org");
    CHECK(name_canon(S("_dmarc.a-b.xn--p1ai"), out));
    static const char *const bad[] = {"", ".", "..", "a..b", ".a", "a b", "a\tb", "127.0.0.1", "1.2.3", "127.1", "0x7f.1", "x.0x7f", "2130706433",
                                      "0177.0.0.1", "a.1", "ex%61mple.org", "ex\xc3\xa4mple.org", "a/b", "a:b", "*.a", "[::1]", "a..", "a@b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (name_canon(str_of(bad[i]), out))
            printf("# took number %zu\n", i);
        CHECK(!name_canon(str_of(bad[i]), out));
    }
    char label[80];
    memset(label, 'a', sizeof label);
    CHECK(name_canon((struct str){label, 63}, out));
    CHECK(!name_canon((struct str){label, 64}, out));
    CHECK(!name_canon((struct str){"a\0b", 3}, out));
    char longest[300];
    for (size_t i = 0; i < sizeof longest; i++)
        longest[i] = i % 2 ? '.' : 'a';
    CHECK(name_canon((struct str){longest, 253}, out));
    CHECK(!name_canon((struct str){longest, 255}, out));
}

TEST(name, patterns)
{
    CHECK(name_match(S("*.example.org"), S("a.example.org")));
    CHECK(name_match(S("*.example.org"), S("b.a.example.org")));
    CHECK(!name_match(S("*.example.org"), S("example.org")));
    CHECK(!name_match(S("*.example.org"), S("badexample.org")));
    CHECK(!name_match(S("example.org"), S("a.example.org")));
    CHECK(!name_match(S("example.org"), S("example.org.evil.test")));
    CHECK(name_match(S("*"), S("anything.at.all")));
    CHECK(!name_match(S("*"), (struct str){"", 0}));
    char out[NAME_MAX_LEN + 3];
    CHECK(name_pattern_canon(S("*.Example.org"), out));
    CHECK_STR(out, "*.example.org");
    CHECK(!name_pattern_canon(S("a*.example.org"), out));
    CHECK(!name_pattern_canon(S("*.*.org"), out));
    CHECK(!name_pattern_canon(S("*."), out));
    CHECK(!name_pattern_canon(S("**"), out));
    CHECK(name_special(S("localhost")) && name_special(S("printer")) && name_special(S("metadata.google.internal")) && name_special(S("x.local")));
    CHECK(name_special(S("1.0.0.127.in-addr.arpa")));
    CHECK(!name_special(S("example.org")) && !name_special(S("notlocal.example")) && !name_special(S("x.mylocal")));
}

TEST(name, host_and_port)
{
    struct str h;
    uint16_t port = 7;
    CHECK(name_split_port(S("example.org"), &h, &port) && str_eqz(h, "example.org") && port == 7);
    CHECK(name_split_port(S("example.org:443"), &h, &port) && str_eqz(h, "example.org") && port == 443);
    CHECK(name_split_port(S("[2001:db8::1]:80"), &h, &port) && str_eqz(h, "2001:db8::1") && port == 80);
    CHECK(name_split_port(S("[::1]"), &h, &port) && str_eqz(h, "::1"));
    static const char *const bad[] = {"", ":80", "a:", "a:0", "a:65536", "a:80x", "a:+80", "[::1", "[::1]80", "[]", "a:000080", "a:80:80", "a: 80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (name_split_port(str_of(bad[i]), &h, &port))
            printf("# took number %zu\n", i);
        CHECK(!name_split_port(str_of(bad[i]), &h, &port));
    }
}
TEST_MAIN
