/* CRC-32C (Castagnoli): finds damage on a disk, not malice. With the processor's
 * own instruction a page takes a third of a microsecond. */
#pragma once
#include <stddef.h>
#include <stdint.h>
uint32_t crc32c(uint32_t before /* 0 at the start */, const void *p, size_t n);
uint32_t crc32c_plain(uint32_t before, const void *p, size_t n); /* the same without the instruction; for tests */
