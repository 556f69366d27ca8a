/* The whole gate: the real process, a sandbox's namespace, a small internet. */
#include "world.h"

static char out[1 << 20];

static int go1(void *arg)
{
    (void)arg;
    CHECK_INT(ask_dns("8.8.8.8", "web.example.org", DNS_A, NULL), -DNS_NXDOMAIN);
    CHECK(http_get("198.51.100.10", 80, "GET / HTTP/1.1\r\nHost: web.example.org\r\n\r\n", out, sizeof out) > 0);
    CHECK(!strncmp(out, "HTTP/1.1 403 ", 13) && strstr(out, "\"code\":\"network_denied\"") && strstr(out, "mode none"));
    int fd = dial("198.51.100.11", 443); /* TLS: an alert */
    CHECK(fd_write_all(fd, "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", 10));
    CHECK_INT(slurp(fd, out, sizeof out), 7);
    CHECK(out[0] == 0x15 && out[6] == 49);
    close(fd);
    fd = dial("198.51.100.12", 7); /* neither: a reset */
    CHECK_INT(slurp(fd, out, sizeof out), -ECONNRESET);
    return 0;
}
TEST(gate, mode_none_answers_no_name_and_explains_every_refusal)
{
    world_open("{}");
    CHECK_INT(inside(go1, NULL), 0);
    const struct seen *s = find(GATE_K_DNS, "web.example.org");
    CHECK(s && !s->allowed);
    CHECK_STR(s->rule, "mode none");
    s = find(GATE_K_DENY, NULL);
    CHECK(s && s->port == 7);
    CHECK_STR(s->addr, "198.51.100.12");
    world_close();
}

static int go2(void *arg)
{
    (void)arg;
    char ip[IP_TEXT];
    CHECK_INT(ask_dns("1.1.1.1", "web.example.org", DNS_A, ip), 1);
    CHECK_STR(ip, "198.51.100.10");
    CHECK_INT(ask_dns("1.1.1.1", "evil.example.net", DNS_A, NULL), -DNS_NXDOMAIN);
    CHECK_INT(ask_dns("1.1.1.1", "exfil-data.web.example.org", DNS_TXT, NULL), -DNS_NXDOMAIN);
    CHECK(http_get(ip, 80, "GET /a?b=c HTTP/1.1\r\nHost: web.example.org\r\nConnection: close\r\n\r\n", out, sizeof out) > 0);
    CHECK(!strncmp(out, "HTTP/1.1 200", 12) && strstr(out, "GET /a?b=c HTTP/1.1") && strstr(out, "Host: web.example.org"));
    /* the same address under another name */
    CHECK(http_get(ip, 80, "GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", out, sizeof out) > 0);
    CHECK(!strncmp(out, "HTTP/1.1 403", 12));
    /* second request of a kept connection */
    CHECK(http_get(ip, 80, "GET /1 HTTP/1.1\r\nHost: web.example.org\r\n\r\nGET /2 HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", out, sizeof out) > 0);
    CHECK(strstr(out, "GET /1") && strstr(out, "403") && !strstr(out, "GET /2"));
    /* absolute form does not fool it */
    CHECK(http_get(ip, 80, "GET http://evil.example.net/ HTTP/1.1\r\nHost: web.example.org\r\n\r\n", out, sizeof out) > 0);
    CHECK(!strncmp(out, "HTTP/1.1 403", 12));
    /* two Hosts, smuggling */
    CHECK(http_get(ip, 80, "GET / HTTP/1.1\r\nHost: web.example.org\r\nHost: evil.example.net\r\n\r\n", out, sizeof out) > 0);
    CHECK(!strncmp(out, "HTTP/1.1 400", 12));
    CHECK(http_get(ip, 80, "POST / HTTP/1.1\r\nHost: web.example.org\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", out, sizeof out) > 0);
    CHECK(!strncmp(out, "HTTP/1.1 400", 12));
    /* an address that is not its */
    CHECK(http_get("198.51.100.14", 80, "GET / HTTP/1.1\r\nHost: web.example.org\r\n\r\n", out, sizeof out) > 0);
    CHECK(!strncmp(out, "HTTP/1.1 403", 12) && strstr(out, "not one of this host's"));
    /* another port */
    CHECK(http_get(ip, 8080, "GET / HTTP/1.1\r\nHost: web.example.org:8080\r\n\r\n", out, sizeof out) > 0);
    CHECK(!strncmp(out, "HTTP/1.1 403", 12));
    return 0;
}
TEST(gate, an_allowed_name_works_over_http_and_only_under_that_name)
{
    world_open("{\"allow\":[\"web.example.org\"]}");
    CHECK_INT(inside(go2, NULL), 0);
    const struct seen *s = find(GATE_K_HTTP, "web.example.org");
    CHECK(s && s->allowed && s->status == 200);
    CHECK(find(GATE_K_OPEN, "web.example.org") && find(GATE_K_CLOSE, "web.example.org"));
    world_close();
}

/* The client's side of TLS, blocking. */
static int tls_get(const char *ip, int port, const char *trust_file, const char *name, const char *request, char *to, size_t cap)
{
    struct err e;
    struct tls_trust *t = tls_trust_new((const char *const[]){trust_file}, 1, &e);
    CHECK(t);
    struct peer_io io = {dial(ip, port), tls_client_new(t, name, &e)};
    if (io.fd < 0)
        return -1;
    char none;
    size_t have = 0;
    int rc = -1;
    while (!tls_ready(io.tls) && !tls_error(io.tls)) { /* handshake */
        struct buf w = {0};
        (void)tls_read(io.tls, &none, 0);
        if (tls_take(io.tls, &w))
            (void)!fd_write_all(io.fd, w.p, w.n);
        buf_free(&w);
        if (tls_ready(io.tls) || tls_error(io.tls))
            break;
        char raw[8192];
        ssize_t k = read(io.fd, raw, sizeof raw);
        if (k <= 0)
            break;
        tls_feed(io.tls, raw, (size_t)k);
    }
    if (tls_ready(io.tls) && !tls_error(io.tls)) {
        io_put(&io, request, strlen(request));
        for (ssize_t n; have < cap - 1 && (n = io_get(&io, to + have, cap - 1 - have)) > 0;)
            have += (size_t)n;
        rc = (int)have;
    } else
        have = (size_t)snprintf(to, cap, "%s", tls_error(io.tls) ? tls_error(io.tls) : "cut");
    to[have] = 0;
    tls_free(io.tls);
    tls_trust_free(t);
    close(io.fd);
    return rc;
}
static char site_pem[128], box_pem[128];
static void pems(void)
{
    snprintf(site_pem, sizeof site_pem, "%s/site.pem", W.dir);
    snprintf(box_pem, sizeof box_pem, "%s/box.pem", W.dir);
    int fd = open(box_pem, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd >= 0 && fd_write_all(fd, W.box_cert.p, W.box_cert.n));
    close(fd);
}

static int go3(void *arg)
{
    (void)arg;
    char ip[IP_TEXT];
    CHECK_INT(ask_dns("1.1.1.1", "api.example.org", DNS_A, ip), 1);
    int n = tls_get(ip, 443, site_pem, "api.example.org", "GET /close HTTP/1.1\r\nHost: api.example.org\r\n\r\n", out, sizeof out);
    if (n <= 0)
        printf("# %s\n", out);
    CHECK(strstr(out, "200 OK"));
    /* another name: an alert */
    CHECK(tls_get(ip, 443, site_pem, "evil-tls.example.net", "x", out, sizeof out) < 0);
    CHECK(strstr(out, "access denied"));
    /* the allowed name at an address that is not its (and never was resolved) */
    CHECK(tls_get("198.51.100.12", 443, site_pem, "api.example.org", "x", out, sizeof out) < 0);
    CHECK(strstr(out, "access denied"));
    return 0;
}
TEST(gate, tls_goes_through_unopened_and_bound_to_its_name)
{
    world_open("{\"allow\":[\"api.example.org\"]}");
    pems();
    CHECK_INT(inside(go3, NULL), 0);
    const struct seen *s = find(GATE_K_DENY, "evil-tls.example.net");
    CHECK(s && s->port == 443);
    s = find(GATE_K_DENY, "api.example.org");
    CHECK(s);
    CHECK_STR(s->rule, "binding");
    CHECK(find(GATE_K_OPEN, "api.example.org"));
    world_close();
}

static int go4(void *arg)
{
    (void)arg;
    int fd = dial("198.51.100.12", 7);
    char b[64];
    CHECK(fd >= 0 && fd_write_all(fd, "ping", 4) && fd_read_all(fd, b, 4) == 4 && !memcmp(b, "ping", 4));
    shutdown(fd, SHUT_WR);
    CHECK_INT(read(fd, b, 1), 0); /* half-close is passed on, and back */
    close(fd);
    fd = dial("198.51.100.13", 22); /* speaks first */
    CHECK(fd >= 0 && fd_read_all(fd, b, 14) == 14 && !memcmp(b, "SSH-2.0", 7));
    close(fd);
    static const char *const shut[] = {"169.254.169.254", "10.1.2.3", "192.168.0.1", "100.64.0.1", "192.0.2.1" /* the host's own */, "fd00:ec2::254",
                                       "64:ff9b::7f00:1", "2002:7f00:1::1"};
    for (size_t i = 0; i < 8; i++) {
        ssize_t n = http_get(shut[i], 80, "GET / HTTP/1.1\r\nHost: x.example.org\r\n\r\n", out, sizeof out);
        if (!(n > 0 && strstr(out, "403") && strstr(out, "closed")))
            printf("# %s: %zd %s\n", shut[i], n, n > 0 ? out : "");
        CHECK(n > 0 && strstr(out, "403") && strstr(out, "closed"));
    }
    /* names: public ones resolve, closed answers are dropped, special ones are none */
    char ip[IP_TEXT];
    CHECK_INT(ask_dns("9.9.9.9", "web.example.org", DNS_A, NULL), 1);
    CHECK_INT(ask_dns("9.9.9.9", "rebind.example.org", DNS_A, NULL), -DNS_NXDOMAIN);
    CHECK_INT(ask_dns("9.9.9.9", "meta.example.org", DNS_A, NULL), -DNS_NXDOMAIN);
    CHECK_INT(ask_dns("9.9.9.9", "lan6.example.org", DNS_AAAA, NULL), -DNS_NXDOMAIN);
    CHECK_INT(ask_dns("9.9.9.9", "mapped.example.org", DNS_AAAA, NULL), -DNS_NXDOMAIN);
    CHECK_INT(ask_dns("9.9.9.9", "mixed.example.org", DNS_A, ip), 1);
    CHECK_STR(ip, "198.51.100.10");
    CHECK_INT(ask_dns("9.9.9.9", "nosuch.example.org", DNS_A, NULL), -DNS_NXDOMAIN);
    CHECK_INT(ask_dns("9.9.9.9", "db.internal", DNS_A, NULL), -DNS_NXDOMAIN);
    CHECK_INT(ask_dns("9.9.9.9", "web.example.org", DNS_TXT, NULL), 1);
    CHECK_INT(ask_dns("2620:fe::fe", "web.example.org", DNS_A, NULL), 1); /* over IPv6 */
    CHECK_INT(ask_dns("9.9.9.9", "big.example.org", DNS_A, NULL), 60); /* the upstream answer came over TCP and fits */
    /* IPv6 */
    ssize_t n = http_get("2001:db8:2::10", 80, "GET /close HTTP/1.1\r\nHost: six.example.org\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "200 OK"));
    return 0;
}
TEST(gate, open_mode_lets_the_public_internet_and_nothing_else)
{
    world_open("{\"mode\":\"open\"}");
    CHECK_INT(inside(go4, NULL), 0);
    CHECK(find(GATE_K_OPEN, NULL));
    world_close();
}
TEST_MAIN
