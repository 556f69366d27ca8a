#include "crypto/seal.h"
#include "test.h"

TEST(seal, opens_with_its_key_and_name_only)
{
    unsigned char key[SEAL_KEY] = {1, 2, 3}, other[SEAL_KEY] = {1, 2, 4};
    struct buf a = {0}, b = {0}, plain = {0};
    struct err e;
    seal(key, S("token"), S("swordfish"), &a);
    seal(key, S("token"), S("swordfish"), &b);
    CHECK(strcmp(a.p, b.p)); /* another nonce each time */
    CHECK(!strstr(a.p, "sword"));
    CHECK_INT(unseal(key, S("token"), (struct str){a.p, a.n}, &plain, &e), 0);
    CHECK_STR(plain.p, "swordfish");
    plain.n = 0;
    CHECK_INT(unseal(other, S("token"), (struct str){a.p, a.n}, &plain, &e), -1);
    CHECK_INT(e.code, E_DENIED);
    CHECK_INT(unseal(key, S("tokem"), (struct str){a.p, a.n}, &plain, &e), -1);
    a.p[a.n / 2] = a.p[a.n / 2] == 'A' ? 'B' : 'A';
    CHECK_INT(unseal(key, S("token"), (struct str){a.p, a.n}, &plain, &e), -1);
    CHECK_INT(unseal(key, S("token"), S("AAAA"), &plain, &e), -1);
    CHECK_INT(plain.n, 0);
    buf_free(&a), buf_free(&b), buf_free(&plain);
}

TEST(seal, empty_value)
{
    unsigned char key[SEAL_KEY] = {9};
    struct buf a = {0}, plain = {0};
    struct err e;
    seal(key, S("x"), S(""), &a);
    CHECK_INT(unseal(key, S("x"), (struct str){a.p, a.n}, &plain, &e), 0);
    CHECK_INT(plain.n, 0);
    buf_free(&a), buf_free(&plain);
}
TEST_MAIN
