/* Known answers (FIPS 180-4, RFC 4231) and the shape of tokens. */
#include "crypto/digest.h"
#include "base/enc.h"
#include "test.h"
#include <pthread.h>

TEST(sha256, known_answers)
{
    char h[SHA256_HEX];
    sha256_hex("", 0, h);
    CHECK_STR(h, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256_hex("abc", 3, h);
    CHECK_STR(h, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    sha256_hex(NULL, 0, h);
    CHECK_STR(h, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(sha256, pieces_equal_whole)
{
    char data[1000], a[SHA256_HEX], b[SHA256_HEX];
    random_bytes(data, sizeof data);
    sha256_hex(data, sizeof data, a);
    for (size_t step = 1; step < 200; step += 37) {
        struct sha256 *h = sha256_new();
        for (size_t i = 0; i < sizeof data; i += step)
            sha256_add(h, data + i, i + step < sizeof data ? step : sizeof data - i);
        sha256_end_hex(h, b);
        CHECK_STR(a, b);
    }
    struct sha256 *h = sha256_new();
    sha256_add(h, data, 3);
    sha256_free(h);
    sha256_free(NULL);
}

TEST(hmac, known_answers)
{
    unsigned char d[SHA256_BYTES], key[131];
    char h[SHA256_HEX];
    hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, d);
    hex_encode(d, sizeof d, h);
    CHECK_STR(h, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    const char *msg = "Test Using Larger Than Block-Size Key - Hash Key First";
    hmac_sha256(key, sizeof key, msg, strlen(msg), d);
    hex_encode(d, sizeof d, h);
    CHECK_STR(h, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    hmac_sha256(NULL, 0, NULL, 0, d);
    hex_encode(d, sizeof d, h);
    CHECK_STR(h, "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(compare, every_byte_counts)
{
    char a[33] = "0123456789abcdef0123456789abcdef", b[33];
    memcpy(b, a, sizeof b);
    CHECK(mem_eq_ct(a, b, 32));
    for (int i = 0; i < 32; i++) {
        b[i] ^= 1;
        CHECK(!mem_eq_ct(a, b, 32));
        b[i] ^= 1;
    }
    CHECK(mem_eq_ct(a, b, 0));
}

TEST(token, shape_and_freshness)
{
    char a[64], b[64];
    token_make("e2b_", 20, a);
    token_make("e2b_", 20, b);
    CHECK_INT(strlen(a), 44);
    CHECK(!strncmp(a, "e2b_", 4));
    CHECK_INT(strspn(a + 4, "0123456789abcdef"), 40);
    CHECK(strcmp(a, b));
}

static void *hash_many(void *arg)
{
    char h[SHA256_HEX];
    for (int i = 0; i < 2000; i++)
        sha256_hex("abc", 3, h);
    memcpy(arg, h, sizeof h);
    return NULL;
}

TEST(sha256, threads)
{
    pthread_t t[4];
    char out[4][SHA256_HEX];
    for (int i = 0; i < 4; i++)
        CHECK(!pthread_create(&t[i], NULL, hash_many, out[i]));
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        CHECK_STR(out[i], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
TEST_MAIN
