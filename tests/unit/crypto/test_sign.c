#include "base/enc.h"
#include "crypto/sign.h"
#include "test.h"

/* RFC 8032, 7.1, test 2 */
TEST(sign, as_the_standard_has_it)
{
    unsigned char secret[32], public[32], want[64], sig[64];
    CHECK(hex_decode("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", 64, secret));
    CHECK(hex_decode("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00", 128, want));
    char hex[65];
    sign_public(secret, public);
    hex_encode(public, 32, hex);
    CHECK_STR(hex, "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    sign_make(secret, "\x72", 1, sig);
    CHECK(!memcmp(sig, want, 64));
    CHECK(sign_check(public, "\x72", 1, sig));
    CHECK(!sign_check(public, "\x73", 1, sig));
    sig[0] ^= 1;
    CHECK(!sign_check(public, "\x72", 1, sig));
    memset(public, 0xff, sizeof public); /* no point of the curve */
    CHECK(!sign_check(public, "\x72", 1, want));
}

TEST_MAIN
