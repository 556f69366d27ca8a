/* Writes an empty qcow2 version 3 image: an overlay whose every cluster reads
 * from its backing node. The header names no backing file on purpose: QEMU is
 * given the chain as explicit block nodes (-blockdev … "backing": node), so no
 * path inside an image is ever honoured, neither ours nor a hostile one's.
 *
 * Layout (clusters of 64 KiB; all integers big-endian):
 *   0      header (104 bytes), header extension end
 *   1      refcount table, one entry -> cluster 2
 *   2      refcount block, 16-bit counts: 1 for every cluster we use
 *   3..    L1 table, all zero: nothing allocated
 * L1 entries cover 512 MiB each; the table fits its cluster(s) up to 16 TiB. */
#pragma once
#include "base/err.h"
#include <stdint.h>

#define QCOW2_MAX_SIZE (16ULL << 40)

/* fd: an empty file, open for writing. Blocks. virtual_size: 512-byte multiple, at most QCOW2_MAX_SIZE. */
int qcow2_create_overlay(int fd, uint64_t virtual_size, struct err *e)
    __attribute__((warn_unused_result));
/* The virtual size an image states, checked for what we write ourselves (version 3, no backing name, no features,
 * no encryption, no snapshots). For images that were in a guest's QEMU: what its header claims is not trusted. */
int qcow2_check_overlay(int fd, uint64_t *ret_virtual_size, struct err *e)
    __attribute__((warn_unused_result));
