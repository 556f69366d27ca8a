#include "gate/addrs.h"
#include <stdlib.h>

struct half { struct addr_lookup *whole; struct lookup *lookup; };
struct addr_lookup { struct loop *loop; struct half half[2]; int left; struct addrs got; addrs_done *done; void *arg; };

static void bury(void *arg) { free(arg); }

static void on_half(void *arg, struct dns_answer *a, const char *why)
{
    struct half *h = arg;
    struct addr_lookup *l = h->whole;
    h->lookup = NULL;
    for (size_t i = 0; a && i < a->nrr && l->got.n < ADDRS_MAX; i++)
        if (dns_rr_addr(a, &a->rr[i], &l->got.ip[l->got.n]))
            l->got.ttl[l->got.n++] = a->rr[i].ttl;
    if (!a)
        l->got.why = why;
    else if (!l->got.why)
        l->got.why = a->rcode == DNS_NXDOMAIN ? "the name does not exist" : a->rcode ? "the resolver failed" : "the name has no address";
    if (--l->left)
        return;
    addrs_done *done = l->done;
    void *to = l->arg;
    loop_defer(l->loop, bury, l);
    done(to, &l->got);
}

struct addr_lookup *addr_lookup_start(struct loop *loop, struct resolver *r, const char *name, addrs_done *done, void *arg)
{
    struct dname d;
    struct addr_lookup *l = xcalloc(1, sizeof *l);
    *l = (struct addr_lookup){.loop = loop, .left = 2, .done = done, .arg = arg};
    if (!dname_from_text(name, &d))
        abort(); /* canonical names fit */
    for (int i = 0; i < 2; i++) {
        l->half[i].whole = l;
        l->half[i].lookup = resolver_ask(r, &d, i ? DNS_AAAA : DNS_A, false, on_half, &l->half[i]);
    }
    return l;
}
void addr_lookup_cancel(struct addr_lookup *l)
{
    if (!l)
        return;
    for (int i = 0; i < 2; i++)
        lookup_cancel(l->half[i].lookup);
    loop_defer(l->loop, bury, l);
}
