/* Just enough tar for `hutch cp` and build contexts: a writer (ustar, GNU long
 * names) and a reader that trusts nothing. What a sandbox packs is hostile: the
 * reader makes regular files, folders and symbolic links beneath one folder,
 * never follows a link on the way, never makes devices, sockets or set-id
 * files, and never overwrites through a link. A link that could lead out of that
 * folder is left out, so that nobody follows it later. A file gets its name when
 * it is whole. What is made is bounded. */
#pragma once
#include "base/err.h"
#include "base/buf.h"
#include "cli/partial.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Everything beneath dirfd ("." included, named "./…") into out_fd. Sockets, devices and pipes are left out, with a line on stderr. */
int tar_write_dir(int out_fd, const char *dir, struct err *e);

struct untar_may {
    int64_t bytes, entries; /* of file contents; of files, folders and links */
    bool links_out;         /* links may lead anywhere */
};
struct untar {
    int root;               /* beneath this folder */
    struct untar_may may;
    struct buf head, name, link, pax; /* collected so far */
    int64_t size, left, padding;
    unsigned mode;
    char type;
    struct partial file;    /* being written */
    char *file_name;        /* it will have; in the folder that it is in */
    bool done;              /* the end marker was seen */
    int64_t skipped;        /* entries of kinds that are not made */
    int64_t left_out;       /* links that could lead out */
    int64_t entries, bytes; /* made so far */
};
/* Nothing above "/" of the copy: not absolute, and ".." only at its beginning, no more often than the link lies deep. Behind a name, ".." could
 * lead anywhere, as that name may be a link too. */
bool tar_link_stays(const char *target, unsigned depth);
void untar_init(struct untar *u, int root, const struct untar_may *may);
int untar_push(struct untar *u, const char *p, size_t n, struct err *e);
int untar_end(struct untar *u, struct err *e); /* the archive must be whole; frees; call also after an error (e may be NULL) */
