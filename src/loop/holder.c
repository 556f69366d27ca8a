#include "loop/holder.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TCP_LISTEN_ 10u /* as in /proc/net/tcp */

/* "  0: 0100007F:1312 00000000:0000 0A …": the inodes of all that listen on the port. Which address does not matter: one of
 * them keeps us from it. */
static size_t listeners(const char *table, unsigned port, unsigned long *inode, size_t max)
{
    auto_free char *text = fd_slurp_at(AT_FDCWD, table, 16 << 20, NULL);
    size_t n = 0;
    for (const char *line = text; line && *line && n < max; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        unsigned at, state;
        unsigned long ino;
        if (sscanf(line, " %*[0-9]: %*[0-9A-Fa-f]:%x %*s %x %*s %*s %*s %*s %*s %lu", &at, &state, &ino) == 3 && at == port && state == TCP_LISTEN_ && ino)
            inode[n++] = ino;
    }
    return n;
}

static bool has(pid_t pid, const unsigned long *inode, size_t n)
{
    char path[64], to[64];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    bool found = false;
    for (struct dirent *t; d && !found && (t = readdir(d));) {
        unsigned long ino;
        ssize_t k = readlinkat(dirfd(d), t->d_name, to, sizeof to - 1);
        to[k < 0 ? 0 : k] = 0;
        if (sscanf(to, "socket:[%lu]", &ino) == 1)
            for (size_t i = 0; i < n; i++)
                found |= inode[i] == ino;
    }
    if (d)
        (void)closedir(d);
    return found;
}

static void name_it(pid_t pid, struct holder *ret)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    auto_free char *name = fd_slurp_at(AT_FDCWD, path, 64, NULL);
    ret->pid = pid;
    (void)snprintf(ret->name, sizeof ret->name, "%.*s", name ? (int)strcspn(name, "\n") : 1, name ? name : "?");
}

int holder_env(const struct holder *h, const char *var, char *ret, size_t n)
{
    char path[64];
    size_t total = 0, k = strlen(var);
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)h->pid);
    auto_free char *env = fd_slurp_at(AT_FDCWD, path, 1 << 20, &total);
    ret[0] = 0;
    if (!env)
        return -1;
    for (size_t at = 0; at < total; at += strlen(env + at) + 1)
        if (!strncmp(env + at, var, k) && env[at + k] == '=')
            (void)snprintf(ret, n, "%s", env + at + k + 1);
    return 0;
}

int holder_find(const char *addr, struct holder *ret)
{
    const char *colon = strrchr(addr, ':');
    unsigned long inode[32];
    unsigned port = colon ? (unsigned)strtoul(colon + 1, NULL, 10) : 0;
    size_t n = listeners("/proc/net/tcp", port, inode, 16);
    n += listeners("/proc/net/tcp6", port, inode + n, 16);
    DIR *d = port && n ? opendir("/proc") : NULL;
    bool found = false;
    for (struct dirent *t; d && !found && (t = readdir(d));) {
        pid_t pid = (pid_t)strtol(t->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && (found = has(pid, inode, n)))
            name_it(pid, ret);
    }
    if (d)
        (void)closedir(d);
    return found ? 0 : -1;
}
