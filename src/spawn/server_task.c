/* Work that takes seconds (packing a template, running a tool) in a process of
 * its own: PID 1 of new pid, mount and IPC namespaces with the host's root and
 * network, so that one kill ends all of it. It is our own code that goes on
 * running there, with only the descriptors it was given. */
#include "base/cleanup.h"
#include "base/log.h"
#include "jail/fds.h"
#include "jail/mount.h"
#include "jail/ns.h"
#include "jail/privs.h"
#include "jail/sys.h"
#include "spawn/server.h"
#include "spawn/server_task.h"
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

static int enter(const struct fd_keep *keep, const int *join, int njoin, struct err *e)
{
    if (privs_death_signal(e) || cgroup_join(join, njoin, e) || fds_close_others(keep, e))
        return -1;
    (void)umask(022);
    (void)setsid();
    if (sys_mount(NULL, "/", NULL, MOUNT_REC | MOUNT_PRIVATE, NULL) < 0)
        return err_sys(e, errno, "private mounts");
    auto_fd proc = mount_fs("proc", NULL, MATTR_NOSUID | MATTR_NODEV | MATTR_NOEXEC, e);
    if (proc < 0 || mount_move(proc, AT_FDCWD, "/proc", e))
        return err_wrap(e, "proc");
    return 0;
}

int task_start(struct box *b, struct fd_keep *keep, int (*body)(void *arg, struct err *e), void *arg, struct err *e)
{
    int join[CG_TREES], n = cgroup_join_fds(&b->cg, join, e);
    struct jailed j = {.pidfd = -1, .sync = -1};
    if (n < 0)
        return -1;
    for (int i = 0; i < n; i++)
        fds_keep(keep, join[i]);
    for (int fd = 0; fd < 10; fd++)
        fds_keep(keep, fd); /* the low numbers stay taken: a jail made from here places descriptors there */
    j.pid = ns_clone(&(struct ns_birth){.namespaces = NS_PID | NS_MOUNT | NS_IPC, .cgroup = b->cg.v2}, &j.pidfd, e);
    if (!j.pid) {
        struct err why = {0};
        int rc = enter(keep, join, n, &why);
        rc = rc ? rc : body(arg, &why);
        if (rc)
            log_warn("%s: %s", b->id, why.msg);
        _exit(rc ? 1 : 0);
    }
    for (int i = 0; i < n; i++)
        (void)close(join[i]);
    if (j.pid < 0)
        return -1;
    box_started(b, &j);
    b->state = BX_ALIVE;
    return 0;
}

/* As init: wait for one, reap whatever else ends. */
int task_wait(pid_t pid)
{
    for (;;) {
        int st = 0;
        pid_t p = waitpid(-1, &st, 0);
        if (p < 0 && errno == EINTR)
            continue;
        if (p < 0)
            return -1;
        if (p == pid)
            return st;
    }
}
