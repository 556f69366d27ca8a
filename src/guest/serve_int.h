/* Between serve.c (messages) and serve_names.c, serve_files.c, serve_attr.c (what is done). */
#pragma once
#include "base/cleanup.h"
#include "guest/serve.h"
#include "wire/share.h"
#include <linux/fuse.h>
#include <string.h>
#include <sys/stat.h>

/* A request being answered. Handlers return 0 or -errno; what they put into the reply counts only with 0. */
struct ask {
    struct serve *s;
    const struct share_head *head;
    const struct fuse_in_header *in;
    const unsigned char *body;
    size_t body_n;
    char path[SHARE_PATH_MAX + 1], path2[SHARE_PATH_MAX + 1];
    struct buf *out;
};
struct spot { int dir; const char *base; }; /* an opened parent, and the last part of the path; "." for the top */

static inline void spot_fini(struct spot *p) { cleanup_fd(&p->dir); }
#define auto_spot __attribute__((cleanup(spot_fini))) struct spot

/* The body's fixed part; what is behind it, if anything, is at *rest. */
#define BODY(q, type, var)                                                                                              \
    struct type var;                                                                                                    \
    if ((q)->body_n < sizeof var)                                                                                       \
        return -EINVAL;                                                                                                 \
    memcpy(&var, (q)->body, sizeof var)

int serve_open_below(int dir, const char *path, uint64_t flags, uint64_t mode /* with O_CREAT; else 0 */); /* -errno */
int serve_find(struct serve *s, char *path, struct spot *ret);
int serve_look(const struct ask *q, const struct spot *p, struct stat *st); /* what is there, and that it is what the client means */
struct serve_handle *serve_handle(struct serve *s, uint64_t fh, bool dir);
struct serve_handle *serve_any_handle(struct serve *s, uint64_t fh); /* of a file or a directory */
int serve_handle_add(struct serve *s, uint64_t fh, int fd, bool dir); /* takes fd with 0; -errno */
void serve_handle_drop(struct serve *s, struct serve_handle *h);
static inline bool serve_again(const struct ask *q) { return q->head->flags & SHARE_AGAIN; }
void serve_put_attr(struct fuse_attr *a, const struct stat *st);
void serve_drop_setid(int fd);
int serve_put_entry(const struct ask *q, const struct spot *p);
int serve_own(const struct ask *q, const struct spot *p);
bool serve_writes(uint32_t flags); /* of open: something may change */

typedef int serve_fn(struct ask *q);
serve_fn serve_lookup, serve_mkdir, serve_mknod, serve_symlink, serve_link, serve_unlink, serve_rmdir, serve_rename, serve_rename2, serve_readlink;
serve_fn serve_open, serve_opendir, serve_create, serve_release, serve_releasedir, serve_read, serve_write, serve_fsync, serve_lseek, serve_fallocate, serve_readdir;
serve_fn serve_getattr, serve_setattr, serve_statfs, serve_setxattr, serve_getxattr, serve_listxattr, serve_removexattr;
