#include "gate/dnsmsg.h"
#include <stdio.h>
#include <string.h>

enum { F_QR = 0x8000, F_OPCODE = 0x7800, F_TC = 0x0200, F_RD = 0x0100, F_RA = 0x0080, F_AD = 0x0020, F_CD = 0x0010, F_RCODE = 0x000f };
#define HEAD 12u

static uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }
static void put16(struct buf *b, unsigned v)
{
    char x[2] = {(char)(v >> 8), (char)v};
    buf_put(b, x, 2);
}
static void put32(struct buf *b, uint32_t v)
{
    put16(b, v >> 16);
    put16(b, v & 0xffff);
}
static void set16(struct buf *b, size_t at, unsigned v) { b->p[at] = (char)(v >> 8), b->p[at + 1] = (char)v; }

/* ---- names -------------------------------------------------------------------------------------------------------- */

static uint8_t lower(uint8_t c) { return c >= 'A' && c <= 'Z' ? (uint8_t)(c + 32) : c; }

/* Reads a name at *at; *at moves behind it. Pointers (if allowed) must point backwards, so they end. */
static bool read_name(const uint8_t *p, size_t n, size_t *at, bool pointers, struct dname *ret)
{
    size_t pos = *at, floor = *at; /* a pointer must lead before `floor` */
    bool jumped = false;
    ret->n = 0;
    for (;;) {
        if (pos >= n)
            return false;
        uint8_t len = p[pos];
        if (len >= 0xc0) {
            if (!pointers || pos + 1 >= n)
                return false;
            size_t to = (size_t)(len & 0x3f) << 8 | p[pos + 1];
            if (!jumped)
                *at = pos + 2;
            if (to >= floor || to < HEAD)
                return false;
            jumped = true;
            pos = floor = to;
            continue;
        }
        if (len > 63 || pos + 1 + len > n || ret->n + 1u + len > DNS_NAME)
            return false;
        ret->b[ret->n++] = len;
        for (unsigned i = 0; i < len; i++)
            ret->b[ret->n++] = lower(p[pos + 1 + i]);
        pos += 1u + len;
        if (!len)
            break;
    }
    if (!jumped)
        *at = pos;
    return true;
}

bool dname_eq(const struct dname *a, const struct dname *b) { return a->n == b->n && !memcmp(a->b, b->b, a->n); }

bool dname_from_text(const char *s, struct dname *ret)
{
    size_t n = strlen(s);
    if (n > NAME_MAX_LEN)
        return false;
    ret->n = 0;
    while (*s) {
        size_t len = strcspn(s, ".");
        if (!len || len > 63)
            return false;
        ret->b[ret->n++] = (uint8_t)len;
        for (size_t i = 0; i < len; i++)
            ret->b[ret->n++] = lower((uint8_t)s[i]);
        s += len + (s[len] == '.');
    }
    ret->b[ret->n++] = 0;
    return true;
}

static void show_name(const struct dname *d, char *out, size_t cap)
{
    size_t o = 0;
    for (size_t i = 0; i < d->n && d->b[i]; i += 1u + d->b[i]) {
        if (i && o + 1 < cap)
            out[o++] = '.';
        for (unsigned k = 1; k <= d->b[i] && o + 5 < cap; k++) {
            uint8_t c = d->b[i + k];
            if (c > ' ' && c < 127 && c != '.' && c != '\\')
                out[o++] = (char)c;
            else
                o += (size_t)snprintf(out + o, cap - o, "\\%03u", c);
        }
    }
    out[o] = 0;
}

const char *dns_type_name(uint16_t type, char out[16])
{
    static const struct { uint16_t t; const char *n; } known[] = {
        {DNS_A, "A"}, {DNS_NS, "NS"}, {DNS_CNAME, "CNAME"}, {DNS_SOA, "SOA"}, {DNS_PTR, "PTR"}, {DNS_MX, "MX"}, {DNS_TXT, "TXT"}, {DNS_AAAA, "AAAA"},
        {DNS_SRV, "SRV"}, {DNS_DNAME, "DNAME"}, {DNS_SVCB, "SVCB"}, {DNS_HTTPS, "HTTPS"}, {DNS_ANY, "ANY"}, {DNS_AXFR, "AXFR"}, {10, "NULL"},
        {43, "DS"}, {48, "DNSKEY"}, {DNS_RRSIG, "RRSIG"}, {257, "CAA"}, {35, "NAPTR"}, {52, "TLSA"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].t == type)
            return known[i].n;
    (void)snprintf(out, 16, "TYPE%u", type);
    return out;
}

/* ---- questions ------------------------------------------------------------------------------------------------------ */

/* The one additional record a question may have. */
static bool read_opt(const uint8_t *p, size_t n, size_t at, struct dns_query *q)
{
    if (n - at < 11 || p[at] || get16(p + at + 1) != DNS_OPT)
        return false;
    uint16_t len = get16(p + at + 9);
    if (n - at - 11 != len || p[at + 6]) /* version 0 only */
        return false;
    q->edns = true;
    q->udp_size = get16(p + at + 3);
    q->want_dnssec = p[at + 7] & 0x80;
    return true;
}

int dns_query_parse(const uint8_t *p, size_t n, struct dns_query *q)
{
    *q = (struct dns_query){.udp_size = 512};
    if (n < HEAD)
        return -1;
    q->id = get16(p);
    q->flags = get16(p + 2);
    if (q->flags & F_QR)
        return -1;
    if (q->flags & F_OPCODE)
        return DNS_NOTIMP;
    unsigned qd = get16(p + 4), an = get16(p + 6), ns = get16(p + 8), ar = get16(p + 10);
    size_t at = HEAD;
    if (qd != 1 || an || ns || ar > 1 || !read_name(p, n, &at, false, &q->name) || n - at < 4) {
        q->name.n = 0;
        return DNS_FORMERR;
    }
    q->type = get16(p + at);
    unsigned class = get16(p + at + 2);
    at += 4;
    show_name(&q->name, q->shown, sizeof q->shown);
    if (!name_canon(str_of(q->shown), q->text)) /* shown escapes what a host name must not have, so the two agree */
        q->text[0] = 0;
    if (ar ? !read_opt(p, n, at, q) : at != n)
        return DNS_FORMERR;
    if (q->udp_size < 512)
        q->udp_size = 512;
    if (class != 1)
        return DNS_REFUSED;
    if (q->type == DNS_ANY || q->type == DNS_OPT || (q->type >= 249 && q->type <= 254) || !q->type)
        return DNS_NOTIMP;
    return 0;
}

void dns_query_build(struct buf *out, uint16_t id, const struct dname *name, uint16_t type, bool dnssec)
{
    put16(out, id);
    put16(out, F_RD);
    put16(out, 1), put16(out, 0), put16(out, 0), put16(out, 1);
    buf_put(out, name->b, name->n);
    put16(out, type), put16(out, 1);
    buf_putc(out, 0); /* OPT */
    put16(out, DNS_OPT), put16(out, DNS_UDP_MAX), put16(out, 0), put16(out, dnssec ? 0x8000 : 0), put16(out, 0);
}

/* ---- answers --------------------------------------------------------------------------------------------------------- */

struct reader { const uint8_t *p; size_t n, at; };

static bool store(struct dns_answer *a, const void *p, size_t n)
{
    if (n > sizeof a->store - a->used)
        return false;
    memcpy(a->store + a->used, p, n);
    a->used += n;
    return true;
}
static bool store_names(struct dns_answer *a, struct reader *r, size_t end, int count)
{
    for (int i = 0; i < count; i++) {
        struct dname d;
        if (!read_name(r->p, end, &r->at, true, &d) || !store(a, d.b, d.n))
            return false;
    }
    return true;
}
static bool store_raw(struct dns_answer *a, struct reader *r, size_t n, size_t end)
{
    if (end - r->at < n || !store(a, r->p + r->at, n))
        return false;
    r->at += n;
    return true;
}
/* RFC 9460: priority, target, parameters. Address hints are not bound to the name and the key for encrypted hellos would hide it:
 * both are left out. */
static bool store_svcb(struct dns_answer *a, struct reader *r, size_t end)
{
    enum { MANDATORY = 0, HINT4 = 4, ECH = 5, HINT6 = 6 };
    struct dname target;
    if (!store_raw(a, r, 2, end) || !read_name(r->p, end, &r->at, false, &target) || !store(a, target.b, target.n))
        return false;
    while (r->at < end) {
        if (end - r->at < 4)
            return false;
        unsigned key = get16(r->p + r->at), len = get16(r->p + r->at + 2);
        if (end - r->at - 4 < len)
            return false;
        if (key == HINT4 || key == ECH || key == HINT6)
            r->at += 4 + len;
        else if (key == MANDATORY) { /* it could name what was left out: then the record is useless */
            for (unsigned i = 0; i + 1 < len; i += 2) {
                unsigned m = get16(r->p + r->at + 4 + i);
                if (m == HINT4 || m == ECH || m == HINT6)
                    return false;
            }
            if (!store_raw(a, r, 4 + len, end))
                return false;
        } else if (!store_raw(a, r, 4 + len, end))
            return false;
    }
    return true;
}

/* Old types whose rdata may hold compressed names that nobody needs today. */
static bool obsolete(uint16_t type)
{
    return type == 3 || type == 4 || (type >= 7 && type <= 9) || type == 14 || type == 17 || type == 18 || type == 21 || type == 24 ||
           type == 26 || type == 30 || type == 36;
}

static bool store_rdata(struct dns_answer *a, struct reader *r, size_t end, uint16_t type)
{
    size_t n = end - r->at;
    switch (type) {
    case DNS_A: return n == 4 && store_raw(a, r, 4, end);
    case DNS_AAAA: return n == 16 && store_raw(a, r, 16, end);
    case DNS_NS:
    case DNS_CNAME:
    case DNS_PTR:
    case DNS_DNAME: return store_names(a, r, end, 1);
    case DNS_MX: return store_raw(a, r, 2, end) && store_names(a, r, end, 1);
    case DNS_SRV: return store_raw(a, r, 6, end) && store_names(a, r, end, 1);
    case DNS_SOA: return store_names(a, r, end, 2) && store_raw(a, r, 20, end);
    case DNS_SVCB:
    case DNS_HTTPS: return store_svcb(a, r, end);
    default: return store_raw(a, r, n, end);
    }
}

enum got { GOT_RR, GOT_SKIP, GOT_BAD };
static enum got read_rr(struct reader *r, struct dns_answer *a, struct dns_rr *rr)
{
    if (!read_name(r->p, r->n, &r->at, true, &rr->owner) || r->n - r->at < 10)
        return GOT_BAD;
    rr->type = get16(r->p + r->at);
    unsigned class = get16(r->p + r->at + 2);
    rr->ttl = get32(r->p + r->at + 4);
    if (rr->ttl > 0x7fffffff)
        rr->ttl = 0; /* RFC 2181 8 */
    size_t len = get16(r->p + r->at + 8);
    r->at += 10;
    size_t end = r->at + len, before = a->used;
    if (end > r->n)
        return GOT_BAD;
    bool keep = class == 1 && !obsolete(rr->type) && rr->type != DNS_OPT;
    if (keep && (!store_rdata(a, r, end, rr->type) || r->at != end || a->used - before > 65535)) {
        a->used = before;
        keep = false;
    }
    r->at = end;
    rr->at = (uint32_t)before;
    rr->n = (uint16_t)(a->used - before);
    return keep ? GOT_RR : GOT_SKIP;
}

static bool alias_target(const struct dns_answer *a, const struct dns_rr *rr, struct dname *ret)
{
    if (rr->type != DNS_CNAME || !rr->n || rr->n > DNS_NAME)
        return false;
    memcpy(ret->b, a->store + rr->at, rr->n);
    ret->n = (uint8_t)rr->n;
    return true;
}

/* Keeps the alias chain from the question's name and the records at its end; drops all else. */
static void keep_chain(struct dns_answer *a, const struct dname *name, uint16_t type)
{
    static const size_t none = (size_t)-1;
    struct dns_rr kept[DNS_RECORDS];
    size_t nkept = 0;
    struct dname at = *name;
    for (int hop = 0; hop < DNS_CHAIN && type != DNS_CNAME; hop++) {
        size_t found = none;
        for (size_t i = 0; i < a->nrr && found == none; i++)
            if (a->rr[i].type == DNS_CNAME && dname_eq(&a->rr[i].owner, &at))
                found = i;
        if (found == none)
            break;
        kept[nkept++] = a->rr[found];
        if (!alias_target(a, &a->rr[found], &at))
            break;
    }
    for (size_t i = 0; i < a->nrr && nkept < DNS_RECORDS; i++) {
        const struct dns_rr *rr = &a->rr[i];
        bool sig = rr->type == DNS_RRSIG && rr->n >= 2 && get16(a->store + rr->at) == type;
        if (dname_eq(&rr->owner, &at) && (rr->type == type || sig))
            kept[nkept++] = *rr;
    }
    memcpy(a->rr, kept, nkept * sizeof *kept);
    a->nrr = nkept;
}

bool dns_answer_parse(const uint8_t *p, size_t n, uint16_t id, const struct dname *name, uint16_t type, struct dns_answer *a)
{
    a->nrr = a->nauth = a->used = 0;
    if (n < HEAD || get16(p) != id)
        return false;
    unsigned flags = get16(p + 2), qd = get16(p + 4), an = get16(p + 6), ns = get16(p + 8);
    if (!(flags & F_QR) || flags & F_OPCODE || qd != 1)
        return false;
    struct reader r = {p, n, HEAD};
    struct dname asked;
    if (!read_name(p, n, &r.at, false, &asked) || !dname_eq(&asked, name) || n - r.at < 4 || get16(p + r.at) != type || get16(p + r.at + 2) != 1)
        return false;
    r.at += 4;
    a->rcode = flags & F_RCODE;
    a->truncated = flags & F_TC;
    a->authentic = flags & F_AD;
    if (a->truncated)
        return true; /* ask again over TCP; nothing of it is used */
    for (unsigned i = 0; i < an + ns; i++) {
        struct dns_rr rr;
        enum got g = read_rr(&r, a, &rr);
        if (g == GOT_BAD)
            return false;
        if (g == GOT_SKIP)
            continue;
        if (i < an && a->nrr < DNS_RECORDS)
            a->rr[a->nrr++] = rr;
        if (i >= an && rr.type == DNS_SOA && !a->nauth)
            a->auth = rr, a->nauth = 1;
    }
    keep_chain(a, name, type);
    return true;
}

bool dns_rr_addr(const struct dns_answer *a, const struct dns_rr *rr, struct ip *ret)
{
    *ret = (struct ip){.v6 = rr->type == DNS_AAAA};
    if ((rr->type != DNS_A || rr->n != 4) && (rr->type != DNS_AAAA || rr->n != 16))
        return false;
    memcpy(ret->b, a->store + rr->at, rr->n);
    return true;
}

/* ---- replies --------------------------------------------------------------------------------------------------------- */

static void put_rr(struct buf *out, const struct dns_query *q, const struct dns_answer *a, const struct dns_rr *rr)
{
    if (dname_eq(&rr->owner, &q->name))
        put16(out, 0xc000 | HEAD);
    else
        buf_put(out, rr->owner.b, rr->owner.n);
    put16(out, rr->type), put16(out, 1);
    put32(out, rr->ttl);
    put16(out, rr->n);
    buf_put(out, a->store + rr->at, rr->n);
}
static void put_opt(struct buf *out, enum dns_ede ede, const char *text, bool dnssec)
{
    size_t n = text ? strnlen(text, 160) : 0;
    buf_putc(out, 0);
    put16(out, DNS_OPT), put16(out, DNS_UDP_MAX), put16(out, 0), put16(out, dnssec ? 0x8000 : 0);
    put16(out, ede < 0 ? 0 : (unsigned)(6 + n));
    if (ede < 0)
        return;
    put16(out, 15), put16(out, (unsigned)(2 + n)), put16(out, (unsigned)ede);
    buf_put(out, text, n);
}

void dns_reply(struct buf *out, const struct dns_query *q, int rcode, const struct dns_answer *a, enum dns_ede ede, const char *text, size_t max)
{
    bool named = q->name.n > 0;
    unsigned flags = F_QR | (q->flags & (F_RD | F_CD)) | F_RA | (unsigned)rcode, an = 0, ns = 0;
    if (a && a->authentic && (q->want_dnssec || q->flags & F_AD))
        flags |= F_AD;
    out->n = 0;
    put16(out, q->id), put16(out, flags), put16(out, named), put16(out, 0), put16(out, 0), put16(out, 0);
    if (named) {
        buf_put(out, q->name.b, q->name.n);
        put16(out, q->type), put16(out, 1);
    }
    size_t tail = q->edns ? 11 + (ede < 0 ? 0 : 6 + (text ? strnlen(text, 160) : 0)) : 0, bare = out->n;
    for (size_t i = 0; a && i < a->nrr; i++)
        put_rr(out, q, a, &a->rr[i]), an++;
    if (a && !a->nrr && a->nauth)
        put_rr(out, q, a, &a->auth), ns++;
    if (out->n + tail > max) { /* not a part of it: the asker comes again over TCP */
        out->n = bare;
        an = ns = 0;
        set16(out, 2, flags | F_TC);
    }
    set16(out, 6, an), set16(out, 8, ns);
    if (q->edns && out->n + tail <= max) {
        set16(out, 10, 1);
        put_opt(out, ede, text, q->want_dnssec);
    }
}
