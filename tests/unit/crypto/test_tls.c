#include "base/fd.h"
#include "crypto/tls.h"
#include "crypto/x509.h"
#include "test.h"
#include <fcntl.h>

static struct buf cert, key;
static char bundle[64];

static void make_ca(void)
{
    struct err e;
    CHECK(!x509_ca_make("test authority", 10, &cert, &key, &e));
    strcpy(bundle, "/tmp/hutch-tls-XXXXXX");
    int fd = mkstemp(bundle);
    CHECK(fd >= 0 && fd_write_all(fd, cert.p, cert.n));
    close(fd);
}
static struct tls_ca *ca(void)
{
    struct err e = {0};
    struct tls_ca *c = tls_ca_new((struct str){cert.p, cert.n}, (struct str){key.p, key.n}, &e);
    CHECK(c);
    return c;
}
static struct tls_trust *trust(void)
{
    struct err e = {0};
    struct tls_trust *t = tls_trust_new((const char *const[]){bundle}, 1, &e);
    CHECK(t);
    return t;
}
/* Bytes both ways until nothing moves. */
static void pump(struct tls *a, struct tls *b, size_t piece)
{
    char plain[1];
    for (bool moved = true; moved;) {
        moved = false;
        struct { struct tls *from, *to; } way[2] = {{a, b}, {b, a}};
        for (int i = 0; i < 2; i++) {
            struct buf w = {0};
            (void)tls_read(way[i].from, plain, 0);
            if (tls_take(way[i].from, &w))
                moved = true;
            for (size_t at = 0; at < w.n; at += piece)
                tls_feed(way[i].to, w.p + at, w.n - at < piece ? w.n - at : piece);
            buf_free(&w);
        }
    }
}

TEST(tls, intercepts_with_a_certificate_that_verifies)
{
    struct err e = {0};
    make_ca();
    struct tls_ca *c = ca();
    struct tls_trust *t = trust();
    for (size_t piece = 1; piece < 3000; piece = piece * 7 + 1) {
        struct tls *srv = tls_server_new(c, "api.example.org", &e), *cli = tls_client_new(t, "api.example.org", &e);
        CHECK(srv && cli);
        pump(cli, srv, piece);
        CHECK(tls_ready(srv) && tls_ready(cli) && !tls_error(cli));
        CHECK(tls_write(cli, "hello", 5));
        pump(cli, srv, piece);
        char got[16];
        CHECK_INT(tls_read(srv, got, sizeof got), 5);
        CHECK(!memcmp(got, "hello", 5) && tls_read(srv, got, sizeof got) == 0);
        tls_finish(cli);
        pump(cli, srv, piece);
        CHECK(tls_read(srv, got, sizeof got) == -1 && tls_clean(srv) && !tls_error(srv));
        tls_free(srv), tls_free(cli);
    }
    tls_ca_free(c), tls_trust_free(t);
    unlink(bundle);
}

static const char *refused(struct tls_ca *c, struct tls_trust *t, const char *as, const char *want)
{
    static char why[200];
    struct err e;
    struct tls *srv = tls_server_new(c, as, &e), *cli = tls_client_new(t, want, &e);
    char x[8];
    pump(cli, srv, 4096);
    CHECK(tls_read(cli, x, sizeof x) == -1 && tls_error(cli) && !tls_clean(cli));
    snprintf(why, sizeof why, "%s", tls_error(cli));
    tls_free(srv), tls_free(cli);
    return why;
}
TEST(tls, wrong_names_and_unknown_authorities_are_refused)
{
    make_ca();
    struct tls_ca *first = ca();
    struct tls_trust *t = trust();
    CHECK(strstr(refused(first, t, "evil.example.org", "api.example.org"), "ostname"));
    buf_free(&cert), buf_free(&key);
    unlink(bundle);
    make_ca();
    struct tls_ca *other = ca();
    CHECK(strstr(refused(other, t, "api.example.org", "api.example.org"), "certificate"));
    tls_ca_free(first), tls_ca_free(other), tls_trust_free(t);
    unlink(bundle);
}

TEST(tls, a_cut_connection_is_not_a_clean_end)
{
    struct err e;
    make_ca();
    struct tls_ca *c = ca();
    struct tls_trust *t = trust();
    struct tls *srv = tls_server_new(c, "a.example", &e), *cli = tls_client_new(t, "a.example", &e);
    char x[8];
    pump(cli, srv, 4096);
    tls_feed_end(cli);
    CHECK(tls_read(cli, x, sizeof x) == -1 && !tls_clean(cli) && tls_error(cli));
    tls_feed(srv, "GET / HTTP/1.1\r\n\r\n", 18);
    CHECK(tls_read(srv, x, sizeof x) == -1 && tls_error(srv));
    tls_free(srv), tls_free(cli);
    tls_ca_free(c), tls_trust_free(t);
    unlink(bundle);
}

TEST(tls, many_names_do_not_grow_without_end)
{
    struct err e;
    make_ca();
    struct tls_ca *c = ca();
    for (int i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof name, "h%d.example", i);
        struct tls *srv = tls_server_new(c, name, &e);
        CHECK(srv);
        tls_free(srv);
    }
    tls_ca_free(c);
    CHECK(!tls_ca_new(S("x"), S("y"), &e) && e.code == E_INVALID);
    unlink(bundle);
}
TEST_MAIN
