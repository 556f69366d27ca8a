#include "crypto/x509.h"
#include "test.h"

static struct str of(const struct buf *b) { return (struct str){b->p, b->n}; }

TEST(x509, makes_a_ca_that_checks_out)
{
    struct err e = {0};
    struct buf cert = {0}, key = {0}, cert2 = {0}, key2 = {0};
    CHECK(!x509_ca_make("hutch sandbox iaaa", 30, &cert, &key, &e));
    CHECK(!strncmp(cert.p, "-----BEGIN CERTIFICATE-----", 27));
    CHECK(!x509_ca_check(of(&cert), of(&key), &e));
    CHECK(!x509_ca_make("another", 30, &cert2, &key2, &e));
    CHECK(x509_ca_check(of(&cert), of(&key2), &e) && strstr(e.msg, "belong together"));
    CHECK(x509_ca_check(of(&key), of(&key), &e) && strstr(e.msg, "not PEM"));
    CHECK(x509_ca_check((struct str){"", 0}, (struct str){"", 0}, &e));
    buf_free(&cert), buf_free(&key), buf_free(&cert2), buf_free(&key2);
}
TEST_MAIN
