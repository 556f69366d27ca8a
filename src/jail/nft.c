#include "jail/nft.h"
#include "jail/net.h"
#include "wire/net.h"
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <string.h>

#define TABLE     "hutch"
#define NEW_RATE  5000 /* flows a second, and as many at once: bounds the tracking table beside its short timeouts */
#define DNAT_PRIO (-100)
#define MARK_PRIO (-150)
#define RAW_PRIO  (-300)
#define ICMP      1
#define ICMP6     58
#define ND_ASK    135
#define ND_TELL   136

/* ---- messages --------------------------------------------------------------------------------------------------- */

static void begin(struct nl *l, unsigned type, unsigned flags, bool quiet)
{
    struct nfgenmsg g = {.nfgen_family = NFPROTO_INET};
    nl_begin(l, NFNL_SUBSYS_NFTABLES << 8 | type, flags, &g, sizeof g, quiet);
}

static void batch(struct nl *l, unsigned type)
{
    struct nfgenmsg g = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};
    nl_begin(l, type, 0, &g, sizeof g, true);
    nl_end(l);
}

static void table(struct nl *l)
{
    begin(l, NFT_MSG_NEWTABLE, NLM_F_CREATE, false);
    nl_str(l, NFTA_TABLE_NAME, TABLE);
    nl_end(l);
}

static void chain(struct nl *l, const char *name, const char *type, unsigned hook, int priority, unsigned policy)
{
    begin(l, NFT_MSG_NEWCHAIN, NLM_F_CREATE, false);
    nl_str(l, NFTA_CHAIN_TABLE, TABLE);
    nl_str(l, NFTA_CHAIN_NAME, name);
    size_t h = nl_nest(l, NFTA_CHAIN_HOOK);
    nl_be32(l, NFTA_HOOK_HOOKNUM, hook);
    nl_be32(l, NFTA_HOOK_PRIORITY, (uint32_t)priority);
    nl_nest_end(l, h);
    nl_be32(l, NFTA_CHAIN_POLICY, policy);
    nl_str(l, NFTA_CHAIN_TYPE, type);
    nl_end(l);
}

static void empty(struct nl *l, const char *name)
{
    begin(l, NFT_MSG_DELRULE, 0, false);
    nl_str(l, NFTA_RULE_TABLE, TABLE);
    nl_str(l, NFTA_RULE_CHAIN, name);
    nl_end(l);
}

static size_t rule(struct nl *l, const char *in_chain)
{
    begin(l, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, false);
    nl_str(l, NFTA_RULE_TABLE, TABLE);
    nl_str(l, NFTA_RULE_CHAIN, in_chain);
    return nl_nest(l, NFTA_RULE_EXPRESSIONS);
}

static void rule_end(struct nl *l, size_t mark)
{
    nl_nest_end(l, mark);
    nl_end(l);
}

/* ---- expressions: register 1, and 2 where two values are needed --------------------------------------------------------------- */

struct expr { size_t elem, data; };

static struct expr expr(struct nl *l, const char *name)
{
    struct expr x = {.elem = nl_nest(l, NFTA_LIST_ELEM)};
    nl_str(l, NFTA_EXPR_NAME, name);
    x.data = nl_nest(l, NFTA_EXPR_DATA);
    return x;
}

static void expr_end(struct nl *l, struct expr x)
{
    nl_nest_end(l, x.data);
    nl_nest_end(l, x.elem);
}

static void value(struct nl *l, unsigned attr, const void *p, size_t n)
{
    size_t d = nl_nest(l, attr);
    nl_put(l, NFTA_DATA_VALUE, p, n);
    nl_nest_end(l, d);
}

static void load_meta(struct nl *l, unsigned key)
{
    struct expr x = expr(l, "meta");
    nl_be32(l, NFTA_META_KEY, key);
    nl_be32(l, NFTA_META_DREG, NFT_REG_1);
    expr_end(l, x);
}

static void load_ct(struct nl *l, unsigned key)
{
    struct expr x = expr(l, "ct");
    nl_be32(l, NFTA_CT_KEY, key);
    nl_be32(l, NFTA_CT_DREG, NFT_REG_1);
    expr_end(l, x);
}

static void load_payload(struct nl *l, unsigned base, unsigned offset, unsigned n)
{
    struct expr x = expr(l, "payload");
    nl_be32(l, NFTA_PAYLOAD_DREG, NFT_REG_1);
    nl_be32(l, NFTA_PAYLOAD_BASE, base);
    nl_be32(l, NFTA_PAYLOAD_OFFSET, offset);
    nl_be32(l, NFTA_PAYLOAD_LEN, n);
    expr_end(l, x);
}

static void cmp(struct nl *l, unsigned op, const void *p, size_t n)
{
    struct expr x = expr(l, "cmp");
    nl_be32(l, NFTA_CMP_SREG, NFT_REG_1);
    nl_be32(l, NFTA_CMP_OP, op);
    value(l, NFTA_CMP_DATA, p, n);
    expr_end(l, x);
}

static void mask32(struct nl *l, uint32_t mask)
{
    uint32_t zero = 0;
    struct expr x = expr(l, "bitwise");
    nl_be32(l, NFTA_BITWISE_SREG, NFT_REG_1);
    nl_be32(l, NFTA_BITWISE_DREG, NFT_REG_1);
    nl_be32(l, NFTA_BITWISE_LEN, sizeof mask);
    value(l, NFTA_BITWISE_MASK, &mask, sizeof mask);
    value(l, NFTA_BITWISE_XOR, &zero, sizeof zero);
    expr_end(l, x);
}

static void verdict(struct nl *l, int code)
{
    struct expr x = expr(l, "immediate");
    nl_be32(l, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    size_t d = nl_nest(l, NFTA_IMMEDIATE_DATA), v = nl_nest(l, NFTA_DATA_VERDICT);
    nl_be32(l, NFTA_VERDICT_CODE, (uint32_t)code);
    nl_nest_end(l, v);
    nl_nest_end(l, d);
    expr_end(l, x);
}

static void load(struct nl *l, uint32_t reg, const void *p, size_t n)
{
    struct expr x = expr(l, "immediate");
    nl_be32(l, NFTA_IMMEDIATE_DREG, reg);
    value(l, NFTA_IMMEDIATE_DATA, p, n);
    expr_end(l, x);
}

static void redirect(struct nl *l, uint16_t port)
{
    uint16_t be = htons(port);
    load(l, NFT_REG_1, &be, sizeof be);
    struct expr x = expr(l, "redir");
    nl_be32(l, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
    expr_end(l, x);
}

static void reject(struct nl *l, unsigned type, uint8_t code)
{
    struct expr x = expr(l, "reject");
    nl_be32(l, NFTA_REJECT_TYPE, type);
    if (type != NFT_REJECT_TCP_RST)
        nl_put(l, NFTA_REJECT_ICMP_CODE, &code, 1);
    expr_end(l, x);
}

static void mark(struct nl *l, uint32_t v)
{
    load(l, NFT_REG_1, &v, sizeof v);
    struct expr x = expr(l, "meta");
    nl_be32(l, NFTA_META_KEY, NFT_META_MARK);
    nl_be32(l, NFTA_META_SREG, NFT_REG_1);
    expr_end(l, x);
}

/* To the transparent socket at this address and NET_PORT_UDP. Without one the rule does not apply. */
static void tproxy(struct nl *l, bool v6, const void *addr)
{
    uint16_t be = htons(NET_PORT_UDP);
    load(l, NFT_REG_1, addr, v6 ? 16 : 4);
    load(l, NFT_REG_2, &be, sizeof be);
    struct expr x = expr(l, "tproxy");
    nl_be32(l, NFTA_TPROXY_FAMILY, v6 ? NFPROTO_IPV6 : NFPROTO_IPV4);
    nl_be32(l, NFTA_TPROXY_REG_ADDR, NFT_REG_1);
    nl_be32(l, NFTA_TPROXY_REG_PORT, NFT_REG_2);
    expr_end(l, x);
}

static void over_rate(struct nl *l, uint64_t per_second)
{
    struct expr x = expr(l, "limit");
    nl_be64(l, NFTA_LIMIT_RATE, per_second);
    nl_be64(l, NFTA_LIMIT_UNIT, 1);
    nl_be32(l, NFTA_LIMIT_BURST, (uint32_t)per_second);
    nl_be32(l, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
    nl_be32(l, NFTA_LIMIT_FLAGS, NFT_LIMIT_F_INV);
    expr_end(l, x);
}

/* ---- matches ---------------------------------------------------------------------------------------------------- */

static void is_meta8(struct nl *l, unsigned key, uint8_t v)
{
    load_meta(l, key);
    cmp(l, NFT_CMP_EQ, &v, 1);
}

static void is_l4(struct nl *l, uint8_t proto) { is_meta8(l, NFT_META_L4PROTO, proto); }

static void is_name(struct nl *l, unsigned key, const char *name)
{
    char padded[IFNAMSIZ] = "";
    memcpy(padded, name, strlen(name));
    load_meta(l, key);
    cmp(l, NFT_CMP_EQ, padded, sizeof padded);
}

static void is_dport(struct nl *l, uint16_t port)
{
    uint16_t be = htons(port);
    load_payload(l, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
    cmp(l, NFT_CMP_EQ, &be, 2);
}

static void is_mark(struct nl *l, uint32_t v)
{
    load_meta(l, NFT_META_MARK);
    cmp(l, NFT_CMP_EQ, &v, sizeof v);
}

static void has_ct(struct nl *l, unsigned key, uint32_t bits)
{
    uint32_t zero = 0;
    load_ct(l, key);
    mask32(l, bits);
    cmp(l, NFT_CMP_NEQ, &zero, sizeof zero);
}

#define ESTABLISHED (NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED))
#define NEW         NF_CT_STATE_BIT(IP_CT_NEW)

/* Destination addresses that are the namespace's own. */
enum own { OWN_LOOP4, OWN_GUEST4, OWN_LOOP6, OWN_GUEST6, OWN_MAX };
static void is_own(struct nl *l, enum own which)
{
    static const unsigned char guest6[16] = NET_GUEST6, loop6[16] = {[15] = 1};
    bool v6 = which >= OWN_LOOP6;
    uint32_t guest4 = htonl(NET_GUEST4);
    uint8_t loop4 = 127;
    is_meta8(l, NFT_META_NFPROTO, v6 ? NFPROTO_IPV6 : NFPROTO_IPV4);
    load_payload(l, NFT_PAYLOAD_NETWORK_HEADER, v6 ? 24 : 16, v6 ? 16 : which == OWN_LOOP4 ? 1 : 4);
    if (v6)
        cmp(l, NFT_CMP_EQ, which == OWN_LOOP6 ? loop6 : guest6, 16);
    else if (which == OWN_LOOP4)
        cmp(l, NFT_CMP_EQ, &loop4, 1);
    else
        cmp(l, NFT_CMP_EQ, &guest4, 4);
}

static void in_our_ports(struct nl *l)
{
    uint16_t first = htons(NET_PORT_FIRST), last = htons(NET_PORT_LAST);
    is_l4(l, IPPROTO_TCP);
    load_payload(l, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
    cmp(l, NFT_CMP_GTE, &first, 2);
    cmp(l, NFT_CMP_LTE, &last, 2);
}

/* ---- rules ------------------------------------------------------------------------------------------------------ */

static void own_addresses(struct nl *l, const char *in_chain, int code)
{
    for (int i = 0; i < OWN_MAX; i++) {
        size_t r = rule(l, in_chain);
        is_own(l, (enum own)i);
        verdict(l, code);
        rule_end(l, r);
    }
}

static void lead_to_gate(struct nl *l, const char *in_chain)
{
    uint32_t gate4 = htonl(NET_GATE4);
    size_t r = rule(l, in_chain);
    is_meta8(l, NFT_META_NFPROTO, NFPROTO_IPV4);
    load_payload(l, NFT_PAYLOAD_NETWORK_HEADER, 16, 4);
    cmp(l, NFT_CMP_EQ, &gate4, 4);
    is_l4(l, IPPROTO_TCP);
    is_dport(l, NET_PROXY_PORT);
    redirect(l, NET_PORT_PROXY);
    rule_end(l, r);
    for (int udp = 0; udp < 2; udp++) {
        r = rule(l, in_chain);
        is_l4(l, udp ? IPPROTO_UDP : IPPROTO_TCP);
        is_dport(l, 53);
        redirect(l, NET_PORT_DNS);
        rule_end(l, r);
    }
    r = rule(l, in_chain);
    is_l4(l, IPPROTO_TCP);
    redirect(l, NET_PORT_TCP);
    rule_end(l, r);
}

static void new_and_established(struct nl *l, const char *in_chain)
{
    size_t r = rule(l, in_chain);
    has_ct(l, NFT_CT_STATE, NEW);
    over_rate(l, NEW_RATE);
    verdict(l, NF_DROP);
    rule_end(l, r);
    r = rule(l, in_chain);
    has_ct(l, NFT_CT_STATE, ESTABLISHED);
    verdict(l, NF_ACCEPT);
    rule_end(l, r);
}

static void pass_marked(struct nl *l, const char *in_chain, uint32_t v)
{
    size_t r = rule(l, in_chain);
    is_mark(l, v);
    is_l4(l, IPPROTO_UDP);
    verdict(l, NF_ACCEPT);
    rule_end(l, r);
}

static void refuse(struct nl *l, const char *in_chain)
{
    size_t r = rule(l, in_chain);
    reject(l, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
    rule_end(l, r);
}

void nft_rules_box(struct nl *l)
{
    static const enum own loop[] = {OWN_LOOP4, OWN_LOOP6};
    size_t r;
    *l = (struct nl){0};
    batch(l, NFNL_MSG_BATCH_BEGIN);
    table(l);
    chain(l, "raw", "filter", NF_INET_LOCAL_OUT, RAW_PRIO, NF_ACCEPT);
    for (unsigned i = 0; i < 2; i++) {
        r = rule(l, "raw");
        is_own(l, loop[i]);
        expr_end(l, expr(l, "notrack"));
        rule_end(l, r);
    }
    chain(l, "nat", "nat", NF_INET_LOCAL_OUT, DNAT_PRIO, NF_ACCEPT);
    own_addresses(l, "nat", NFT_RETURN);
    lead_to_gate(l, "nat");
    chain(l, "out", "filter", NF_INET_LOCAL_OUT, 0, NF_DROP);
    new_and_established(l, "out");
    own_addresses(l, "out", NF_ACCEPT);
    pass_marked(l, "out", NET_MARK_OUT);
    refuse(l, "out");
    chain(l, "in", "filter", NF_INET_LOCAL_IN, 0, NF_ACCEPT);
    r = rule(l, "in");
    in_our_ports(l);
    has_ct(l, NFT_CT_STATUS, IPS_DST_NAT);
    verdict(l, NF_ACCEPT);
    rule_end(l, r);
    r = rule(l, "in");
    in_our_ports(l);
    reject(l, NFT_REJECT_TCP_RST, 0);
    rule_end(l, r);
    batch(l, NFNL_MSG_BATCH_END);
}

void nft_rules_vm(struct nl *l)
{
    static const uint8_t nd[] = {ND_ASK, ND_TELL};
    static const uint8_t icmp[] = {ICMP, ICMP6};
    size_t r;
    *l = (struct nl){0};
    batch(l, NFNL_MSG_BATCH_BEGIN);
    table(l);
    chain(l, "nat", "nat", NF_INET_PRE_ROUTING, DNAT_PRIO, NF_ACCEPT);
    lead_to_gate(l, "nat");
    chain(l, "pre", "filter", NF_INET_PRE_ROUTING, 0, NF_DROP);
    new_and_established(l, "pre");
    r = rule(l, "pre");
    has_ct(l, NFT_CT_STATUS, IPS_DST_NAT);
    verdict(l, NF_ACCEPT);
    rule_end(l, r);
    pass_marked(l, "pre", NET_MARK_OUT);
    for (unsigned i = 0; i < sizeof nd; i++) {
        r = rule(l, "pre");
        is_l4(l, ICMP6);
        load_payload(l, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1);
        cmp(l, NFT_CMP_EQ, &nd[i], 1);
        verdict(l, NF_ACCEPT);
        rule_end(l, r);
    }
    refuse(l, "pre");
    chain(l, "out", "filter", NF_INET_LOCAL_OUT, 0, NF_DROP);
    r = rule(l, "out");
    is_name(l, NFT_META_OIFNAME, NET_TAP_NAME);
    has_ct(l, NFT_CT_STATE, ESTABLISHED);
    verdict(l, NF_ACCEPT);
    rule_end(l, r);
    pass_marked(l, "out", NET_MARK_BACK);
    for (unsigned i = 0; i < sizeof icmp; i++) { /* refusals, neighbour discovery */
        r = rule(l, "out");
        is_name(l, NFT_META_OIFNAME, NET_TAP_NAME);
        is_l4(l, icmp[i]);
        verdict(l, NF_ACCEPT);
        rule_end(l, r);
    }
    batch(l, NFNL_MSG_BATCH_END);
}

/* ---- datagrams --------------------------------------------------------------------------------------------------- */

/* Everything but questions and what goes to many: of that there is nobody to ask. */
static void mark_datagrams(struct nl *l, const char *in_chain)
{
    static const uint8_t many4 = 224, many6 = 0xff;
    size_t r = rule(l, in_chain);
    is_l4(l, IPPROTO_UDP);
    is_dport(l, 53);
    verdict(l, NFT_RETURN);
    rule_end(l, r);
    for (int v6 = 0; v6 < 2; v6++) {
        r = rule(l, in_chain);
        is_l4(l, IPPROTO_UDP);
        is_meta8(l, NFT_META_NFPROTO, v6 ? NFPROTO_IPV6 : NFPROTO_IPV4);
        load_payload(l, NFT_PAYLOAD_NETWORK_HEADER, v6 ? 24 : 16, 1);
        cmp(l, v6 ? NFT_CMP_NEQ : NFT_CMP_LT, v6 ? &many6 : &many4, 1);
        mark(l, NET_MARK_OUT);
        rule_end(l, r);
    }
}
static void lead_marked(struct nl *l, const char *in_chain, const void *gate4, const void *gate6)
{
    size_t r;
    for (int v6 = 0; v6 < 2; v6++) {
        r = rule(l, in_chain);
        is_mark(l, NET_MARK_OUT);
        is_meta8(l, NFT_META_NFPROTO, v6 ? NFPROTO_IPV6 : NFPROTO_IPV4);
        is_l4(l, IPPROTO_UDP);
        tproxy(l, v6, v6 ? gate6 : gate4);
        verdict(l, NF_ACCEPT);
        rule_end(l, r);
    }
    r = rule(l, in_chain);
    is_mark(l, NET_MARK_OUT);
    reject(l, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
    rule_end(l, r);
}

void nft_rules_box_udp(struct nl *l)
{
    static const unsigned char loop4[4] = {127, 0, 0, 1}, loop6[16] = {[15] = 1};
    *l = (struct nl){0};
    batch(l, NFNL_MSG_BATCH_BEGIN);
    chain(l, "mark", "filter", NF_INET_LOCAL_OUT, MARK_PRIO, NF_ACCEPT);
    empty(l, "mark"); /* they may be there from an earlier gate */
    own_addresses(l, "mark", NFT_RETURN);
    mark_datagrams(l, "mark");
    chain(l, "lead", "filter", NF_INET_PRE_ROUTING, MARK_PRIO, NF_ACCEPT);
    empty(l, "lead");
    lead_marked(l, "lead", loop4, loop6);
    batch(l, NFNL_MSG_BATCH_END);
}

void nft_rules_vm_udp(struct nl *l)
{
    static const unsigned char gate6[16] = NET_GATE6;
    uint32_t gate4 = htonl(NET_GATE4);
    *l = (struct nl){0};
    batch(l, NFNL_MSG_BATCH_BEGIN);
    chain(l, "lead", "filter", NF_INET_PRE_ROUTING, MARK_PRIO, NF_ACCEPT);
    empty(l, "lead");
    mark_datagrams(l, "lead");
    lead_marked(l, "lead", &gate4, gate6);
    batch(l, NFNL_MSG_BATCH_END);
}
