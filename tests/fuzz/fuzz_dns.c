/* DNS from both sides: questions of guests, answers of the network. What is
 * accepted can be written again, and what we wrote we accept, unchanged. */
#include "gate/dnsmsg.h"
#include <stdlib.h>
#include <string.h>

static struct dns_answer a, b;

static void as_question(const uint8_t *p, size_t n)
{
    struct dns_query q;
    struct buf out = {0};
    int r = dns_query_parse(p, n, &q);
    if (r < 0)
        return;
    dns_reply(&out, &q, r ? r : DNS_NXDOMAIN, NULL, DNS_EDE_BLOCKED, "because", 512);
    if (out.n > 512)
        abort();
    if (q.text[0]) { /* a host name goes to text and back */
        struct dname d;
        if (!dname_from_text(q.text, &d) || !dname_eq(&d, &q.name))
            abort();
    }
    if (!r) {
        struct buf again = {0};
        struct dns_query q2;
        dns_query_build(&again, q.id, &q.name, q.type, q.want_dnssec);
        if (dns_query_parse((uint8_t *)again.p, again.n, &q2) || !dname_eq(&q.name, &q2.name) || q2.type != q.type)
            abort();
        if (!dns_answer_parse((uint8_t *)out.p, out.n, q.id, &q.name, q.type, &a) || a.nrr || a.rcode != DNS_NXDOMAIN)
            abort();
        buf_free(&again);
    }
    buf_free(&out);
}

static void as_answer(const uint8_t *p, size_t n)
{
    struct dns_query q = {.udp_size = 4096, .edns = true};
    if (n < 17 || p[0] > 15)
        return;
    /* The question that the bytes themselves carry, so that the fuzzer gets past the comparison. */
    q.type = DNS_A;
    static const uint16_t types[] = {DNS_A, DNS_AAAA, DNS_CNAME, DNS_MX, DNS_TXT, DNS_SOA, DNS_SRV, DNS_HTTPS, DNS_PTR, DNS_RRSIG};
    q.type = types[p[0] % (sizeof types / sizeof *types)];
    if (!dname_from_text(p[0] & 1 ? "a.b" : "x.example", &q.name))
        abort();
    p++, n--;
    q.id = (uint16_t)(p[0] << 8 | p[1]);
    if (!dns_answer_parse(p, n, q.id, &q.name, q.type, &a) || a.truncated)
        return;
    struct buf out = {0};
    dns_reply(&out, &q, a.rcode, &a, DNS_EDE_NONE, NULL, DNS_MSG_MAX);
    if (a.rcode > 5) { /* only the four bits fit, as they came */
        buf_free(&out);
        return;
    }
    if (!dns_answer_parse((uint8_t *)out.p, out.n, q.id, &q.name, q.type, &b) || (b.nrr != a.nrr && !b.truncated))
        abort();
    for (size_t i = 0; i < b.nrr; i++) {
        struct ip x, y;
        if (!dname_eq(&a.rr[i].owner, &b.rr[i].owner) || a.rr[i].n != b.rr[i].n || memcmp(a.store + a.rr[i].at, b.store + b.rr[i].at, a.rr[i].n))
            abort();
        if (dns_rr_addr(&a, &a.rr[i], &x) && (!dns_rr_addr(&b, &b.rr[i], &y) || !ip_eq(&x, &y)))
            abort();
    }
    buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n > 4096)
        return 0;
    as_question(p, n);
    as_answer(p, n);
    return 0;
}
