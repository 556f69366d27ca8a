/* DNS messages (RFC 1035, 6891, 8914, 9460). Pure. Questions come from guests,
 * answers from the network: both are foreign. Nothing is passed on as it came:
 * an answer is taken apart and written anew from what was understood, and only
 * records that belong to the question (by its chain of aliases) are kept. */
#pragma once
#include "base/buf.h"
#include "gate/ip.h"
#include "gate/name.h"
#include <stddef.h>
#include <stdint.h>

enum dns_type { DNS_A = 1, DNS_NS = 2, DNS_CNAME = 5, DNS_SOA = 6, DNS_PTR = 12, DNS_MX = 15, DNS_TXT = 16, DNS_AAAA = 28, DNS_SRV = 33,
                DNS_DNAME = 39, DNS_OPT = 41, DNS_RRSIG = 46, DNS_SVCB = 64, DNS_HTTPS = 65, DNS_AXFR = 252, DNS_ANY = 255 };
enum dns_rcode { DNS_NOERROR, DNS_FORMERR, DNS_SERVFAIL, DNS_NXDOMAIN, DNS_NOTIMP, DNS_REFUSED };
enum dns_ede { DNS_EDE_NONE = -1, DNS_EDE_OTHER = 0, DNS_EDE_BLOCKED = 15, DNS_EDE_FILTERED = 17, DNS_EDE_PROHIBITED = 18, DNS_EDE_UPSTREAM = 22 };

#define DNS_NAME     255 /* on the wire */
#define DNS_RECORDS  96  /* of one answer; more are dropped */
#define DNS_UDP_MAX  1232
#define DNS_MSG_MAX  65535
#define DNS_CHAIN    16  /* aliases followed */

struct dname { uint8_t b[DNS_NAME]; uint8_t n; }; /* wire form, uncompressed, lower case */
bool dname_from_text(const char *canonical, struct dname *ret);
bool dname_eq(const struct dname *a, const struct dname *b);
const char *dns_type_name(uint16_t type, char out[16]); /* "A", "TYPE1234" */

struct dns_query {
    uint16_t id, flags, type, udp_size; /* udp_size: what the asker takes, at least 512 */
    bool edns, want_dnssec;
    struct dname name;
    char text[NAME_MAX_LEN + 1]; /* canonical; "" if the name is not a host name (then only shown escaped) */
    char shown[NAME_MAX_LEN * 4 + 1];
};
/* 0: good. -1: not even a question, drop it. Else an enum dns_rcode to answer with (id, flags and perhaps name are set). */
int dns_query_parse(const uint8_t *p, size_t n, struct dns_query *ret);
void dns_query_build(struct buf *out, uint16_t id, const struct dname *name, uint16_t type, bool dnssec);

struct dns_rr { struct dname owner; uint16_t type; uint32_t ttl; uint32_t at; uint16_t n; /* rdata inside store, no compression */ };
struct dns_answer {
    int rcode;
    bool truncated, authentic;
    size_t nrr, nauth;
    struct dns_rr rr[DNS_RECORDS]; /* aliases first, then records of the type asked for (and their signatures) */
    struct dns_rr auth;            /* the SOA of a negative answer, if nauth */
    uint8_t store[16384];
    size_t used;
};
/* Is p the answer to (id, name, type)? False: malformed, or not. */
bool dns_answer_parse(const uint8_t *p, size_t n, uint16_t id, const struct dname *name, uint16_t type, struct dns_answer *ret);
bool dns_rr_addr(const struct dns_answer *a, const struct dns_rr *rr, struct ip *ret); /* A and AAAA */
static inline void dns_rr_drop(struct dns_answer *a, size_t i) /* order is kept */
{
    a->nrr--;
    for (; i < a->nrr; i++)
        a->rr[i] = a->rr[i + 1];
}

/* The reply to q: from a (may be NULL) or with rcode and an explanation for those who read them. `max`: over it, it is cut short and
 * marked (UDP). */
void dns_reply(struct buf *out, const struct dns_query *q, int rcode, const struct dns_answer *a, enum dns_ede ede, const char *text, size_t max);
