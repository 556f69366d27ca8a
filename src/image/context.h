/* What a build context holds, as far as the cache of steps asks: a fingerprint
 * of the files that one COPY brings in. The archive is read once and never
 * unpacked here; the sandbox does that.
 *
 * Only plain archives are told apart member by member: ustar and GNU headers,
 * files, directories, symbolic links. One that holds anything else (pax headers,
 * hard links, devices, damage) has one fingerprint for all of it, which is safe:
 * every change of it then counts for every COPY. Times and owners do not count,
 * as in Docker. Blocks: a worker's. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTEXT_KEY       32
#define CONTEXT_NAMES_MAX 200000
#define CONTEXT_LINK_MAX  4096

enum context_kind { CONTEXT_FILE = 1, CONTEXT_DIR, CONTEXT_LINK, CONTEXT_LONG_NAME, CONTEXT_LONG_LINK, CONTEXT_END };

/* One header of 512 bytes, in the archive's own words. name and link are NUL-terminated. */
struct context_header { enum context_kind kind; uint32_t mode; uint64_t size; char name[257], link[101]; };
int context_header(const unsigned char h[512], struct context_header *ret); /* -1: not one of those above */

struct sha256;
struct context;
/* all: every byte of the archive goes there too. */
struct context *context_scan(int fd, struct sha256 *all);
void context_free(struct context *c);
/* The files that these sources name; * ? [] match as in the shell. */
void context_key(const struct context *c, char *const *src, size_t n, unsigned char out[CONTEXT_KEY]);
