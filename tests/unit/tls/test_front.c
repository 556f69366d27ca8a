/* The HTTP server behind a TLS front, with OpenSSL itself as the client. */
#include "../http/handlers.h"
#include "crypto/x509.h"
#include "http/client.h"
#include "tls/dial.h"
#include "tls/files.h"
#include "tls/front.h"
#include "tls/transport.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- the world ---- */
static char dir[64], ca_file[96], cert_file[96], key_file[96];
static struct buf ca_cert, ca_key;

static void put(const char *path, const struct buf *b)
{
    char tmp[128];
    snprintf(tmp, sizeof tmp, "%s.new", path);
    FILE *f = fopen(tmp, "w");
    CHECK(f && fwrite(b->p, 1, b->n, f) == b->n && !fclose(f) && !rename(tmp, path));
}
static void make_pair(const char *cert_path, const char *key_path, const char *name, int days)
{
    struct err e;
    struct buf c = {0}, k = {0};
    const char *names[] = {name, "127.0.0.1", "*.hutch.test"};
    CHECK(!x509_server_make((struct str){ca_cert.p, ca_cert.n}, (struct str){ca_key.p, ca_key.n},
                            names, 3, days, &c, &k, &e));
    put(key_path, &k), put(cert_path, &c);
    buf_free(&c), buf_free(&k);
}
static void make_files(void)
{
    struct err e;
    strcpy(dir, "/tmp/hutch-front-XXXXXX");
    CHECK(mkdtemp(dir));
    snprintf(ca_file, sizeof ca_file, "%s/ca.pem", dir);
    snprintf(cert_file, sizeof cert_file, "%s/cert.pem", dir);
    snprintf(key_file, sizeof key_file, "%s/key.pem", dir);
    CHECK(!x509_ca_make("test authority", 30, &ca_cert, &ca_key, &e));
    put(ca_file, &ca_cert);
    make_pair(cert_file, key_file, "hutch.test", 30);
}
static void drop_files(void)
{
    unlink(ca_file), unlink(cert_file), unlink(key_file), rmdir(dir);
    buf_free(&ca_cert), buf_free(&ca_key);
}

struct world {
    struct harness h;
    struct jobs *jobs;
    struct tls_files *files;
    struct tls_front *front;
};
static void greeted(void *arg, struct transport *t)
{
    http_adopt_over(((struct world *)arg)->h.srv, t);
}
static void *world_main(void *arg)
{
    struct world *w = arg;
    loop_run(w->h.loop);
    tls_front_free(w->front);
    http_server_free(w->h.srv);
    jobs_free(w->jobs);
    tls_files_free(w->files);
    loop_free(w->h.loop);
    return NULL;
}
static void world_start(struct world *w, struct http_config *extra, int64_t patience_ns)
{
    struct err e;
    struct http_config cfg = extra ? *extra : (struct http_config){0};
    cfg.handler = handler;
    signal(SIGPIPE, SIG_IGN);
    if (!*dir)
        make_files();
    router = router_new(routes, sizeof routes / sizeof *routes);
    w->h.loop = loop_new();
    w->jobs = jobs_new(w->h.loop, 2);
    w->files = tls_files_new(cert_file, key_file, &e);
    CHECK(w->files);
    tls_files_watch(w->files, w->h.loop);
    w->h.srv = http_server_new(w->h.loop, &cfg);
    w->front = tls_front_new(w->h.loop, w->jobs, w->files, greeted, w);
    if (patience_ns)
        tls_front_patience(w->front, patience_ns);
    int fd = sock_listen_tcp("127.0.0.1:0", &e);
    CHECK(fd >= 0 && !http_listen_front(w->h.srv, fd, tls_front_take, w->front));
    w->h.port = sock_port(fd);
    CHECK(!pthread_create(&w->h.thread, NULL, world_main, w));
}
static void world_stop(struct world *w)
{
    harness_stop(&w->h);
    router_free(router);
    drop_files();
}

/* ---- OpenSSL as the client ---- */
static SSL_CTX *client_ctx(int version)
{
    SSL_CTX *c = SSL_CTX_new(TLS_client_method());
    CHECK(c && SSL_CTX_load_verify_file(c, ca_file));
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_CLIENT);
    if (version)
        CHECK(SSL_CTX_set_min_proto_version(c, version) &&
              SSL_CTX_set_max_proto_version(c, version));
    return c;
}
static SSL *hello(SSL_CTX *c, int fd, SSL_SESSION *sess)
{
    SSL *s = SSL_new(c);
    CHECK(s && SSL_set1_host(s, "hutch.test") && SSL_set_tlsext_host_name(s, "hutch.test") &&
          SSL_set_fd(s, fd));
    if (sess)
        CHECK(SSL_set_session(s, sess));
    return s;
}
static SSL *dial(struct world *w, SSL_CTX *c, SSL_SESSION *sess)
{
    SSL *s = hello(c, harness_connect(&w->h), sess);
    if (SSL_connect(s) != 1) {
        ERR_print_errors_fp(stdout);
        CHECK(!"handshake");
    }
    return s;
}
static void bye(SSL *s)
{
    int fd = SSL_get_fd(s);
    SSL_set_shutdown(s, SSL_SENT_SHUTDOWN |
                            SSL_RECEIVED_SHUTDOWN); /* or its session is forgotten here */
    SSL_free(s);
    close(fd);
}
static void say(SSL *s, const char *z)
{
    CHECK_INT(SSL_write(s, z, (int)strlen(z)), (int)strlen(z));
}
/* All until the end; what SSL_get_error said about it is returned. */
static int hear(SSL *s, struct buf *b)
{
    char t[16384];
    int n;
    while ((n = SSL_read(s, t, sizeof t)) > 0)
        buf_put(b, t, (size_t)n);
    buf_reserve(b, 0), b->p[b->n] = 0;
    int why = SSL_get_error(s, n);
    ERR_clear_error();
    return why;
}
static void ask(SSL *s, const char *path, bool keep, struct buf *b)
{
    char q[200];
    snprintf(q, sizeof q, "GET %s HTTP/1.1\r\nHost: hutch.test\r\n%s\r\n", path,
             keep ? "" : "Connection: close\r\n");
    say(s, q);
    if (!keep) {
        CHECK_INT(hear(s, b), SSL_ERROR_ZERO_RETURN);
        return;
    }
    char t[4096];
    int n = SSL_read(s, t, sizeof t);
    CHECK(n > 0);
    buf_put(b, t, (size_t)n);
}

/* ---- exchanges ---- */
static void gets(int version)
{
    struct world w;
    auto_buf b = {0};
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(version);
    SSL *s = dial(&w, c, NULL);
    ask(s, "/hello", true, &b);
    HAS(b.p, "{\"ok\":true}");
    b.n = 0;
    ask(s, "/chunks", false, &b); /* ends with a notice, or ask fails */
    HAS(b.p, "world");
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}
TEST(front, serves_tls_1_3) { gets(TLS1_3_VERSION); }
TEST(front, serves_tls_1_2) { gets(TLS1_2_VERSION); }

TEST(front, refuses_what_is_older)
{
    struct world w;
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(0);
    SSL_CTX_set_security_level(c, 0); /* or the client would refuse by itself */
    CHECK(SSL_CTX_set_min_proto_version(c, TLS1_1_VERSION) &&
          SSL_CTX_set_max_proto_version(c, TLS1_1_VERSION));
    SSL *s = hello(c, harness_connect(&w.h), NULL);
    CHECK(SSL_connect(s) != 1);
    CHECK_INT(ERR_GET_REASON(ERR_peek_error()),
              SSL_R_TLSV1_ALERT_PROTOCOL_VERSION); /* the server said so */
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, tells_plain_http_what_it_is)
{
    struct world w;
    world_start(&w, NULL, 0);
    char *r = exchange(&w.h, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    HAS(r, "HTTP/1.1 400 Bad Request\r\n");
    HAS(r, "this port speaks https");
    char *len = strstr(r, "Content-Length: "), *body = strstr(r, "\r\n\r\n");
    CHECK(len && body && (size_t)atoi(len + 16) == strlen(body + 4));
    free(r);
    /* what is neither gets an alert, and an end */
    int fd = harness_connect(&w.h);
    auto_buf b = {0};
    send_z(fd, "\x80hello, anybody there? this is no record of any protocol");
    recv_until(fd, &b, NULL);
    CHECK(!strstr(b.p, "HTTP"));
    close(fd);
    world_stop(&w);
}

static void resumes(int version)
{
    struct world w;
    auto_buf b = {0};
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(version);
    SSL *s = dial(&w, c, NULL);
    CHECK(!SSL_session_reused(s));
    ask(s, "/hello", true, &b); /* in 1.3 the session comes after the handshake */
    SSL_SESSION *sess = SSL_get1_session(s);
    bye(s);
    s = dial(&w, c, sess);
    CHECK(SSL_session_reused(s));
    b.n = 0;
    ask(s, "/hello", false, &b);
    HAS(b.p, "{\"ok\":true}");
    bye(s);
    SSL_SESSION_free(sess);
    SSL_CTX_free(c);
    world_stop(&w);
}
TEST(front, resumes_a_session_of_tls_1_3) { resumes(TLS1_3_VERSION); }
TEST(front, resumes_a_session_of_tls_1_2) { resumes(TLS1_2_VERSION); }

TEST(front, reads_a_request_that_came_with_the_end_of_the_handshake)
{
    struct world w;
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(TLS1_3_VERSION);
    int fd = harness_connect(&w.h), on = 1, off = 0;
    auto_buf b = {0};
    SSL *s = hello(c, fd, NULL);
    CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on)); /* both in one segment */
    CHECK_INT(SSL_connect(s), 1);
    say(s, "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    CHECK(!setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off));
    CHECK_INT(hear(s, &b), SSL_ERROR_ZERO_RETURN);
    HAS(b.p, "{\"ok\":true}");
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}

/* ---- much, slowly, half ---- */
TEST(front, downloads_with_back_pressure)
{
    struct world w;
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(0);
    SSL *s = dial(&w, c, NULL);
    char *t = malloc(1 << 20);
    uint64_t got = 0;
    int n;
    say(s, "GET /pump HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    usleep(300000); /* everything stands full */
    CHECK(peak_pending > 0 && peak_pending < (512 << 10));
    while ((n = SSL_read(s, t, 1 << 20)) > 0)
        got += (uint64_t)n;
    CHECK_INT(SSL_get_error(s, n), SSL_ERROR_ZERO_RETURN);
    CHECK(got > 100u << 20 && got < (100u << 20) + 1000);
    CHECK(peak_pending < (512 << 10));
    free(t);
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, a_reader_that_stops_is_cut_and_a_slow_one_is_not)
{
    struct world w;
    struct http_config cfg = {.write_ns = 600 * NS_PER_MS};
    world_start(&w, &cfg, 0);
    SSL_CTX *c = client_ctx(0);
    SSL *slow = dial(&w, c, NULL);
    char t[16384];
    say(slow, "GET /pump HTTP/1.1\r\nHost: a\r\n\r\n");
    for (
        int i = 0; i < 20;
        i++) { /* two seconds, a little at a time: the socket's buffers alone would hold it for longer than write_ns */
        usleep(100000);
        for (int k = 0; k < 24; k++)
            CHECK(SSL_read(slow, t, sizeof t) > 0);
    }
    CHECK_INT(cancelled, 0);
    CHECK(wait_for(&cancelled, 1)); /* now it has stopped */
    bye(slow);
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, uploads_with_back_pressure)
{
    struct world w;
    auto_buf b = {0};
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(0);
    SSL *s = dial(&w, c, NULL);
    char *t = calloc(1, 1 << 20);
    say(s,
        "PUT /sink HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 33554432\r\n\r\n");
    for (int i = 0; i < 32; i++)
        CHECK_INT(SSL_write(s, t, 1 << 20), 1 << 20);
    CHECK_INT(hear(s, &b), SSL_ERROR_ZERO_RETURN);
    HAS(b.p, "33554432 1");
    free(t);
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, tunnels_end_one_side_at_a_time)
{
    struct world w;
    auto_buf b = {0};
    char t[4096];
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(0);
    SSL *s = dial(&w, c, NULL);
    say(s, "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    int n = SSL_read(s, t, sizeof t - 1);
    CHECK(n > 0);
    t[n] = 0;
    HAS(t, "101 ");
    say(s, "ping");
    CHECK(SSL_read(s, t, sizeof t) == 4 && !memcmp(t, "ping", 4));
    CHECK_INT(SSL_shutdown(s), 0); /* our notice; the other side still speaks */
    CHECK_INT(hear(s, &b), SSL_ERROR_ZERO_RETURN);
    CHECK_STR(b.p, "bye");
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, an_aborted_answer_is_no_proper_end)
{
    struct world w;
    auto_buf b = {0};
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(0);
    SSL *s = dial(&w, c, NULL);
    say(s, "GET /abort HTTP/1.1\r\nHost: a\r\n\r\n");
    CHECK(hear(s, &b) != SSL_ERROR_ZERO_RETURN);
    HAS(b.p, "part");
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, sees_a_client_leave)
{
    struct world w;
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(0);
    for (int politely = 0; politely < 2; politely++) {
        SSL *s = dial(&w, c, NULL);
        say(s, "GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
        usleep(50000);
        CHECK_INT(cancelled, politely);
        if (politely)
            (void)SSL_shutdown(s);
        bye(s);
        CHECK(wait_for(&cancelled, politely + 1));
    }
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, sends_events_as_they_come)
{
    struct world w;
    char t[4096];
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(0);
    SSL *s = dial(&w, c, NULL);
    say(s, "GET /sse HTTP/1.1\r\nHost: a\r\n\r\n");
    auto_buf b = {0};
    while (!b.p || !strstr(b.p, "keepalive")) {
        int n = SSL_read(s, t, sizeof t);
        CHECK(n > 0);
        buf_put(&b, t, (size_t)n);
    }
    HAS(b.p, "event: tick\ndata: a\ndata: b\n\n");
    bye(s);
    CHECK(wait_for(&cancelled, 1));
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, follows_a_change_of_keys)
{
    struct world w;
    auto_buf b = {0};
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(TLS1_3_VERSION);
    SSL *s = dial(&w, c, NULL);
    ask(s, "/hello", true, &b);
    for (int i = 0; i < 3; i++) {
        CHECK(SSL_key_update(s, SSL_KEY_UPDATE_REQUESTED) == 1);
        b.n = 0;
        ask(s, "/hello", i < 2, &b);
        HAS(b.p, "{\"ok\":true}");
    }
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}

/* ---- many, silent, in the way ---- */
TEST(front, drops_who_says_nothing_and_serves_others_meanwhile)
{
    struct world w;
    auto_buf b = {0}, silent_b = {0}, half_b = {0};
    world_start(&w, NULL, 500 * NS_PER_MS);
    int silent = harness_connect(&w.h), half = harness_connect(&w.h);
    send_all(half, "\x16\x03\x01\x02\x00\x01", 6); /* the beginning of a hello */
    SSL_CTX *c = client_ctx(0);
    SSL *s = dial(&w, c, NULL);
    ask(s, "/hello", false, &b);
    HAS(b.p, "{\"ok\":true}");
    bye(s);
    recv_until(silent, &silent_b, NULL), recv_until(half, &half_b, NULL);
    CHECK(!silent_b.n && !half_b.n);
    close(silent), close(half);
    SSL_CTX_free(c);
    world_stop(&w);
}

TEST(front, the_oldest_silent_one_makes_room)
{
    struct world w;
    auto_buf b = {0};
    struct rlimit lim = {4096, 4096};
    if (setrlimit(RLIMIT_NOFILE, &lim))
        SKIP("no more than 1024 descriptors here");
    world_start(&w, NULL, 60 * NS_PER_S);
    int fd[FRONT_MAX + 8];
    for (int i = 0; i < FRONT_MAX + 8; i++)
        fd[i] = harness_connect(&w.h);
    SSL_CTX *c = client_ctx(0);
    SSL *s = dial(&w, c, NULL);
    ask(s, "/hello", false, &b);
    HAS(b.p, "{\"ok\":true}");
    CHECK(tls_front_busy(w.front) <= FRONT_MAX);
    char x;
    CHECK_INT(recv(fd[0], &x, 1, 0), 0);
    CHECK(recv(fd[FRONT_MAX + 7], &x, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    for (int i = 0; i < FRONT_MAX + 8; i++)
        close(fd[i]);
    bye(s);
    SSL_CTX_free(c);
    world_stop(&w);
}

static void *one_of_many(void *arg)
{
    struct world *w = arg;
    SSL_CTX *c = client_ctx(0);
    for (int i = 0; i < 5; i++) {
        auto_buf b = {0};
        SSL *s = dial(w, c, NULL);
        ask(s, "/chunks", false, &b);
        HAS(b.p, "hello ");
        bye(s);
    }
    SSL_CTX_free(c);
    return NULL;
}
TEST(front, serves_many_at_once)
{
    struct world w;
    pthread_t t[40];
    world_start(&w, NULL, 0);
    for (int i = 0; i < 40; i++)
        CHECK(!pthread_create(&t[i], NULL, one_of_many, &w));
    for (int i = 0; i < 40; i++)
        pthread_join(t[i], NULL);
    world_stop(&w);
}

TEST(front, stops_in_the_middle_of_handshakes)
{
    for (int round = 0; round < 10; round++) {
        struct world w;
        world_start(&w, NULL, 0);
        SSL_CTX *c = client_ctx(0);
        SSL *s[16];
        for (int i = 0; i < 16; i++) {
            int fd = harness_connect(&w.h);
            s[i] = hello(c, fd, NULL);
            CHECK(!fcntl(fd, F_SETFL, O_NONBLOCK));
            (void)SSL_connect(s[i]); /* the hello is on its way */
        }
        usleep((useconds_t)round * 300);
        world_stop(&w);
        *dir = 0;
        for (int i = 0; i < 16; i++)
            bye(s[i]);
        SSL_CTX_free(c);
    }
}

/* ---- files ---- */
static void look(void *arg) { tls_files_look(arg); }
static void now_look(struct world *w)
{
    loop_post(w->h.loop, look, w->files);
    usleep(50000);
}
static void served_name(struct world *w, SSL_CTX *c, char *out, size_t cap)
{
    SSL *s = dial(w, c, NULL);
    X509 *x = SSL_get1_peer_certificate(s);
    CHECK(x);
    X509_NAME_get_text_by_NID(X509_get_subject_name(x), NID_commonName, out, (int)cap);
    X509_free(x);
    bye(s);
}
TEST(files, are_read_again_when_they_change)
{
    struct world w;
    char name[80];
    auto_buf b = {0};
    world_start(&w, NULL, 0);
    SSL_CTX *c = client_ctx(0);
    SSL_CTX_set_verify(c, SSL_VERIFY_NONE, NULL);
    served_name(&w, c, name, sizeof name);
    CHECK_STR(name, "hutch.test");
    SSL *old = dial(&w, c, NULL);
    make_pair(cert_file, key_file, "second.test", 30);
    now_look(&w);
    served_name(&w, c, name, sizeof name);
    CHECK_STR(name, "second.test");
    ask(old, "/hello", false, &b); /* who was connected stays so */
    HAS(b.p, "{\"ok\":true}");
    bye(old);

    /* a bad pair: the key of another, then no PEM at all, then no file */
    char other[110];
    snprintf(other, sizeof other, "%s/other", dir);
    make_pair(cert_file, other, "third.test", 30);
    unlink(other);
    now_look(&w);
    served_name(&w, c, name, sizeof name);
    CHECK_STR(name, "second.test");
    struct buf junk = {0};
    buf_puts(&junk, "not a certificate\n");
    put(cert_file, &junk);
    now_look(&w);
    served_name(&w, c, name, sizeof name);
    CHECK_STR(name, "second.test");
    unlink(cert_file);
    now_look(&w);
    served_name(&w, c, name, sizeof name);
    CHECK_STR(name, "second.test");
    make_pair(cert_file, key_file, "fourth.test", 30);
    now_look(&w);
    served_name(&w, c, name, sizeof name);
    CHECK_STR(name, "fourth.test");
    buf_free(&junk);
    SSL_CTX_free(c);
    world_stop(&w);
}
TEST(files, say_what_is_wrong)
{
    struct err e;
    make_files();
    char nowhere[110];
    snprintf(nowhere, sizeof nowhere, "%s/none", dir);
    CHECK(!tls_files_new(nowhere, key_file, &e) && strstr(e.msg, "none: No such file"));
    CHECK(!tls_files_new(key_file, key_file, &e) && strstr(e.msg, "there is no PEM certificate"));
    CHECK(!tls_files_new(cert_file, cert_file, &e) && strstr(e.msg, "there is no PEM private key"));
    make_pair(nowhere, key_file, "x.test", 30); /* another key */
    CHECK(!tls_files_new(cert_file, key_file, &e) && strstr(e.msg, "do not belong together"));
    unlink(nowhere);
    drop_files();
}
TEST(files, know_when_they_end)
{
    struct x509_facts f;
    struct err e;
    make_files();
    CHECK(!tls_files_facts(cert_file, &f, &e));
    CHECK_STR(f.names, "hutch.test, 127.0.0.1, *.hutch.test");
    CHECK(tls_days_left(&f) == 29 || tls_days_left(&f) == 30);
    make_pair(cert_file, key_file, "old.test", -3);
    CHECK(!tls_files_facts(cert_file, &f, &e));
    CHECK(tls_days_left(&f) == -3 || tls_days_left(&f) == -4);
    drop_files();
}

/* ---- our own client ---- */
struct call {
    struct tls_trust *trust;
    const char *name;
    enum tls_fault fault;
    int resumed;
};
static struct transport *wrap(void *arg, int fd, const char *name, struct err *e)
{
    struct call *c = arg;
    struct transport *t = tls_dial(c->trust, fd, c->name ? c->name : name, 5000, &c->fault, e);
    c->resumed += t && tls_resumed(tls_of(t));
    return t;
}
static int call(struct world *w, struct call *c, struct buf *out, struct err *e)
{
    char addr[64];
    struct http_secure secure = {wrap, c};
    snprintf(addr, sizeof addr, "https://127.0.0.1:%d", w->h.port);
    struct http_client *h = http_client_open(addr, &secure, e);
    if (!h)
        return -1;
    http_client_timeout(h, 10 * NS_PER_S);
    int status = http_client_call(h, "GET", "/hello", NULL, NULL, 0, out, e);
    http_client_close(h);
    return status;
}
TEST(client, verifies_and_resumes)
{
    struct world w;
    struct err e;
    auto_buf b = {0};
    world_start(&w, NULL, 0);
    struct call c = {.trust = tls_trust_new((const char *const[]){ca_file}, 1, &e)};
    CHECK(c.trust);
    tls_trust_resume(c.trust);
    for (int i = 0; i < 5; i++) {
        b.n = 0;
        CHECK_INT(call(&w, &c, &b, &e), 200); /* by address */
        CHECK(b.n == 11);
    }
    CHECK_INT(c.resumed, 4);
    c.name = "a.hutch.test"; /* by wildcard; another name is another session */
    CHECK_INT(call(&w, &c, &b, &e), 200);
    CHECK_INT(c.resumed, 4);
    tls_trust_free(c.trust);
    world_stop(&w);
}
TEST(client, says_what_is_wrong_with_a_certificate)
{
    struct world w;
    struct err e;
    auto_buf b = {0}, other = {0}, other_key = {0};
    char other_ca[110];
    world_start(&w, NULL, 0);
    snprintf(other_ca, sizeof other_ca, "%s/other", dir);
    CHECK(!x509_ca_make("another", 30, &other, &other_key, &e));
    put(other_ca, &other);
    struct call c = {.trust = tls_trust_new((const char *const[]){other_ca}, 1, &e)};
    CHECK(call(&w, &c, &b, &e) == -1 && c.fault == TLS_UNTRUSTED);
    HAS(e.msg, "no secure connection to 127.0.0.1: certificate: ");
    tls_trust_free(c.trust);
    unlink(other_ca);

    c = (struct call){.trust = tls_trust_new((const char *const[]){ca_file}, 1, &e),
                      .name = "elsewhere.test"};
    CHECK(call(&w, &c, &b, &e) == -1 && c.fault == TLS_OTHER_NAME);
    HAS(e.msg, "it is for hutch.test, 127.0.0.1, *.hutch.test");
    c.name = "a.b.hutch.test"; /* a star is one label */
    CHECK(call(&w, &c, &b, &e) == -1 && c.fault == TLS_OTHER_NAME);

    make_pair(cert_file, key_file, "hutch.test", -3);
    now_look(&w);
    c.name = NULL;
    CHECK(call(&w, &c, &b, &e) == -1 && c.fault == TLS_EXPIRED);
    HAS(e.msg, "it is valid from ");
    tls_trust_free(c.trust);
    world_stop(&w);
}
TEST(client, notices_a_server_without_tls)
{
    struct harness h;
    struct err e;
    auto_buf b = {0};
    make_files();
    start(&h, NULL);
    struct world w = {.h = h};
    struct call c = {.trust = tls_trust_new((const char *const[]){ca_file}, 1, &e)};
    CHECK(call(&w, &c, &b, &e) == -1 && c.fault == TLS_FOREIGN);
    tls_trust_free(c.trust);
    stop(&h);
    drop_files();
}

/* A figure, not a promise: what a handshake costs, with the kinds of keys that certificates have. */
static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}
TEST(front, measures_signing)
{
    EVP_PKEY *keys[] = {EVP_EC_gen("P-256"), EVP_RSA_gen(2048), EVP_RSA_gen(4096)};
    static const char *const names[] = {"P-256", "RSA-2048", "RSA-4096"};
    for (int k = 0; k < 3; k++) {
        unsigned char sig[1024], what[64] = {0};
        double from = thread_s();
        for (int i = 0; i < 50; i++) {
            EVP_MD_CTX *m = EVP_MD_CTX_new();
            size_t n = sizeof sig;
            CHECK(EVP_DigestSignInit(m, NULL, EVP_sha256(), NULL, keys[k]) == 1 &&
                  EVP_DigestSign(m, sig, &n, what, sizeof what) == 1);
            EVP_MD_CTX_free(m);
        }
        printf("# %s: %.3f ms a signature\n", names[k], (thread_s() - from) / 50 * 1000);
        EVP_PKEY_free(keys[k]);
    }
}
TEST_MAIN
