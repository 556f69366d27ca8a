/* A little internet for tests of the gate, in three network namespaces:
 *
 *   box    the sandbox: loopback only, nft redirects to listeners that the gate holds
 *   world  the host: hutch-egress runs here, as the real process
 *   inet   servers, reached from world over a veth pair
 *
 * Addresses are of the documentation ranges, which the gate takes for public.
 *   203.0.113.53  DNS, UDP and TCP          198.51.100.10  HTTP :80 :8080, echoes the request head
 *   198.51.100.11 HTTPS :443, the same      198.51.100.12  TCP echo :7   198.51.100.13 speaks first :22
 *   198.51.100.14 HTTP that answers with what the path says; 2001:db8:2::10 HTTP :80
 * The control connection is the daemon's own client. Needs root; skips without. */
#pragma once
#include "base/clock.h"
#include "base/fd.h"
#include "crypto/tls.h"
#include "crypto/x509.h"
#include "gate/client.h"
#include "gate/dnsmsg.h"
#include "loop/loop.h"
#include "test.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BOX "baaaaaaaaaaaaaaaaaaaa"
#define SBX "iaaaaaaaaaaaaaaaaaaaa"
#define WORLD_RECORDS 512

struct seen { enum gate_kind kind; bool allowed; char name[256], type[16], addr[64], rule[128], reason[256], method[32], path[256], secret[64]; unsigned port, status; uint64_t in, out, seq; };

static struct world {
    char dir[64];
    int box_ns, world_ns, inet_ns;
    pid_t egress;
    int life;
    struct loop *loop;
    struct gate_client *client;
    bool up, answered;
    struct err err;
    uint64_t cut, ups;
    struct seen seen[WORLD_RECORDS];
    size_t nseen;
    struct buf site_cert, site_key, box_cert, box_key;
    char self[256];
} W;

/* ---- namespaces ------------------------------------------------------------------------------------------------------- */

static inline void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline void run(const char *fmt, ...)
{
    char cmd[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(cmd, sizeof cmd, fmt, ap);
    va_end(ap);
    if (system(cmd)) {
        printf("# failed: %s\n", cmd);
        fflush(stdout);
        exit(1);
    }
}
static inline int new_ns(void)
{
    CHECK(!unshare(CLONE_NEWNET));
    int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}
static inline void enter(int ns) { CHECK(!setns(ns, CLONE_NEWNET)); }

static inline int sock_at(int type, const char *ip, int port, bool v6only)
{
    struct ip a;
    struct sockaddr_storage ss;
    CHECK(ip_parse(str_of(ip), &a));
    socklen_t n = ip_to_sockaddr(&a, (uint16_t)port, &ss);
    int fd = socket(ss.ss_family, type | SOCK_CLOEXEC, 0), on = 1;
    CHECK(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (v6only && ss.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, (void *)&ss, n)) {
        printf("# bind %s:%d: %s\n", ip, port, strerror(errno));
        CHECK(0);
    }
    if (type == SOCK_STREAM)
        CHECK(!listen(fd, 1024));
    return fd;
}

/* ---- servers of the internet --------------------------------------------------------------------------------------------- */

static const struct { const char *name, *addr; } zone[] = {
    {"web.example.org", "198.51.100.10"}, {"api.example.org", "198.51.100.11"}, {"echo.example.org", "198.51.100.12"}, {"git.example.org", "198.51.100.13"},
    {"other.example.org", "198.51.100.10"}, {"evil.example.net", "198.51.100.10"}, {"evil-tls.example.net", "198.51.100.11"}, {"six.example.org", "2001:db8:2::10"},
    {"rebind.example.org", "127.0.0.1"}, {"meta.example.org", "169.254.169.254"}, {"mixed.example.org", "10.0.0.1"}, {"mixed.example.org", "198.51.100.10"},
    {"path.example.org", "198.51.100.14"}, {"lan6.example.org", "fd00::1"}, {"mapped.example.org", "::ffff:198.51.100.10"}, {"down.example.org", "198.51.100.99"},
};
static inline void dns_answer_for(const uint8_t *p, size_t n, struct buf *out)
{
    struct dns_query q;
    if (dns_query_parse(p, n, &q))
        return;
    out->n = 0;
    buf_put(out, p, 2);
    buf_put(out, "\x81\x80\0\1\0\0\0\0\0\0", 10);
    buf_put(out, q.name.b, q.name.n);
    char t[4] = {(char)(q.type >> 8), (char)q.type, 0, 1};
    buf_put(out, t, 4);
    unsigned count = 0;
    bool known = false;
    for (size_t i = 0; i < sizeof zone / sizeof *zone; i++) {
        struct ip a;
        if (strcmp(zone[i].name, q.text))
            continue;
        known = true;
        CHECK(ip_parse(str_of(zone[i].addr), &a));
        if (q.type != (a.v6 ? DNS_AAAA : DNS_A))
            continue;
        char rr[12] = {(char)0xc0, 12, 0, (char)q.type, 0, 1, 0, 0, 0, 30, 0, (char)(a.v6 ? 16 : 4)};
        buf_put(out, rr, 12);
        buf_put(out, a.b, a.v6 ? 16 : 4);
        count++;
    }
    if (q.type == DNS_TXT && known) {
        char rr[] = {(char)0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 30, 0, 5, 4, 't', 'e', 'x', 't'};
        buf_put(out, rr, sizeof rr);
        count++;
    }
    if (!strncmp(q.text, "big.", 4)) { /* only over TCP it is whole; over UDP it is cut */
        known = true;
        for (int i = 0; i < 60 && q.type == DNS_A; i++) {
            char rr[16] = {(char)0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, (char)198, 51, 100, (char)(100 + i)};
            buf_put(out, rr, 16);
            count++;
        }
    }
    out->p[7] = (char)count;
    if (!known)
        out->p[3] = (char)0x83;
}
static inline void *dns_udp_thread(void *arg)
{
    int fd = (int)(intptr_t)arg;
    struct buf out = {0};
    for (;;) {
        uint8_t in[2048];
        struct sockaddr_storage ss;
        socklen_t len = sizeof ss;
        ssize_t n = recvfrom(fd, in, sizeof in, 0, (void *)&ss, &len);
        if (n <= 0)
            continue;
        dns_answer_for(in, (size_t)n, &out);
        if (out.n > 512 && out.n > 900) {
            out.p[2] |= 2; /* truncated */
            out.p[7] = 0;
            out.n = 12 + (size_t)n - 12 - 11;
        }
        sendto(fd, out.p, out.n, 0, (void *)&ss, len);
    }
    return NULL;
}
static inline void *dns_tcp_thread(void *arg)
{
    for (;;) {
        int fd = accept4((int)(intptr_t)arg, NULL, NULL, SOCK_CLOEXEC);
        uint8_t in[2050];
        if (fd_read_all(fd, in, 2) == 2) {
            size_t n = (size_t)in[0] << 8 | in[1];
            struct buf out = {0};
            if (n <= 2048 && fd_read_all(fd, in + 2, n) == (ssize_t)n) {
                dns_answer_for(in + 2, n, &out);
                char len[2] = {(char)(out.n >> 8), (char)out.n};
                fd_write_all(fd, len, 2), fd_write_all(fd, out.p, out.n);
            }
            buf_free(&out);
        }
        close(fd);
    }
    return NULL;
}

struct site { int fd; bool tls; struct tls_ca *ca; };
struct peer_io { int fd; struct tls *tls; };
static inline void io_put(struct peer_io *io, const void *p, size_t n)
{
    if (!io->tls) {
        fd_write_all(io->fd, p, n);
        return;
    }
    struct buf w = {0};
    tls_write(io->tls, p, n);
    if (tls_take(io->tls, &w))
        fd_write_all(io->fd, w.p, w.n);
    buf_free(&w);
}
static inline ssize_t io_get(struct peer_io *io, char *p, size_t cap)
{
    if (!io->tls)
        return read(io->fd, p, cap);
    for (;;) {
        ssize_t n = tls_read(io->tls, p, cap);
        struct buf w = {0};
        if (tls_take(io->tls, &w))
            fd_write_all(io->fd, w.p, w.n);
        buf_free(&w);
        if (n)
            return n < 0 ? 0 : n;
        char raw[8192];
        ssize_t k = read(io->fd, raw, sizeof raw);
        if (k <= 0)
            return 0;
        tls_feed(io->tls, raw, (size_t)k);
    }
}
/* One request after the other; the body is the request head (and body) as it arrived. Paths that mean something:
 * /close (no keep-alive), /chunked, /eof (no length), /slow (never answers), /echo-secret, /big, /ws (101), /ws-bye (and the end), /h2c (101 to that),
 * /part (206), /parts (multipart), /packed (says it is compressed). */
static inline void *site_conn(void *arg)
{
    struct peer_io io = *(struct peer_io *)arg;
    free(arg);
    char req[65536];
    size_t have = 0;
    bool keep = true;
    while (keep) {
        char *end = NULL;
        while (!(end = have >= 4 ? memmem(req, have, "\r\n\r\n", 4) : NULL)) {
            ssize_t n = have < sizeof req ? io_get(&io, req + have, sizeof req - have) : 0;
            if (n <= 0)
                goto out;
            have += (size_t)n;
        }
        size_t head = (size_t)(end - req) + 4, body = 0;
        char *cl = memmem(req, head, "Content-Length: ", 16);
        if (cl)
            body = (size_t)atoi(cl + 16);
        bool chunked = memmem(req, head, "Transfer-Encoding: chunked", 26) != NULL;
        while (chunked ? !memmem(req + head, have - head, "0\r\n\r\n", 5) : have < head + body) {
            ssize_t n = have < sizeof req ? io_get(&io, req + have, sizeof req - have) : 0;
            if (n <= 0)
                goto out;
            have += (size_t)n;
        }
        size_t whole = chunked ? (size_t)((char *)memmem(req + head, have - head, "0\r\n\r\n", 5) - req) + 5 : head + body;
        char path[128] = "";
        sscanf(req, "%*s %127s", path);
        struct buf out = {0};
        if (!strncmp(path, "/slow", 5))
            sleep(100);
        else if (!strncmp(path, "/ws", 3)) {
            buf_puts(&out, "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            io_put(&io, out.p, out.n);
            for (ssize_t n; strcmp(path, "/ws-bye") && (n = io_get(&io, req, sizeof req)) > 0;)
                io_put(&io, req, (size_t)n);
            buf_free(&out);
            goto out;
        } else if (!strncmp(path, "/h2c", 4)) {
            buf_puts(&out, "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
        } else if (!strncmp(path, "/pa", 3)) {
            const char *how = !strcmp(path, "/part") ? "206 Part\r\nContent-Range: bytes 0-3/9"
                              : !strcmp(path, "/parts")
                                  ? "200 OK\r\nContent-Type: Multipart/ByteRanges; boundary=x"
                                  : "200 OK\r\nContent-Encoding: gzip";
            buf_printf(&out, "HTTP/1.1 %s\r\nContent-Length: 4\r\n\r\ns3cr", how);
        } else if (!strncmp(path, "/chunked", 8)) {
            buf_printf(&out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n", whole);
            buf_put(&out, req, whole);
            buf_puts(&out, "\r\n0\r\n\r\n");
        } else if (!strncmp(path, "/eof", 4)) {
            buf_puts(&out, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            buf_put(&out, req, whole);
            keep = false;
        } else if (!strncmp(path, "/big", 4)) {
            size_t n = 4u << 20;
            buf_printf(&out, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", n);
            buf_reserve(&out, n);
            memset(out.p + out.n, 'x', n);
            out.n += n;
        } else {
            keep = strncmp(path, "/close", 6) != 0;
            buf_printf(&out, "HTTP/1.1 200 OK\r\nServer: site\r\nX-Echo: %s\r\n%sContent-Length: %zu\r\n\r\n", path, keep ? "" : "Connection: close\r\n",
                       !strncmp(req, "HEAD", 4) ? (size_t)5 : whole);
            if (strncmp(req, "HEAD", 4))
                buf_put(&out, req, whole);
        }
        io_put(&io, out.p, out.n);
        buf_free(&out);
        memmove(req, req + whole, have - whole);
        have -= whole;
    }
out:
    if (io.tls) {
        struct buf w = {0};
        tls_finish(io.tls);
        if (tls_take(io.tls, &w))
            fd_write_all(io.fd, w.p, w.n);
        buf_free(&w);
        tls_free(io.tls);
    }
    close(io.fd);
    return NULL;
}
static inline void *site_thread(void *arg)
{
    struct site *s = arg;
    for (;;) {
        int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC), on = 1;
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct peer_io *io = calloc(1, sizeof *io);
        struct err e;
        io->fd = fd;
        io->tls = s->tls ? tls_server_new(s->ca, "api.example.org", &e) : NULL;
        pthread_t t;
        pthread_create(&t, NULL, site_conn, io);
        pthread_detach(t);
    }
    return NULL;
}
static inline void *echo_conn(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char b[65536];
    for (ssize_t n; (n = read(fd, b, sizeof b)) > 0;)
        if (!fd_write_all(fd, b, (size_t)n))
            break;
    close(fd);
    return NULL;
}
static inline void *echo_thread(void *arg)
{
    int lfd = (int)(intptr_t)arg;
    for (;;) {
        int fd = accept4(lfd, NULL, NULL, SOCK_CLOEXEC);
        pthread_t t;
        pthread_attr_t a;
        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, 256 * 1024);
        if (fd >= 0 && !pthread_create(&t, &a, echo_conn, (void *)(intptr_t)fd))
            pthread_detach(t);
    }
    return NULL;
}
static inline void *banner_thread(void *arg)
{
    for (;;) {
        int fd = accept4((int)(intptr_t)arg, NULL, NULL, SOCK_CLOEXEC);
        fd_write_all(fd, "SSH-2.0-test\r\n", 14);
        pthread_t t;
        pthread_create(&t, NULL, echo_conn, (void *)(intptr_t)fd);
        pthread_detach(t);
    }
    return NULL;
}
static inline void spin(void *(*fn)(void *), void *arg)
{
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, fn, arg));
    pthread_detach(t);
}
static inline void site(const char *ip, int port, bool tls, struct tls_ca *ca)
{
    struct site *s = calloc(1, sizeof *s);
    *s = (struct site){sock_at(SOCK_STREAM, ip, port, true), tls, ca};
    spin(site_thread, s);
}
static inline void internet(int ready)
{
    struct err e;
    enter(W.inet_ns);
    struct tls_ca *ca = tls_ca_new((struct str){W.site_cert.p, W.site_cert.n}, (struct str){W.site_key.p, W.site_key.n}, &e);
    CHECK(ca);
    spin(dns_udp_thread, (void *)(intptr_t)sock_at(SOCK_DGRAM, "203.0.113.53", 53, true));
    spin(dns_tcp_thread, (void *)(intptr_t)sock_at(SOCK_STREAM, "203.0.113.53", 53, true));
    site("198.51.100.10", 80, false, NULL), site("198.51.100.10", 8080, false, NULL), site("198.51.100.14", 80, false, NULL);
    site("2001:db8:2::10", 80, false, NULL);
    site("198.51.100.11", 443, true, ca);
    spin(echo_thread, (void *)(intptr_t)sock_at(SOCK_STREAM, "198.51.100.12", 7, true));
    spin(banner_thread, (void *)(intptr_t)sock_at(SOCK_STREAM, "198.51.100.13", 22, true));
    CHECK(write(ready, "x", 1) == 1);
    for (;;)
        pause();
}

/* ---- set-up ---------------------------------------------------------------------------------------------------------------- */

static inline void on_up(void *arg) { (void)arg, W.up = true, W.ups++; }
static inline void on_down(void *arg, const char *why) { (void)arg, (void)why, W.up = false; }
static inline void on_record(void *arg, const struct gate_record *r)
{
    (void)arg;
    if (W.nseen == WORLD_RECORDS)
        return;
    struct seen *s = &W.seen[W.nseen++];
    *s = (struct seen){.kind = r->kind, .allowed = r->allowed, .port = r->port, .status = r->status, .in = r->in, .out = r->out, .seq = r->seq};
    snprintf(s->name, sizeof s->name, "%s", r->name), snprintf(s->type, sizeof s->type, "%s", r->type), snprintf(s->addr, sizeof s->addr, "%s", r->addr);
    snprintf(s->rule, sizeof s->rule, "%s", r->rule), snprintf(s->reason, sizeof s->reason, "%s", r->reason), snprintf(s->method, sizeof s->method, "%s", r->method);
    snprintf(s->path, sizeof s->path, "%s", r->path), snprintf(s->secret, sizeof s->secret, "%s", r->secret);
}
static inline void until(bool *flag)
{
    int64_t end = clock_mono() + 20 * NS_PER_S;
    while (!*flag) {
        CHECK(clock_mono() < end);
        loop_turn(W.loop, false);
        usleep(500);
    }
}
static inline void on_done(void *arg, const struct err *e, uint64_t cut)
{
    (void)arg;
    W.answered = true;
    W.cut = cut;
    W.err = e ? *e : (struct err){0};
}
static inline void done(void)
{
    until(&W.answered);
    W.answered = false;
}
static inline void egress_start(void)
{
    char bin[512], log[128], ca[128], share[512];
    snprintf(bin, sizeof bin, "%s", W.self);
    for (int i = 0; i < 3; i++)
        *strrchr(bin, '/') = 0; /* build/unit/gate/test_x -> build */
    snprintf(share, sizeof share, "%s/../share", bin);
    if (getenv("HUTCH_SHARE"))
        snprintf(share, sizeof share, "%s", getenv("HUTCH_SHARE"));
    strcat(bin, "/hutch-egress");
    snprintf(log, sizeof log, "%s/log", W.dir);
    snprintf(ca, sizeof ca, "%s/site.pem", W.dir);
    pid_t pid = fork();
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        enter(W.world_ns);
        execl(bin, "hutch-egress", "--run", W.dir, "--log", log, "--share", share, "--uid", "64883", "--allow-uid", "64882", "--resolver",
              "203.0.113.53", "--ca-file", ca, (char *)NULL);
        _exit(127);
    }
    W.egress = pid;
    CHECK(write(W.life, &pid, sizeof pid) == (ssize_t)sizeof pid);
}
static inline void egress_stop(int sig)
{
    int st;
    kill(W.egress, sig);
    CHECK(waitpid(W.egress, &st, 0) == W.egress);
    if (sig == SIGTERM)
        CHECK(WIFEXITED(st) && !WEXITSTATUS(st));
}
static inline void box_sockets(int fds[6], enum gate_sock roles[6])
{
    enter(W.box_ns);
    static const enum gate_sock r[6] = {GATE_SOCK_TCP, GATE_SOCK_TCP, GATE_SOCK_DNS_UDP, GATE_SOCK_DNS_UDP, GATE_SOCK_DNS_TCP, GATE_SOCK_PROXY};
    memcpy(roles, r, sizeof r);
    fds[0] = sock_at(SOCK_STREAM, "127.0.0.1", 4000, true);
    fds[1] = sock_at(SOCK_STREAM, "::1", 4000, true);
    fds[2] = sock_at(SOCK_DGRAM, "127.0.0.1", 4053, true);
    fds[3] = sock_at(SOCK_DGRAM, "::1", 4053, true);
    fds[4] = sock_at(SOCK_STREAM, "127.0.0.1", 4053, true);
    fds[5] = sock_at(SOCK_STREAM, "127.0.0.1", 3128, true);
    enter(W.world_ns);
}
static int box_fds[6];
static enum gate_sock box_roles[6];

/* Asks for this policy (and ceiling); 0 or the error in W.err. */
static inline int box_add(const char *policy, const char *ceiling, bool sockets)
{
    struct gate_ceiling c = {"host", str_of(ceiling)};
    struct gate_box b = {.box = BOX, .sandbox = SBX, .group = {"host", "acme"}, .policy = str_of(policy), .ceiling = &c, .nceilings = ceiling ? 1 : 0,
                         .ca_cert = {W.box_cert.p, W.box_cert.n}, .ca_key = {W.box_key.p, W.box_key.n},
                         .sock = box_roles, .fds = box_fds, .nsocks = sockets ? 6 : 0};
    gate_add(W.client, &b, on_done, NULL);
    done();
    return W.err.code ? -1 : 0;
}
static inline void world_open(const char *policy)
{
    if (geteuid())
        SKIP("needs root for network namespaces");
    if (system("command -v nft >/dev/null && command -v ip >/dev/null"))
        SKIP("needs nft and ip");
    ssize_t sn = readlink("/proc/self/exe", W.self, sizeof W.self - 1);
    CHECK(sn > 0);
    strcpy(W.dir, "/tmp/hutch-gate-XXXXXX");
    CHECK(mkdtemp(W.dir) && !chmod(W.dir, 0755));
    /* A watcher that outlives a failed CHECK and tidies up. */
    int life[2];
    CHECK(!pipe2(life, O_CLOEXEC));
    if (!fork()) {
        close(life[1]);
        setsid();
        pid_t last = 0, got; /* changing its uid took its death signal away: end it ourselves */
        while (read(life[0], &got, sizeof got) == (ssize_t)sizeof got)
            last = got;
        if (last > 0)
            kill(last, SIGKILL);
        char cmd[100];
        snprintf(cmd, sizeof cmd, "rm -rf %s", W.dir);
        _exit(system(cmd) != 0);
    }
    close(life[0]);
    W.life = life[1];
    struct err e;
    CHECK(!x509_ca_make("test sites", 30, &W.site_cert, &W.site_key, &e) && !x509_ca_make("test sandbox", 30, &W.box_cert, &W.box_key, &e));
    char path[128];
    snprintf(path, sizeof path, "%s/site.pem", W.dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && fd_write_all(fd, W.site_cert.p, W.site_cert.n));
    close(fd);
    W.inet_ns = new_ns();
    run("ip link set lo up; for a in 203.0.113.53 198.51.100.10 198.51.100.11 198.51.100.12 198.51.100.13 198.51.100.14; do ip addr add $a/32 dev lo; done;"
        "ip -6 addr add 2001:db8:2::10/128 dev lo nodad");
    W.box_ns = new_ns();
    run("ip link set lo up; ip addr add 10.0.2.15/32 dev lo; ip -6 addr add fd00:2::15/128 dev lo nodad; ip route add default dev lo src 10.0.2.15;"
        "ip -6 route add default dev lo src fd00:2::15; nft -f - <<'X'\n"
        "table inet gate {\n chain out {\n  type nat hook output priority -100; policy accept;\n  fib daddr type local accept\n"
        "  udp dport 53 redirect to :4053\n  tcp dport 53 redirect to :4053\n  meta l4proto tcp redirect to :4000\n }\n}\nX\n");
    W.world_ns = new_ns();
    run("ip link set lo up; ip link add w0 type veth peer name i0 netns /proc/%d/fd/%d; ip addr add 192.0.2.1/24 dev w0; ip -6 addr add 2001:db8:1::1/64 dev w0 nodad;"
        "ip link set w0 up; ip route add default via 192.0.2.2; ip -6 route add default via 2001:db8:1::2", getpid(), W.inet_ns);
    enter(W.inet_ns);
    run("ip addr add 192.0.2.2/24 dev i0; ip -6 addr add 2001:db8:1::2/64 dev i0 nodad; ip link set i0 up; sysctl -qw net.ipv4.ip_forward=0");
    enter(W.world_ns);
    int ready[2];
    CHECK(!pipe2(ready, O_CLOEXEC));
    if (!fork()) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        internet(ready[1]);
    }
    char x;
    CHECK(read(ready[0], &x, 1) == 1);
    egress_start();
    W.loop = loop_new();
    snprintf(path, sizeof path, "%s/egress.sock", W.dir);
    static const struct gate_client_ops ops = {on_up, on_down, on_record};
    W.client = gate_client_new(W.loop, path, &ops, NULL);
    until(&W.up);
    box_sockets(box_fds, box_roles);
    if (policy) {
        if (box_add(policy, NULL, true))
            printf("# %s\n", W.err.msg);
        CHECK_INT(W.err.code, 0);
    }
}
static inline void world_close(void)
{
    gate_client_free(W.client);
    loop_turn(W.loop, false);
    loop_turn(W.loop, false);
    loop_free(W.loop);
    egress_stop(SIGTERM);
    W.egress = 0;
    CHECK(write(W.life, &W.egress, sizeof W.egress) == (ssize_t)sizeof W.egress);
    buf_free(&W.site_cert), buf_free(&W.site_key), buf_free(&W.box_cert), buf_free(&W.box_key);
}

/* ---- inside the box ------------------------------------------------------------------------------------------------------------ */

/* Runs fn in a process inside the box's namespace while the control loop turns; returns its exit status (0..255). */
static inline int inside(int (*fn)(void *), void *arg)
{
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        alarm(30);
        enter(W.box_ns);
        int rc = fn(arg);
        fflush(stdout);
        _exit(rc);
    }
    int st;
    while (!waitpid(pid, &st, WNOHANG)) {
        loop_turn(W.loop, false);
        usleep(500);
    }
    for (int i = 0; i < 20; i++) { /* records still on their way */
        loop_turn(W.loop, false);
        usleep(1000);
    }
    if (WIFSIGNALED(st))
        printf("# inside: signal %d\n", WTERMSIG(st));
    return WIFEXITED(st) ? WEXITSTATUS(st) : 255;
}
static inline const struct seen *find(enum gate_kind kind, const char *name)
{
    for (size_t i = W.nseen; i-- > 0;)
        if (W.seen[i].kind == kind && (!name || !strcmp(W.seen[i].name, name)))
            return &W.seen[i];
    return NULL;
}
static inline void show_seen(void)
{
    for (size_t i = 0; i < W.nseen; i++)
        printf("# %s %s %s %s:%u %s %s [%s] %s %s %u\n", gate_kind_name(W.seen[i].kind), W.seen[i].allowed ? "allow" : "deny", W.seen[i].name, W.seen[i].addr,
               W.seen[i].port, W.seen[i].type, W.seen[i].rule, W.seen[i].reason, W.seen[i].method, W.seen[i].path, W.seen[i].status);
}

/* Plain helpers for use inside. */
static inline int dial(const char *ip, int port)
{
    struct ip a;
    struct sockaddr_storage ss;
    CHECK(ip_parse(str_of(ip), &a));
    socklen_t n = ip_to_sockaddr(&a, (uint16_t)port, &ss);
    int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval tv = {10, 0};
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (void *)&ss, n)) {
        close(fd);
        return -1;
    }
    return fd;
}
/* Everything until the peer ends; NUL-terminated. Negative: errno of a reset or timeout. */
static inline ssize_t slurp(int fd, char *out, size_t cap)
{
    size_t have = 0;
    for (;;) {
        ssize_t n = read(fd, out + have, cap - 1 - have);
        if (n < 0 && !have)
            return -errno;
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    out[have] = 0;
    return (ssize_t)have;
}
static inline ssize_t http_get(const char *ip, int port, const char *request, char *out, size_t cap)
{
    int fd = dial(ip, port);
    if (fd < 0)
        return -errno;
    if (!fd_write_all(fd, request, strlen(request)))
        return -errno;
    ssize_t n = slurp(fd, out, cap);
    close(fd);
    return n;
}
/* A question to any server (it is redirected); the number of addresses, -rcode if refused, -100 if silent. */
static inline int ask_dns(const char *server, const char *name, uint16_t type, char first[IP_TEXT])
{
    struct ip a;
    struct sockaddr_storage ss;
    struct dname d;
    struct buf q = {0};
    uint8_t in[4096];
    static struct dns_answer ans;
    CHECK(ip_parse(str_of(server), &a) && dname_from_text(name, &d));
    socklen_t n = ip_to_sockaddr(&a, 53, &ss);
    int fd = socket(ss.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval tv = {8, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    CHECK(!connect(fd, (void *)&ss, n));
    dns_query_build(&q, 77, &d, type, false);
    CHECK(send(fd, q.p, q.n, 0) == (ssize_t)q.n);
    ssize_t k = recv(fd, in, sizeof in, 0);
    close(fd);
    buf_free(&q);
    if (k < 0)
        return -100;
    if (!dns_answer_parse(in, (size_t)k, 77, &d, type, &ans))
        return -101;
    if (ans.truncated)
        return -102;
    int count = 0;
    struct ip x;
    for (size_t i = 0; i < ans.nrr; i++)
        if (dns_rr_addr(&ans, &ans.rr[i], &x)) {
            if (!count && first)
                ip_text(&x, first);
            count++;
        }
    return ans.rcode ? -ans.rcode : type == DNS_A || type == DNS_AAAA ? count : (int)ans.nrr;
}
