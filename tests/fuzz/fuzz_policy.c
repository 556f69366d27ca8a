/* Policy text from a client. What is taken can be written, reads back to the
 * same bytes, and answers every question without contradiction: closed stays
 * closed, a ceiling never adds. The first byte picks the question. */
#include "gate/policy.h"
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"", "example.org", "a.example.org", "localhost", "x.internal", "b.c"};
static const char *const addrs[] = {"93.184.216.34", "127.0.0.1", "10.0.0.1", "2606:4700::1", "::ffff:10.0.0.1", "fd00::1", "192.0.2.1"};
static const uint16_t ports[] = {80, 443, 22, 53, 8080};

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 2)
        return 0;
    unsigned pick = p[0], flags = pick & 1 ? POLICY_CEILING : 0;
    struct err e;
    struct policy *pol = policy_parse((const char *)p + 1, n - 1, flags, &e);
    if (!pol)
        return 0;
    struct buf x = {0}, y = {0};
    policy_write(pol, &x);
    struct policy *back = x.n <= POLICY_TEXT_MAX ? policy_parse(x.p, x.n, flags, &e) : NULL;
    if (!back && x.n <= POLICY_TEXT_MAX)
        abort();
    if (back) {
        policy_write(back, &y);
        if (x.n != y.n || memcmp(x.p, y.p, x.n))
            abort();
    }
    struct policy *none = policy_parse("", 0, 0, &e);
    struct policy_set s = {.own = pol}, under = {.own = pol, .ceiling = {none}, .ceiling_name = {"none"}, .nceilings = 1};
    for (size_t i = 0; i < sizeof addrs / sizeof *addrs; i++) {
        struct ip ip;
        if (!ip_parse(str_of(addrs[i]), &ip))
            abort();
        ip = ip_plain(&ip);
        struct policy_ask q = {.name = str_of(names[pick % 6]), .addr = &ip, .port = ports[pick % 5], .proto = (enum policy_proto)(pick % 4), .looked = pick & 64,
                               .method = pick & 128 ? S("GET") : (struct str){0}, .path = pick & 128 ? S("/v1/x") : (struct str){0}};
        struct policy_verdict v, w;
        policy_decide(&s, &q, &v);
        if (ip_closed(&ip) && v.answer != ANSWER_DENY)
            abort();
        if ((v.answer == ANSWER_DENY) != (v.reason[0] != 0))
            abort();
        policy_decide(&under, &q, &w);
        if (w.answer == ANSWER_ALLOW)
            abort();
        struct policy_inject in[POLICY_INJECT_MAX];
        (void)policy_injects(pol, &q, in, POLICY_INJECT_MAX);
    }
    policy_unref(pol), policy_unref(back), policy_unref(none);
    buf_free(&x), buf_free(&y);
    return 0;
}
