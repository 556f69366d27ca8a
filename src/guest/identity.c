#include "guest/identity.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN_DIR    "/run/hutch"
#define HOSTS_KEPT "/etc/hutch/hosts"
#define HOSTS_MAX  (64 << 10)

static const struct { const char *etc, *run; int mode; } files[ID_FILES] = {
    [ID_HOSTNAME] = {"/etc/hostname", RUN_DIR "/hostname", 0644},
    [ID_HOSTS] = {"/etc/hosts", RUN_DIR "/hosts", 0644},
    [ID_MACHINE] = {"/etc/machine-id", RUN_DIR "/machine-id", 0444},
};

static int write_err(const char *path, struct err *e)
{
    return errno == ENOSPC ? err_set(e, E_QUOTA, "%s: no space left on device", path) : err_sys(e, errno, "%s", path);
}

/* In place and only if different: these files may be bind mounts or open, and a write costs a journal commit. */
static int put_file(const char *path, const char *text, size_t n, int mode, struct err *e)
{
    size_t had_n = 0;
    auto_free char *had = fd_slurp_at(AT_FDCWD, path, HOSTS_MAX, &had_n);
    if (had && had_n == n && !memcmp(had, text, n))
        return 0;
    auto_fd fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    /* not to 0 first: ext4 would then write the blocks out on close, before a sandbox may answer */
    if (fd < 0 || (n && !fd_write_all(fd, text, n)) || ((!had || had_n != n) && ftruncate(fd, (off_t)n)))
        return write_err(path, e);
    return 0;
}

/* The descriptor that was kept, if it still is what the name in /etc leads to. */
static int kept(const struct agent *a, int which, off_t *ret_size)
{
    struct stat now, was;
    int fd = a->id_fd[which];
    if (fd < 0 || stat(files[which].etc, &now) || fstat(fd, &was) || now.st_ino != was.st_ino || now.st_dev != was.st_dev)
        return -1;
    *ret_size = now.st_size;
    return fd;
}

static int put(struct agent *a, uint64_t flags, int which, const char *text, size_t n, struct err *e)
{
    const char *etc = files[which].etc, *run = files[which].run;
    char to[48];
    off_t size;
    int fd = kept(a, which, &size);
    if (fd >= 0)
        return pwrite(fd, text, n, 0) != (ssize_t)n || (size > (off_t)n && ftruncate(fd, (off_t)n)) ? write_err(etc, e) : 0;
    ssize_t len = readlink(etc, to, sizeof to);
    bool linked = len == (ssize_t)strlen(run) && !memcmp(to, run, (size_t)len), make = a->vm && flags & CFG_PRIME;
    if (!linked && make)
        linked = (!unlink(etc) || errno == ENOENT) && !symlink(run, etc);
    if (linked && mkdir(RUN_DIR, 0755) && errno != EEXIST)
        return err_sys(e, errno, RUN_DIR);
    if (put_file(linked ? run : etc, text, n, files[which].mode, e))
        return -1;
    if (linked && make) {
        cleanup_fd(&a->id_fd[which]);
        a->id_fd[which] = open(run, O_RDWR | O_NOFOLLOW | O_CLOEXEC); /* only saves work */
    }
    return 0;
}

/* Everything but our own line. */
static void hosts_of_user(const char *at, struct buf *out)
{
    for (; at && *at;) {
        size_t n = strcspn(at, "\n");
        bool ours = !strncmp(at, "127.0.0.1", 9) && (at[9] == ' ' || at[9] == '\t') && memmem(at, n, "localhost", 9);
        if (!ours) {
            buf_put(out, at, n);
            buf_putc(out, '\n');
        }
        at += n + (at[n] == '\n');
    }
}

static int put_hosts(struct agent *a, uint64_t flags, const char *hostname, struct err *e)
{
    auto_buf out = {0};
    char few[1024]; /* the usual one, without a trip through the allocator */
    off_t size;
    int fd = kept(a, ID_HOSTS, &size);
    ssize_t n = fd >= 0 && size < (off_t)sizeof few ? pread(fd, few, sizeof few - 1, 0) : -1;
    auto_free char *had = n >= 0 ? NULL : fd_slurp_at(AT_FDCWD, "/etc/hosts", HOSTS_MAX, NULL);
    if (n >= 0)
        few[n] = 0;
    else if (!had) /* booted: /run is empty */
        had = fd_slurp_at(AT_FDCWD, HOSTS_KEPT, HOSTS_MAX, NULL);
    buf_printf(&out, "127.0.0.1 localhost %s\n", hostname);
    hosts_of_user(n >= 0 ? few : had, &out);
    if (!memmem(out.p, out.n, "\n::1", 4))
        buf_puts(&out, "::1 localhost ip6-localhost\n");
    return put(a, flags, ID_HOSTS, out.p, out.n, e);
}

void identity_keep(void)
{
    auto_buf out = {0};
    struct err e;
    auto_free char *now = fd_slurp_at(AT_FDCWD, RUN_DIR "/hosts", HOSTS_MAX, NULL);
    if (!now)
        return;
    hosts_of_user(now, &out);
    const char *text = out.p ? out.p : "";
    if (put_file(HOSTS_KEPT, text, out.n, 0644, &e) && e.sys == ENOENT && !mkdir("/etc/hutch", 0755))
        (void)put_file(HOSTS_KEPT, text, out.n, 0644, &e);
}

int identity_set(struct agent *a, struct rec r, uint64_t flags, struct err *e)
{
    auto_free char *host = rec_dup(r, T_HOSTNAME), *id = rec_dup(r, T_MACHINE_ID);
    char line[80];
    if (host && *host) {
        if (strlen(host) > 63 || strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") != strlen(host))
            return err_set(e, E_INVALID, "hostname: not a host name");
        if (sethostname(host, strlen(host)))
            return err_sys(e, errno, "hostname");
        int n = snprintf(line, sizeof line, "%s\n", host);
        if (put(a, flags, ID_HOSTNAME, line, (size_t)n, e) || put_hosts(a, flags, host, e))
            return -1;
    }
    if (flags & CFG_PRIME)
        return put(a, flags, ID_MACHINE, "", 0, e);
    if (!id)
        return 0;
    if (strlen(id) != 32 || strspn(id, "0123456789abcdef") != 32)
        return err_set(e, E_INVALID, "machine-id: 32 hex digits are needed");
    int n = snprintf(line, sizeof line, "%s\n", id);
    return put(a, flags, ID_MACHINE, line, (size_t)n, e);
}
