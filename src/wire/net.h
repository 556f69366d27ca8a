/* The numbers of every sandbox's own little network. They are the same in all
 * of them, because no two ever share a link: a clone needs no renumbering, and
 * what one learns of its own addresses says nothing of another's.
 *
 *   container: loopback only; GUEST on lo, the default route leads back into it
 *   vm:        GUEST on eth0, GATE on the other end of the wire (a tap in QEMU's own network namespace)
 *
 * In both, every TCP connection, DNS question and other datagram ends at sockets
 * that hutch-spawn opens in that namespace and hutch-egress serves (gate/ctl.h); if
 * nobody serves them, it is refused. Nothing else gets an answer but a refusal. */
#pragma once
#include <stdint.h>

#define NET_GUEST4     0x0a4d0002u /* 10.77.0.2, host byte order */
#define NET_GATE4      0x0a4d0001u /* 10.77.0.1: default gateway, resolver, proxy */
#define NET_BITS4      30
#define NET_GATE4_TEXT "10.77.0.1"
#define NET_BITS6      64
/* fd68:7574:6368::2 and ::1 */
#define NET_GUEST6 {0xfd, 0x68, 0x75, 0x74, 0x63, 0x68, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2}
#define NET_GATE6  {0xfd, 0x68, 0x75, 0x74, 0x63, 0x68, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}
#define NET_GUEST_MAC {0x02, 0x68, 0x75, 0x74, 0x63, 0x68}
#define NET_GATE_MAC  {0x06, 0x68, 0x75, 0x74, 0x63, 0x68}
#define NET_GUEST_MAC_TEXT "02:68:75:74:63:68"

#define NET_PROXY_PORT 3128 /* on GATE4, for tools that want a proxy by name */

/* Where the rules lead to. Above the range the kernel hands out by itself; in a container they share the port space with the
 * programs inside, but a connection made to them directly is reset. */
#define NET_PORT_TCP   61880
#define NET_PORT_DNS   61881
#define NET_PORT_PROXY 61882
#define NET_PORT_UDP   61883
/* The gate's sockets, in the order in which hutch-spawn hands them over. A host without IPv6 stops before NET_SOCK_TCP6. */
enum net_sock {
    NET_SOCK_TCP4, NET_SOCK_DNS_UDP4, NET_SOCK_DNS_TCP4, NET_SOCK_PROXY4, NET_SOCK_UDP4, NET_SOCK_UDP_BACK4, NET_SOCK_UDP_NO4,
    NET_SOCK_TCP6, NET_SOCK_DNS_UDP6, NET_SOCK_DNS_TCP6, NET_SOCK_UDP6, NET_SOCK_UDP_BACK6, NET_SOCK_UDP_NO6, NET_SOCK_MAX
};
#define NET_PORT_FIRST NET_PORT_TCP
#define NET_PORT_LAST  NET_PORT_UDP
