/* What a template is, on disk: templates/<tid>/manifest.json beside
 * rootfs.ext4. A template is built as templates/<tid>.tmp and published by
 * renaming the directory once, after everything in it reached the disk, so a
 * directory without ".tmp" is always complete. The file is read strictly: it
 * may have been damaged, and snapshots depend on it.
 *
 * Blocking calls; for workers. dirfd is the open templates/ directory. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MANIFEST_BYTES_MAX (1u << 20)
#define MANIFEST_ID        22
#define MANIFEST_ENV_MAX   256
#define MANIFEST_TEXT_MAX  65536

enum manifest_source { MANIFEST_BOOTSTRAP = 1, MANIFEST_RECIPE, MANIFEST_IMPORT, MANIFEST_PACK /* came with a snapshot pack */ };

struct manifest {
    char id[MANIFEST_ID];       /* id_ok() */
    char name[64];              /* name_ok() */
    char created[32];           /* RFC 3339, UTC */
    enum manifest_source source;
    char parent[MANIFEST_ID];   /* template it was built from, "" if none */
    uint64_t size_bytes;        /* of rootfs.ext4 */
    char rootfs_sha256[65];     /* "" if not computed */
    uint32_t disk_min_mib;      /* smallest disk a sandbox can have */
    char **env;                 /* "NAME=value" */
    size_t nenv;
    char *user, *workdir;       /* "" : the defaults */
    char *start, *ready;        /* shell commands, "" if none */
    char *kernels;              /* languages whose kernels run in its snapshot, with spaces between; "" if none */
    char *content_key;          /* hash of the recipe and its inputs, "" if none */
    char *tenant;               /* whose it is; "" : everybody may use it */
    char *packages;             /* summary for people, "" if unknown */
};

void manifest_fini(struct manifest *m);
void manifest_add_env(struct manifest *m, const char *kv);
void manifest_set(char **field, const char *value); /* one of the char * fields; NULL is "" */
const char *manifest_source_name(enum manifest_source s);

int manifest_parse(const char *p, size_t n, struct manifest *ret, struct err *e) __attribute__((warn_unused_result));
void manifest_format(const struct manifest *m, struct buf *out);

/* Of a published template; its id must be the directory's name. */
int manifest_read(int dirfd, const char *tid, struct manifest *ret, struct err *e) __attribute__((warn_unused_result));
/* Into templates/<id>.tmp/, which exists. */
int manifest_write(int dirfd, const struct manifest *m, struct err *e) __attribute__((warn_unused_result));
/* <tid>.tmp -> <tid>: both files must be there. E_CONFLICT if <tid> exists. */
int manifest_publish(int dirfd, const char *tid, struct err *e) __attribute__((warn_unused_result));

/* Every published template in no order; damaged ones come with m == NULL and a
 * reason. Returning non-zero from the callback stops and is returned. */
int manifest_scan(int dirfd, int (*on)(void *arg, const char *tid, const struct manifest *m, const struct err *why), void *arg, struct err *e)
    __attribute__((warn_unused_result));
/* Removes <tid>.tmp directories not touched for min_age_s; `busy` (may be NULL)
 * names those still being built. The number removed, or -1. */
int manifest_gc(int dirfd, int64_t min_age_s, bool (*busy)(void *arg, const char *tid), void *arg, struct err *e)
    __attribute__((warn_unused_result));
