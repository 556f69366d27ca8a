/* store.jks is keytool's (a key, a certificate, password changeit); trusted.jks is it with gate.der put in, and keytool lists it.
 * The real thing, with the keytool of a template, is e2e/test_gate.py. */
#include "image/jks.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/sha1.h"
#include "test.h"
#include <fcntl.h>

#define WHEN 1700000000000u

static struct str load(const char *name)
{
    char path[128];
    size_t n = 0;
    snprintf(path, sizeof path, "tests/vectors/jks/%s", name);
    char *p = fd_slurp_at(AT_FDCWD, path, 65536, &n);
    if (!p)
        printf("# %s is missing\n", path);
    CHECK(p != NULL);
    return (struct str){p, n};
}
static void drop(struct str s) { free((char *)(uintptr_t)s.p); }

TEST(jks, as_keytool_reads_it)
{
    struct str store = load("store.jks"), want = load("trusted.jks"), der = load("gate.der");
    struct buf out = {0};
    struct err e;
    CHECK_INT(jks_trust(store, "hutch-gate", der, WHEN, &out, &e), 0);
    CHECK_INT(out.n, want.n);
    CHECK(out.n == want.n && !memcmp(out.p, want.p, out.n));
    buf_free(&out);
    drop(store), drop(want), drop(der);
}

TEST(jks, again_it_replaces_its_own_entry_and_no_other)
{
    struct str store = load("trusted.jks"), der = load("gate.der");
    struct buf out = {0};
    struct err e;
    CHECK_INT(jks_trust(store, "hutch-gate", der, WHEN, &out, &e), 0);
    CHECK(out.n == store.n && !memcmp(out.p, store.p, out.n));
    CHECK_INT(jks_trust(store, "another", der, WHEN, &out, &e), 0);
    CHECK_INT(get_be32((unsigned char *)out.p + 8), 4);
    CHECK_INT(jks_trust(store, "hutch-gate", (struct str){"x", 1}, WHEN, &out, &e), 0);
    CHECK_INT(out.n, store.n - der.n + 1);
    CHECK_INT(get_be32((unsigned char *)out.p + 8), 3);
    buf_free(&out);
    drop(store), drop(der);
}

/* The sum is made right again, so that it is the reader of entries that refuses. */
static void sum(struct buf *b)
{
    struct buf all = {0};
    unsigned char d[SHA1_BYTES];
    for (const char *c = "changeit"; *c; c++)
        buf_putc(&all, 0), buf_putc(&all, *c);
    buf_puts(&all, "Mighty Aphrodite");
    buf_put(&all, b->p, b->n);
    sha1(all.p, all.n, d);
    buf_put(b, d, sizeof d);
    buf_free(&all);
}

TEST(jks, damage_is_refused)
{
    struct str store = load("store.jks"), der = load("gate.der");
    struct buf out = {0}, b = {0};
    struct err e;
    for (size_t i = 0; i < store.n; i++) { /* a bit: the sum says so */
        b.n = 0;
        buf_put(&b, store.p, store.n);
        b.p[i] ^= 4;
        CHECK_INT(jks_trust((struct str){b.p, b.n}, "hutch-gate", der, WHEN, &out, &e), -1);
        CHECK_INT(e.code, E_INVALID);
    }
    for (size_t n = 0; n < store.n - SHA1_BYTES; n++) { /* a shorter one with the right sum */
        b.n = 0;
        buf_put(&b, store.p, n);
        sum(&b);
        CHECK_INT(jks_trust((struct str){b.p, b.n}, "hutch-gate", der, WHEN, &out, &e), -1);
    }
    b.n = 0;
    buf_put(&b, store.p, store.n - SHA1_BYTES);
    buf_putc(&b, 0);
    sum(&b);
    CHECK_INT(jks_trust((struct str){b.p, b.n}, "hutch-gate", der, WHEN, &out, &e), -1);
    CHECK_STR(e.msg, "Java key store: bytes after the last entry");
    b.n -= SHA1_BYTES + 1;
    memset(b.p + 8, 0xff, 4); /* four thousand million entries */
    sum(&b);
    CHECK_INT(jks_trust((struct str){b.p, b.n}, "hutch-gate", der, WHEN, &out, &e), -1);
    CHECK_INT(jks_trust(S(""), "hutch-gate", der, WHEN, &out, &e), -1);
    buf_free(&out), buf_free(&b);
    drop(store), drop(der);
}
TEST_MAIN
