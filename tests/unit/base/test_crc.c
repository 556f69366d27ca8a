#include "base/crc.h"
#include "base/enc.h"
#include "test.h"

TEST(crc, known_values)
{
    CHECK_INT(crc32c(0, "123456789", 9), 0xe3069283u); /* the check value of the CRC catalogue */
    CHECK_INT(crc32c(0, "", 0), 0);
    unsigned char zero[32] = {0};
    CHECK_INT(crc32c(0, zero, 32), 0x8a9136aau); /* RFC 3720, B.4 */
}

TEST(crc, same_with_and_without_the_instruction)
{
    unsigned char p[300];
    for (int round = 0; round < 50; round++) {
        random_bytes(p, sizeof p);
        size_t n = (size_t)(p[0] + 1), at = p[1] % 40;
        CHECK_INT(crc32c(7, p + at, n), crc32c_plain(7, p + at, n));
        CHECK_INT(crc32c(crc32c(0, p, at), p + at, n), crc32c(0, p, at + n));
    }
}
TEST_MAIN
