#include "guest/tree.h"
#include "base/cleanup.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PASSES 10

/* What serves as the mark; share/seccomp/container.profile allows us the first. gVisor has no cgroup namespaces: there it is one of
 * host names, which a copy begins with. */
static const struct kind {
    unsigned long flag;
    const char *name;
} kinds[] = {{0x02000000ul /* CLONE_NEWCGROUP */, "ns/cgroup"},
             {0x04000000ul /* CLONE_NEWUTS */, "ns/uts"}};
static const struct kind *kind = kinds;

int tree_mark(struct err *e)
{
    char path[48];
    int rc = (int)syscall(SYS_unshare, kind->flag);
    if (rc && errno == EINVAL && kind == kinds) /* this kernel does not know it */
        rc = (int)syscall(SYS_unshare, (++kind)->flag);
    if (rc)
        return err_sys(e, errno, "cannot mark the process tree");
    (void)snprintf(path, sizeof path, "/proc/self/%s", kind->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_sys(e, errno, "cannot find the mark of the process tree") : fd;
}

/* What has ended is in no namespace any more. */
static bool marked(int proc, const char *pid, const struct stat *mark)
{
    char path[48];
    struct stat st;
    (void)snprintf(path, sizeof path, "%.20s/%s", pid, kind->name);
    return !fstatat(proc, path, &st, 0) && st.st_ino == mark->st_ino && st.st_dev == mark->st_dev;
}

/* Each is killed when it is seen: what it forked before has a higher number, mostly, and comes later in the list. */
static int one_pass(const struct stat *mark)
{
    int kills = 0;
    DIR *d = opendir("/proc");
    if (!d)
        return 0;
    for (struct dirent *de; (de = readdir(d));) {
        pid_t pid = (pid_t)atoi(de->d_name);
        if (pid > 1 && pid != getpid() && marked(dirfd(d), de->d_name, mark) && !kill(pid, SIGKILL))
            kills++;
    }
    (void)closedir(d);
    return kills;
}

void tree_kill(int mark)
{
    struct stat st;
    if (fstat(mark, &st))
        return;
    for (int i = 0; i < PASSES && one_pass(&st);
         i++) /* until nobody is left: one may fork between the look and the kill */
        (void)sched_yield();
}
