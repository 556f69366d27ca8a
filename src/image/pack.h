/* A snapshot as one file that can be carried to another hutch. Reading one is
 * reading hostile input: the reader below takes bytes as they come, in constant
 * memory, and hands on nothing that it has not checked.
 *
 *   8    "HUTCHPK" 1
 *   4    bytes of the manifest, little endian
 *   32   Ed25519 public key of the signer
 *   64   signature over "hutch snapshot pack 1\n" and the manifest
 *   …    manifest: JSON, strict, all members as pack_format writes them
 *   …    parts, in the manifest's order, back to back. A part is a file without its blocks of zeros: for every other block
 *        (4096 bytes) its number (8, little endian) and the block, numbers rising; the last block of a file is filled up with
 *        zeros. Its sum in the manifest is SHA-256 over exactly these bytes, so it names the content however the holes of a
 *        file happen to lie.
 *
 * Which parts there are, and in which order, follows from the manifest's other members (pack_role); there are no names of
 * files in a pack. After the last part the file ends. Pure, but for pack_scan, which reads a file. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "crypto/digest.h"
#include "crypto/sign.h"
#include "image/manifest.h"
#include <stdbool.h>
#include <stdint.h>

#define PACK_HEAD         108u
#define PACK_MANIFEST_MAX (2u << 20)
#define PACK_BLOCK        4096u
#define PACK_RECORD       (8u + PACK_BLOCK)
#define PACK_MACHINES_MAX 20 /* disks one upon the other: the snapshots it stands on, and itself */
#define PACK_PARTS_MAX    (4 + PACK_MACHINES_MAX + 2)
#define PACK_TREE_MAX     (32ull << 30)
#define PACK_DEVICES_MAX  (64ull << 20)

/* container: TREE. vm: IMAGE RAM DEVICES BOOT, a DISK for each machine, and with memory STATE PAGES. */
enum pack_role {
    PACK_TREE,    /* tar of its whole root */
    PACK_IMAGE,   /* the template's rootfs.ext4 */
    PACK_RAM, PACK_DEVICES, PACK_BOOT, /* the template's variant: memory, device state, disk */
    PACK_DISK,    /* disk layer of a machine, lowest first; the last is the snapshot's own */
    PACK_STATE, PACK_PAGES             /* the snapshot's memory */
};
struct pack_part { enum pack_role role; uint64_t bytes, blocks; char sha256[SHA256_HEX]; };

struct pack {
    char tier[16];                  /* what it was taken of, and is started as */
    bool vm, memory;                /* vm: its parts are a machine's */
    char name[64];                  /* "" */
    char created[32];
    uint32_t cpu_millis, memory_mib, disk_mib;
    uint64_t generation;
    char *env;                      /* JSON object of strings */
    struct manifest template;
    char *variant;                  /* vm: manifest.json of the template's variant */
    char *machine[PACK_MACHINES_MAX]; /* vm: manifest.json of each snapshot, lowest first */
    unsigned nmachines;
    struct pack_part part[PACK_PARTS_MAX];
    unsigned nparts;
};
void pack_fini(struct pack *p);
/* The parts that such a pack has: fills role and nparts. */
void pack_roles(struct pack *p);
const char *pack_role_name(enum pack_role r);
uint64_t pack_bytes(const struct pack *p); /* what its parts take in the file */

void pack_format(const struct pack *p, struct buf *ret);
int pack_parse(const char *text, size_t n, struct pack *ret, struct err *e) __attribute__((warn_unused_result));
/* Head and manifest, signed. */
void pack_sign(const unsigned char secret[SIGN_SECRET], struct str manifest, struct buf *ret);

/* Blocks of a file that are not zero from *at on, in about max bytes of it; fn for each. 1: all of it was seen; 0: go on; -1. */
int pack_scan(int fd, uint64_t bytes, uint64_t *at, size_t max, void (*fn)(void *arg, uint64_t number, const unsigned char *block), void *arg, struct err *e);
/* bytes, blocks and sum of a file. */
int pack_measure(int fd, struct pack_part *ret, struct err *e) __attribute__((warn_unused_result));
void pack_sum_block(struct sha256 *sum, uint64_t number, const unsigned char *block); /* what the sum of a part is over */
void pack_put_record(struct buf *b, uint64_t number, const unsigned char *block);

struct pack_reader_ops {
    /* Is this signer trusted? Asked before anything else is believed. */
    int (*signer)(void *arg, const unsigned char key[SIGN_PUBLIC], struct err *e);
    /* Signed, parsed, within all limits. The pack is the reader's. */
    int (*manifest)(void *arg, const struct pack *p, struct err *e);
    int (*block)(void *arg, unsigned part, uint64_t number, const unsigned char *p, size_t n /* PACK_BLOCK, less at a file's end */, struct err *e);
    int (*part)(void *arg, unsigned part, struct err *e); /* it is whole and its sum is right */
};
struct pack_reader;
/* max_bytes: of the whole file. */
struct pack_reader *pack_reader_new(uint64_t max_bytes, const struct pack_reader_ops *ops, void *arg);
int pack_reader_push(struct pack_reader *r, const void *p, size_t n, struct err *e) __attribute__((warn_unused_result));
int pack_reader_end(struct pack_reader *r, struct err *e) __attribute__((warn_unused_result)); /* nothing follows */
void pack_reader_free(struct pack_reader *r); /* NULL is fine */
