/* Messages: from the channel to the handlers of serve_names.c, serve_files.c and
 * serve_attr.c, and what they share: handles and paths. */
#include "guest/serve_int.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#define FREE (-1)
#define GONE (-2)

/* ---- handles ---- */
static struct serve_handle *slot(struct serve *s, uint64_t fh, bool to_add)
{
    struct serve_handle *gone = NULL;
    for (size_t i = (size_t)((fh * 0x9e3779b97f4a7c15ull) >> 32), k = 0; k < s->size; i++, k++) {
        struct serve_handle *h = &s->handle[i & (s->size - 1)];
        if (h->fd == FREE)
            return to_add ? gone ? gone : h : NULL;
        if (h->fd == GONE)
            gone = gone ? gone : h;
        else if (h->fh == fh)
            return h;
    }
    return to_add ? gone : NULL;
}

static void rehash(struct serve *s)
{
    struct serve_handle *old = s->handle;
    size_t size = s->size;
    s->size = s->n * 4 < 64 ? 64 : s->size * (s->n * 2 > s->size ? 2 : 1);
    s->handle = xcalloc(s->size, sizeof *s->handle);
    for (size_t i = 0; i < s->size; i++)
        s->handle[i].fd = FREE;
    s->used = s->n;
    for (size_t i = 0; i < size; i++)
        if (old[i].fd >= 0)
            *slot(s, old[i].fh, true) = old[i];
    free(old);
}

int serve_handle_add(struct serve *s, uint64_t fh, int fd, bool dir)
{
    if (s->n >= SERVE_HANDLES_MAX)
        return -ENFILE;
    if ((s->used + 1) * 4 > s->size * 3)
        rehash(s);
    struct serve_handle *h = slot(s, fh, true);
    if (h->fd >= 0)
        return -EINVAL; /* taken */
    s->used += h->fd == FREE;
    s->n++;
    *h = (struct serve_handle){fh, fd, dir};
    return 0;
}

struct serve_handle *serve_handle(struct serve *s, uint64_t fh, bool dir)
{
    struct serve_handle *h = s->size ? slot(s, fh, false) : NULL;
    return h && h->dir == dir ? h : NULL;
}

struct serve_handle *serve_any_handle(struct serve *s, uint64_t fh)
{
    struct serve_handle *h = serve_handle(s, fh, false);
    return h ? h : serve_handle(s, fh, true);
}

void serve_handle_drop(struct serve *s, struct serve_handle *h)
{
    (void)close(h->fd);
    h->fd = GONE;
    s->n--;
}

void serve_init(struct serve *s, int root, bool read_only)
{
    *s = (struct serve){.root = root, .read_only = read_only};
    rehash(s);
}

void serve_fini(struct serve *s)
{
    for (size_t i = 0; i < s->size; i++)
        cleanup_fd(&s->handle[i].fd);
    free(s->handle);
    *s = (struct serve){.root = -1};
}

/* ---- paths ---- */
int serve_open_below(int dir, const char *path, uint64_t flags, uint64_t mode)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .mode = mode,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV};
    long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    return fd < 0 ? -errno : (int)fd;
}

/* Relative, no empty parts, no "." and "..": said by the client, so looked at. */
static bool tidy(const char *p)
{
    while (*p) {
        size_t k = strcspn(p, "/");
        if (!k || k > 255 || (k == 1 && p[0] == '.') || (k == 2 && p[0] == '.' && p[1] == '.') || (p[k] && !p[k + 1]))
            return false;
        p += k + (p[k] == '/');
    }
    return true;
}

int serve_find(struct serve *s, char *path, struct spot *ret)
{
    char *slash = strrchr(path, '/');
    *ret = (struct spot){-1, slash ? slash + 1 : *path ? path : "."};
    if (slash)
        *slash = 0;
    ret->dir = serve_open_below(s->root, slash ? path : ".", O_PATH | O_DIRECTORY, 0);
    if (slash)
        *slash = '/';
    return ret->dir < 0 ? ret->dir : 0;
}

/* What is there, and that it is what the client means. */
int serve_look(const struct ask *q, const struct spot *p, struct stat *st)
{
    if (fstatat(p->dir, p->base, st, AT_SYMLINK_NOFOLLOW))
        return -errno;
    return q->head->ino && q->head->ino != st->st_ino ? -ESTALE : 0;
}

/* ---- the table ---- */
enum { W = 1 /* changes something */, NEW = 2 /* W, if its flags say so */ };
static const struct { int (*fn)(struct ask *); uint8_t what; } ops[] = {
    [FUSE_LOOKUP] = {serve_lookup, 0},       [FUSE_GETATTR] = {serve_getattr, 0},       [FUSE_SETATTR] = {serve_setattr, W},
    [FUSE_READLINK] = {serve_readlink, 0},   [FUSE_SYMLINK] = {serve_symlink, W},       [FUSE_MKNOD] = {serve_mknod, W},
    [FUSE_MKDIR] = {serve_mkdir, W},         [FUSE_UNLINK] = {serve_unlink, W},         [FUSE_RMDIR] = {serve_rmdir, W},
    [FUSE_RENAME] = {serve_rename, W},       [FUSE_RENAME2] = {serve_rename2, W},       [FUSE_LINK] = {serve_link, W},
    [FUSE_OPEN] = {serve_open, NEW},         [FUSE_READ] = {serve_read, 0},             [FUSE_WRITE] = {serve_write, W},
    [FUSE_STATFS] = {serve_statfs, 0},       [FUSE_RELEASE] = {serve_release, 0},       [FUSE_FSYNC] = {serve_fsync, 0},
    [FUSE_SETXATTR] = {serve_setxattr, W},   [FUSE_GETXATTR] = {serve_getxattr, 0},     [FUSE_LISTXATTR] = {serve_listxattr, 0},
    [FUSE_REMOVEXATTR] = {serve_removexattr, W}, [FUSE_OPENDIR] = {serve_opendir, 0},
    [FUSE_READDIR] = {serve_readdir, 0},     [FUSE_RELEASEDIR] = {serve_releasedir, 0}, [FUSE_FSYNCDIR] = {serve_fsync, 0},
    [FUSE_CREATE] = {serve_create, W},       [FUSE_LSEEK] = {serve_lseek, 0},           [FUSE_FALLOCATE] = {serve_fallocate, W},
};

static int act(struct ask *q)
{
    uint32_t op = q->in->opcode;
    if (op >= sizeof ops / sizeof *ops || !ops[op].fn)
        return -ENOSYS;
    bool changes = ops[op].what == W;
    if (ops[op].what == NEW) {
        BODY(q, fuse_open_in, b);
        changes = serve_writes(b.flags);
    }
    return changes && q->s->read_only ? -EROFS : ops[op].fn(q);
}

static bool take_path(const unsigned char *p, size_t n, char *out)
{
    memcpy(out, p, n);
    out[n] = 0;
    return strlen(out) == n && tidy(out);
}

int serve_message(struct serve *s, const void *msg, size_t n, struct buf *out)
{
    const unsigned char *p = msg;
    struct share_head head;
    struct fuse_in_header in;
    struct ask *q;
    if (n < sizeof head + sizeof in || n > SHARE_MSG_MAX)
        return -1;
    memcpy(&head, p, sizeof head);
    size_t at = sizeof head + (size_t)head.path_n + head.path2_n;
    if (head.length != n || head.path_n > SHARE_PATH_MAX || head.path2_n > SHARE_PATH_MAX || at + sizeof in > n)
        return -1;
    memcpy(&in, p + at, sizeof in);
    if (in.len != n - at)
        return -1;
    q = xcalloc(1, sizeof *q);
    *q = (struct ask){.s = s, .head = &head, .in = &in, .body = p + at + sizeof in, .body_n = n - at - sizeof in, .out = out};
    struct fuse_out_header o = {.unique = in.unique};
    size_t mark = out->n;
    buf_put(out, &o, sizeof o);
    bool ok = take_path(p + sizeof head, head.path_n, q->path) && take_path(p + sizeof head + head.path_n, head.path2_n, q->path2);
    mode_t mask = umask(0); /* the VM's kernel has applied the caller's */
    o.error = ok ? act(q) : -EINVAL;
    (void)umask(mask);
    free(q);
    if (o.error)
        out->n = mark + sizeof o;
    o.len = (uint32_t)(out->n - mark);
    memcpy(out->p + mark, &o, sizeof o);
    return 0;
}
