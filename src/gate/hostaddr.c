#include "gate/hostaddr.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

struct own { struct ip ip; struct cidr net; bool has_net; };
struct hostaddr { int fd; struct io io; struct own *at; size_t n; };

/* The network an address is on, if it is one of several machines: its neighbours and its router are in there. */
static bool network_of(const struct ip *ip, const struct sockaddr *mask, struct cidr *ret)
{
    const unsigned char *m = NULL;
    unsigned bits = 0, whole = ip->v6 ? 128 : 32;
    if (mask && mask->sa_family == AF_INET && !ip->v6)
        m = (const unsigned char *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
    else if (mask && mask->sa_family == AF_INET6 && ip->v6)
        m = (const unsigned char *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
    if (!m)
        return false;
    while (bits < whole && m[bits / 8] >> (7 - bits % 8) & 1)
        bits++;
    if (!bits || bits >= whole)
        return false;
    *ret = (struct cidr){.ip = *ip, .bits = (uint8_t)bits};
    for (unsigned i = bits; i < whole; i++)
        ret->ip.b[i / 8] &= (uint8_t)~(0x80 >> i % 8);
    return true;
}

static bool load(struct hostaddr *h)
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return false;
    size_t n = 0, cap = 16;
    struct own *at = xcalloc(cap, sizeof *at);
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        uint16_t port;
        if (n == cap)
            at = xrealloc(at, (cap *= 2) * sizeof *at);
        if (!i->ifa_addr || !ip_from_sockaddr(i->ifa_addr, &at[n].ip, &port))
            continue;
        at[n].has_net = network_of(&at[n].ip, i->ifa_netmask, &at[n].net);
        n++;
    }
    freeifaddrs(all);
    free(h->at);
    h->at = at, h->n = n;
    return true;
}

static void on_change(void *arg, int events)
{
    struct hostaddr *h = arg;
    char drop[8192];
    (void)events;
    while (recv(h->fd, drop, sizeof drop, MSG_DONTWAIT) > 0 || errno == ENOBUFS)
        errno = 0;
    if (!load(h))
        log_warn("the host's addresses changed and cannot be read; the earlier ones stay closed");
}

struct hostaddr *hostaddr_new(struct loop *l, struct err *e)
{
    struct sockaddr_nl nl = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR};
    auto_fd fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    struct hostaddr *h = xcalloc(1, sizeof *h);
    if (fd < 0 || bind(fd, (void *)&nl, sizeof nl) || !load(h)) {
        (void)err_sys(e, errno, "the host's addresses");
        free(h);
        return NULL;
    }
    h->fd = take_fd(&fd);
    io_init(&h->io, l, h->fd, on_change, h);
    io_want(&h->io, IO_READ);
    return h;
}
void hostaddr_free(struct hostaddr *h)
{
    if (!h)
        return;
    io_stop(&h->io);
    (void)close(h->fd);
    free(h->at);
    free(h);
}
const char *hostaddr_why(void *arg, const struct ip *a)
{
    struct hostaddr *h = arg;
    for (size_t i = 0; i < h->n; i++)
        if (ip_eq(&h->at[i].ip, a))
            return "an address of the host itself";
    for (size_t i = 0; i < h->n; i++)
        if (h->at[i].has_net && cidr_has(&h->at[i].net, a))
            return "a network the host is part of";
    return NULL;
}
