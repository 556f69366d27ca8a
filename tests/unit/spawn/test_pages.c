/* The layout of saved memory. */
#include "base/crc.h"
#include "base/enc.h"
#include "spawn/pages.h"
#include "test.h"

static unsigned char index_file[PAGES_INDEX + 3 * 8];

static void make(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t page[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        pages_entry_put(index_file + PAGES_INDEX + i * 8, (struct page_entry){page[i], 100 + (uint32_t)i});
    pages_index_head(index_file, index_file + PAGES_INDEX, 3, 1000);
}

TEST(pages, stream_begins_as_qemu_expects)
{
    unsigned char h[PAGES_HEAD], m[13], t[PAGES_TAIL];
    pages_head(h, 16384);
    static const unsigned char want[] = "QEVM\0\0\0\3"
                                        "\4\0\1\0\0\3ram\0\0\0\0\0\0\0\4"
                                        "\0\0\0\0\4\0\0\4\4mem0\0\0\0\0\4\0\0\0";
    CHECK_INT(sizeof h, sizeof want - 1);
    CHECK(!memcmp(h, want, sizeof h));
    CHECK_INT(pages_mark(m, 5, 1), 13);
    CHECK(!memcmp(m, "\0\0\0\0\0\0\x50\x08\4mem0", 13));
    CHECK_INT(pages_mark(m, 5, 0), 8);
    CHECK(!memcmp(m, "\0\0\0\0\0\0\x50\x28", 8));
    pages_tail(t);
    CHECK(!memcmp(t, "\0\0\0\0\0\0\0\x10\x7e\0\1\0\0", sizeof t));
}

TEST(pages, places_follow_each_other)
{
    CHECK_INT(pages_at(0), PAGES_HEAD + 13);
    CHECK_INT(pages_at(1), pages_at(0) + PAGE_BYTES + 8);
    CHECK_INT(pages_at(9), pages_at(8) + PAGES_RECORD);
    CHECK_INT(pages_size(0), PAGES_HEAD + PAGES_TAIL);
    CHECK_INT(pages_size(3), pages_at(2) + PAGE_BYTES + PAGES_TAIL);
}

TEST(pages, index_is_checked)
{
    uint32_t n = 0;
    struct err e;
    make(1, 2, 999);
    CHECK_INT(pages_index_check(index_file, sizeof index_file, 1000, &n, &e), 0);
    CHECK_INT(n, 3);
    CHECK_INT(pages_entry_get(index_file + PAGES_INDEX + 16).page, 999);
    CHECK_INT(pages_entry_get(index_file + PAGES_INDEX + 16).crc, 102);
    CHECK_INT(pages_index_check(index_file, sizeof index_file, 1001, &n, &e), -1); /* another machine's size */
    CHECK_INT(pages_index_check(index_file, sizeof index_file - 1, 1000, &n, &e), -1);
    CHECK_INT(pages_index_check(index_file, 10, 1000, &n, &e), -1);
    for (size_t i = 0; i < sizeof index_file; i++) { /* every byte counts */
        index_file[i] ^= 0x10;
        CHECK_INT(pages_index_check(index_file, sizeof index_file, 1000, &n, &e), -1);
        CHECK_INT(e.code, E_CONFLICT);
        index_file[i] ^= 0x10;
    }
    make(2, 1, 3); /* not ascending */
    CHECK_INT(pages_index_check(index_file, sizeof index_file, 1000, &n, &e), -1);
    make(1, 1, 3);
    CHECK_INT(pages_index_check(index_file, sizeof index_file, 1000, &n, &e), -1);
    make(1, 2, 1000); /* beyond the RAM */
    CHECK_INT(pages_index_check(index_file, sizeof index_file, 1000, &n, &e), -1);
}
TEST_MAIN
