/* The archive side: one entry at a time from libarchive, checked, then made
 * with the calls of untar_fs.c. Order inside make_file matters: do not reorder
 * owner, mode, xattrs, times; chown clears set-id bits and capabilities. */
#include "image/untar.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define XATTR_COUNT_MAX 64
#define XATTR_BYTES_MAX 65536u

struct untar_later { char *path; mode_t mode; struct timespec times[2]; };

void untar_init(struct untar *u, int root_fd)
{
    memset(u, 0, sizeof *u);
    u->root_fd = root_fd;
    u->dir_fd = -1;
}

static void drop_layer_state(struct untar *u)
{
    for (size_t i = 0; i < u->nlater; i++)
        free(u->later[i].path);
    u->nlater = u->names = 0;
    map_free(&u->layer);
    untar_forget_dir(u);
}

void untar_fini(struct untar *u)
{
    drop_layer_state(u);
    free(u->later);
    u->later = NULL;
    u->cap_later = 0;
}

/* ---- metadata --------------------------------------------------------------------------------------------------- */

struct meta { uid_t uid; gid_t gid; mode_t mode; struct timespec times[2]; };

static int read_meta(struct archive_entry *ae, struct meta *m, struct err *e)
{
    int64_t uid = archive_entry_uid(ae), gid = archive_entry_gid(ae);
    if (uid < 0 || uid >= (int64_t)UINT32_MAX || gid < 0 || gid >= (int64_t)UINT32_MAX) /* -1 would mean "leave it" */
        return err_set(e, E_INVALID, "impossible owner");
    long ns = archive_entry_mtime_nsec(ae);
    m->uid = (uid_t)uid, m->gid = (gid_t)gid;
    m->mode = archive_entry_perm(ae) & 07777;
    m->times[0].tv_sec = m->times[1].tv_sec = archive_entry_mtime(ae);
    m->times[0].tv_nsec = m->times[1].tv_nsec = ns >= 0 && ns < 1000000000L ? ns : 0;
    return 0;
}

static int set_xattrs(struct untar *u, struct archive_entry *ae, int fd, struct err *e)
{
    const char *name;
    const void *value;
    size_t n;
    int count = 0;
    archive_entry_xattr_reset(ae);
    while (archive_entry_xattr_next(ae, &name, &value, &n) == ARCHIVE_OK) {
        if (!name || (strncmp(name, "user.", 5) != 0 && strcmp(name, "security.capability") != 0)) {
            u->st.xattrs_skipped++;
            continue;
        }
        if (++count > XATTR_COUNT_MAX || n > XATTR_BYTES_MAX)
            return err_set(e, E_TOO_LARGE, "too many extended attributes");
        if (fsetxattr(fd, name, value, n, 0) == 0)
            continue;
        if (errno != EOPNOTSUPP && errno != EPERM && errno != ERANGE && errno != EINVAL)
            return err_sys(e, errno, "extended attribute");
        u->st.xattrs_skipped++; /* the file works without it */
    }
    return 0;
}

static int names_full(const struct untar *u, struct err *e)
{
    return u->names > UNTAR_NAMES_MAX ? err_set(e, E_TOO_LARGE, "the archive's names need more than %u bytes", UNTAR_NAMES_MAX) : 0;
}

static int remember_dir(struct untar *u, const char *path, const struct meta *m, struct err *e)
{
    if (u->nlater == u->cap_later) {
        u->cap_later = u->cap_later ? u->cap_later * 2 : 256;
        u->later = xrealloc(u->later, u->cap_later * sizeof *u->later);
    }
    struct untar_later *l = &u->later[u->nlater++];
    l->path = xstrdup(path);
    u->names += strlen(path) + sizeof *l;
    l->mode = m->mode;
    memcpy(l->times, m->times, sizeof l->times);
    return names_full(u, e);
}

static bool vanished(int sys) { return sys == ENOENT || sys == ENOTDIR || sys == ELOOP || sys == EACCES; }

static int finish_dir(struct untar *u, const struct untar_later *l, struct err *e)
{
    const char *name;
    struct err why;
    int parent = untar_parent(u, l->path, false, &name, &why);
    if (parent < 0) {
        if (!vanished(why.sys) && e)
            *e = why;
        return vanished(why.sys) ? 0 : -1;
    }
    auto_fd fd = openat(parent, *name ? name : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && vanished(errno))
        return 0;
    if (fd < 0 || fchmod(fd, l->mode) < 0 || futimens(fd, l->times) < 0)
        return err_sys(e, errno, "directory mode");
    return 0;
}

/* When all contents are there, so that nothing touches the times again; in
 * reverse, so that a mode of 0 locks nobody out. Of two entries for one path
 * the last one counts; a path that is no directory any more was replaced. */
static int finish_dirs(struct untar *u, struct err *e)
{
    struct map done = {0};
    char shown[96];
    int rc = 0;
    untar_forget_dir(u);
    for (size_t i = u->nlater; i-- && rc == 0;) {
        struct untar_later *l = &u->later[i];
        if (!map_set(&done, l->path, u) && finish_dir(u, l, e) < 0)
            rc = err_wrap(e, "%s", untar_show(l->path, shown));
    }
    map_free(&done);
    return rc;
}

/* ---- one entry -------------------------------------------------------------------------------------------------- */

static int archive_fail(struct archive *a, struct err *e)
{
    const char *why = archive_error_string(a);
    return err_set(e, E_INVALID, "archive is damaged: %s", why ? why : "unknown reason");
}

static void tick(struct untar *u)
{
    if (u->on_progress)
        u->on_progress(u->arg, &u->st);
}

/* The size was charged against the budget before; nothing beyond it is written. */
static int write_data(struct untar *u, struct archive *a, int fd, int64_t size, struct err *e)
{
    const void *p;
    size_t n;
    int64_t at, end = 0;
    uint64_t base = u->st.bytes - (uint64_t)size;
    for (;;) {
        int rc = archive_read_data_block(a, &p, &n, &at);
        if (rc == ARCHIVE_EOF)
            break;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return archive_fail(a, e);
        if (at < end || at > size || (uint64_t)n > (uint64_t)(size - at))
            return err_set(e, E_INVALID, "contents are larger than announced");
        end = at + (int64_t)n;
        for (const char *c = p; n;) {
            ssize_t w = pwrite(fd, c, n, at);
            if (w < 0 && errno == EINTR)
                continue;
            if (w <= 0)
                return err_sys(e, w < 0 ? errno : EIO, "writing");
            c += w, n -= (size_t)w, at += w;
        }
        struct untar_stats now = u->st;
        now.bytes = base + (uint64_t)end;
        if (u->on_progress)
            u->on_progress(u->arg, &now);
    }
    if (end < size && ftruncate(fd, size) < 0)
        return err_sys(e, errno, "writing");
    return 0;
}

static int make_file(struct untar *u, struct archive *a, struct archive_entry *ae, int parent, const char *name, const struct meta *m,
                     struct err *e)
{
    auto_fd fd = openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, errno, "making a file");
    if (write_data(u, a, fd, archive_entry_size(ae), e) < 0)
        return -1;
    if (!u->no_owner && fchown(fd, m->uid, m->gid) < 0)
        return err_sys(e, errno, "owner");
    if (fchmod(fd, m->mode) < 0)
        return err_sys(e, errno, "mode");
    if (set_xattrs(u, ae, fd, e) < 0)
        return -1;
    if (futimens(fd, m->times) < 0)
        return err_sys(e, errno, "times");
    return 0;
}

static int make_dir(struct untar *u, struct archive_entry *ae, int parent, const char *name, const char *path, const struct meta *m,
                    struct err *e)
{
    struct stat st;
    bool there = !*name || (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode));
    if (!there) {
        if (untar_remove(u, parent, name, path, false, e) < 0)
            return -1;
        if (mkdirat(parent, name, 0700) < 0)
            return err_sys(e, errno, "making a directory");
    }
    auto_fd fd = openat(parent, *name ? name : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "opening a directory");
    if (!u->no_owner && fchown(fd, m->uid, m->gid) < 0)
        return err_sys(e, errno, "owner");
    if (set_xattrs(u, ae, fd, e) < 0)
        return -1;
    return remember_dir(u, path, m, e);
}

static int make_symlink(struct untar *u, const char *target, int parent, const char *name, const struct meta *m, struct err *e)
{
    size_t n = target ? strlen(target) : 0;
    if (!n || n >= UNTAR_PATH_MAX)
        return err_set(e, E_INVALID, "symbolic link with an impossible target");
    if (symlinkat(target, parent, name) < 0)
        return err_sys(e, errno, "making a symbolic link");
    if (!u->no_owner && fchownat(parent, name, m->uid, m->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "owner");
    if (utimensat(parent, name, m->times, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(e, errno, "times");
    return 0;
}

/* The target is looked up like any member: parents inside the root, the last
 * component as it is. linkat without AT_SYMLINK_FOLLOW never follows. */
static int make_hardlink(struct untar *u, const char *target, const char *path, struct err *e)
{
    char tpath[UNTAR_PATH_MAX];
    const char *tname, *name;
    struct stat ts, st;
    if (untar_path(target, tpath, e) < 0)
        return err_wrap(e, "hard link");
    int at = untar_parent(u, tpath, false, &tname, e);
    if (at < 0)
        return err_wrap(e, "hard link");
    auto_fd tparent = fcntl(at, F_DUPFD_CLOEXEC, 0); /* the cache below may close its own */
    if (tparent < 0)
        return err_sys(e, errno, "hard link");
    if (!*tname || fstatat(tparent, tname, &ts, AT_SYMLINK_NOFOLLOW) < 0 || (!S_ISREG(ts.st_mode) && !S_ISLNK(ts.st_mode)))
        return err_set(e, E_INVALID, "hard link to something that is not a file of the archive");
    int parent = untar_parent(u, path, true, &name, e);
    if (parent < 0)
        return -1;
    if (fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        if (st.st_ino == ts.st_ino && st.st_dev == ts.st_dev)
            return 0;
        if (untar_remove(u, parent, name, path, false, e) < 0)
            return -1;
    }
    if (linkat(tparent, tname, parent, name, 0) < 0)
        return err_sys(e, errno, "making a hard link");
    return 0;
}

/* OCI image spec, "Representing Changes": .wh.NAME removes NAME of the layers
 * below, .wh..wh..opq everything below that the layers beneath put there. */
static int whiteout(struct untar *u, const char *path, const char *name, struct err *e)
{
    char victim[UNTAR_PATH_MAX];
    size_t dir = (size_t)(name - path);
    const char *what = name + 4;
    if (!strcmp(name, ".wh..wh..opq")) {
        memcpy(victim, path, dir);
        victim[dir ? dir - 1 : 0] = 0;
        return untar_empty(u, victim, e);
    }
    if (!strncmp(what, ".wh.", 4)) /* AUFS leftovers (.wh..wh.plnk): nothing to do */
        return 0;
    if (!*what || !strcmp(what, ".") || !strcmp(what, ".."))
        return err_set(e, E_INVALID, "whiteout of an impossible name");
    (void)snprintf(victim, sizeof victim, "%.*s%s", (int)dir, path, what);
    int parent = untar_parent(u, path, false, &name, e);
    if (parent < 0)
        return e && e->sys == ENOENT ? 0 : -1;
    return untar_remove(u, parent, what, victim, true, e);
}

static int note_layer(struct untar *u, const char *path, struct err *e)
{
    char p[UNTAR_PATH_MAX];
    size_t n = strlen(path);
    memcpy(p, path, n + 1);
    for (;;) {
        if (map_set(&u->layer, p, u))
            return 0; /* its parents are noted too */
        u->names += strlen(p) + sizeof(struct map_entry);
        char *slash = strrchr(p, '/');
        if (!slash)
            return names_full(u, e);
        *slash = 0;
    }
}

static int take_entry(struct untar *u, struct archive *a, struct archive_entry *ae, struct err *e)
{
    char path[UNTAR_PATH_MAX];
    const char *raw = archive_entry_pathname(ae), *hard = archive_entry_hardlink(ae), *name;
    struct meta m;
    if (!raw || !*raw)
        return err_set(e, E_INVALID, "entry without a name");
    if (untar_path(raw, path, e) < 0)
        return -1;
    if (++u->st.files > u->max_files)
        return err_set(e, E_TOO_LARGE, "archive has more than %llu files", (unsigned long long)u->max_files);
    int64_t size = archive_entry_size_is_set(ae) ? archive_entry_size(ae) : 0;
    if (size < 0 || (uint64_t)size > u->max_bytes - u->st.bytes)
        return err_set(e, E_TOO_LARGE, "archive contains more than %llu bytes", (unsigned long long)u->max_bytes);
    u->st.bytes += (uint64_t)size; /* also of what is skipped: it has to be read */

    name = strrchr(path, '/');
    name = name ? name + 1 : path;
    if (u->oci && !strncmp(name, ".wh.", 4))
        return whiteout(u, path, name, e);
    if (u->oci && note_layer(u, path, e) < 0)
        return -1;
    if (hard)
        return *path ? make_hardlink(u, hard, path, e) : err_set(e, E_INVALID, "the root cannot be a hard link");
    mode_t type = archive_entry_filetype(ae);
    if (type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK) {
        u->st.skipped++;
        return 0;
    }
    if (read_meta(ae, &m, e) < 0)
        return -1;
    int parent = untar_parent(u, path, true, &name, e);
    if (parent < 0)
        return -1;
    if (type == AE_IFDIR)
        return make_dir(u, ae, parent, name, path, &m, e);
    if (!*name)
        return err_set(e, E_INVALID, "the root must be a directory");
    if (untar_remove(u, parent, name, path, false, e) < 0)
        return -1;
    if (type == AE_IFLNK)
        return make_symlink(u, archive_entry_symlink(ae), parent, name, &m, e);
    return make_file(u, a, ae, parent, name, &m, e);
}

/* ---- the archive ------------------------------------------------------------------------------------------------ */

struct feed { const struct untar_source *src; struct err err; bool failed; };

static la_ssize_t on_read(struct archive *a, void *arg, const void **p)
{
    struct feed *f = arg;
    ssize_t n = f->src->read(f->src->arg, p, &f->err);
    if (n < 0) {
        f->failed = true;
        archive_set_error(a, EIO, "read failed");
        return ARCHIVE_FATAL;
    }
    return n;
}

static int take_entries(struct untar *u, struct archive *a, struct err *e)
{
    struct archive_entry *ae;
    char shown[96];
    for (;;) {
        int rc = archive_read_next_header(a, &ae);
        if (rc == ARCHIVE_EOF)
            return 0;
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return archive_fail(a, e);
        /* Compressed headers are a bomb of their own: 4 KiB a file is generous. */
        int64_t raw = archive_filter_bytes(a, 0);
        if (raw > 0 && (uint64_t)raw / 4096 > u->max_files + u->max_bytes / 4096 + 1024)
            return err_set(e, E_TOO_LARGE, "archive contains more than %llu bytes", (unsigned long long)u->max_bytes);
        if (take_entry(u, a, ae, e) < 0) {
            const char *name = archive_entry_pathname(ae);
            return err_wrap(e, "%s", untar_show(name ? name : "", shown));
        }
        tick(u);
    }
}

int untar_from(struct untar *u, const struct untar_source *src, struct err *e)
{
    struct feed f = {.src = src};
    struct archive *a = archive_read_new();
    if (!a)
        return err_set(e, E_INTERNAL, "no memory for the archive reader");
    /* Not filter_all: some of those run programs. */
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_bzip2(a);
    archive_read_support_filter_xz(a);
    archive_read_support_filter_zstd(a);
    archive_read_support_format_tar(a);
    int rc = archive_read_open(a, &f, NULL, on_read, NULL) == ARCHIVE_OK ? 0 : archive_fail(a, e);
    if (rc == 0)
        rc = take_entries(u, a, e);
    if (rc < 0 && f.failed && e)
        *e = f.err;
    archive_read_free(a);
    if (rc == 0)
        rc = finish_dirs(u, e);
    drop_layer_state(u);
    return rc;
}

struct fd_source { int fd; char buf[1 << 16]; };

static ssize_t fd_read(void *arg, const void **p, struct err *e)
{
    struct fd_source *s = arg;
    ssize_t n;
    do
        n = read(s->fd, s->buf, sizeof s->buf);
    while (n < 0 && errno == EINTR);
    *p = s->buf;
    return n < 0 ? err_sys(e, errno, "reading the archive") : n;
}

int untar_fd(struct untar *u, int fd, struct err *e)
{
    auto_free struct fd_source *s = xmalloc(sizeof *s);
    s->fd = fd;
    return untar_from(u, &(struct untar_source){fd_read, s}, e);
}
