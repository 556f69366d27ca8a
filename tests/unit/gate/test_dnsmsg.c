#include "gate/dnsmsg.h"
#include "test.h"

static void p16(struct buf *b, unsigned v) { buf_putc(b, (char)(v >> 8)), buf_putc(b, (char)v); }
static void head(struct buf *b, unsigned id, unsigned flags, unsigned qd, unsigned an, unsigned ns, unsigned ar)
{
    p16(b, id), p16(b, flags), p16(b, qd), p16(b, an), p16(b, ns), p16(b, ar);
}
static void name(struct buf *b, const char *text)
{
    struct dname d;
    CHECK(dname_from_text(text, &d));
    buf_put(b, d.b, d.n);
}
static void question(struct buf *b, const char *text, unsigned type) { name(b, text), p16(b, type), p16(b, 1); }
static void rr(struct buf *b, const char *owner, unsigned type, unsigned ttl, const void *p, size_t n)
{
    if (owner)
        name(b, owner);
    else
        p16(b, 0xc00c);
    p16(b, type), p16(b, 1), p16(b, 0), p16(b, ttl), p16(b, (unsigned)n);
    buf_put(b, p, n);
}
static int query(const struct buf *b, struct dns_query *q) { return dns_query_parse((const uint8_t *)b->p, b->n, q); }

TEST(dns, takes_a_plain_question)
{
    struct buf b = {0};
    struct dns_query q;
    head(&b, 0x1234, 0x0100, 1, 0, 0, 0);
    question(&b, "WWW.Example.org", DNS_A);
    CHECK_INT(query(&b, &q), 0);
    CHECK_STR(q.text, "www.example.org");
    CHECK_INT(q.type, DNS_A);
    CHECK_INT(q.id, 0x1234);
    CHECK(!q.edns && q.udp_size == 512);
    buf_putc(&b, 0);
    CHECK_INT(query(&b, &q), DNS_FORMERR); /* something behind it */
    buf_free(&b);
}

TEST(dns, questions_we_build_are_questions_we_take)
{
    struct buf b = {0};
    struct dns_query q;
    struct dname d;
    CHECK(dname_from_text("a.b.example", &d));
    dns_query_build(&b, 7, &d, DNS_AAAA, true);
    CHECK_INT(query(&b, &q), 0);
    CHECK(q.edns && q.want_dnssec && q.udp_size == DNS_UDP_MAX && dname_eq(&q.name, &d));
    for (size_t n = 0; n < b.n; n++) { /* cut anywhere */
        int r = dns_query_parse((uint8_t *)b.p, n, &q);
        CHECK(r == -1 || r == DNS_FORMERR);
    }
    buf_free(&b);
}

TEST(dns, odd_questions)
{
    struct buf b = {0};
    struct dns_query q;
    head(&b, 1, 0x8100, 1, 0, 0, 0), question(&b, "a.example", DNS_A);
    CHECK_INT(query(&b, &q), -1); /* an answer */
    b.n = 0, head(&b, 1, 0x2800, 1, 0, 0, 0), question(&b, "a.example", DNS_A);
    CHECK_INT(query(&b, &q), DNS_NOTIMP); /* update */
    b.n = 0, head(&b, 1, 0x0100, 2, 0, 0, 0), question(&b, "a.example", DNS_A), question(&b, "b.example", DNS_A);
    CHECK_INT(query(&b, &q), DNS_FORMERR);
    b.n = 0, head(&b, 1, 0x0100, 1, 0, 0, 0), question(&b, "a.example", DNS_ANY);
    CHECK_INT(query(&b, &q), DNS_NOTIMP);
    b.n = 0, head(&b, 1, 0x0100, 1, 0, 0, 0), question(&b, "a.example", DNS_AXFR);
    CHECK_INT(query(&b, &q), DNS_NOTIMP);
    b.n = 0, head(&b, 1, 0x0100, 1, 0, 0, 0), name(&b, "a.example"), p16(&b, DNS_TXT), p16(&b, 3);
    CHECK_INT(query(&b, &q), DNS_REFUSED); /* CHAOS */
    b.n = 0, head(&b, 1, 0x0100, 1, 0, 0, 0), p16(&b, 0xc00c), p16(&b, 1), p16(&b, 1);
    CHECK_INT(query(&b, &q), DNS_FORMERR); /* a pointer to itself */
    b.n = 0, head(&b, 1, 0x0100, 1, 0, 0, 0), buf_put(&b, "\3a.b\7example\0", 13), p16(&b, 1), p16(&b, 1);
    CHECK_INT(query(&b, &q), 0); /* a dot inside a label is not two labels */
    CHECK_STR(q.text, "");
    CHECK_STR(q.shown, "a\\046b.example");
    b.n = 0, head(&b, 1, 0x0100, 1, 0, 0, 0), buf_put(&b, "\3a\0b\7example\0", 13), p16(&b, 1), p16(&b, 1);
    CHECK_INT(query(&b, &q), 0);
    CHECK_STR(q.text, "");
    buf_free(&b);
}

static bool answer(const struct buf *b, const char *text, uint16_t type, struct dns_answer *a)
{
    struct dname d;
    CHECK(dname_from_text(text, &d));
    return dns_answer_parse((const uint8_t *)b->p, b->n, 9, &d, type, a);
}
static struct dns_answer a;

TEST(dns, keeps_only_what_belongs_to_the_question)
{
    struct buf b = {0}, alias = {0};
    name(&alias, "cdn.example.net");
    head(&b, 9, 0x8180, 1, 5, 0, 0);
    question(&b, "www.example.org", DNS_A);
    rr(&b, "evil.example", DNS_A, 60, "\1\2\3\4", 4);             /* nobody asked */
    rr(&b, "cdn.example.net", DNS_A, 60, "\5\6\7\10", 4);         /* before its alias */
    rr(&b, NULL, DNS_CNAME, 300, alias.p, alias.n);
    rr(&b, "cdn.example.net", DNS_TXT, 60, "\1x", 2);             /* another type */
    rr(&b, "www.example.org", DNS_A, 60, "\11\11\11\11", 4);      /* beside an alias: not at the end of the chain */
    CHECK(answer(&b, "www.example.org", DNS_A, &a));
    CHECK_INT(a.nrr, 2);
    CHECK_INT(a.rr[0].type, DNS_CNAME);
    CHECK_INT(a.rr[0].ttl, 300);
    struct ip ip;
    CHECK(dns_rr_addr(&a, &a.rr[1], &ip) && ip.b[0] == 5 && ip.b[3] == 8);
    CHECK(!answer(&b, "other.example.org", DNS_A, &a));
    CHECK(!answer(&b, "www.example.org", DNS_AAAA, &a));
    buf_free(&b), buf_free(&alias);
}

TEST(dns, alias_loops_end)
{
    struct buf b = {0}, x = {0}, y = {0};
    name(&x, "x.example"), name(&y, "y.example");
    head(&b, 9, 0x8180, 1, 2, 0, 0);
    question(&b, "x.example", DNS_A);
    rr(&b, "x.example", DNS_CNAME, 1, y.p, y.n);
    rr(&b, "y.example", DNS_CNAME, 1, x.p, x.n);
    CHECK(answer(&b, "x.example", DNS_A, &a));
    CHECK(a.nrr <= DNS_CHAIN);
    buf_free(&b), buf_free(&x), buf_free(&y);
}

TEST(dns, bad_answers_are_refused)
{
    struct buf b = {0};
    head(&b, 9, 0x8180, 1, 1, 0, 0);
    question(&b, "x.example", DNS_A);
    size_t q = b.n;
    rr(&b, NULL, DNS_A, 60, "\1\2\3\4", 4);
    CHECK(answer(&b, "x.example", DNS_A, &a) && a.nrr == 1);
    for (size_t n = 0; n < b.n; n++) {
        struct buf cut = {b.p, n, 0};
        CHECK(!answer(&cut, "x.example", DNS_A, &a));
    }
    b.n = q, rr(&b, NULL, DNS_A, 60, "\1\2\3", 3); /* an A record of three bytes is dropped */
    CHECK(answer(&b, "x.example", DNS_A, &a) && a.nrr == 0);
    b.n = q, p16(&b, 0xc000 | (unsigned)q), p16(&b, 1), p16(&b, 1), p16(&b, 0), p16(&b, 0), p16(&b, 0); /* points at itself */
    CHECK(!answer(&b, "x.example", DNS_A, &a));
    b.n = q, p16(&b, 0xc0ff), p16(&b, 1), p16(&b, 1), p16(&b, 0), p16(&b, 0), p16(&b, 0); /* forwards */
    CHECK(!answer(&b, "x.example", DNS_A, &a));
    b.n = q;
    b.p[2] = 0x01; /* not an answer */
    CHECK(!answer(&b, "x.example", DNS_A, &a));
    buf_free(&b);
}

TEST(dns, hints_and_keys_of_encrypted_hellos_are_left_out)
{
    struct buf b = {0}, r = {0};
    p16(&r, 1), buf_putc(&r, 0);
    p16(&r, 1), p16(&r, 3), buf_put(&r, "\2h2", 3);   /* alpn */
    p16(&r, 4), p16(&r, 4), buf_put(&r, "\1\2\3\4", 4);
    p16(&r, 5), p16(&r, 2), buf_put(&r, "xx", 2);     /* ech */
    p16(&r, 6), p16(&r, 16), buf_put(&r, "0123456789abcdef", 16);
    head(&b, 9, 0x8180, 1, 1, 0, 0);
    question(&b, "x.example", DNS_HTTPS);
    rr(&b, NULL, DNS_HTTPS, 60, r.p, r.n);
    CHECK(answer(&b, "x.example", DNS_HTTPS, &a) && a.nrr == 1);
    CHECK_INT(a.rr[0].n, 3 + 7);
    /* named as mandatory: useless then */
    struct buf m = {0};
    p16(&m, 1), buf_putc(&m, 0), p16(&m, 0), p16(&m, 2), p16(&m, 5), buf_put(&m, r.p + 3, r.n - 3);
    b.n = 0, head(&b, 9, 0x8180, 1, 1, 0, 0), question(&b, "x.example", DNS_HTTPS), rr(&b, NULL, DNS_HTTPS, 60, m.p, m.n);
    CHECK(answer(&b, "x.example", DNS_HTTPS, &a) && a.nrr == 0);
    buf_free(&b), buf_free(&r), buf_free(&m);
}

TEST(dns, replies_read_back_and_are_cut_for_udp)
{
    struct buf in = {0}, b = {0}, out = {0};
    struct dns_query q;
    struct dname d;
    static struct dns_answer back;
    CHECK(dname_from_text("x.example", &d));
    dns_query_build(&in, 9, &d, DNS_TXT, false);
    CHECK_INT(query(&in, &q), 0);
    char txt[256];
    memset(txt, 'x', sizeof txt), txt[0] = (char)255;
    head(&b, 9, 0x8180, 1, 4, 0, 0);
    question(&b, "x.example", DNS_TXT);
    for (int i = 0; i < 4; i++)
        rr(&b, NULL, DNS_TXT, 77, txt, sizeof txt);
    CHECK(answer(&b, "x.example", DNS_TXT, &a) && a.nrr == 4);
    dns_reply(&out, &q, DNS_NOERROR, &a, DNS_EDE_NONE, NULL, DNS_MSG_MAX);
    CHECK(answer(&out, "x.example", DNS_TXT, &back) && back.nrr == 4 && back.rr[3].ttl == 77 && !back.truncated);
    dns_reply(&out, &q, DNS_NOERROR, &a, DNS_EDE_NONE, NULL, 512);
    CHECK(out.n <= 512 && answer(&out, "x.example", DNS_TXT, &back) && back.truncated && back.nrr == 0);
    dns_reply(&out, &q, DNS_NXDOMAIN, NULL, DNS_EDE_BLOCKED, "not allowed here", 512);
    CHECK(answer(&out, "x.example", DNS_TXT, &back) && back.rcode == DNS_NXDOMAIN);
    CHECK(memmem(out.p, out.n, "not allowed here", 16));
    buf_free(&in), buf_free(&b), buf_free(&out);
}
TEST_MAIN
