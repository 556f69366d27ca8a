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
        return errno == ENOSPC ? err_set(e, E_QUOTA, "%s: no space left on device", path) : err_sys(e, errno, "%s", path);
    return 0;
}

/* /etc/NAME, or the place in /run/hutch that it is a link to. A template's own guest makes the link. */
static int put_name(struct agent *a, uint64_t flags, const char *name, const char *text, size_t n, int mode, struct err *e)
{
    char etc[32], run[48], to[48];
    (void)snprintf(etc, sizeof etc, "/etc/%s", name);
    (void)snprintf(run, sizeof run, RUN_DIR "/%s", name);
    ssize_t len = readlink(etc, to, sizeof to);
    bool linked = len == (ssize_t)strlen(run) && !memcmp(to, run, (size_t)len);
    if (!linked && a->vm && (flags & CFG_PRIME))
        linked = (!unlink(etc) || errno == ENOENT) && !symlink(run, etc);
    if (linked && mkdir(RUN_DIR, 0755) && errno != EEXIST)
        return err_sys(e, errno, RUN_DIR);
    return put_file(linked ? run : etc, text, n, mode, e);
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
    auto_free char *had = fd_slurp_at(AT_FDCWD, "/etc/hosts", HOSTS_MAX, NULL);
    if (!had) /* booted: /run is empty */
        had = fd_slurp_at(AT_FDCWD, HOSTS_KEPT, HOSTS_MAX, NULL);
    buf_printf(&out, "127.0.0.1 localhost %s\n", hostname);
    hosts_of_user(had, &out);
    if (!memmem(out.p, out.n, "\n::1", 4))
        buf_puts(&out, "::1 localhost ip6-localhost\n");
    return put_name(a, flags, "hosts", out.p, out.n, 0644, e);
}

void identity_keep(void)
{
    auto_buf out = {0};
    struct err e;
    auto_free char *now = fd_slurp_at(AT_FDCWD, RUN_DIR "/hosts", HOSTS_MAX, NULL);
    if (!now)
        return;
    hosts_of_user(now, &out);
    (void)mkdir("/etc/hutch", 0755);
    (void)put_file(HOSTS_KEPT, out.p ? out.p : "", out.n, 0644, &e);
}

int identity_set(struct agent *a, struct rec r, uint64_t flags, struct err *e)
{
    auto_free char *host = rec_dup(r, T_HOSTNAME), *id = rec_dup(r, T_MACHINE_ID);
    char now[65] = "", line[80];
    if (host && *host) {
        if (strlen(host) > 63 || strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") != strlen(host))
            return err_set(e, E_INVALID, "hostname: not a host name");
        (void)gethostname(now, sizeof now - 1);
        if (strcmp(now, host) && sethostname(host, strlen(host)))
            return err_sys(e, errno, "hostname");
        int n = snprintf(line, sizeof line, "%s\n", host);
        if (put_name(a, flags, "hostname", line, (size_t)n, 0644, e) || put_hosts(a, flags, host, e))
            return -1;
    }
    if (flags & CFG_PRIME)
        return put_name(a, flags, "machine-id", "", 0, 0444, e);
    if (!id)
        return 0;
    if (strlen(id) != 32 || strspn(id, "0123456789abcdef") != 32)
        return err_set(e, E_INVALID, "machine-id: 32 hex digits are needed");
    int n = snprintf(line, sizeof line, "%s\n", id);
    return put_name(a, flags, "machine-id", line, (size_t)n, 0444, e);
}
