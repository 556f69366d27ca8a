#include "tier/vm/qcow2.h"
#include "base/enc.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLUSTER_BITS 16
#define CLUSTER      (1u << CLUSTER_BITS)
#define HEADER       104u
#define MAGIC        0x514649fbu                               /* "QFI\xfb" */
#define L2_COVERS    ((uint64_t)(CLUSTER / 8) << CLUSTER_BITS) /* bytes per L1 entry */

static uint32_t get32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
static uint64_t get64(const unsigned char *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

static int put_at(int fd, uint64_t off, const void *p, size_t n, struct err *e)
{
    ssize_t w;
    while ((w = pwrite(fd, p, n, (off_t)off)) < 0 && errno == EINTR)
        ;
    if (w == (ssize_t)n)
        return 0;
    return err_sys(e, w < 0 ? errno : ENOSPC, "writing a disk overlay");
}

int qcow2_create_overlay(int fd, uint64_t virtual_size, struct err *e)
{
    if (!virtual_size || virtual_size % 512 || virtual_size > QCOW2_MAX_SIZE)
        return err_set(e, E_INVALID, "a disk cannot have %llu bytes",
                       (unsigned long long)virtual_size);
    struct stat st;
    if (fstat(fd, &st))
        return err_sys(e, errno, "disk overlay");
    if (!S_ISREG(st.st_mode) || st.st_size)
        return err_set(e, E_INTERNAL, "a disk overlay starts as an empty file");

    uint32_t l1_entries = (uint32_t)((virtual_size + L2_COVERS - 1) / L2_COVERS);
    uint32_t l1_clusters = (l1_entries * 8 + CLUSTER - 1) / CLUSTER;
    uint32_t clusters = 3 + l1_clusters;

    unsigned char h[HEADER + 8] = {0}; /* + the end-of-extensions marker: 8 zero bytes */
    put_be32(h, MAGIC);
    put_be32(h + 4, 3);
    /* 8: backing_file_offset, 16: backing_file_size: none */
    put_be32(h + 20, CLUSTER_BITS);
    put_be64(h + 24, virtual_size);
    put_be32(h + 36, l1_entries);
    put_be64(h + 40, 3ULL * CLUSTER); /* L1 table */
    put_be64(h + 48, 1ULL * CLUSTER); /* refcount table */
    put_be32(h + 56, 1);              /* its clusters */
    put_be32(h + 96, 4);              /* refcount_order: 16 bits */
    put_be32(h + 100, HEADER);

    unsigned char table[8], counts[64] = {0};
    put_be64(table, 2ULL * CLUSTER);
    for (uint32_t i = 0; i < clusters; i++)
        counts[2 * i + 1] = 1;
    _Static_assert(3 + QCOW2_MAX_SIZE / L2_COVERS * 8 / CLUSTER <= sizeof counts / 2,
                   "refcounts of all initial clusters fit");

    /* Size first: a full disk then fails here and not half-way. */
    if (ftruncate(fd, (off_t)clusters * CLUSTER))
        return err_sys(e, errno, "sizing a disk overlay");
    if (put_at(fd, 2ULL * CLUSTER, counts, sizeof counts, e) ||
        put_at(fd, 1ULL * CLUSTER, table, sizeof table, e) || put_at(fd, 0, h, sizeof h, e))
        return -1;
    return 0;
}

int qcow2_check_overlay(int fd, uint64_t *ret_virtual_size, struct err *e)
{
    unsigned char h[HEADER];
    ssize_t n;
    while ((n = pread(fd, h, sizeof h, 0)) < 0 && errno == EINTR)
        ;
    if (n < 0)
        return err_sys(e, errno, "reading a disk overlay");
    if (n != (ssize_t)sizeof h || get32(h) != MAGIC || get32(h + 4) != 3)
        return err_set(e, E_CONFLICT, "a disk overlay is not a qcow2 image of version 3");
    if (get64(h + 8) || get32(h + 16))
        return err_set(e, E_CONFLICT, "a disk overlay refers to a backing file");
    /* Incompatible features: "dirty" (bit 0) is what a killed QEMU leaves with lazy refcounts, which we never enable. */
    if (get64(h + 72) || get32(h + 32) || get32(h + 60))
        return err_set(e, E_CONFLICT, "a disk overlay uses features hutch does not");
    uint64_t size = get64(h + 24);
    if (!size || size % 512 || size > QCOW2_MAX_SIZE)
        return err_set(e, E_CONFLICT, "a disk overlay states an impossible size");
    *ret_virtual_size = size;
    return 0;
}
