#include "guest/network.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/netlink.h"
#include "guest/sys.h"
#include "wire/net.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define NIC "eth0"
#define RESOLVER "nameserver " NET_GATE4_TEXT "\n"


static void link_up(struct nl *l, int index)
{
    struct ifinfomsg as_is = {.ifi_family = AF_UNSPEC, .ifi_index = index}, up = as_is;
    uint8_t none = IN6_ADDR_GEN_MODE_NONE;
    nl_begin(l, RTM_NEWLINK, 0, &as_is, sizeof as_is, false);
    size_t af = nl_nest(l, IFLA_AF_SPEC), in6 = nl_nest(l, AF_INET6); /* no link-local address: it would be announced */
    nl_put(l, IFLA_INET6_ADDR_GEN_MODE, &none, 1);
    nl_nest_end(l, in6);
    nl_nest_end(l, af);
    nl_end(l);
    up.ifi_flags = up.ifi_change = IFF_UP; /* a message of its own: in one it would come first */
    nl_begin(l, RTM_NEWLINK, 0, &up, sizeof up, false);
    nl_end(l);
}

static void address(struct nl *l, int index, int family, const void *a, unsigned char bits)
{
    struct ifaddrmsg m = {.ifa_family = (uint8_t)family, .ifa_prefixlen = bits, .ifa_index = (uint32_t)index, .ifa_flags = IFA_F_PERMANENT};
    size_t n = family == AF_INET ? 4 : 16;
    nl_begin(l, RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m, false);
    nl_put(l, IFA_LOCAL, a, n);
    nl_put(l, IFA_ADDRESS, a, n);
    nl_u32(l, IFA_FLAGS, IFA_F_PERMANENT | IFA_F_NODAD);
    nl_end(l);
}

static void gateway(struct nl *l, int index, int family, const void *via)
{
    struct rtmsg m = {.rtm_family = (uint8_t)family, .rtm_table = RT_TABLE_MAIN, .rtm_protocol = RTPROT_BOOT, .rtm_scope = RT_SCOPE_UNIVERSE, .rtm_type = RTN_UNICAST};
    nl_begin(l, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m, false);
    nl_put(l, RTA_GATEWAY, via, family == AF_INET ? 4 : 16);
    nl_u32(l, RTA_OIF, (uint32_t)index);
    nl_end(l);
}

static void neighbour(struct nl *l, int index, int family, const void *a)
{
    static const unsigned char mac[6] = NET_GATE_MAC;
    struct ndmsg m = {.ndm_family = (uint8_t)family, .ndm_ifindex = index, .ndm_state = NUD_PERMANENT};
    nl_begin(l, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, &m, sizeof m, false);
    nl_put(l, NDA_DST, a, family == AF_INET ? 4 : 16);
    nl_put(l, NDA_LLADDR, mac, 6);
    nl_end(l);
}

static int family_up(int index, int family, const void *guest, const void *gate, unsigned char bits, struct err *e)
{
    struct nl l = {0};
    address(&l, index, family, guest, bits);
    neighbour(&l, index, family, gate); /* known for good: no question is ever sent */
    gateway(&l, index, family, gate);
    return nl_exchange(&l, NETLINK_ROUTE, e);
}

int network_up(struct err *e)
{
    static const unsigned char guest6[16] = NET_GUEST6, gate6[16] = NET_GATE6;
    uint32_t guest4 = htonl(NET_GUEST4), gate4 = htonl(NET_GATE4);
    struct nl l = {0};
    int index = (int)if_nametoindex(NIC);
    if (!index)
        return err_sys(e, errno, "network: " NIC);
    (void)sys_write_file("/proc/sys/net/ipv6/conf/" NIC "/accept_ra", "0"); /* no IPv6 in this kernel: nothing to switch off */
    link_up(&l, index);
    if (nl_exchange(&l, NETLINK_ROUTE, e) || family_up(index, AF_INET, &guest4, &gate4, NET_BITS4, e))
        return err_wrap(e, "network");
    if (!access("/proc/net/if_inet6", F_OK) && family_up(index, AF_INET6, guest6, gate6, NET_BITS6, e))
        return err_wrap(e, "network: IPv6");
    return 0;
}

int network_resolver(const char *etc, struct err *e)
{
    static const char want[] = RESOLVER;
    char path[128];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/resolv.conf", etc);
    auto_free char *had = lstat(path, &st) || !S_ISREG(st.st_mode) ? NULL : fd_slurp_at(AT_FDCWD, path, 4096, NULL);
    if (had && !strcmp(had, want))
        return 0;
    /* a link into a resolver that does not run here is as good as nothing */
    if (unlink(path) && errno != ENOENT && errno != EBUSY)
        return err_sys(e, errno, "resolv.conf");
    auto_fd fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || !fd_write_all(fd, want, sizeof want - 1))
        return errno == ENOSPC ? err_set(e, E_QUOTA, "resolv.conf: no space left on device") : err_sys(e, errno, "resolv.conf");
    return 0;
}

bool network_own_port(unsigned port) { return port >= NET_PORT_FIRST && port <= NET_PORT_LAST; }
