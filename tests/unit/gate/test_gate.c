/* The whole gate: the real process, a sandbox's namespace, a small internet. */
#include "gate/log.h"
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
    int n = tls_get(ip, 443, site_pem, "api.example.org", "GET /close HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n", out, sizeof out);
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

/* ---- secrets ------------------------------------------------------------------------------------------------------------- */

#define SECRET "s3cr3t-value-0123456789"
static const char inject_policy[] =
    "{\"allow\":[\"api.example.org\"],\"inject\":[{\"domain\":\"api.example.org\",\"secret\":\"key\",\"header\":\"Authorization\",\"format\":\"Bearer {secret}\"},"
    "{\"domain\":\"api.example.org\",\"secret\":\"key2\",\"placeholder\":\"PLACEHOLDER-1\"}]}";

static void set_secret(const char *id, const char *value, uint64_t calls)
{
    struct gate_budget b = {.calls_max = calls};
    gate_secret(W.client, id, str_of(value), &b, on_done, NULL);
    done();
    CHECK_INT(W.err.code, 0);
}
static int go_inject(void *arg)
{
    (void)arg;
    char ip[IP_TEXT];
    CHECK_INT(ask_dns("1.1.1.1", "api.example.org", DNS_A, ip), 1);
    /* not with the site's own certificate: the gate speaks for it */
    CHECK(tls_get(ip, 443, site_pem, "api.example.org", "x", out, sizeof out) < 0);
    int n = tls_get(ip, 443, box_pem, "api.example.org",
                    "GET /close?q=PLACEHOLDER-1 HTTP/1.1\r\nHost: api.example.org\r\nAuthorization: Bearer mine\r\nauthorization: twice\r\nX-Other: PLACEHOLDER-1\r\n"
                    "Connection: authorization, close\r\nAccept-Encoding: gzip\r\n\r\n", out, sizeof out);
    if (n <= 0)
        printf("# %s\n", out);
    CHECK(n > 0 && strstr(out, "200 OK"));
    /* the site echoes what it got: our value went in (as stars it comes back), the guest's did not, nothing leaks */
    CHECK(strstr(out, "authorization: Bearer ***********************\r\n"));
    CHECK(!strstr(out, SECRET) && !strstr(out, "mine") && !strstr(out, "twice") && !strstr(out, "PLACEHOLDER") && !strstr(out, "another-secret"));
    CHECK(strstr(out, "X-Other: **************") && strstr(out, "Accept-Encoding: identity"));
    /* chunked and endless answers are cleaned too */
    n = tls_get(ip, 443, box_pem, "api.example.org", "GET /chunked HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "Bearer *****") && !strstr(out, SECRET));
    n = tls_get(ip, 443, box_pem, "api.example.org", "GET /eof HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "Bearer *****") && !strstr(out, SECRET));
    /* a request with a body, both framings */
    n = tls_get(ip, 443, box_pem, "api.example.org", "POST /close HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", out, sizeof out);
    CHECK(n > 0 && strstr(out, "hello") && strstr(out, "Content-Length: 5"));
    n = tls_get(ip, 443, box_pem, "api.example.org", "POST /close HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "5\r\nhello\r\n0"));
    /* Host that is not the name of the certificate; TRACE */
    n = tls_get(ip, 443, box_pem, "api.example.org", "GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "403") && strstr(out, "not the TLS server name"));
    n = tls_get(ip, 443, box_pem, "api.example.org", "TRACE / HTTP/1.1\r\nHost: api.example.org\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "403"));
    return 0;
}
TEST(gate, secrets_are_put_in_for_their_host_and_hidden_on_the_way_back)
{
    world_open(inject_policy);
    pems();
    set_secret("key", SECRET, 0), set_secret("key2", "another-secret", 0);
    CHECK_INT(inside(go_inject, NULL), 0);
    const struct seen *s = find(GATE_K_HTTP, "api.example.org");
    CHECK(s && s->secret[0]);
    world_close();
}

#define API(request) \
    tls_get("198.51.100.11", 443, box_pem, "api.example.org", request, out, sizeof out)
#define API_HOST "Host: api.example.org\r\nConnection: close\r\n"

static int go_pieces(void *arg)
{
    (void)arg;
    /* ways to ask for a part of an answer, or for it packed, do not get out; what else is asked does */
    CHECK(
        API("GET /close HTTP/1.1\r\n" API_HOST
            "Range: bytes=0-3\r\nrange: bytes=4-7\r\nIf-Range: \"x\"\r\nRequest-Range: bytes=0-3\r\nX_Ms_Range: bytes=0-3\r\n"
            "A-IM: vcdiff, range\r\nAccept-Encoding: br\r\nX-Kept: yes\r\n\r\n") > 0);
    CHECK(strstr(out, "200 OK") && strstr(out, "X-Kept: yes") && !strcasestr(out, "range") &&
          !strstr(out, "A-IM") && !strstr(out, ": br"));
    /* a server that answers so all the same is not listened to */
    static const struct {
        const char *path, *why;
    } no[] = {{"/part", "a part"}, {"/parts", "multipart"}, {"/packed", "compressed"}};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        char q[128];
        (void)snprintf(q, sizeof q, "GET %s HTTP/1.1\r\n" API_HOST "\r\n", no[i].path);
        CHECK(API(q) > 0 && strstr(out, " 403 ") && strstr(out, no[i].why) && !strstr(out, "s3cr"));
    }
    /* as the query spells it */
    CHECK(API("GET /close?k=PLACEHOLDER-1 HTTP/1.1\r\n" API_HOST "\r\n") > 0);
    CHECK(strstr(out, "200 OK") && !strstr(out, "slash/and+plus") &&
          !strstr(out, "slash%2Fand%2Bplus") && strstr(out, "?k=***"));
    return 0;
}
TEST(gate, a_hidden_secret_cannot_be_had_in_pieces)
{
    world_open(inject_policy);
    pems();
    set_secret("key", SECRET, 0), set_secret("key2", "slash/and+plus", 0);
    CHECK_INT(inside(go_pieces, NULL), 0);
    world_close();
}

static int go_later(void *arg)
{
    (void)arg;
    /* no secret goes out with this one; a server that kept it from another says it */
    CHECK(API("POST /close HTTP/1.1\r\n" API_HOST "Content-Length: 23\r\n\r\n" SECRET) > 0);
    CHECK(strstr(out, "200 OK") && !strstr(out, SECRET) && strstr(out, "***********************"));
    return 0;
}
TEST(gate, a_host_that_gets_a_secret_cannot_tell_it_in_another_answer)
{
    world_open(
        "{\"allow\":[\"api.example.org\"],\"inject\":[{\"domain\":\"api.example.org\",\"secret\":\"key\",\"header\":\"x-key\",\"paths\":[\"/v1/\"]}]}");
    pems();
    set_secret("key", SECRET, 0);
    CHECK_INT(inside(go_later, NULL), 0);
    world_close();
}

static int go_budget(void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        int n = tls_get("198.51.100.11", 443, box_pem, "api.example.org", "GET /close HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n", out, sizeof out);
        CHECK(n > 0);
        CHECK(strstr(out, i < 2 ? "200 OK" : "403"));
    }
    CHECK(strstr(out, "budget"));
    return 0;
}
static int go_no_secret(void *arg)
{
    (void)arg;
    int n = tls_get("198.51.100.11", 443, box_pem, "api.example.org", "GET /close HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "403") && strstr(out, "not set"));
    return 0;
}
TEST(gate, a_secret_has_a_budget_and_a_missing_one_sends_nothing)
{
    world_open("{\"allow\":[\"api.example.org\"],\"inject\":[{\"domain\":\"api.example.org\",\"secret\":\"key\",\"header\":\"x-key\"}]}");
    pems();
    CHECK_INT(inside(go_no_secret, NULL), 0);
    set_secret("key", SECRET, 2);
    CHECK_INT(inside(go_budget, NULL), 0);
    world_close();
}

/* ---- what may follow HTTP ------------------------------------------------------------------------------------------------- */

#define UPGRADE(to) API_HOST "Connection: Upgrade\r\nUpgrade: " to "\r\n\r\n"

static int go_no_upgrade(void *arg)
{
    (void)arg;
    CHECK(API("GET /v1/ws HTTP/1.1\r\n" UPGRADE("websocket")) > 0);
    CHECK(strstr(out, " 403 ") && strstr(out, "\\\"websocket\\\": true"));
    /* other protocols are not asked for at all, and what they need does not get out */
    CHECK(API("GET /v1/a HTTP/1.1\r\nHTTP2-Settings: AAMAAABk\r\n" UPGRADE("h2c")) > 0);
    CHECK(strstr(out, "200 OK") && !strcasestr(out, "upgrade") &&
          !strcasestr(out, "http2-settings"));
    CHECK(API("POST /v1/a HTTP/1.1\r\nContent-Length: 0\r\n" UPGRADE("websocket")) > 0);
    CHECK(strstr(out, "200 OK") && !strcasestr(out, "upgrade"));
    /* a method or path beside the one that was allowed */
    CHECK(
        API("GET /v1/a HTTP/1.1\r\n" API_HOST
            "X-HTTP-Method-Override: DELETE\r\nX_Original_URL: /admin\r\nX-Rewrite-Url: /admin\r\nX-Kept: yes\r\n\r\n") >
        0);
    CHECK(strstr(out, "200 OK") && strstr(out, "X-Kept: yes") && !strstr(out, "DELETE") &&
          !strstr(out, "/admin"));
    return 0;
}
TEST(gate, rules_about_requests_end_with_no_upgrade)
{
    world_open(
        "{\"allow\":[{\"domain\":\"api.example.org\",\"methods\":[\"GET\",\"POST\"],\"paths\":[\"/v1/\"]}]}");
    pems();
    CHECK_INT(inside(go_no_upgrade, NULL), 0);
    world_close();
}

static int go_upgrade(void *arg)
{
    const char *status = arg;
    CHECK(API("GET /ws-bye HTTP/1.1\r\n" UPGRADE("h2c, websocket")) > 0);
    CHECK(!strncmp(out + 8, status, 4));
    CHECK(API("GET /h2c HTTP/1.1\r\n" UPGRADE("websocket")) > 0);
    CHECK(!strncmp(out + 8, !strcmp(status, " 101") ? " 502" : status,
                   4)); /* not what was asked for */
    return 0;
}
TEST(gate, a_rule_can_allow_websockets)
{
    world_open(
        "{\"allow\":[{\"domain\":\"api.example.org\",\"methods\":[\"GET\"],\"websocket\":true}]}");
    pems();
    CHECK_INT(inside(go_upgrade, " 101"), 0);
    world_close();
}
static const char *with_secret(const char *more)
{
    static char policy[256];
    (void)snprintf(
        policy, sizeof policy,
        "{\"allow\":[\"api.example.org\"],\"inject\":[{\"domain\":\"api.example.org\",\"secret\":\"key\",\"header\":\"x-key\"%s}]}",
        more);
    return policy;
}
TEST(gate, no_secret_in_a_websocket_unless_its_rule_says_so)
{
    world_open(with_secret(""));
    pems();
    set_secret("key", SECRET, 0);
    CHECK_INT(inside(go_upgrade, " 403"), 0);
    world_close();
}
TEST(gate, a_secret_in_a_websocket_if_its_rule_says_so)
{
    world_open(with_secret(",\"websocket\":true"));
    pems();
    set_secret("key", SECRET, 0);
    CHECK_INT(inside(go_upgrade, " 101"), 0);
    world_close();
}

/* ---- requests by method and path ------------------------------------------------------------------------------------------ */

static int go_l7(void *arg)
{
    (void)arg;
    int n = tls_get("198.51.100.11", 443, box_pem, "api.example.org", "GET /v1/close HTTP/1.1\r\nHost: api.example.org\r\nConnection: close\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "200 OK"));
    n = tls_get("198.51.100.11", 443, box_pem, "api.example.org", "POST /v1/a HTTP/1.1\r\nHost: api.example.org\r\nContent-Length: 0\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "403"));
    n = tls_get("198.51.100.11", 443, box_pem, "api.example.org", "GET /v1/../admin HTTP/1.1\r\nHost: api.example.org\r\n\r\n", out, sizeof out);
    CHECK(n > 0 && strstr(out, "403"));
    return 0;
}
TEST(gate, rules_about_requests_hold_inside_tls)
{
    world_open("{\"allow\":[{\"domain\":\"api.example.org\",\"methods\":[\"GET\"],\"paths\":[\"/v1/\"]}]}");
    pems();
    CHECK_INT(inside(go_l7, NULL), 0);
    const struct seen *s = find(GATE_K_DENY, "api.example.org");
    CHECK(s);
    CHECK_STR(s->method, "GET");
    CHECK_STR(s->path, "/v1/../admin");
    world_close();
}

/* ---- the proxy port --------------------------------------------------------------------------------------------------------- */

static int through_proxy(const char *request, const char *then, char *to, size_t cap)
{
    int fd = dial("127.0.0.1", 3128);
    CHECK(fd >= 0 && fd_write_all(fd, request, strlen(request)));
    if (then) {
        size_t have = 0;
        while (!strstr(to, "\r\n\r\n") || !have) {
            ssize_t n = read(fd, to + have, 1);
            if (n <= 0)
                break;
            have += (size_t)n;
            to[have] = 0;
        }
        if (!strncmp(to, "HTTP/1.1 200", 12)) {
            CHECK(fd_write_all(fd, then, strlen(then)));
            ssize_t n = slurp(fd, to, cap);
            close(fd);
            return (int)n;
        }
    }
    size_t at = then ? strlen(to) : 0;
    ssize_t n = slurp(fd, to + at, cap - at);
    close(fd);
    return (int)n;
}
static int go_proxy(void *arg)
{
    (void)arg;
    CHECK(through_proxy("GET http://web.example.org/p HTTP/1.1\r\nHost: web.example.org\r\nConnection: close\r\n\r\n", NULL, out, sizeof out) > 0);
    CHECK(strstr(out, "200 OK") && strstr(out, "GET /p HTTP/1.1"));
    CHECK(through_proxy("GET http://evil.example.net/ HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", NULL, out, sizeof out) > 0);
    CHECK(strstr(out, "403"));
    CHECK(through_proxy("GET / HTTP/1.1\r\nHost: web.example.org\r\n\r\n", NULL, out, sizeof out) > 0);
    CHECK(strstr(out, "this is a proxy"));
    static const char *const bad[] = {"evil.example.net:443", "web.example.org:25", "198.51.100.14:80" /* not an address of the Host below */, "127.0.0.1:80", "169.254.169.254:80", "[::1]:80", "2130706433:80", "0x7f.1:80", "localhost:80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char req[200];
        snprintf(req, sizeof req, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", bad[i], bad[i]);
        out[0] = 0;
        (void)through_proxy(req, "GET / HTTP/1.1\r\nHost: web.example.org\r\nConnection: close\r\n\r\n", out, sizeof out);
        if (!strstr(out, "403") && !strstr(out, "400"))
            printf("# %s: %s\n", bad[i], out);
        CHECK(strstr(out, "403") || strstr(out, "400"));
        CHECK(!strstr(out, "200 OK"));
    }
    out[0] = 0;
    CHECK(through_proxy("CONNECT web.example.org:80 HTTP/1.1\r\nHost: web.example.org:80\r\n\r\n", "GET /t HTTP/1.1\r\nHost: web.example.org\r\nConnection: close\r\n\r\n", out, sizeof out) > 0);
    CHECK(strstr(out, "GET /t HTTP/1.1"));
    out[0] = 0; /* another host inside the tunnel */
    CHECK(through_proxy("CONNECT web.example.org:80 HTTP/1.1\r\nHost: web.example.org:80\r\n\r\n", "GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", out, sizeof out) > 0);
    CHECK(strstr(out, "403"));
    return 0;
}
TEST(gate, the_proxy_port_obeys_the_same_policy)
{
    world_open("{\"allow\":[\"web.example.org\"]}");
    CHECK_INT(inside(go_proxy, NULL), 0);
    CHECK(find(GATE_K_DENY, "evil.example.net"));
    world_close();
}

/* ---- changes, limits, restarts ------------------------------------------------------------------------------------------------ */

static int go_hold(void *arg)
{
    int *p = arg, a = dial("198.51.100.12", 7), b = dial("198.51.100.13", 22);
    char x[32];
    CHECK(a >= 0 && b >= 0 && fd_write_all(a, "hi", 2) && fd_read_all(a, x, 2) == 2 && fd_read_all(b, x, 14) == 14);
    CHECK(write(p[1], "x", 1) == 1); /* both are up: change the policy */
    ssize_t n = read(a, x, 1);
    CHECK(n < 0 && errno == ECONNRESET); /* cut */
    CHECK(fd_write_all(b, "yo", 2) && fd_read_all(b, x, 2) == 2); /* still allowed */
    return 0;
}
static pid_t hold_pid;
static void hold(int pipefd[2])
{
    char x;
    CHECK(!pipe2(pipefd, O_CLOEXEC));
    hold_pid = fork();
    if (!hold_pid) {
        alarm(30);
        enter(W.box_ns);
        _exit(go_hold(pipefd));
    }
    fcntl(pipefd[0], F_SETFL, O_NONBLOCK);
    int64_t end = clock_mono() + 20 * NS_PER_S;
    while (read(pipefd[0], &x, 1) != 1) {
        CHECK(clock_mono() < end);
        loop_turn(W.loop, false);
        usleep(500);
    }
}
TEST(gate, a_live_update_cuts_what_is_denied_now_and_nothing_else)
{
    int p[2], st;
    world_open("{\"mode\":\"open\"}");
    hold(p);
    CHECK(!box_add("{\"mode\":\"open\"}", NULL, false)); /* the same again cuts nothing */
    CHECK_INT(W.cut, 0);
    struct gate_box b = {.box = BOX, .policy = S("{\"allow\":[\"198.51.100.13:22\"]}")};
    gate_policy(W.client, &b, on_done, NULL);
    done();
    CHECK_INT(W.err.code, 0);
    CHECK_INT(W.cut, 1);
    CHECK(waitpid(hold_pid, &st, 0) == hold_pid && !st);
    const struct seen *s = find(GATE_K_CUT, NULL);
    CHECK(s && s->port == 7);
    world_close();
}

static int go_after(void *arg)
{
    (void)arg;
    CHECK(http_get("198.51.100.10", 80, "GET / HTTP/1.1\r\nHost: web.example.org\r\nConnection: close\r\n\r\n", out, sizeof out) > 0);
    CHECK(strstr(out, "200 OK")); /* known only from before the restart: looked up again */
    return 0;
}
TEST(gate, a_killed_gate_comes_back_with_its_boxes_and_its_log)
{
    world_open("{\"allow\":[\"web.example.org\"]}");
    CHECK_INT(inside(go_after, NULL), 0);
    uint64_t seq = W.seen[W.nseen - 1].seq;
    egress_stop(SIGKILL);
    while (W.up)
        loop_turn(W.loop, false);
    CHECK(box_add("{}", NULL, true) && W.err.code == E_UNAVAILABLE);
    egress_start();
    until(&W.up);
    CHECK_INT(W.ups, 2);
    CHECK(!box_add("{\"allow\":[\"web.example.org\"]}", NULL, true));
    CHECK_INT(inside(go_after, NULL), 0);
    CHECK(W.seen[W.nseen - 1].seq > seq);
    char path[128];
    snprintf(path, sizeof path, "%s/log", W.dir);
    int d = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint64_t lines;
    struct err e;
    CHECK(!egress_log_verify(d, SBX, NULL, &lines, &e) && lines == W.seen[W.nseen - 1].seq);
    close(d);
    world_close();
}

static int go_limits(void *arg)
{
    (void)arg;
    int a = dial("198.51.100.12", 7), b = dial("198.51.100.12", 7);
    char x[65536];
    CHECK(a >= 0 && fd_write_all(a, "hi", 2) && fd_read_all(a, x, 2) == 2);
    CHECK(b >= 0 && fd_write_all(b, "hi", 2) && fd_read_all(b, x, 2) == 2);
    int c = dial("198.51.100.12", 7); /* the third of two */
    CHECK(c < 0 || read(c, x, 1) < 0);
    close(b);
    int64_t t = clock_mono();
    size_t got = 0;
    memset(x, 'x', sizeof x);
    for (int i = 0; i < 4; i++) {
        CHECK(fd_write_all(a, x, sizeof x));
        CHECK(fd_read_all(a, x, sizeof x) == (ssize_t)sizeof x);
        got += sizeof x;
    }
    CHECK_INT(got, 4 * sizeof x);
    CHECK(clock_mono() - t > NS_PER_S / 2); /* 512 KiB at 400,000 a second with a burst of 100,000 */
    return 0;
}
TEST(gate, connections_and_bandwidth_are_limited)
{
    world_open("{\"mode\":\"open\",\"limits\":{\"connections\":2,\"bytes_per_second\":400000}}");
    CHECK_INT(inside(go_limits, NULL), 0);
    const struct seen *s = find(GATE_K_DENY, NULL);
    CHECK(s);
    CHECK_STR(s->rule, "limit");
    world_close();
}

static int go_ceiling(void *arg)
{
    (void)arg;
    CHECK_INT(ask_dns("1.1.1.1", "web.example.org", DNS_A, NULL), 1);
    CHECK_INT(ask_dns("1.1.1.1", "api.example.org", DNS_A, NULL), -DNS_NXDOMAIN);
    CHECK(http_get("198.51.100.10", 80, "GET / HTTP/1.1\r\nHost: web.example.org\r\nConnection: close\r\n\r\n", out, sizeof out) > 0 && strstr(out, "200 OK"));
    CHECK(http_get("198.51.100.10", 80, "GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n", out, sizeof out) > 0);
    CHECK(strstr(out, "403") && strstr(out, "operator's limit for host"));
    return 0;
}
TEST(gate, a_ceiling_wins_and_says_so)
{
    world_open(NULL);
    CHECK(!box_add("{\"mode\":\"open\"}", "{\"allow\":[\"web.example.org\"]}", true));
    CHECK_INT(inside(go_ceiling, NULL), 0);
    CHECK(box_add("{\"mode\":\"sideways\"}", NULL, false) && W.err.code == E_INVALID && strstr(W.err.msg, "mode"));
    CHECK_INT(inside(go_ceiling, NULL), 0); /* a refused change changes nothing */
    world_close();
}

static int go_named_tcp(void *arg)
{
    (void)arg;
    char ip[IP_TEXT], x[32];
    int fd = dial("198.51.100.13", 22); /* not resolved yet: no name, no way */
    struct timeval soon = {0, 300000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    CHECK(fd < 0 || read(fd, x, 1) <= 0);
    close(fd);
    CHECK_INT(ask_dns("1.1.1.1", "git.example.org", DNS_A, ip), 1);
    fd = dial(ip, 22);
    CHECK(fd >= 0 && fd_read_all(fd, x, 14) == 14);
    close(fd);
    /* WebSocket: an upgrade goes through as bytes */
    CHECK_INT(ask_dns("1.1.1.1", "web.example.org", DNS_A, ip), 1);
    fd = dial(ip, 80);
    const char *q = "GET /ws HTTP/1.1\r\nHost: web.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    CHECK(fd_write_all(fd, q, strlen(q)));
    size_t have = 0;
    while (have < sizeof out && !(have > 4 && memmem(out, have, "\r\n\r\n", 4))) {
        ssize_t n = read(fd, out + have, 1);
        CHECK(n == 1);
        have++;
    }
    CHECK(!strncmp(out, "HTTP/1.1 101", 12) && fd_write_all(fd, "frame", 5) && fd_read_all(fd, x, 5) == 5 && !memcmp(x, "frame", 5));
    close(fd);
    /* a server that is not there */
    CHECK_INT(ask_dns("1.1.1.1", "down.example.org", DNS_A, ip), 1);
    CHECK(http_get(ip, 80, "GET / HTTP/1.1\r\nHost: down.example.org\r\n\r\n", out, sizeof out) > 0);
    CHECK(strstr(out, "502") && strstr(out, "upstream_failed"));
    return 0;
}
TEST(gate, tcp_by_name_upgrades_and_absent_servers)
{
    world_open("{\"allow\":[{\"domain\":\"git.example.org\",\"ports\":[22],\"protocol\":\"tcp\"},\"web.example.org\",\"down.example.org\"]}");
    enter(W.inet_ns);
    run("ip route add unreachable 198.51.100.99/32");
    enter(W.world_ns);
    run("ip route add unreachable 198.51.100.99/32");
    CHECK_INT(inside(go_named_tcp, NULL), 0);
    world_close();
}

static int go_many(void *arg)
{
    enum { N = 1000 };
    static int fd[N];
    (void)arg;
    char x[4];
    for (int i = 0; i < N; i++) {
        fd[i] = dial("198.51.100.12", 7);
        CHECK(fd[i] >= 0);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++)
            CHECK(fd_write_all(fd[i], "ping", 4));
        for (int i = 0; i < N; i++)
            CHECK(fd_read_all(fd[i], x, 4) == 4 && !memcmp(x, "ping", 4));
    }
    return 0;
}
TEST(gate, a_thousand_connections_at_once)
{
    world_open("{\"mode\":\"open\"}");
    CHECK_INT(inside(go_many, NULL), 0);
    world_close();
}
TEST_MAIN
