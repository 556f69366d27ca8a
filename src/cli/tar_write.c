/* The writing half of tar.h. Symbolic links are packed, not followed. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/out.h"
#include "cli/tar.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 128

static void octal(char *p, size_t n, uint64_t v) { (void)snprintf(p, n, "%0*llo", (int)n - 1, (unsigned long long)v); }

static int block(int fd, const char *name, char type, unsigned mode, uint64_t size, int64_t mtime, const char *link, struct err *e)
{
    char h[512] = {0};
    (void)strncpy(h, name, 100);
    octal(h + 100, 8, mode & 07777);
    octal(h + 108, 8, 0);
    octal(h + 116, 8, 0);
    if (size >> 33) { /* beyond eleven octal digits: GNU binary size */
        h[124] = (char)0x80;
        for (int i = 0; i < 8; i++)
            h[135 - i] = (char)(size >> (8 * i));
    } else
        octal(h + 124, 12, size);
    octal(h + 136, 12, mtime > 0 ? (uint64_t)mtime & 077777777777 : 0);
    memset(h + 148, ' ', 8);
    h[156] = type;
    if (link)
        (void)strncpy(h + 157, link, 100);
    memcpy(h + 257, "ustar  ", 8); /* GNU: long names by 'L' and 'K' */
    unsigned sum = 0;
    for (int i = 0; i < 512; i++)
        sum += (unsigned char)h[i];
    octal(h + 148, 7, sum);
    return fd_write_all(fd, h, sizeof h) ? 0 : err_sys(e, errno, "cannot write the archive");
}

static int pad(int fd, uint64_t size, struct err *e)
{
    static const char zero[512];
    size_t n = (size_t)(-size & 511);
    return !n || fd_write_all(fd, zero, n) ? 0 : err_sys(e, errno, "cannot write the archive");
}

static int long_name(int fd, char type, const char *s, struct err *e)
{
    size_t n = strlen(s) + 1;
    if (n <= 100)
        return 0;
    if (block(fd, "././@LongLink", type, 0644, n, 0, NULL, e))
        return -1;
    return fd_write_all(fd, s, n) ? pad(fd, n, e) : err_sys(e, errno, "cannot write the archive");
}

static int entry(int fd, const char *name, char type, const struct stat *st, const char *link, struct err *e)
{
    if (long_name(fd, 'L', name, e) || (link && long_name(fd, 'K', link, e)))
        return -1;
    return block(fd, name, type, st->st_mode, type == '0' ? (uint64_t)st->st_size : 0, st->st_mtime, link, e);
}

static int file_bytes(int out, int in, uint64_t size, const char *name, struct err *e)
{
    char data[65536];
    uint64_t left = size;
    while (left) {
        ssize_t n = read(in, data, left < sizeof data ? left : sizeof data);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "cannot read %s", name);
        if (n == 0)
            return err_set(e, E_CONFLICT, "%s became shorter while it was read", name);
        if (!fd_write_all(out, data, (size_t)n))
            return err_sys(e, errno, "cannot write the archive");
        left -= (uint64_t)n;
    }
    return pad(out, size, e);
}

static int walk(int out, int dirfd, const char *prefix, int depth, struct err *e);

static int one(int out, int dirfd, const char *base, const char *name, int depth, struct err *e)
{
    struct stat st;
    if (fstatat(dirfd, base, &st, AT_SYMLINK_NOFOLLOW))
        return err_sys(e, errno, "cannot stat %s", name);
    if (S_ISLNK(st.st_mode)) {
        char to[4096];
        ssize_t n = readlinkat(dirfd, base, to, sizeof to - 1);
        if (n < 0)
            return err_sys(e, errno, "cannot read the link %s", name);
        to[n] = 0;
        return entry(out, name, '2', &st, to, e);
    }
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        (void)fprintf(stderr, "hutch: %s is not a file, directory or link: skipped\n", name);
        return 0;
    }
    auto_fd fd = openat(dirfd, base, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st))
        return err_sys(e, errno, "cannot open %s", name);
    if (S_ISREG(st.st_mode))
        return entry(out, name, '0', &st, NULL, e) ? -1 : file_bytes(out, fd, (uint64_t)st.st_size, name, e);
    auto_free char *dir = xasprintf("%s/", name);
    return entry(out, dir, '5', &st, NULL, e) ? -1 : walk(out, take_fd(&fd), name, depth + 1, e);
}

static int walk(int out, int dirfd, const char *prefix, int depth, struct err *e) /* takes dirfd */
{
    if (depth > DEPTH_MAX) {
        (void)close(dirfd);
        return err_set(e, E_TOO_LARGE, "%s is nested too deeply", prefix);
    }
    DIR *d = fdopendir(dirfd);
    if (!d) {
        (void)close(dirfd);
        return err_sys(e, errno, "cannot list %s", prefix);
    }
    struct dirent *de;
    int rc = 0;
    while (!rc && (errno = 0, de = readdir(d))) {
        if (!strcmp(de->d_name, ".") || !strcmp(de->d_name, ".."))
            continue;
        auto_free char *name = xasprintf("%s/%s", prefix, de->d_name);
        rc = one(out, dirfd, de->d_name, name, depth, e);
    }
    if (!rc && errno)
        rc = err_sys(e, errno, "cannot list %s", prefix);
    (void)closedir(d);
    return rc;
}

int tar_write_dir(int out_fd, const char *dir, struct err *e)
{
    static const char zero[1024];
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, errno, "cannot open the directory");
    if (walk(out_fd, fd, ".", 0, e))
        return -1;
    return fd_write_all(out_fd, zero, sizeof zero) ? 0 : err_sys(e, errno, "cannot write the archive");
}
