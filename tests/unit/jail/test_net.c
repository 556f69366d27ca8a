/* The network namespace of a sandbox, for real: a child in a new namespace is
 * furnished from outside; a container's program tries to get out, a VM's side
 * is played by frames written to its tap. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "jail/net.h"
#include "jail/sys.h"
#include "test.h"
#include "wire/net.h"
#include <arpa/inet.h>
#include <linux/netfilter_ipv4.h>
#include <net/ethernet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>

static struct net_host host;
static pid_t child;
static int pidfd, tap = -1, gate[NET_SOCK_MAX], ngate;

/* A process in a network namespace of its own; ends with us. */
static void make(enum net_kind k)
{
    struct err e;
    int p[2], none = -1;
    char c;
    if (geteuid())
        SKIP("needs root");
    CHECK(!net_host_open(&host, &e));
    CHECK(!pipe(p));
    child = fork();
    if (!child) {
        close(p[0]);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || unshare(CLONE_NEWNET) < 0)
            _exit(1);
        (void)!write(p[1], "x", 1);
        for (;;)
            pause();
    }
    close(p[1]);
    CHECK(read(p[0], &c, 1) == 1);
    pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    CHECK(pidfd >= 0);
    if (net_furnish(&host, k, pidfd, k == NET_VM ? &tap : &none, &e)) {
        printf("# %s\n", e.msg);
        CHECK(!"furnished");
    }
}

/* An IPv6 address counts a moment after it was added. */
static void wait_v6(enum net_kind k)
{
    char line[256], want[64];
    bool there = false;
    unsigned flags;
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && !syscall(SYS_setns, pidfd, NS_NET));
    snprintf(want, sizeof want, "fd68757463680000000000000000000%d 80", k == NET_VM ? 1 : 2);
    for (int i = 0; i < 300 && !there; i++, there || usleep(10000)) {
        FILE *f = fopen("/proc/thread-self/net/ipv6_route", "r");
        while (f && fgets(line, sizeof line, f))
            if (!strncmp(line, want, strlen(want)) && sscanf(line, "%*s %*s %*s %*s %*s %*s %*s %*s %x", &flags) == 1)
                there |= flags >> 31; /* RTF_LOCAL */
        if (f)
            fclose(f);
    }
    CHECK(!syscall(SYS_setns, fd, NS_NET));
    close(fd);
}

static void open_gate(enum net_kind k)
{
    struct err e;
    if (net_open_socks(&host, k, pidfd, gate, &ngate, &e)) {
        printf("# %s\n", e.msg);
        CHECK(!"sockets");
    }
    CHECK(ngate == NET_SOCK_MAX || ngate == NET_SOCK_TCP6);
    if (ngate > NET_SOCK_TCP6)
        wait_v6(k);
}

static void finish(void)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static struct sockaddr_storage addr_of(const char *text, unsigned port, socklen_t *n)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_in *a4 = (void *)&a;
    struct sockaddr_in6 *a6 = (void *)&a;
    if (strchr(text, ':')) {
        a6->sin6_family = AF_INET6, a6->sin6_port = htons((uint16_t)port);
        CHECK(inet_pton(AF_INET6, text, &a6->sin6_addr) == 1);
        *n = sizeof *a6;
    } else {
        a4->sin_family = AF_INET, a4->sin_port = htons((uint16_t)port);
        CHECK(inet_pton(AF_INET, text, &a4->sin_addr) == 1);
        *n = sizeof *a4;
    }
    return a;
}

/* ---- container -------------------------------------------------------------------------------------------------- */

static void enter(void) { CHECK(!syscall(SYS_setns, pidfd, NS_NET)); }

/* errno of a connect (TCP) or of a datagram's fate (UDP); 0: went through. Never waits longer than the refusal takes. */
static int attempt(int type, const char *to, unsigned port, int *ret_fd)
{
    socklen_t n;
    struct sockaddr_storage a = addr_of(to, port, &n);
    int fd = socket(a.ss_family, type | SOCK_CLOEXEC, 0), rc = 0;
    struct timeval limit = {.tv_sec = 3};
    CHECK(fd >= 0);
    CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) && !setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
    if (connect(fd, (struct sockaddr *)&a, n) < 0 || (type == SOCK_DGRAM && send(fd, "q", 1, 0) < 0))
        rc = errno;
    if (ret_fd && !rc)
        *ret_fd = fd;
    else
        close(fd);
    return rc;
}

TEST(net, box_without_a_gate_is_refused_at_once)
{
    static const char *const to[] = {"8.8.8.8", "169.254.169.254", "10.77.0.1", "192.168.0.1", "2001:db8::1", "fd00:ec2::254", "::ffff:8.8.8.8"};
    static const unsigned ports[] = {1, 53, 80, 443, 853, 61880};
    make(NET_BOX);
    enter();
    int64_t t = clock_mono();
    for (unsigned i = 0; i < sizeof to / sizeof *to; i++)
        for (unsigned k = 0; k < sizeof ports / sizeof *ports; k++) {
            CHECK_INT(attempt(SOCK_STREAM, to[i], ports[k], NULL), ECONNREFUSED);
            if (ports[k] != 53)
                CHECK_INT(attempt(SOCK_DGRAM, to[i], ports[k], NULL), EPERM);
        }
    CHECK_INT(attempt(SOCK_STREAM, "127.0.0.1", 61880, NULL), ECONNREFUSED);
    CHECK(clock_mono() - t < 3 * NS_PER_S);
    int fd = -1;
    char c;
    CHECK_INT(attempt(SOCK_DGRAM, "8.8.8.8", 53, &fd), 0);
    CHECK(recv(fd, &c, 1, 0) < 0 && errno == ECONNREFUSED);
    fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
    socklen_t n;
    struct sockaddr_storage a = addr_of("8.8.8.8", 0, &n);
    CHECK(sendto(fd, "\10\0\367\377\0\0\0\0", 8, 0, (struct sockaddr *)&a, n) < 0 && errno == EPERM);
    finish();
}

TEST(net, box_loopback_works)
{
    make(NET_BOX);
    enter();
    socklen_t n;
    struct sockaddr_storage a = addr_of("0.0.0.0", 8080, &n);
    int l = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(l, (struct sockaddr *)&a, n) && !listen(l, 8));
    CHECK_INT(attempt(SOCK_STREAM, "127.0.0.1", 8080, NULL), 0);
    CHECK_INT(attempt(SOCK_STREAM, "127.9.9.9", 8080, NULL), 0);
    CHECK_INT(attempt(SOCK_STREAM, "10.77.0.2", 8080, NULL), 0);
    CHECK_INT(attempt(SOCK_STREAM, "127.0.0.1", 8081, NULL), ECONNREFUSED);
    finish();
}

static void accepted(int listener, const char *dst, unsigned port)
{
    struct pollfd p = {.fd = listener, .events = POLLIN};
    CHECK_INT(poll(&p, 1, 3000), 1);
    struct sockaddr_storage from, orig;
    socklen_t n = sizeof from, on = sizeof orig, wn;
    int fd = accept(listener, (struct sockaddr *)&from, &n);
    CHECK(fd >= 0);
    struct sockaddr_storage want = addr_of(dst, port, &wn);
    bool v6 = from.ss_family == AF_INET6;
    CHECK(!getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, SO_ORIGINAL_DST, &orig, &on));
    if (v6)
        CHECK(!memcmp(&((struct sockaddr_in6 *)(void *)&orig)->sin6_addr, &((struct sockaddr_in6 *)(void *)&want)->sin6_addr, 16));
    else
        CHECK(!memcmp(&((struct sockaddr_in *)(void *)&orig)->sin_addr, &((struct sockaddr_in *)(void *)&want)->sin_addr, 4));
    CHECK_INT(((struct sockaddr_in *)(void *)&orig)->sin_port, htons((uint16_t)port));
    CHECK(send(fd, "hi", 2, 0) == 2);
    close(fd);
}

static void connects(const char *to, unsigned port, int listener)
{
    int fd = -1;
    char b[4];
    CHECK_INT(attempt(SOCK_STREAM, to, port, &fd), 0);
    accepted(listener, to, port);
    CHECK(recv(fd, b, sizeof b, 0) == 2 && !memcmp(b, "hi", 2));
    close(fd);
}

TEST(net, box_everything_ends_at_the_gate)
{
    make(NET_BOX);
    open_gate(NET_BOX);
    enter();
    connects("8.8.8.8", 443, gate[NET_SOCK_TCP4]);
    connects("169.254.169.254", 80, gate[NET_SOCK_TCP4]);
    connects("10.77.0.1", 61880, gate[NET_SOCK_TCP4]);
    connects("1.1.1.1", 53, gate[NET_SOCK_DNS_TCP4]);
    connects("10.77.0.1", NET_PROXY_PORT, gate[NET_SOCK_PROXY4]);
    connects("8.8.8.8", NET_PROXY_PORT, gate[NET_SOCK_TCP4]);
    if (ngate > NET_SOCK_TCP6) {
        connects("2001:db8::1", 443, gate[NET_SOCK_TCP6]);
        connects("2001:db8::1", 53, gate[NET_SOCK_DNS_TCP6]);
    }
    /* not by their own names */
    for (unsigned port = NET_PORT_FIRST; port <= NET_PORT_LAST; port++) {
        CHECK_INT(attempt(SOCK_STREAM, "127.0.0.1", port, NULL), ECONNREFUSED);
        CHECK_INT(attempt(SOCK_STREAM, "10.77.0.2", port, NULL), ECONNREFUSED);
        if (ngate > NET_SOCK_TCP6)
            CHECK_INT(attempt(SOCK_STREAM, "::1", port, NULL), ECONNREFUSED);
    }
    finish();
}

static void asks(const char *server, int sock)
{
    int fd = -1;
    char b[8];
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    CHECK_INT(attempt(SOCK_DGRAM, server, 53, &fd), 0);
    struct pollfd p = {.fd = sock, .events = POLLIN};
    CHECK_INT(poll(&p, 1, 3000), 1);
    CHECK(recvfrom(sock, b, sizeof b, 0, (struct sockaddr *)&from, &n) == 1);
    CHECK(sendto(sock, "yes", 3, 0, (struct sockaddr *)&from, n) == 3);
    ssize_t got = recv(fd, b, sizeof b, 0);
    if (got < 0)
        printf("# %s: %s\n", server, strerror(errno));
    CHECK(got == 3 && !memcmp(b, "yes", 3)); /* the socket is connected: the answer came from `server` */
    close(fd);
}

TEST(net, box_names_are_asked_of_the_gate)
{
    make(NET_BOX);
    open_gate(NET_BOX);
    enter();
    asks(NET_GATE4_TEXT, gate[NET_SOCK_DNS_UDP4]);
    asks("8.8.8.8", gate[NET_SOCK_DNS_UDP4]);
    if (ngate > NET_SOCK_TCP6)
        asks("2001:db8::53", gate[NET_SOCK_DNS_UDP6]);
    finish();
}

/* The datagram as it was sent, at the gate's socket: from where, and the destination it had. */
static void led_to_gate(int sock, const char *to, unsigned port, struct sockaddr_storage *ret_from)
{
    char b[8];
    union { struct cmsghdr align; char room[128]; } c;
    struct iovec iov = {b, sizeof b};
    struct msghdr h = {.msg_name = ret_from, .msg_namelen = sizeof *ret_from, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.room, .msg_controllen = sizeof c.room};
    struct pollfd p = {.fd = sock, .events = POLLIN};
    socklen_t n;
    struct sockaddr_storage want = addr_of(to, port, &n);
    CHECK_INT(poll(&p, 1, 3000), 1);
    CHECK(recvmsg(sock, &h, 0) >= 1);
    struct cmsghdr *k = CMSG_FIRSTHDR(&h);
    CHECK(k && (k->cmsg_type == IP_ORIGDSTADDR || k->cmsg_type == IPV6_ORIGDSTADDR));
    if (want.ss_family == AF_INET)
        CHECK(!memcmp(CMSG_DATA(k), &want, 8));
    else
        CHECK(!memcmp(CMSG_DATA(k) + 2, (char *)&want + 2, 2) && !memcmp(CMSG_DATA(k) + 8, (char *)&want + 8, 16));
}
static void want_destination(void)
{
    int on = 1;
    CHECK(!setsockopt(gate[NET_SOCK_UDP4], IPPROTO_IP, IP_RECVORIGDSTADDR, &on, sizeof on));
    if (ngate > NET_SOCK_TCP6)
        CHECK(!setsockopt(gate[NET_SOCK_UDP6], IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, &on, sizeof on));
}
/* UDP without a checksum is fine over IPv4 */
static void raw_answer(int sock, uint16_t from_port, const struct sockaddr_storage *to, const char *from)
{
    struct sockaddr_in a = *(const struct sockaddr_in *)(const void *)to;
    struct { struct udphdr h; char c[3]; } __attribute__((packed)) u = {{.source = htons(from_port), .dest = a.sin_port, .len = htons(11)}, {'y', 'e', 's'}};
    union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(struct in_pktinfo))]; } c = {0};
    struct iovec iov = {&u, sizeof u};
    a.sin_port = 0;
    struct msghdr h = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &iov, .msg_iovlen = 1, .msg_control = c.room, .msg_controllen = sizeof c.room};
    struct cmsghdr *k = CMSG_FIRSTHDR(&h);
    struct in_pktinfo p = {0};
    CHECK(inet_pton(AF_INET, from, &p.ipi_spec_dst) == 1);
    k->cmsg_level = IPPROTO_IP, k->cmsg_type = IP_PKTINFO, k->cmsg_len = CMSG_LEN(sizeof p);
    memcpy(CMSG_DATA(k), &p, sizeof p);
    CHECK(sendmsg(sock, &h, 0) == (ssize_t)sizeof u);
}

TEST(net, box_datagrams_are_led_to_the_gate_and_answered_in_the_far_ends_name)
{
    struct sockaddr_storage from;
    int fd = -1;
    char b[8];
    make(NET_BOX);
    open_gate(NET_BOX);
    want_destination();
    enter();
    CHECK_INT(attempt(SOCK_DGRAM, "8.8.8.8", 123, &fd), 0);
    led_to_gate(gate[NET_SOCK_UDP4], "8.8.8.8", 123, &from);
    raw_answer(gate[NET_SOCK_UDP_BACK4], 123, &from, "8.8.8.8");
    CHECK(recv(fd, b, sizeof b, 0) == 3 && !memcmp(b, "yes", 3)); /* connected: it came from 8.8.8.8 port 123 */
    CHECK_INT(attempt(SOCK_DGRAM, "169.254.169.254", 4433, &fd), 0);
    led_to_gate(gate[NET_SOCK_UDP4], "169.254.169.254", 4433, &from);
    if (ngate > NET_SOCK_TCP6) {
        CHECK_INT(attempt(SOCK_DGRAM, "2001:db8::1", 443, &fd), 0);
        led_to_gate(gate[NET_SOCK_UDP6], "2001:db8::1", 443, &from);
    }
    CHECK_INT(attempt(SOCK_DGRAM, "224.0.0.251", 5353, NULL), EPERM); /* to many: there is nobody to ask */
    socklen_t n;
    struct sockaddr_storage a = addr_of("8.8.8.8", 9999, &n); /* everything comes back in, but nothing there is ours */
    fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(bind(fd, (struct sockaddr *)&a, n) < 0 && errno == EADDRNOTAVAIL);
    a = addr_of("0.0.0.0", 9999, &n);
    CHECK(!bind(fd, (struct sockaddr *)&a, n));
    CHECK_INT(attempt(SOCK_DGRAM, "127.0.0.1", 9999, NULL), 0);
    CHECK(recv(fd, b, sizeof b, 0) == 1);
    CHECK_INT(attempt(SOCK_DGRAM, "9.9.9.9", 9999, NULL), 0);
    led_to_gate(gate[NET_SOCK_UDP4], "9.9.9.9", 9999, &from);
    CHECK(recv(fd, b, sizeof b, MSG_DONTWAIT) < 0); /* not its own server, which would take it for the far end */
    finish();
}

TEST(net, box_sockets_can_be_opened_again_and_a_squatter_is_named)
{
    struct err e;
    int fds[NET_SOCK_MAX], n;
    make(NET_BOX);
    open_gate(NET_BOX);
    CHECK(net_open_socks(&host, NET_BOX, pidfd, fds, &n, &e) == -1);
    CHECK_INT(e.code, E_CONFLICT);
    CHECK_INT(n, 0);
    for (int i = 0; i < ngate; i++)
        close(gate[i]);
    open_gate(NET_BOX);
    want_destination();
    enter();
    struct sockaddr_storage from;
    CHECK_INT(attempt(SOCK_DGRAM, "8.8.8.8", 123, NULL), 0); /* once, not twice */
    led_to_gate(gate[NET_SOCK_UDP4], "8.8.8.8", 123, &from);
    finish();
}

/* ---- vm: frames ------------------------------------------------------------------------------------------------- */

#define VNET 10
static const unsigned char guest_mac[6] = NET_GUEST_MAC, gate_mac[6] = NET_GATE_MAC;
struct frame { unsigned char b[VNET + 1514]; size_t n; };

static uint32_t sum(const void *p, size_t n, uint32_t s)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        s += (uint32_t)b[i] << (i & 1 ? 0 : 8);
    return s;
}
static uint16_t fold(uint32_t s)
{
    while (s >> 16)
        s = (s & 0xffff) + (s >> 16);
    return htons((uint16_t)~s);
}

static struct frame packet(const char *from, const char *to, uint8_t proto, const void *l4, size_t n, unsigned sum_at)
{
    struct frame f = {.n = VNET};
    bool v6 = strchr(to, ':');
    struct ether_header eh = {.ether_type = htons(v6 ? ETHERTYPE_IPV6 : ETHERTYPE_IP)};
    unsigned char s[16], d[16], body[512];
    size_t an = v6 ? 16 : 4;
    CHECK(inet_pton(v6 ? AF_INET6 : AF_INET, from, s) == 1 && inet_pton(v6 ? AF_INET6 : AF_INET, to, d) == 1);
    memcpy(eh.ether_dhost, gate_mac, 6);
    memcpy(eh.ether_shost, guest_mac, 6);
    memcpy(f.b + f.n, &eh, sizeof eh), f.n += sizeof eh;
    memcpy(body, l4, n);
    if (sum_at) {
        uint32_t c = sum(s, an, sum(d, an, sum(body, n, (uint32_t)(proto + n))));
        uint16_t v = fold(c);
        memcpy(body + sum_at, &v, 2);
    }
    if (v6) {
        struct ip6_hdr h = {.ip6_plen = htons((uint16_t)n), .ip6_nxt = proto, .ip6_hlim = 64};
        h.ip6_vfc = 0x60;
        memcpy(&h.ip6_src, s, 16), memcpy(&h.ip6_dst, d, 16);
        memcpy(f.b + f.n, &h, sizeof h), f.n += sizeof h;
    } else {
        struct iphdr h = {.version = 4, .ihl = 5, .tot_len = htons((uint16_t)(20 + n)), .ttl = 64, .protocol = proto};
        memcpy(&h.saddr, s, 4), memcpy(&h.daddr, d, 4);
        h.check = fold(sum(&h, 20, 0));
        memcpy(f.b + f.n, &h, sizeof h), f.n += sizeof h;
    }
    memcpy(f.b + f.n, body, n), f.n += n;
    return f;
}

static struct frame syn(const char *from, const char *to, uint16_t sport, uint16_t dport)
{
    struct tcphdr t = {.source = htons(sport), .dest = htons(dport), .seq = htonl(1), .doff = 5, .syn = 1, .window = htons(1000)};
    return packet(from, to, IPPROTO_TCP, &t, sizeof t, 16);
}
static struct frame udp(const char *from, const char *to, uint16_t sport, uint16_t dport)
{
    struct { struct udphdr h; char c[2]; } u = {{.source = htons(sport), .dest = htons(dport), .len = htons(10)}, "q"};
    return packet(from, to, IPPROTO_UDP, &u, sizeof u, 6);
}

static void put_frame(const struct frame *f) { CHECK(write(tap, f->b, f->n) == (ssize_t)f->n); }

/* The next IP packet that comes back, without its Ethernet header; false after `ms`. */
static bool get_packet(struct frame *f, int ms)
{
    for (;;) {
        struct pollfd p = {.fd = tap, .events = POLLIN};
        if (poll(&p, 1, ms) != 1)
            return false;
        ssize_t n = read(tap, f->b, sizeof f->b);
        CHECK(n > VNET + 14);
        const struct ether_header *eh = (const void *)(f->b + VNET);
        CHECK(!memcmp(eh->ether_shost, gate_mac, 6));
        if (memcmp(eh->ether_dhost, guest_mac, 6))
            continue; /* multicast of the kernel's own */
        f->n = (size_t)n - VNET - 14;
        memmove(f->b, f->b + VNET + 14, f->n);
        return true;
    }
}

static const struct tcphdr *tcp_answer(struct frame *f, const char *from, bool v6)
{
    unsigned char want[16];
    do
        CHECK(get_packet(f, 3000));
    while (f->b[0] >> 4 != (v6 ? 6 : 4)); /* what is still under way on another connection */
    CHECK(inet_pton(v6 ? AF_INET6 : AF_INET, from, want) == 1);
    CHECK(!memcmp(f->b + (v6 ? 8 : 12), want, v6 ? 16 : 4));
    CHECK_INT(f->b[v6 ? 6 : 9], IPPROTO_TCP);
    return (const void *)(f->b + (v6 ? 40 : 20));
}

TEST(net, vm_without_a_gate_is_refused_at_once)
{
    static const char *const to[] = {"8.8.8.8", "169.254.169.254", "10.77.0.1", "127.0.0.1", "192.168.1.1"};
    struct frame f, g;
    make(NET_VM);
    for (unsigned i = 0; i < sizeof to / sizeof *to; i++) {
        if (!strcmp(to[i], "127.0.0.1"))
            continue;
        f = syn("10.77.0.2", to[i], (uint16_t)(4000 + i), 443);
        put_frame(&f);
        CHECK(tcp_answer(&g, to[i], false)->rst);
        f = udp("10.77.0.2", to[i], (uint16_t)(4000 + i), 443);
        put_frame(&f);
        CHECK(get_packet(&g, 3000));
        CHECK_INT(g.b[9], IPPROTO_ICMP);
        CHECK_INT(g.b[20], ICMP_DEST_UNREACH);
        CHECK_INT(g.b[21], ICMP_PKT_FILTERED);
    }
    f = udp("10.77.0.2", "8.8.8.8", 5000, 53); /* led to a resolver that is not there: the refusal speaks of 8.8.8.8 */
    put_frame(&f);
    CHECK(get_packet(&g, 3000));
    CHECK_INT(g.b[20], ICMP_DEST_UNREACH);
    CHECK_INT(g.b[21], ICMP_PORT_UNREACH);
    unsigned char eight[4] = {8, 8, 8, 8};
    CHECK(!memcmp(g.b + 20 + 8 + 16, eight, 4));
    struct icmphdr ping = {.type = ICMP_ECHO};
    ping.checksum = fold(sum(&ping, sizeof ping, 0));
    f = packet("10.77.0.2", "10.77.0.1", IPPROTO_ICMP, &ping, sizeof ping, 0);
    put_frame(&f);
    CHECK(get_packet(&g, 3000));
    CHECK_INT(g.b[20], ICMP_DEST_UNREACH);
    finish();
}

TEST(net, vm_spoofed_and_foreign_packets_get_no_answer)
{
    static const uint8_t protos[] = {47, 50, 132}; /* GRE, ESP, SCTP */
    struct frame f, g;
    make(NET_VM);
    open_gate(NET_VM);
    const char *const from[] = {"1.2.3.4", "127.0.0.1", "10.77.0.1", "0.0.0.0", "255.255.255.255"};
    for (unsigned i = 0; i < sizeof from / sizeof *from; i++) {
        f = syn(from[i], "8.8.8.8", 4000, 443);
        put_frame(&f);
        f = udp(from[i], "8.8.8.8", 4000, 53);
        put_frame(&f);
    }
    CHECK(!get_packet(&g, 200));
    struct pollfd p[] = {{.fd = gate[NET_SOCK_TCP4], .events = POLLIN}, {.fd = gate[NET_SOCK_DNS_UDP4], .events = POLLIN}};
    CHECK(!(poll(p, 1, 0) > 0));
    for (unsigned i = 0; i < sizeof protos; i++) {
        f = packet("10.77.0.2", "8.8.8.8", protos[i], "\1\2\3\4\5\6\7\10\11\12\13\14", 12, 0);
        put_frame(&f);
        CHECK(get_packet(&g, 3000));
        CHECK_INT(g.b[9], IPPROTO_ICMP);
        CHECK_INT(g.b[21], ICMP_PKT_FILTERED);
    }
    finish();
}

TEST(net, vm_everything_ends_at_the_gate)
{
    struct frame f, g;
    make(NET_VM);
    open_gate(NET_VM);
    const struct tcphdr *t;
    f = syn("10.77.0.2", "8.8.8.8", 4001, 443);
    put_frame(&f);
    t = tcp_answer(&g, "8.8.8.8", false);
    CHECK(t->syn && t->ack && !t->rst);
    struct tcphdr ack = {.source = htons(4001), .dest = htons(443), .seq = htonl(2), .ack_seq = htonl(ntohl(t->seq) + 1), .doff = 5, .ack = 1, .window = htons(1000)};
    f = packet("10.77.0.2", "8.8.8.8", IPPROTO_TCP, &ack, sizeof ack, 16);
    put_frame(&f);
    accepted(gate[NET_SOCK_TCP4], "8.8.8.8", 443);
    t = tcp_answer(&g, "8.8.8.8", false);
    CHECK(!memcmp((const char *)t + t->doff * 4, "hi", 2));
    if (ngate > NET_SOCK_TCP6) {
        f = syn("fd68:7574:6368::2", "2001:db8::1", 4002, 443);
        put_frame(&f);
        t = tcp_answer(&g, "2001:db8::1", true);
        CHECK(t->syn && t->ack);
    }
    finish();
}

TEST(net, vm_datagrams_are_led_to_the_gate_and_answered_in_the_far_ends_name)
{
    struct frame f, g;
    struct sockaddr_storage from;
    unsigned char eight[4] = {8, 8, 8, 8};
    make(NET_VM);
    if (ngate > NET_SOCK_TCP6 || host.v6) { /* before there is a gate */
        wait_v6(NET_VM);
        f = udp("fd68:7574:6368::2", "2001:db8::1", 4002, 4433);
        put_frame(&f);
        CHECK(get_packet(&g, 3000));
        CHECK_INT(g.b[6], IPPROTO_ICMPV6);
        CHECK_INT(g.b[40], ICMP6_DST_UNREACH);
        CHECK_INT(g.b[41], ICMP6_DST_UNREACH_ADMIN);
    }
    open_gate(NET_VM);
    want_destination();
    f = udp("10.77.0.2", "8.8.8.8", 5000, 123);
    put_frame(&f);
    led_to_gate(gate[NET_SOCK_UDP4], "8.8.8.8", 123, &from);
    raw_answer(gate[NET_SOCK_UDP_BACK4], 123, &from, "8.8.8.8");
    do
        CHECK(get_packet(&g, 3000));
    while (g.b[0] >> 4 != 4);
    CHECK(!memcmp(g.b + 12, eight, 4) && g.b[9] == IPPROTO_UDP && !memcmp(g.b + 28, "yes", 3));
    CHECK_INT(ntohs(*(uint16_t *)(void *)(g.b + 22)), 5000);
    if (ngate > NET_SOCK_TCP6) {
        f = udp("fd68:7574:6368::2", "2001:db8::1", 4002, 4433);
        put_frame(&f);
        led_to_gate(gate[NET_SOCK_UDP6], "2001:db8::1", 4433, &from);
    }
    finish();
}

TEST(net, vm_names_are_asked_of_the_gate)
{
    struct frame f, g;
    char b[8];
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    make(NET_VM);
    open_gate(NET_VM);
    f = udp("10.77.0.2", "9.9.9.9", 5000, 53);
    put_frame(&f);
    struct pollfd p = {.fd = gate[NET_SOCK_DNS_UDP4], .events = POLLIN};
    CHECK_INT(poll(&p, 1, 3000), 1);
    CHECK(recvfrom(gate[NET_SOCK_DNS_UDP4], b, sizeof b, 0, (struct sockaddr *)&from, &n) == 2);
    CHECK(sendto(gate[NET_SOCK_DNS_UDP4], "yes", 3, 0, (struct sockaddr *)&from, n) == 3);
    CHECK(get_packet(&g, 3000));
    unsigned char nine[4] = {9, 9, 9, 9};
    CHECK(!memcmp(g.b + 12, nine, 4));
    CHECK(!memcmp(g.b + 28, "yes", 3));
    finish();
}

/* The emulator itself, should a guest break it, has no way to the gate but its tap. */
TEST(net, vm_emulator_cannot_talk)
{
    make(NET_VM);
    open_gate(NET_VM);
    enter();
    socklen_t n;
    struct sockaddr_storage a = addr_of("10.77.0.1", NET_PORT_TCP, &n);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    (void)connect(fd, (struct sockaddr *)&a, n);
    struct pollfd p = {.fd = gate[NET_SOCK_TCP4], .events = POLLIN};
    CHECK_INT(poll(&p, 1, 300), 0);
    CHECK(attempt(SOCK_DGRAM, "10.77.0.1", NET_PORT_DNS, NULL) != 0);
    finish();
}

TEST_MAIN
