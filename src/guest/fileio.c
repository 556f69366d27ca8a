/* Reading and writing file contents. Only regular files: anything else could
 * block or act, and is refused by name of its kind. What /proc has about this
 * very process is read as far as it is harmless, and never written. */
#include "base/cleanup.h"
#include "guest/path.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <sys/xattr.h>

#define SIZELESS_MAX (64u << 20) /* /proc files say size 0; read to their end, up to this */
#define WRITE_WINDOW (192u << 10)

/* The file's name as the kernel has it: "self" is a number there. "" if it is not of /proc. */
static void proc_name(int fd, char *out, size_t cap)
{
    struct statfs fs;
    char link[32];
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n =
        fstatfs(fd, &fs) || fs.f_type != PROC_SUPER_MAGIC ? 0 : readlink(link, out, cap - 1);
    out[n > 0 ? n : 0] = 0;
}

/* /proc/self of whoever asks is this process. */
static int check_own(int fd, const char *path, bool writes, struct err *e)
{
    static const char *const tell[] = {"mem",       "maps",    "smaps",      "smaps_rollup",
                                       "numa_maps", "pagemap", "environ",    "auxv",
                                       "stack",     "syscall", "personality"};
    char name[256], own[24];
    proc_name(fd, name, sizeof name);
    (void)snprintf(own, sizeof own, "/%d/", (int)getpid());
    const char *base = strrchr(name, '/');
    bool refused = writes;
    if (!base || !strstr(name, own))
        return 0;
    for (size_t i = 0; i < sizeof tell / sizeof *tell; i++)
        refused |= !strcmp(base + 1, tell[i]);
    return refused ? err_set(e, E_DENIED, "path '%.150s' belongs to the agent's own process", path)
                   : 0;
}

static int check_kind(int fd, const char *path, bool writes, struct stat *st, struct err *e)
{
    if (fstat(fd, st))
        return path_err(e, errno, path);
    if (S_ISREG(st->st_mode))
        return check_own(fd, path, writes, e);
    if (S_ISDIR(st->st_mode))
        return path_err(e, EISDIR, path);
    return err_set(e, E_INVALID, "path '%.150s' is a %s, not a regular file", path,
                   S_ISFIFO(st->st_mode) ? "FIFO" : S_ISSOCK(st->st_mode) ? "socket" : "device");
}

/* ---- read ------------------------------------------------------------------------------------------------------- */

struct reader {
    struct stream s; /* first */
    int fd;
    bool
        sizeless; /* made up by the kernel: what it refuses is a matter of the file, not of a disk */
    uint64_t left, sent;
};

static void read_err(struct err *e, int sys, bool sizeless)
{
    err_sys(e, sys, "read");
    if (e->code == E_INTERNAL)
        e->code = sizeless ? E_INVALID : E_GUEST;
}

static bool read_run(struct agent *a, struct stream *s)
{
    struct reader *r = container_of(s, struct reader, s);
    char b[RUN_CHUNK];
    struct err e = {0};
    size_t want = sizeof b;
    if (want > r->left)
        want = (size_t)r->left;
    if (want && !s->tx)
        return false; /* the next credit wakes us */
    if (want > s->tx)
        want = (size_t)s->tx;
    ssize_t n = want ? read(r->fd, b, want) : 0;
    if (n < 0) {
        if (errno == EINTR)
            return true;
        read_err(&e, errno, r->sizeless);
        stream_end_err(a, s, &e);
        return false;
    }
    if (!n) {
        rec_put_u64(reply_begin(a), T_SIZE, r->sent);
        reply_send(a, s->id);
        stream_close(a, s);
        return false;
    }
    stream_data(a, s, CH_FILE, b, (uint32_t)n);
    r->left -= (uint64_t)n, r->sent += (uint64_t)n;
    return true;
}

static void read_drop(struct agent *a, struct stream *s)
{
    (void)a;
    cleanup_fd(&container_of(s, struct reader, s)->fd);
}

static const struct stream_ops read_ops = {.run = read_run, .drop = read_drop};

static int open_read(const struct req *q, struct place *p, int *ret_fd, struct stat *st, uint64_t *ret_left, struct err *e)
{
    uint64_t off = rec_u64_or(q->rec, T_OFFSET, 0), size = rec_u64_or(q->rec, T_SIZE, UINT64_MAX);
    if (place_open(q->a, q->rec, T_PATH, false, p, e))
        return -1;
    auto_fd fd = open_beneath(p->dir, p->base, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return path_err(e, errno, p->path);
    if (check_kind(fd, p->path, false, st, e))
        return -1;
    uint64_t held = st->st_size ? (uint64_t)st->st_size : SIZELESS_MAX;
    if (off && (off > INT64_MAX || lseek(fd, (off_t)off, SEEK_SET) < 0))
        return err_set(e, E_INVALID, "offset is out of range");
    *ret_left = off >= held ? 0 : held - off;
    if (*ret_left > size)
        *ret_left = size;
    *ret_fd = take_fd(&fd);
    return 0;
}

void op_read(const struct req *q)
{
    struct err e = {0};
    auto_place p;
    int fd = -1;
    struct stat st;
    uint64_t left = 0;
    if (open_read(q, &p, &fd, &st, &left, &e)) {
        reply_err(q->a, q->id, &e);
        return;
    }
    struct reader *r = stream_new(q, sizeof *r, &read_ops);
    if (!r) {
        close(fd);
        return;
    }
    r->fd = fd, r->left = left, r->sizeless = !st.st_size;
    entry_put_open(q->a, event_begin(q->a, EV_ENTRIES), fd, &st, p.path);
    event_send(q->a, q->id);
    stream_wake(q->a, &r->s);
}

/* ---- write ------------------------------------------------------------------------------------------------------ */

struct writer {
    struct stream s; /* first */
    struct place p;
    int fd;
};

static void write_data(struct agent *a, struct stream *s, uint8_t chan, const unsigned char *b, uint32_t n)
{
    struct writer *w = container_of(s, struct writer, s);
    struct err e = {0};
    (void)chan;
    for (uint32_t at = 0; at < n;) {
        ssize_t k = write(w->fd, b + at, n - at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            path_err(&e, k < 0 ? errno : EIO, w->p.path);
            stream_end_err(a, s, &e);
            return;
        }
        at += (uint32_t)k;
    }
    stream_consumed(a, s, n);
}

static void write_eof(struct agent *a, struct stream *s, uint8_t chan)
{
    struct writer *w = container_of(s, struct writer, s);
    (void)chan;
    users_refresh(&a->users);
    entry_reply(&(struct req){.a = a, .id = s->id}, &w->p);
    stream_close(a, s);
}

static void write_drop(struct agent *a, struct stream *s)
{
    struct writer *w = container_of(s, struct writer, s);
    (void)a;
    cleanup_fd(&w->fd);
    place_fini(&w->p);
}

static const struct stream_ops write_ops = {.data = write_data, .eof = write_eof, .drop = write_drop};

/* New files are told apart from existing ones by O_EXCL, so that only new ones get an owner and a default mode. */
static int open_write(const struct req *q, struct place *p, struct err *e)
{
    struct stat st;
    uint64_t flags = rec_u64_or(q->rec, T_FLAGS, 0), mode;
    int how = O_WRONLY | O_NONBLOCK | O_NOCTTY | (flags & FILE_APPEND ? O_APPEND : 0);
    if (place_open(q->a, q->rec, T_PATH, flags & FILE_PARENTS, p, e))
        return -1;
    auto_fd fd = open_beneath(p->dir, p->base, how | O_CREAT | O_EXCL, 0666);
    bool made = fd >= 0;
    if (!made && errno == EEXIST && !(flags & FILE_EXCL)) {
        fd = open_beneath(p->dir, p->base, how | (flags & FILE_APPEND ? 0 : O_TRUNC), 0);
        if (fd < 0 && errno == ENOENT) { /* a dangling link */
            fd = open_beneath(p->dir, p->base, how | O_CREAT, 0666);
            made = fd >= 0;
        }
    }
    if (fd < 0)
        return path_err(e, errno, p->path);
    if (check_kind(fd, p->path, true, &st, e))
        return -1;
    if (made ? p->user.uid || p->user.gid : (flags & FILE_OWN) && (st.st_uid != p->user.uid || st.st_gid != p->user.gid))
        (void)!fchown(fd, p->user.uid, p->user.gid);
    if (rec_u64(q->rec, T_MODE, &mode) && fchmod(fd, mode & 07777))
        return path_err(e, errno, p->path);
    return take_fd(&fd);
}

/* Attributes of an earlier writer that begin with the prefix; a file system without attributes has none to remove. */
static void clear_xattrs(int fd, struct str prefix)
{
    char list[4096];
    ssize_t n = prefix.n > 5 && !memcmp(prefix.p, "user.", 5) ? flistxattr(fd, list, sizeof list) : 0;
    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(list + i) + 1)
        if (!strncmp(list + i, prefix.p, prefix.n))
            (void)!fremovexattr(fd, list + i);
}

static int set_xattrs(int fd, struct rec r, struct err *e)
{
    struct field f;
    char name[256];
    struct str prefix;
    if (rec_get(r, T_NAME, &prefix))
        clear_xattrs(fd, prefix);
    while (rec_next(&r, &f)) {
        if (f.tag != T_XATTR)
            continue;
        const char *eq = f.v.n ? memchr(f.v.p, '=', f.v.n) : NULL;
        size_t k = eq ? (size_t)(eq - f.v.p) : 0;
        if (k < 6 || k >= sizeof name || memcmp(f.v.p, "user.", 5) || memchr(f.v.p, 0, k))
            return err_set(e, E_INVALID, "an extended attribute is not user.NAME=value");
        memcpy(name, f.v.p, k), name[k] = 0;
        if (fsetxattr(fd, name, eq + 1, f.v.n - k - 1, 0))
            return err_sys(e, errno, "extended attribute %s", name);
    }
    return 0;
}

void op_write(const struct req *q)
{
    struct err e = {0};
    struct place p;
    int fd = open_write(q, &p, &e);
    struct writer *w = NULL;
    if (fd < 0 || set_xattrs(fd, q->rec, &e))
        reply_err(q->a, q->id, &e);
    else
        w = stream_new(q, sizeof *w, &write_ops);
    if (!w) {
        cleanup_fd(&fd);
        place_fini(&p);
        return;
    }
    w->p = p, w->fd = fd;
    stream_window(q->a, &w->s, WRITE_WINDOW);
}
