/* Extraction of hostile tar streams into one directory. libarchive only reads
 * the format (all tar dialects; gzip, bzip2, xz and zstd inside the process);
 * every file system call is ours and relative to the root descriptor:
 *
 *  - parents are opened with openat2(RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS),
 *    so a symbolic link in the tree, absolute or not, stays in the tree;
 *  - the last component is never followed: whatever has that name is unlinked
 *    first and the new thing is made with O_EXCL;
 *  - devices, FIFOs and sockets are counted, not made;
 *  - names with "..", absolute names, components over 255 bytes, more than
 *    UNTAR_DEPTH_MAX components, sizes over what is left of the budget: error.
 *
 * Blocking, one thread, no globals. An error leaves a half-written tree that
 * the caller throws away. */
#pragma once
#include "base/err.h"
#include "base/map.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define UNTAR_PATH_MAX  4096 /* with the NUL */
#define UNTAR_DEPTH_MAX 128
#define UNTAR_NAMES_MAX (256u << 20) /* bytes of names held at a time */

struct untar_stats {
    uint64_t bytes;   /* file contents, holes counted in full */
    uint64_t files;   /* entries, plus parents that had to be made */
    uint64_t skipped; /* devices, FIFOs, sockets, unknown types */
    uint64_t xattrs_skipped;
};

struct untar {
    /* set by the caller */
    int root_fd;                   /* an open directory; borrowed */
    uint64_t max_bytes, max_files; /* 0: nothing allowed */
    bool oci;                      /* obey .wh. whiteouts */
    bool no_owner;                 /* leave everything to the calling user (tests without root) */
    void (*on_progress)(void *arg, const struct untar_stats *st); /* often; may be NULL */
    void *arg;
    /* results */
    struct untar_stats st;
    /* private */
    int dir_fd;                    /* the last parent, or -1 */
    char dir[UNTAR_PATH_MAX];
    struct untar_later *later;     /* directory modes and times, set when their contents are complete */
    size_t nlater, cap_later;
    size_t names;                  /* bytes in `later` and `layer` */
    struct map layer;              /* oci: paths this layer made, for whiteouts that come late */
};

void untar_init(struct untar *u, int root_fd);
void untar_fini(struct untar *u);

/* Pulls archive bytes: sets *ret_p to memory valid until the next call, returns
 * its length, 0 at the end, -1 with e. */
struct untar_source {
    ssize_t (*read)(void *arg, const void **ret_p, struct err *e);
    void *arg;
};
/* One archive (one layer). Budgets and statistics run on over several calls. */
int untar_from(struct untar *u, const struct untar_source *src, struct err *e) __attribute__((warn_unused_result));
int untar_fd(struct untar *u, int fd, struct err *e) __attribute__((warn_unused_result));

/* Member name -> clean relative path: "./" and doubled slashes dropped, "" for
 * the root itself. -1: absolute, "..", too long, too deep. */
int untar_path(const char *name, char out[UNTAR_PATH_MAX], struct err *e) __attribute__((warn_unused_result));

/* A name from an archive made safe for an error message. */
const char *untar_show(const char *name, char out[96]);

/* ---- untar_fs.c: the file system side --------------------------------------------------------------------------- */
/* Opens the parent directory of `path` (clean, may be "") inside the root;
 * missing ones are made, or with make == false an error with sys ENOENT.
 * *ret_name is the last component. The descriptor is cached in u, stays u's and
 * lives until the next call. Errors do not name the path: the caller does. */
int untar_parent(struct untar *u, const char *path, bool make, const char **ret_name, struct err *e);
void untar_forget_dir(struct untar *u);
/* Removes dirfd/name, a tree if need be; keeps what `u->layer` holds when
 * keep_layer (path is then its clean path). ENOENT is success. */
int untar_remove(struct untar *u, int dirfd, const char *name, const char *path, bool keep_layer, struct err *e);
int untar_empty(struct untar *u, const char *path, struct err *e); /* opaque whiteout */
