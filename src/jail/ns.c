#include "jail/ns.h"
#include "jail/sys.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

pid_t ns_clone(unsigned namespaces, int cgroup_fd, bool sibling, int *ret_pidfd, struct err *e)
{
    int pidfd = -1;
    struct clone3_args a = {.flags = CLONE3_PIDFD | CLONE3_CLEAR_SIGHAND | (sibling ? CLONE3_PARENT : 0) | namespaces,
                            .pidfd = (uint64_t)(uintptr_t)&pidfd,
                            .exit_signal = sibling ? 0 : SIGCHLD, /* a sibling has ours */
                            .cgroup = 0};
    if (cgroup_fd >= 0) {
        a.flags |= CLONE3_INTO_CGROUP;
        a.cgroup = (uint64_t)cgroup_fd;
    }
    long pid = syscall(SYS_clone3, &a, sizeof a);
    if (pid < 0)
        return (pid_t)err_sys(e, errno, "clone3");
    if (!pid) {
        sigset_t none;
        (void)sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        return 0;
    }
    *ret_pidfd = pidfd; /* CLOEXEC by definition */
    return (pid_t)pid;
}

static int map_write(int proc, const char *file, uint32_t first, uint32_t base, uint32_t count, struct err *e)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%u %u %u", first, base, count);
    auto_fd fd = openat(proc, file, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, line, (size_t)n) != n)
        return err_sys(e, errno, "%s", file);
    return 0;
}

int ns_map_ids(pid_t pid, uint32_t first, uint32_t base, uint32_t count, int *ret_userns, int *ret_mntns, struct err *e)
{
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    auto_fd proc = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return err_sys(e, errno, "process directory");
    /* the pid cannot be recycled: it is our child and not yet waited for */
    if (map_write(proc, "uid_map", first, base, count, e) || map_write(proc, "gid_map", first, base, count, e))
        return -1;
    if (ret_userns) {
        int fd = openat(proc, "ns/user", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return err_sys(e, errno, "user namespace");
        *ret_userns = fd;
    }
    if (ret_mntns && (*ret_mntns = openat(proc, "ns/mnt", O_RDONLY | O_CLOEXEC)) < 0)
        return err_sys(e, errno, "mount namespace");
    return 0;
}

int ns_hostname(const char *name, struct err *e)
{
    return syscall(SYS_sethostname, name, strlen(name)) < 0 ? err_sys(e, errno, "sethostname") : 0;
}
