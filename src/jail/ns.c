#include "jail/ns.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "jail/privs.h"
#include "jail/sys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static long clone3(const struct ns_birth *b, int *pidfd)
{
    struct clone3_args a = {.flags = CLONE3_PIDFD | CLONE3_CLEAR_SIGHAND | (b->sibling ? CLONE3_PARENT : 0) | b->namespaces,
                            .pidfd = (uint64_t)(uintptr_t)pidfd,
                            .exit_signal = b->sibling ? 0 : SIGCHLD, /* a sibling has ours */
                            .cgroup = 0};
    if (b->cgroup >= 0) {
        a.flags |= CLONE3_INTO_CGROUP;
        a.cgroup = (uint64_t)b->cgroup;
    }
    return syscall(SYS_clone3, &a, sizeof a);
}

/* The child begins with the owner's effective id and with root's for files: it is still to find the place of its new root, and
 * then takes ids of its own. We are root again before anything else happens, and die with our parent as before. */
static long clone3_owned(const struct ns_birth *b, int *pidfd, struct err *e)
{
    int death = 0, dumpable = prctl(PR_GET_DUMPABLE, 0, 0, 0, 0);
    (void)prctl(PR_GET_PDEATHSIG, &death, 0, 0, 0);
    bool owned = !privs_act_as(b->owner, e);
    struct err why = owned ? (struct err){0} : *e; /* it may have failed half-way */
    long pid = owned ? clone3(b, pidfd) : -1;
    int sys = errno;
    if (!pid)
        return 0;
    if (privs_act_as(0, e)) {
        log_error("cannot return to root: %s", e->msg);
        abort(); /* whatever we did next we would do as a box */
    }
    if (dumpable == 1)
        (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    (void)prctl(PR_SET_PDEATHSIG, death, 0, 0, 0);
    errno = sys;
    if (!owned)
        *e = why;
    return owned && pid < 0 ? err_sys(e, sys, "clone3") : pid;
}

pid_t ns_clone(const struct ns_birth *b, int *ret_pidfd, struct err *e)
{
    int pidfd = -1;
    long pid;
    if (b->namespaces & NS_USER) {
        if (!b->owner)
            return (pid_t)err_set(e, E_INTERNAL, "a user namespace must not be root's");
        pid = clone3_owned(b, &pidfd, e);
    } else if ((pid = clone3(b, &pidfd)) < 0) {
        (void)err_sys(e, errno, "clone3");
    }
    if (pid < 0)
        return -1;
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
