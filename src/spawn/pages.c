#include "spawn/pages.h"
#include "base/crc.h"
#include "base/enc.h"
#include <string.h>

#define SECTION_FULL   4
#define SECTION_FOOTER 0x7e
#define SECTION_ID     0x10000u /* no device has it: QEMU numbers its own from 0 */
#define RAM_VERSION    4u
#define BLOCK          "mem0"   /* the -object of op_vm.c */
enum { MEM_SIZE = 0x04, PAGE = 0x08, EOS = 0x10, CONTINUE = 0x20 };

static const char magic[8] = {'H', 'U', 'T', 'P', 'A', 'G', 'E', 'S'};

static unsigned char *block_name(unsigned char *p)
{
    *p++ = sizeof BLOCK - 1;
    memcpy(p, BLOCK, sizeof BLOCK - 1);
    return p + sizeof BLOCK - 1;
}

void pages_head(unsigned char out[PAGES_HEAD], uint32_t ram_pages)
{
    unsigned char *p = out;
    uint64_t bytes = (uint64_t)ram_pages * PAGE_BYTES;
    memcpy(p, "QEVM", 4);
    put_be32(p + 4, 3);
    p += 8;
    *p++ = SECTION_FULL;
    put_be32(p, SECTION_ID);
    p += 4;
    *p++ = 3;
    memcpy(p, "ram", 3);
    put_be32(p + 3, 0);
    put_be32(p + 7, RAM_VERSION);
    p += 11;
    put_be64(p, bytes | MEM_SIZE);
    p = block_name(p + 8);
    put_be64(p, bytes);
}

size_t pages_mark(unsigned char out[13], uint32_t page, int first)
{
    put_be64(out, (uint64_t)page * PAGE_BYTES | PAGE | (first ? 0 : CONTINUE));
    return first ? (size_t)(block_name(out + 8) - out) : 8;
}

void pages_tail(unsigned char out[PAGES_TAIL])
{
    put_be64(out, EOS);
    out[8] = SECTION_FOOTER;
    put_be32(out + 9, SECTION_ID);
}

uint64_t pages_size(uint32_t count)
{
    return PAGES_HEAD + (count ? PAGES_FIRST + (uint64_t)(count - 1) * PAGES_RECORD : 0) + PAGES_TAIL;
}

uint64_t pages_at(uint32_t nth) { return PAGES_HEAD + (nth ? PAGES_FIRST + (uint64_t)(nth - 1) * PAGES_RECORD + 8 : 13); }

void pages_entry_put(unsigned char out[8], struct page_entry en)
{
    put_le32(out, en.page);
    put_le32(out + 4, en.crc);
}

struct page_entry pages_entry_get(const unsigned char in[8]) { return (struct page_entry){get_le32(in), get_le32(in + 4)}; }

void pages_index_head(unsigned char out[PAGES_INDEX], const unsigned char *entries, uint32_t count, uint32_t ram_pages)
{
    memcpy(out, magic, sizeof magic);
    put_le32(out + 8, 1);
    put_le32(out + 12, count);
    put_le32(out + 16, ram_pages);
    put_le32(out + 20, crc32c(crc32c(0, out, 20), entries, (size_t)count * 8));
}

int pages_index_check(const unsigned char *p, size_t n, uint32_t ram_pages, uint32_t *ret_count, struct err *e)
{
    if (n < PAGES_INDEX || memcmp(p, magic, sizeof magic) || get_le32(p + 8) != 1)
        return err_set(e, E_CONFLICT, "the saved memory has no valid index");
    uint32_t count = get_le32(p + 12);
    if (get_le32(p + 16) != ram_pages || count > ram_pages || n != PAGES_INDEX + (uint64_t)count * 8)
        return err_set(e, E_CONFLICT, "the saved memory is of a machine of another size");
    if (get_le32(p + 20) != crc32c(crc32c(0, p, 20), p + PAGES_INDEX, (size_t)count * 8))
        return err_set(e, E_CONFLICT, "the index of the saved memory is damaged");
    int64_t before = -1;
    for (uint32_t i = 0; i < count; i++) {
        struct page_entry en = pages_entry_get(p + PAGES_INDEX + (size_t)i * 8);
        if ((int64_t)en.page <= before || en.page >= ram_pages)
            return err_set(e, E_CONFLICT, "the index of the saved memory is damaged");
        before = en.page;
    }
    *ret_count = count;
    return 0;
}
