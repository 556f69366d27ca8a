/* Guest memory that differs from what it was cloned from, in two files.
 *
 * The page file is the first part of a QEMU migration stream (docs/devel/
 * migration of QEMU: integers big-endian), so that an emulator takes it in as
 * it is; device state and the end mark are appended behind it:
 *
 *   "QEVM" version=3                              8 bytes
 *   section: FULL id "ram" instance=0 version=4   17
 *     MEM_SIZE of all blocks, then "mem0" size    8 + 5 + 8
 *     page 0: offset|PAGE, "mem0", 4096 bytes     8 + 5 + 4096
 *     page n: offset|PAGE|CONTINUE, 4096 bytes    8 + 4096 each
 *     EOS                                         8
 *   section footer: 0x7e id                       5
 *
 * The index file names the pages in ascending order, each with its CRC-32C
 * (integers little-endian, as everywhere in hutch):
 *
 *   "HUTPAGES" version(u32)=1 count(u32) ram_pages(u32) crc of all before and of the entries(u32)
 *   entry: page(u32) crc(u32)
 *
 * Both are written by the spawner and read by the daemon; the content of pages
 * is the guest's. Pure functions, no I/O. */
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

#define PAGE_BYTES    4096u
#define PAGES_MAX     (1u << 28)         /* 1 TiB of guest memory */
#define PAGES_HEAD    (8u + 17 + 21)     /* before the first page record */
#define PAGES_FIRST   (8u + 5 + PAGE_BYTES)
#define PAGES_RECORD  (8u + PAGE_BYTES)
#define PAGES_TAIL    (8u + 5)
#define PAGES_INDEX   24u                /* head of the index file */
#define QEVM_HEAD     8u                 /* what a device state file of QEMU starts with; not repeated behind the pages */

struct page_entry { uint32_t page, crc; };

void pages_head(unsigned char out[PAGES_HEAD], uint32_t ram_pages);
/* The bytes before a page's content; returns their number (13 for the first, 8 for the others). */
size_t pages_mark(unsigned char out[13], uint32_t page, int first);
void pages_tail(unsigned char out[PAGES_TAIL]);
uint64_t pages_size(uint32_t count);               /* bytes of the page file */
uint64_t pages_at(uint32_t nth);                   /* where the content of the nth page begins */

/* entries as they stand in the file, after the head */
void pages_index_head(unsigned char out[PAGES_INDEX], const unsigned char *entries, uint32_t count, uint32_t ram_pages);
void pages_entry_put(unsigned char out[8], struct page_entry en);
struct page_entry pages_entry_get(const unsigned char in[8]);
/* A whole index file: checks magic, counts, crc and order. -1 E_CONFLICT. entries then begin at PAGES_INDEX. */
int pages_index_check(const unsigned char *p, size_t n, uint32_t ram_pages, uint32_t *ret_count, struct err *e) __attribute__((warn_unused_result));
