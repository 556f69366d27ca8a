/* Where manifests live: reading, publishing, scanning and cleaning templates/. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "image/manifest.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#endif

static int open_dir(int dirfd, const char *name) { return openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

static int open_tmp(int dirfd, const char *tid, struct err *e)
{
    char tmp[MANIFEST_ID + 4];
    if (!id_ok(str_of(tid)))
        return err_set(e, E_INVALID, "not a template id");
    (void)snprintf(tmp, sizeof tmp, "%s.tmp", tid);
    int fd = open_dir(dirfd, tmp);
    return fd >= 0 ? fd : err_sys(e, errno, "template %s is not being built", tid);
}

int manifest_read(int dirfd, const char *tid, struct manifest *ret, struct err *e)
{
    size_t n;
    struct manifest m;
    if (!id_ok(str_of(tid)))
        return err_set(e, E_INVALID, "not a template id");
    auto_fd dir = open_dir(dirfd, tid);
    if (dir < 0)
        return err_sys(e, errno, "template %s", tid);
    auto_fd fd = openat(dir, "manifest.json", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "template %s has no manifest", tid);
    auto_free char *text = fd_slurp(fd, MANIFEST_BYTES_MAX, &n);
    if (!text)
        return err_sys(e, errno, "template %s: manifest", tid);
    if (manifest_parse(text, n, &m, e) < 0)
        return err_wrap(e, "template %s", tid);
    if (strcmp(m.id, tid) != 0) {
        manifest_fini(&m);
        return err_set(e, E_INVALID, "template %s: the manifest is that of another template", tid);
    }
    *ret = m;
    return 0;
}

int manifest_write(int dirfd, const struct manifest *m, struct err *e)
{
    auto_buf text = {0};
    struct manifest check;
    auto_fd dir = open_tmp(dirfd, m->id, e);
    if (dir < 0)
        return -1;
    manifest_format(m, &text);
    if (manifest_parse(text.p, text.n, &check, e) < 0) /* never publish what could not be read back */
        return -1;
    manifest_fini(&check);
    (void)unlinkat(dir, "manifest.new", 0);
    auto_fd fd = openat(dir, "manifest.new", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 || !fd_write_all(fd, text.p, text.n) || fsync(fd) < 0 || renameat(dir, "manifest.new", dir, "manifest.json") < 0)
        return err_sys(e, errno, "writing the manifest of template %s", m->id);
    return 0;
}

/* fsync of a file through its directory; the file must be a regular one. */
static int settle(int dir, const char *name, const char *tid, struct err *e)
{
    struct stat st;
    auto_fd fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "template %s is not complete", tid);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, E_INVALID, "template %s: %s is not a file", tid, name);
    return fsync(fd) < 0 ? err_sys(e, errno, "template %s", tid) : 0;
}

int manifest_publish(int dirfd, const char *tid, struct err *e)
{
    char tmp[MANIFEST_ID + 4];
    auto_fd dir = open_tmp(dirfd, tid, e);
    if (dir < 0)
        return -1;
    if (settle(dir, "rootfs.ext4", tid, e) < 0 || settle(dir, "manifest.json", tid, e) < 0)
        return -1;
    (void)snprintf(tmp, sizeof tmp, "%s.tmp", tid);
    /* do not reorder: contents, their directory, the rename, the directory above. */
    if (fsync(dir) < 0 || syscall(SYS_renameat2, dirfd, tmp, dirfd, tid, RENAME_NOREPLACE) < 0)
        return err_sys(e, errno, "publishing template %s", tid);
    return fsync(dirfd) < 0 ? err_sys(e, errno, "publishing template %s", tid) : 0;
}

/* ---- the whole directory ---------------------------------------------------------------------------------------- */

static DIR *list(int dirfd, struct err *e)
{
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        err_sys(e, errno, "listing the templates");
        if (fd >= 0)
            (void)close(fd);
    }
    return d;
}

int manifest_scan(int dirfd, int (*on)(void *arg, const char *tid, const struct manifest *m, const struct err *why), void *arg, struct err *e)
{
    int rc = 0;
    struct dirent *de;
    DIR *d = list(dirfd, e);
    if (!d)
        return -1;
    while (rc == 0 && (de = readdir(d))) {
        struct manifest m;
        struct err why;
        if (!id_ok(str_of(de->d_name))) /* .tmp, ".", anything that is not ours */
            continue;
        if (manifest_read(dirfd, de->d_name, &m, &why) < 0) {
            rc = on(arg, de->d_name, NULL, &why);
        } else {
            rc = on(arg, de->d_name, &m, NULL);
            manifest_fini(&m);
        }
    }
    (void)closedir(d);
    return rc;
}

/* A template in the making is a flat directory of files. */
static int remove_flat(int dirfd, const char *name, struct err *e)
{
    struct dirent *de;
    int fd = open_dir(dirfd, name);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0)
            (void)close(fd);
        return err_sys(e, errno, "removing %s", name);
    }
    while ((de = readdir(d)))
        if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
            (void)unlinkat(fd, de->d_name, 0); /* a failure shows in the rmdir below */
    (void)closedir(d);
    return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 ? err_sys(e, errno, "removing %s", name) : 0;
}

int manifest_gc(int dirfd, int64_t min_age_s, bool (*busy)(void *arg, const char *tid), void *arg, struct err *e)
{
    int removed = 0, rc = 0;
    struct dirent *de;
    struct stat st;
    DIR *d = list(dirfd, e);
    if (!d)
        return -1;
    while ((de = readdir(d))) {
        char tid[MANIFEST_ID];
        if (strlen(de->d_name) != MANIFEST_ID - 1 + 4 || strcmp(de->d_name + MANIFEST_ID - 1, ".tmp") != 0)
            continue;
        (void)snprintf(tid, sizeof tid, "%.*s", MANIFEST_ID - 1, de->d_name);
        if (!id_ok(str_of(tid)) || (busy && busy(arg, tid)) || fstatat(dirfd, de->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
            time(NULL) - st.st_mtime < min_age_s)
            continue;
        if (remove_flat(dirfd, de->d_name, e) < 0)
            rc = -1; /* go on with the others */
        else
            removed++;
    }
    (void)closedir(d);
    return rc < 0 ? -1 : removed;
}
