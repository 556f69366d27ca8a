/* Requests of the kernel that need no server. */
#include "guest/fuse.h"
#include "wire/share.h"
#include <errno.h>
#include <linux/fuse.h>
#include <string.h>

#define BACKGROUND 32

void fuse_answer(struct fuse *f, uint64_t unique, int error, const void *p, size_t n)
{
    unsigned char out[sizeof(struct fuse_out_header) + 128];
    struct fuse_out_header o = {.len = (uint32_t)(sizeof o + n), .error = error, .unique = unique};
    memcpy(out, &o, sizeof o);
    if (n)
        memcpy(out + sizeof o, p, n);
    (void)f->answer(f->arg, out, sizeof o + n); /* gone meanwhile: then nobody waits for it */
}

static void answer_init(struct fuse *f, const struct fuse_in_header *in, const unsigned char *body, size_t n)
{
    struct fuse_init_in i = {0};
    memcpy(&i, body, n < sizeof i ? n : sizeof i);
    if (n < 16 || i.major != FUSE_KERNEL_VERSION || i.minor < 31) { /* Linux 5.4 */
        fuse_answer(f, in->unique, -EPROTO, NULL, 0);
        return;
    }
    const uint32_t wish = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_AUTO_INVAL_DATA | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_ATOMIC_O_TRUNC |
                          FUSE_HANDLE_KILLPRIV_V2 /* or the kernel asks for a label before every write */;
    struct fuse_init_out o = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = i.max_readahead < SHARE_IO_MAX ? i.max_readahead : SHARE_IO_MAX,
                              .flags = i.flags & wish, .max_background = BACKGROUND, .congestion_threshold = BACKGROUND * 3 / 4,
                              .max_write = SHARE_IO_MAX, .time_gran = 1, .max_pages = SHARE_IO_MAX / 4096};
    fuse_answer(f, in->unique, 0, &o, sizeof o);
}

static void forget_many(struct fuse *f, const unsigned char *body, size_t n)
{
    struct fuse_batch_forget_in b;
    struct fuse_forget_one one;
    if (n < sizeof b)
        return;
    memcpy(&b, body, sizeof b);
    for (size_t at = sizeof b; b.count && at + sizeof one <= n; at += sizeof one, b.count--) {
        memcpy(&one, body + at, sizeof one);
        nodes_forget(&f->nodes, one.nodeid, one.nlookup);
    }
}

/* Security labels and access lists are asked for at every turn and never there. */
static int foreign_xattr(uint32_t op, const unsigned char *body, size_t n)
{
    size_t at = op == FUSE_SETXATTR ? 8 : op == FUSE_GETXATTR ? sizeof(struct fuse_getxattr_in) : 0;
    const char *name = (const char *)body + at;
    if (n <= at || !memchr(name, 0, n - at))
        return -EINVAL;
    return !strncmp(name, "user.", 5) ? 0 : op == FUSE_SETXATTR ? -EOPNOTSUPP : -ENODATA;
}

bool fuse_local(struct fuse *f, const struct fuse_in_header *in, const unsigned char *body, size_t n)
{
    struct fuse_forget_in fg = {0};
    int rc = 0;
    switch (in->opcode) {
    case FUSE_INIT:
        answer_init(f, in, body, n);
        return true;
    case FUSE_FORGET:
        memcpy(&fg, body, n < sizeof fg ? n : sizeof fg);
        nodes_forget(&f->nodes, in->nodeid, fg.nlookup);
        return true;
    case FUSE_BATCH_FORGET:
        forget_many(f, body, n);
        return true;
    case FUSE_DESTROY:
        fuse_answer(f, in->unique, 0, NULL, 0);
        return true;
    case FUSE_SETXATTR: case FUSE_GETXATTR: case FUSE_REMOVEXATTR:
        rc = foreign_xattr(in->opcode, body, n);
        break;
    case FUSE_LOOKUP: case FUSE_GETATTR: case FUSE_SETATTR: case FUSE_READLINK: case FUSE_SYMLINK: case FUSE_MKNOD: case FUSE_MKDIR:
    case FUSE_UNLINK: case FUSE_RMDIR: case FUSE_RENAME: case FUSE_RENAME2: case FUSE_LINK: case FUSE_OPEN: case FUSE_READ: case FUSE_WRITE:
    case FUSE_STATFS: case FUSE_RELEASE: case FUSE_FSYNC: case FUSE_LISTXATTR: case FUSE_OPENDIR: case FUSE_READDIR:
    case FUSE_RELEASEDIR: case FUSE_FSYNCDIR: case FUSE_CREATE: case FUSE_LSEEK: case FUSE_FALLOCATE:
        return false;
    default: /* INTERRUPT and FLUSH too: answered so, the kernel stops sending them; what was written is at the server already */
        rc = -ENOSYS;
    }
    if (rc)
        fuse_answer(f, in->unique, rc, NULL, 0);
    return rc != 0;
}
