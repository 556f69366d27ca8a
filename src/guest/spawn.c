#include "guest/spawn.h"
#include "guest/tree.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#define CHILD_STACK (64u << 10)
/* The child never returns to clean up the sanitizer's marks on its stack, so it must not make any. */
#define CHILD __attribute__((no_sanitize("address", "undefined"), noinline))

static char child_stack[CHILD_STACK] __attribute__((aligned(64)));

void launch_limit_caps(bool vm)
{
    static const unsigned char container[] = {
        CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_BOOT, CAP_SYS_TIME, CAP_NET_ADMIN, CAP_MKNOD,
        CAP_SYS_RESOURCE, CAP_AUDIT_CONTROL, CAP_MAC_OVERRIDE, CAP_MAC_ADMIN, CAP_SYSLOG, CAP_WAKE_ALARM, CAP_BLOCK_SUSPEND,
        38 /* PERFMON */, 39 /* BPF */, 40 /* CHECKPOINT_RESTORE */, CAP_LINUX_IMMUTABLE, CAP_IPC_LOCK, CAP_IPC_OWNER,
        CAP_SYS_NICE, CAP_SYS_PACCT, CAP_SYS_TTY_CONFIG, CAP_LEASE,
    };
    /* The bounding set limits what an exec can gain; our own effective set stays as it is, because we never exec. */
    for (size_t i = 0; i < (vm ? 1 : sizeof container); i++)
        (void)prctl(PR_CAPBSET_DROP, container[i], 0, 0, 0); /* unknown to an old kernel: nothing to drop */
}

static CHILD void child_fail(struct launch *l, int stage)
{
    l->sys = errno;
    l->stage = stage;
    syscall(SYS_exit_group, 127);
}

static CHILD void child_exec(struct launch *l)
{
    char buf[4096];
    const char *name = l->argv[0], *p = l->path;
    size_t n = strlen(name);
    int sys = ENOENT;
    if (strchr(name, '/')) {
        syscall(SYS_execve, name, l->argv, l->envp);
        child_fail(l, LAUNCH_EXEC);
    }
    for (; n; p++) {
        size_t k = strcspn(p, ":");
        if (k + n + 2 <= sizeof buf) {
            memcpy(buf, p, k);
            if (k)
                buf[k++] = '/';
            memcpy(buf + k, name, n + 1);
            if (k)
                k--;
            syscall(SYS_execve, buf, l->argv, l->envp);
            if (errno != ENOENT && errno != ENOTDIR && (sys == ENOENT || errno != EACCES))
                sys = errno;
        }
        p += strcspn(p, ":");
        if (!*p)
            break;
    }
    errno = sys;
    child_fail(l, LAUNCH_EXEC);
}

static CHILD void child_oom_score(void)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        syscall(SYS_write, fd, "100", 3); /* closed below with the rest */
}

static CHILD int child_main(void *arg)
{
    struct launch *l = arg;
    struct { void (*fn)(int); unsigned long flags; void *restorer; uint64_t mask; } dfl = {0};
    uint64_t none = 0;
    if (syscall(SYS_setsid) < 0)
        child_fail(l, LAUNCH_SESSION);
    syscall(SYS_rt_sigaction, SIGPIPE, &dfl, NULL, sizeof none); /* the only disposition we changed */
    if (syscall(SYS_dup2, l->in, 0) < 0 || syscall(SYS_dup2, l->out, 1) < 0 || syscall(SYS_dup2, l->err, 2) < 0)
        child_fail(l, LAUNCH_STDIO);
    if (l->tty && syscall(SYS_ioctl, 0, TIOCSCTTY, 0) < 0)
        child_fail(l, LAUNCH_TTY);
    if (!l->scored)
        child_oom_score();
    syscall(SYS_close_range, 3u, ~0u, 0u); /* an older kernel: everything is CLOEXEC anyway */
    /* Do not reorder: groups while still root, uid last. Raw calls: libc would try to do it in every thread. */
    if (syscall(SYS_setgroups, (size_t)l->ngroups, l->groups) < 0 ||
        syscall(SYS_setresgid, l->user.gid, l->user.gid, l->user.gid) < 0 ||
        syscall(SYS_setresuid, l->user.uid, l->user.uid, l->user.uid) < 0)
        child_fail(l, LAUNCH_USER);
    if (syscall(SYS_chdir, l->cwd) < 0 && (l->cwd_asked || syscall(SYS_chdir, "/") < 0))
        child_fail(l, LAUNCH_CWD);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
    child_exec(l);
    return 127;
}

/* clone3 has no libc wrapper that takes a function: the child continues on its own stack right after the instruction. */
static long clone3_call(struct clone_args *ca, int (*fn)(void *), void *arg)
{
#ifdef __x86_64__
    long ret;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %[arg], %%rdi\n\t"
                     "call *%[fn]\n\t"
                     "hlt\n"
                     "1:"
                     : "=a"(ret)
                     : "a"(SYS_clone3), "D"(ca), "S"(sizeof *ca), [fn] "r"(fn), [arg] "r"(arg)
                     : "rcx", "r11", "memory");
    if (ret < 0) {
        errno = (int)-ret;
        return -1;
    }
    return ret;
#else
    (void)ca, (void)fn, (void)arg;
    errno = ENOSYS;
    return -1;
#endif
}

static int launch_error(const struct launch *l, struct err *e)
{
    const char *name = l->argv[0];
    int sys = l->sys;
    switch (l->stage) {
    case LAUNCH_CWD:
        if (sys == ENOENT)
            return err_why(e, REASON_CWD_MISSING, E_NOT_FOUND, "cwd '%.180s' does not exist",
                           l->cwd);
        if (sys == ENOTDIR)
            return err_why(e, REASON_CWD_MISSING, E_INVALID, "cwd '%.180s' is not a directory",
                           l->cwd);
        return err_sys(e, sys, "cwd '%.150s'", l->cwd);
    case LAUNCH_EXEC:
        if (sys == ENOENT && strchr(name, '/') && !access(name, F_OK))
            return err_why(e, REASON_PROGRAM_MISSING, E_NOT_FOUND,
                           "exec '%.150s': its interpreter does not exist", name);
        if (sys == ENOENT)
            return err_why(e, REASON_PROGRAM_MISSING, E_NOT_FOUND, "exec '%.180s': not found",
                           name);
        if (sys == EACCES)
            return err_why(e, REASON_PROGRAM_DENIED, E_DENIED, "exec '%.180s': permission denied",
                           name);
        if (sys == ENOEXEC)
            return err_why(e, REASON_PROGRAM_DENIED, E_INVALID,
                           "exec '%.180s': not a program (no #! line?)", name);
        return err_sys(e, sys, "exec '%.150s'", name);
    case LAUNCH_USER:
        return err_sys(e, sys, "cannot become user '%.64s'", l->user.name);
    case LAUNCH_TTY:
        return err_sys(e, sys, "terminal");
    default:
        return err_sys(e, sys, "cannot start a process");
    }
}

pid_t launch_start(struct launch *l, struct err *e)
{
    sigset_t all, old;
    pid_t pid = -1;
    l->stage = LAUNCH_OK, l->sys = 0, l->mark = -1;
    if (l->cgroup < 0 && (l->mark = tree_mark(e)) < 0)
        return -1;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    if (!l->vm)
        (void)prctl(PR_SET_DUMPABLE, 1); /* in a user namespace the child could not open its own oom_score_adj */
    errno = ENOSYS;
    if (l->cgroup >= 0) {
        struct clone_args ca = {
            .flags = CLONE_VM | CLONE_VFORK | CLONE_INTO_CGROUP,
            .exit_signal = SIGCHLD,
            .stack = (uintptr_t)child_stack,
            .stack_size = CHILD_STACK,
            .cgroup = (uint64_t)l->cgroup,
        };
        pid = (pid_t)clone3_call(&ca, child_main, l);
    }
    if (pid < 0 && errno == ENOSYS)
        pid = clone(child_main, child_stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, l);
    int sys = errno;
    (void)prctl(PR_SET_DUMPABLE, 0);
    sigprocmask(SIG_SETMASK, &old, NULL);
    if (pid < 0) {
        if (sys == EAGAIN || sys == ENOMEM)
            return err_set(e, E_QUOTA, "cannot start a process: the sandbox is out of %s", sys == EAGAIN ? "processes" : "memory");
        return err_sys(e, sys, "cannot start a process");
    }
    return l->stage == LAUNCH_OK ? pid : launch_error(l, e); /* a failed child is reaped as an orphan */
}
