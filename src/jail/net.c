#include "jail/net.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "jail/nft.h"
#include "jail/sys.h"
#include "wire/net.h"
#include <arpa/inet.h>
#include <linux/fib_rules.h>
#include <linux/filter.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define LO_INDEX  1
#define TAP_INDEX 77 /* asked for by number, so that every message below is the same for all */
#define TUN_DEV   "/dev/net/tun"
#define BACKLOG   1024
#define UDP_TABLE 77

static const unsigned char guest6[16] = NET_GUEST6, gate6[16] = NET_GATE6, guest_mac[6] = NET_GUEST_MAC, gate_mac[6] = NET_GATE_MAC;

/* ---- messages, built once --------------------------------------------------------------------------------------- */

static void link_up(struct nl *l, int index)
{
    struct ifinfomsg m = {.ifi_family = AF_UNSPEC, .ifi_index = index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP};
    nl_begin(l, RTM_NEWLINK, 0, &m, sizeof m, false);
    nl_end(l);
}

/* Nothing is sent that nobody asked for: a guest that comes back would work through it before it answers. So no address of the
 * kernel's own making, no questions and no groups; and before the link is up, for in one message that would be done first. */
static void link_quiet(struct nl *l, int index, const unsigned char *mac, bool v6)
{
    struct ifinfomsg m = {.ifi_family = AF_UNSPEC, .ifi_index = index, .ifi_flags = IFF_NOARP, .ifi_change = IFF_NOARP | IFF_MULTICAST};
    uint8_t none = IN6_ADDR_GEN_MODE_NONE;
    nl_begin(l, RTM_NEWLINK, 0, &m, sizeof m, false);
    nl_put(l, IFLA_ADDRESS, mac, 6);
    if (v6) {
        size_t af = nl_nest(l, IFLA_AF_SPEC), in6 = nl_nest(l, AF_INET6);
        nl_put(l, IFLA_INET6_ADDR_GEN_MODE, &none, 1);
        nl_nest_end(l, in6);
        nl_nest_end(l, af);
    }
    nl_end(l);
}

static void address(struct nl *l, int index, int family, const void *addr, unsigned char bits)
{
    struct ifaddrmsg m = {.ifa_family = (uint8_t)family, .ifa_prefixlen = bits, .ifa_index = (uint32_t)index, .ifa_flags = IFA_F_PERMANENT};
    size_t n = family == AF_INET ? 4 : 16;
    nl_begin(l, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m, false);
    nl_put(l, IFA_LOCAL, addr, n);
    nl_put(l, IFA_ADDRESS, addr, n);
    nl_u32(l, IFA_FLAGS, IFA_F_PERMANENT | IFA_F_NODAD);
    nl_end(l);
}

static void default_route(struct nl *l, int index, int family, const void *source)
{
    struct rtmsg m = {.rtm_family = (uint8_t)family, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_STATIC, .rtm_scope = RT_SCOPE_LINK, .rtm_type = RTN_UNICAST};
    if (family == AF_INET6)
        m.rtm_scope = RT_SCOPE_UNIVERSE;
    nl_begin(l, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m, false);
    nl_u32(l, RTA_OIF, (uint32_t)index);
    nl_put(l, RTA_PREFSRC, source, family == AF_INET ? 4 : 16);
    nl_end(l);
}

/* The other end of the wire never has to be asked for, and cannot claim to be anybody else. */
static void neighbour(struct nl *l, int index, int family, const void *addr, const unsigned char *mac)
{
    struct ndmsg m = {.ndm_family = (uint8_t)family, .ndm_ifindex = index, .ndm_state = NUD_PERMANENT};
    nl_begin(l, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m, false);
    nl_put(l, NDA_DST, addr, family == AF_INET ? 4 : 16);
    nl_put(l, NDA_LLADDR, mac, 6);
    nl_end(l);
}

/* Datagrams to anywhere end here: they are looked at, not sent on. In a container they have left through lo already, and only a
 * route that calls every address local brings them back in; a rule keeps that to UDP, so that no program can bind to an address
 * that is not its own. */
static void all_local(struct nl *l, int family, const void *source, unsigned table)
{
    struct rtmsg m = {.rtm_family = (uint8_t)family, .rtm_table = (uint8_t)table, .rtm_protocol = RTPROT_STATIC, .rtm_scope = RT_SCOPE_HOST, .rtm_type = RTN_LOCAL};
    nl_begin(l, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m, false);
    nl_u32(l, RTA_OIF, LO_INDEX);
    if (source)
        nl_put(l, RTA_PREFSRC, source, family == AF_INET ? 4 : 16);
    nl_end(l);
}
static void udp_rule(struct nl *l, int family)
{
    struct fib_rule_hdr m = {.family = (uint8_t)family, .table = UDP_TABLE, .action = FR_ACT_TO_TBL};
    uint8_t udp = IPPROTO_UDP;
    nl_begin(l, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, &m, sizeof m, false);
    nl_put(l, FRA_IP_PROTO, &udp, 1);
    nl_end(l);
}

static void make_links(struct net_host *h)
{
    uint32_t guest4 = htonl(NET_GUEST4), gate4 = htonl(NET_GATE4);
    struct nl *box = &h->links[NET_BOX], *vm = &h->links[NET_VM], *box6 = &h->links6[NET_BOX], *vm6 = &h->links6[NET_VM];
    link_up(box, LO_INDEX);
    address(box, LO_INDEX, AF_INET, &guest4, 32);
    default_route(box, LO_INDEX, AF_INET, &guest4); /* with a source that is not loopback: else answers would be lost */
    address(box6, LO_INDEX, AF_INET6, guest6, 128);
    default_route(box6, LO_INDEX, AF_INET6, guest6);
    link_up(vm, LO_INDEX);
    link_quiet(vm, TAP_INDEX, gate_mac, h->v6);
    link_up(vm, TAP_INDEX);
    address(vm, TAP_INDEX, AF_INET, &gate4, NET_BITS4);
    neighbour(vm, TAP_INDEX, AF_INET, &guest4, guest_mac);
    address(vm6, TAP_INDEX, AF_INET6, gate6, NET_BITS6);
    neighbour(vm6, TAP_INDEX, AF_INET6, guest6, guest_mac);
    udp_rule(&h->udp[NET_BOX], AF_INET);
    all_local(&h->udp[NET_BOX], AF_INET, &guest4, UDP_TABLE);
    udp_rule(&h->udp6[NET_BOX], AF_INET6);
    all_local(&h->udp6[NET_BOX], AF_INET6, guest6, UDP_TABLE);
    all_local(&h->udp[NET_VM], AF_INET, NULL, RT_TABLE_MAIN);
    all_local(&h->udp6[NET_VM], AF_INET6, NULL, RT_TABLE_MAIN);
}

/* Only the last message is acknowledged: a refusal is told in any case, and each is looked at before the next. */
static void one_ack(struct nl *l)
{
    struct nlmsghdr *last = NULL;
    for (size_t at = 0; at + sizeof *last <= l->n;) {
        struct nlmsghdr *h = (struct nlmsghdr *)(l->b + at);
        if (h->nlmsg_flags & NLM_F_ACK) {
            if (last)
                last->nlmsg_flags &= (uint16_t)~NLM_F_ACK;
            last = h;
        }
        at += (h->nlmsg_len + 3u) & ~3u;
    }
}

int net_host_open(struct net_host *h, struct err *e)
{
    memset(h, 0, sizeof *h);
    h->own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (h->own < 0)
        return err_sys(e, errno, "network namespace");
    int s = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    h->v6 = s >= 0;
    if (s >= 0)
        (void)close(s);
    make_links(h);
    nft_rules_box(&h->rules[NET_BOX]);
    nft_rules_vm(&h->rules[NET_VM]);
    nft_rules_box_udp(&h->udp_rules[NET_BOX]);
    nft_rules_vm_udp(&h->udp_rules[NET_VM]);
    for (int k = 0; k < 2; k++) {
        one_ack(&h->rules[k]);
        one_ack(&h->links[k]);
        one_ack(&h->links6[k]);
    }
    return 0;
}

void net_host_close(struct net_host *h)
{
    cleanup_fd(&h->own);
    h->own = -1;
}

/* ---- inside ----------------------------------------------------------------------------------------------------- */

static int enter(int pidfd, struct err *e)
{
    return syscall(SYS_setns, pidfd, NS_NET) < 0 ? err_sys(e, errno, "entering the sandbox's network namespace") : 0;
}

/* Whoever cannot come back must not go on: the next sandbox would be furnished in this one. */
static void leave(const struct net_host *h)
{
    if (syscall(SYS_setns, h->own, NS_NET) < 0)
        abort();
}

/* Half-open and closed connections are forgotten soon: the tracking table is the host's memory. Every refusal is told, not
 * one a second. A kernel without one of these keeps its default. */
void net_settings(int proc)
{
#define CT "netfilter/nf_conntrack_"
    static const struct { const char *name, *value; } t[] = {
        {CT "tcp_timeout_syn_sent", "10"}, {CT "tcp_timeout_syn_recv", "10"}, {CT "tcp_timeout_fin_wait", "30"}, {CT "tcp_timeout_last_ack", "10"},
        {CT "tcp_timeout_time_wait", "5"}, {CT "tcp_timeout_close", "5"},     {CT "udp_timeout", "10"},          {CT "udp_timeout_stream", "30"},
        {"ipv4/icmp_ratemask", "0"},       {"ipv6/icmp/ratelimit", "0"},
    };
    auto_fd dir = openat(proc, "sys/net", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; dir >= 0 && i < sizeof t / sizeof *t; i++) {
        auto_fd fd = openat(dir, t[i].name, O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
            (void)!write(fd, t[i].value, strlen(t[i].value));
    }
}

static int make_tap(int *ret, struct err *e)
{
    struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    unsigned index = TAP_INDEX;
    memcpy(r.ifr_name, NET_TAP_NAME, sizeof NET_TAP_NAME);
    auto_fd fd = open(TUN_DEV, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_sys(e, errno, TUN_DEV);
    if (ioctl(fd, TUNSETIFINDEX, &index) < 0 || ioctl(fd, TUNSETIFF, &r) < 0)
        return err_sys(e, errno, "tap");
    *ret = take_fd(&fd);
    return 0;
}

static int furnish(const struct net_host *h, enum net_kind k, int *ret_tap, struct err *e)
{
    struct err none;
    auto_fd tap = -1;
    /* do not reorder: rules before there is any way to send */
    if (nl_exchange(&h->rules[k], NETLINK_NETFILTER, e))
        return err_wrap(e, "firewall rules");
    if (k == NET_VM && make_tap(&tap, e))
        return -1;
    if (nl_exchange(&h->links[k], NETLINK_ROUTE, e))
        return err_wrap(e, "addresses");
    /* a host that switched IPv6 off in new namespaces: the sandbox has none either */
    if (h->v6 && nl_exchange(&h->links6[k], NETLINK_ROUTE, &none))
        log_debug("no IPv6 in sandboxes: %s", none.msg);
    auto_fd proc = k == NET_VM ? open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (proc >= 0)
        net_settings(proc);
    *ret_tap = take_fd(&tap);
    return 0;
}

int net_furnish(const struct net_host *h, enum net_kind k, int pidfd, int *ret_tap, struct err *e)
{
    if (enter(pidfd, e))
        return -1;
    int rc = furnish(h, k, ret_tap, e);
    leave(h);
    return rc ? err_wrap(e, "the sandbox's network cannot be closed off, so it does not start") : 0;
}

/* ---- the gate's sockets ------------------------------------------------------------------------------------------ */

/* May receive what is not addressed to it, and send from any address: the gate answers in the place of whoever was asked. */
static int transparent(int fd, int family)
{
    int one = 1;
    return family == AF_INET ? setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof one) : setsockopt(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, &one, sizeof one);
}
/* A way back: whole datagrams or refusals, from whichever address. It hears nothing. */
static int way_back(int family, int protocol, struct err *e)
{
    static struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog deaf = {.len = 1, .filter = &none};
    int mark = (int)NET_MARK_BACK;
    auto_fd fd = socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &deaf, sizeof deaf) < 0 || transparent(fd, family) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_MARK, &mark, sizeof mark) < 0)
        return err_sys(e, errno, "gate socket, protocol %d", protocol);
    return take_fd(&fd);
}

static int bound(enum net_kind k, int family, int type, uint16_t port, struct err *e)
{
    struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(k == NET_VM ? NET_GATE4 : INADDR_LOOPBACK)};
    struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    int one = 1;
    if (k == NET_VM)
        memcpy(&a6.sin6_addr, gate6, 16);
    else
        a6.sin6_addr.s6_addr[15] = 1;
    auto_fd fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (type == SOCK_STREAM && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0) ||
        (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one) < 0) ||
        (port == NET_PORT_UDP && transparent(fd, family) < 0) ||
        bind(fd, family == AF_INET ? (struct sockaddr *)&a4 : (struct sockaddr *)&a6, family == AF_INET ? sizeof a4 : sizeof a6) < 0 ||
        (type == SOCK_STREAM && listen(fd, BACKLOG) < 0))
        return errno == EADDRINUSE ? err_set(e, E_CONFLICT, "port %u in the sandbox, where its network gate listens, is in use by a program in it", port)
                                   : err_sys(e, errno, "gate socket, port %u", port);
    return take_fd(&fd);
}

/* Only now that somebody will take them: a datagram that is led to nobody would be lost, not refused. A kernel that cannot do it
 * goes on refusing them, as everything that has no rule. */
static void lead_datagrams(const struct net_host *h, enum net_kind k)
{
    struct err e;
    if ((nl_exchange(&h->udp[k], NETLINK_ROUTE, &e) && e.sys != EEXIST) || (h->v6 && nl_exchange(&h->udp6[k], NETLINK_ROUTE, &e) && e.sys != EEXIST) ||
        nl_exchange(&h->udp_rules[k], NETLINK_NETFILTER, &e))
        log_warn("no UDP in sandboxes: %s", e.msg);
}

static int open_socks(const struct net_host *h, enum net_kind k, int *fds, int *ret_n, struct err *e)
{
    static const struct { int family, type; uint16_t port; } want[NET_SOCK_MAX] = {
        [NET_SOCK_TCP4] = {AF_INET, SOCK_STREAM, NET_PORT_TCP},      [NET_SOCK_DNS_UDP4] = {AF_INET, SOCK_DGRAM, NET_PORT_DNS},
        [NET_SOCK_DNS_TCP4] = {AF_INET, SOCK_STREAM, NET_PORT_DNS},  [NET_SOCK_PROXY4] = {AF_INET, SOCK_STREAM, NET_PORT_PROXY},
        [NET_SOCK_UDP4] = {AF_INET, SOCK_DGRAM, NET_PORT_UDP},       [NET_SOCK_UDP_BACK4] = {AF_INET, SOCK_RAW, IPPROTO_UDP},
        [NET_SOCK_UDP_NO4] = {AF_INET, SOCK_RAW, IPPROTO_ICMP},      [NET_SOCK_TCP6] = {AF_INET6, SOCK_STREAM, NET_PORT_TCP},
        [NET_SOCK_DNS_UDP6] = {AF_INET6, SOCK_DGRAM, NET_PORT_DNS},  [NET_SOCK_DNS_TCP6] = {AF_INET6, SOCK_STREAM, NET_PORT_DNS},
        [NET_SOCK_UDP6] = {AF_INET6, SOCK_DGRAM, NET_PORT_UDP},      [NET_SOCK_UDP_BACK6] = {AF_INET6, SOCK_RAW, IPPROTO_UDP},
        [NET_SOCK_UDP_NO6] = {AF_INET6, SOCK_RAW, IPPROTO_ICMPV6},
    };
    struct err why;
    for (int i = 0; i < NET_SOCK_MAX; i++) {
        if (i == NET_SOCK_TCP6 && !h->v6)
            break;
        fds[i] = want[i].type == SOCK_RAW ? way_back(want[i].family, want[i].port, &why) : bound(k, want[i].family, want[i].type, want[i].port, &why);
        if (fds[i] >= 0) {
            ++*ret_n;
            continue;
        }
        if (i == NET_SOCK_TCP6 && why.sys == EADDRNOTAVAIL)
            return 0; /* no IPv6 in there */
        if (e)
            *e = why;
        return -1;
    }
    return 0;
}

int net_open_socks(const struct net_host *h, enum net_kind k, int pidfd, int fds[NET_SOCK_MAX], int *ret_n, struct err *e)
{
    *ret_n = 0;
    if (enter(pidfd, e))
        return -1;
    int rc = open_socks(h, k, fds, ret_n, e);
    if (!rc)
        lead_datagrams(h, k);
    leave(h);
    while (rc && *ret_n)
        (void)close(fds[--*ret_n]);
    return rc;
}
