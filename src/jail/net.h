/* The network namespace of a sandbox, seen from outside: entered for a moment,
 * furnished, left again. See wire/net.h for the numbers and jail/nft.h for the
 * rules. One thread: whoever is inside is the whole process. */
#pragma once
#include "base/err.h"
#include "base/netlink.h"
#include "wire/net.h"
#include <stdbool.h>

#define NET_TAP_NAME "tap0"
#define NET_MARK_OUT  0x68757464u /* a datagram for the gate */
#define NET_MARK_BACK 0x68757465u /* what the gate sends back */

enum net_kind { NET_BOX, NET_VM };

/* What is the same for every sandbox, made once. */
struct net_host { int own; /* our own namespace */ bool v6; struct nl rules[2], links[2], links6[2], udp_rules[2], udp[2], udp6[2]; };
int net_host_open(struct net_host *h, struct err *e) __attribute__((warn_unused_result));
void net_host_close(struct net_host *h);

/* Addresses, routes and rules inside the namespace of process `pidfd`, which nothing else runs in yet. NET_VM: *ret_tap is the
 * descriptor for QEMU. All of it or an error: a sandbox without its rules must not start. */
int net_furnish(const struct net_host *h, enum net_kind k, int pidfd, int *ret_tap, struct err *e) __attribute__((warn_unused_result));
/* A container's child does this itself, in its namespace and by its own /proc: in the host's the names of every sandbox that ever
 * was lie in one chain of the kernel's, and each look walks it. */
void net_settings(int proc);

/* The gate's ends, inside that namespace, in the order of enum net_sock; all or none. */
int net_open_socks(const struct net_host *h, enum net_kind k, int pidfd, int fds[NET_SOCK_MAX], int *ret_n, struct err *e)
    __attribute__((warn_unused_result));
