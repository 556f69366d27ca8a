#include "gate/hostaddr.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/log.h"
#include <errno.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <sys/socket.h>

struct hostaddr { int fd; struct io io; struct ip *ip; size_t n; };

static bool load(struct hostaddr *h)
{
    struct ifaddrs *all;
    if (getifaddrs(&all))
        return false;
    size_t n = 0, cap = 16;
    struct ip *ip = xcalloc(cap, sizeof *ip);
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        uint16_t port;
        if (n == cap)
            ip = xrealloc(ip, (cap *= 2) * sizeof *ip);
        if (i->ifa_addr && ip_from_sockaddr(i->ifa_addr, &ip[n], &port))
            n++;
    }
    freeifaddrs(all);
    free(h->ip);
    h->ip = ip, h->n = n;
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
    free(h->ip);
    free(h);
}
const char *hostaddr_why(void *arg, const struct ip *a)
{
    struct hostaddr *h = arg;
    for (size_t i = 0; i < h->n; i++)
        if (ip_eq(&h->ip[i], a))
            return "an address of the host itself";
    return NULL;
}
