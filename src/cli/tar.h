/* Just enough tar for `hutch cp` and build contexts: a writer (ustar, GNU long
 * names) and a reader that trusts nothing. What a sandbox packs is hostile: the
 * reader makes regular files, folders and symbolic links beneath one folder,
 * never follows a link on the way, never makes devices, sockets or set-id
 * files, and never overwrites through a link. */
#pragma once
#include "base/err.h"
#include "base/buf.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Everything beneath dirfd ("." included, named "./…") into out_fd. Sockets, devices and pipes are left out, with a line on stderr. */
int tar_write_dir(int out_fd, const char *dir, struct err *e);

struct untar {
    int root;               /* beneath this folder */
    struct buf head, name, link, pax; /* collected so far */
    int64_t size, left, padding;
    unsigned mode;
    char type;
    int fd;                 /* file being written, -1 */
    bool done;              /* the end marker was seen */
    int64_t skipped;        /* entries of kinds that are not made */
    int64_t files, bytes;
};
void untar_init(struct untar *u, int root);
int untar_push(struct untar *u, const char *p, size_t n, struct err *e);
int untar_end(struct untar *u, struct err *e); /* the archive must be whole; frees; call also after an error (e may be NULL) */
