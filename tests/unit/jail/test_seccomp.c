/* The profile compiler: what text means, and what the shipped profiles say. */
#include "base/err.h"
#include "base/sysnr.h"
#include "jail/seccomp.h"
#include "test.h"
#include <errno.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static uint32_t ask(const struct seccomp_prog *p, int nr, uint64_t a0, uint64_t a1)
{
    uint64_t a[6] = {a0, a1};
    return seccomp_eval(p, AUDIT_ARCH_X86_64, (uint32_t)nr, a);
}
#define ALLOW SECCOMP_RET_ALLOW
#define KILL  SECCOMP_RET_KILL_PROCESS
#define TRAP  SECCOMP_RET_TRAP
#define DENY  (SECCOMP_RET_ERRNO | EPERM)
#define NOSYS (SECCOMP_RET_ERRNO | ENOSYS)

static struct seccomp_prog compile(const char *t)
{
    struct seccomp_prog p;
    struct err e;
    if (seccomp_compile(t, strlen(t), &p, &e)) {
        printf("# %s\n", e.msg);
        CHECK(!"compiles");
    }
    return p;
}

TEST(seccomp, list_and_default)
{
    struct seccomp_prog p = compile("# comment\ndefault errno EPERM\nallow read write  close # more\nkill reboot\nerrno ENOSYS clone3\n");
    CHECK_INT(ask(&p, SYS_read, 0, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_write, 0, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_open, 0, 0), DENY);
    CHECK_INT(ask(&p, SYS_close, 0, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_reboot, 0, 0), KILL);
    CHECK_INT(ask(&p, 435, 0, 0), NOSYS);
    CHECK_INT(ask(&p, 1000, 0, 0), DENY);
    CHECK_INT(ask(&p, 5000, 0, 0), DENY);
    seccomp_free(&p);
}

TEST(seccomp, other_architectures_die)
{
    struct seccomp_prog p = compile("default allow\n");
    uint64_t a[6] = {0};
    CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_I386, 1, a), KILL);
    CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, 0x40000001, a), KILL);
    CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, 0xffffffff, a), NOSYS);
    CHECK_INT(ask(&p, 1, 0, 0), ALLOW);
    seccomp_free(&p);
}

TEST(seccomp, arguments_are_64_bit)
{
    struct seccomp_prog p = compile("default errno EPERM\n"
                                    "allow clone if a0 & 0x7e020000 == 0\n"
                                    "errno ENOSYS ioctl if a1 & 0xffffffff == 0x5412\nallow ioctl\n"
                                    "allow personality if a0 == 0x100000008\nallow personality if a0 == 0\n"
                                    "kill ptrace if a0 != 7\nallow ptrace\n");
    CHECK_INT(ask(&p, SYS_clone, 17, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_clone, 0x10000000 | 17, 0), DENY);
    CHECK_INT(ask(&p, SYS_clone, 0x20000, 0), DENY);
    CHECK_INT(ask(&p, SYS_clone, 0x7f00000000000011, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_ioctl, 0, 0x5412), NOSYS);
    CHECK_INT(ask(&p, SYS_ioctl, 0, 0x100005412), NOSYS);
    CHECK_INT(ask(&p, SYS_ioctl, 0, 0x5413), ALLOW);
    CHECK_INT(ask(&p, SYS_personality, 8, 0), DENY);
    CHECK_INT(ask(&p, SYS_personality, 0x100000008, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_personality, 0, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_ptrace, 7, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_ptrace, 8, 0), KILL);
    CHECK_INT(ask(&p, SYS_ptrace, 0x100000007, 0), KILL);
    seccomp_free(&p);
}

TEST(seccomp, mistakes_are_errors)
{
    static const char *const bad[] = {"allow no_such_call", "permit read", "errno EWHAT read", "allow read if a9 == 0", "allow read if a0 < 1",
                                      "allow read if a0 == x", "default", "allow read if a0 == 1 and", "maybe"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct seccomp_prog p;
        struct err e;
        CHECK_INT(seccomp_compile(bad[i], strlen(bad[i]), &p, &e), -1);
        CHECK_INT(e.code, E_INVALID);
    }
    struct seccomp_prog p = compile("maybe allow no_such_call read\n");
    CHECK_INT(ask(&p, SYS_read, 0, 0), ALLOW);
    seccomp_free(&p);
}

/* Every number against a plain list: the tree must not lose or move one. */
TEST(seccomp, tree_equals_list)
{
    for (int seed = 1; seed < 40; seed++) {
        char text[16384] = "default errno EPERM\n";
        bool want[470] = {0};
        srand((unsigned)seed);
        static const char *const some[] = {"read", "write", "open", "mmap", "brk", "ioctl", "pipe", "dup", "fork", "execve", "exit", "uname", "fcntl", "chdir", "rename",
                                           "chmod", "ptrace", "getuid", "syslog", "prctl", "mount", "reboot", "gettid", "futex", "openat", "accept4", "bpf", "statx",
                                           "clone3", "futex_waitv", "mseal", "file_setattr"};
        for (unsigned i = 0; i < sizeof some / sizeof *some; i++) {
            int nr = sysnr(some[i]);
            CHECK(nr >= 0 && nr < 470);
            if (rand() % 2) {
                want[nr] = true;
                strcat(text, "allow "), strcat(text, some[i]), strcat(text, "\n");
            }
        }
        struct seccomp_prog p = compile(text);
        for (int nr = 0; nr < 470; nr++)
            CHECK_INT(ask(&p, nr, 1, 2), want[nr] ? ALLOW : DENY);
        seccomp_free(&p);
    }
}

static struct seccomp_prog shipped(const char *name)
{
    char path[PATH_MAX], abs[PATH_MAX];
    struct seccomp_prog p;
    struct err e;
    CHECK(realpath(__FILE__, abs));
    *strrchr(abs, '/') = 0;
    snprintf(path, sizeof path, "%s/../../../share/seccomp/%s.profile", abs, name);
    if (seccomp_load(path, &p, &e)) {
        printf("# %s\n", e.msg);
        CHECK(!"loads");
    }
    printf("# %s: %u instructions\n", name, p.n);
    return p;
}

TEST(profiles, container_refuses_the_dangerous)
{
    struct seccomp_prog p = shipped("container");
    static const char *const no[] = {"mount", "umount2", "pivot_root", "setns", "perf_event_open", "keyctl", "add_key", "request_key", "kexec_load",
                                     "init_module", "finit_module", "delete_module", "swapon", "reboot", "open_by_handle_at", "name_to_handle_at",
                                     "acct", "quotactl", "settimeofday", "clock_settime", "adjtimex", "vhangup", "syslog", "fsopen", "open_tree",
                                     "move_mount", "mount_setattr", "iopl", "ioperm", "fanotify_init", "statmount", "listmount"};
    for (unsigned i = 0; i < sizeof no / sizeof *no; i++)
        CHECK_INT(ask(&p, sysnr(no[i]), 0, 0), DENY);
    CHECK_INT(ask(&p, SYS_unshare, 0x10000000, 0), DENY);
    CHECK_INT(ask(&p, SYS_unshare, 0x80, 0), DENY);
    CHECK_INT(ask(&p, SYS_unshare, 0x02000000 | 0x10000000, 0),
              DENY); /* the agent's mark, and more */
    CHECK_INT(ask(&p, SYS_unshare, 0x02000000, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_unshare, 0x400 /* CLONE_FILES */, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_ptrace, 16, 1), DENY);
    CHECK_INT(ask(&p, SYS_ptrace, 16, 2), ALLOW);
    CHECK_INT(ask(&p, SYS_bpf, 0, 0), NOSYS);
    static const char *const yes[] = {"read", "execve", "openat2", "setuid", "setgroups", "mmap", "inotify_add_watch", "memfd_create", "flock",
                                      "sched_setaffinity", "epoll_pwait2", "futex_waitv", "rseq", "chroot", "prctl", "seccomp", "getrandom", "copy_file_range"};
    for (unsigned i = 0; i < sizeof yes / sizeof *yes; i++)
        CHECK_INT(ask(&p, sysnr(yes[i]), 0, 0), ALLOW);
    seccomp_free(&p);
}

/* Every family and protocol there could be, with rubbish in the half the kernel ignores as well. */
TEST(profiles, container_has_few_kinds_of_sockets)
{
    struct seccomp_prog p = shipped("container");
    const uint32_t no_family = SECCOMP_RET_ERRNO | EAFNOSUPPORT,
                   no_protocol = SECCOMP_RET_ERRNO | EPROTONOSUPPORT;
    for (uint64_t family = 0; family < 64; family++)
        for (int high = 0; high < 2; high++) {
            uint64_t a0 = family | (high ? 0x500000000ull : 0);
            bool plain = family == 1 || family == 2 || family == 10;
            CHECK_INT(ask(&p, SYS_socket, a0, 1), plain || family == 16 ? ALLOW : no_family);
            CHECK_INT(ask(&p, SYS_socketpair, a0, 1), family == 1 ? ALLOW : no_family);
        }
    for (uint64_t proto = 0; proto < 300; proto++) {
        bool module = proto == 33 || proto == 115 || proto == 132 || proto == 136 || proto == 256 ||
                      proto == 262;
        uint64_t inet[6] = {2, 1, proto}, odd[6] = {2, 1, proto | 0x100000000ull},
                 netlink[6] = {16, 3, proto};
        CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, SYS_socket, inet),
                  module ? no_protocol : ALLOW);
        CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, SYS_socket, odd),
                  module ? no_protocol : ALLOW);
        CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, SYS_socket, netlink),
                  proto == 0 || proto == 4 || proto == 15 ? ALLOW : no_protocol);
    }
    static const char *const aio[] = {"io_setup", "io_submit", "io_destroy", "io_getevents"};
    for (unsigned i = 0; i < sizeof aio / sizeof *aio; i++)
        CHECK_INT(ask(&p, sysnr(aio[i]), 0, 0), NOSYS);
    seccomp_free(&p);
}

/* The list of an isolate's calls, counted: everything of the table that is not named here must trap. */
TEST(profiles, isolate_call_traps_all_but_a_few)
{
    struct seccomp_prog p = shipped("isolate-call");
    static const char *const yes[] = {"read", "write", "readv", "writev", "close", "brk", "munmap", "mremap", "madvise", "sched_yield", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "clock_gettime",
                                      "clock_getres", "gettimeofday", "time", "clock_nanosleep", "nanosleep", "getrandom", "times", "getrusage", "getpid",
                                      "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid", "epoll_wait", "epoll_pwait", "epoll_ctl", "poll", "ppoll",
                                      "select", "timer_settime", "timer_delete", "exit", "exit_group", "rt_sigaction", "mprotect"};
    static const char *const no[] = {"sysinfo", "sched_getaffinity", "prlimit64", "getrlimit"};
    unsigned trapped = 0;
    for (int nr = 0; nr < 1024; nr++) {
        const char *name = sysnr_name(nr);
        uint32_t want = TRAP;
        for (unsigned i = 0; name && i < sizeof yes / sizeof *yes; i++)
            want = strcmp(name, yes[i]) ? want : ALLOW;
        for (unsigned i = 0; name && i < sizeof no / sizeof *no; i++)
            want = strcmp(name, no[i]) ? want : DENY;
        if (ask(&p, nr, 0, 0) != want) {
            printf("# %s\n", name ? name : "?");
            CHECK_INT(ask(&p, nr, 0, 0), want);
        }
        trapped += name && want == TRAP;
    }
    printf("# %u calls trap\n", trapped);
    CHECK(trapped > 300);
    uint64_t m[6] = {0, 4096, 3, 0x22, ~0ull, 0};
    CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, SYS_mmap, m), ALLOW);
    static const struct { uint64_t prot, flags; } bad[] = {{7, 0x22}, {4, 0x22}, {3, 0x21}, {3, 0x23}, {3, 0x02}, {3, 0x122}, {1, 0x01}};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        m[2] = bad[i].prot, m[3] = bad[i].flags;
        CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, SYS_mmap, m), TRAP);
    }
    m[2] = 5;
    CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, SYS_mprotect, m), TRAP);
    CHECK_INT(ask(&p, SYS_ioctl, 1, 0x5401), DENY);
    CHECK_INT(ask(&p, SYS_ioctl, 1, 0x5412), TRAP);
    CHECK_INT(ask(&p, SYS_prctl, 0x53564d41, 0), DENY);
    CHECK_INT(ask(&p, SYS_prctl, 38, 1), TRAP);
    for (uint64_t op = 0; op < 0x400; op++) { /* FUTEX_PRIVATE_FLAG with WAIT, WAKE, WAIT_BITSET, WAKE_BITSET, by either clock */
        uint64_t cmd = op & 0x27f;
        bool ok = (op & 0x80) && (cmd == 0 || cmd == 1 || cmd == 9 || cmd == 10);
        CHECK_INT(ask(&p, SYS_futex, 0x1000, op), ok ? ALLOW : TRAP);
    }
    static const int clocks[] = {SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep};
    for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++)
        for (int pid = 1; pid < 4; pid++) { /* that of another process, also with rubbish in the half the kernel ignores */
            CHECK_INT(ask(&p, clocks[i], (uint32_t)(~pid * 8 | 2), 0), TRAP);
            CHECK_INT(ask(&p, clocks[i], (uint64_t)(int64_t)(~pid * 8 | 2), 0), TRAP);
            CHECK_INT(ask(&p, clocks[i], 0xff00000000ull | (uint64_t)pid, 0), ALLOW);
        }
    m[2] = 12; /* MADV_MERGEABLE */
    CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, SYS_madvise, m), TRAP);
    m[2] = 4;
    CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_X86_64, SYS_madvise, m), ALLOW);
    CHECK_INT(ask(&p, SYS_rt_sigaction, SIGSYS, 0), TRAP);
    CHECK_INT(ask(&p, SYS_rt_sigaction, 0xff00000000ull | SIGSYS, 0), TRAP);
    CHECK_INT(seccomp_eval(&p, AUDIT_ARCH_I386, 4, m), KILL);
    CHECK_INT(ask(&p, 0x40000000 | 1, 0, 0), KILL);
    seccomp_free(&p);
}

TEST(profiles, isolate_has_no_way_out)
{
    struct seccomp_prog p = shipped("isolate");
    static const char *const no[] = {"socket", "connect", "bind", "ptrace", "process_vm_readv", "mount", "unshare", "setns", "chroot", "mkdir", "mkdirat", "unlink", "unlinkat",
                                     "rename", "renameat2", "symlinkat", "chmod", "fchmodat", "chown", "mknodat", "setuid", "setresuid", "capset", "keyctl", "perf_event_open",
                                     "kexec_load", "init_module", "personality", "settimeofday", "pidfd_open", "pidfd_getfd", "inotify_init1", "truncate", "setxattr"};
    for (unsigned i = 0; i < sizeof no / sizeof *no; i++)
        CHECK_INT(ask(&p, sysnr(no[i]), 0, 0), DENY);
    CHECK_INT(ask(&p, SYS_socketpair, 1, 0), ALLOW);
    CHECK_INT(ask(&p, SYS_socketpair, 2, 0), DENY);
    for (uint64_t family = 0; family < 64; family++)
        CHECK_INT(ask(&p, SYS_socket, family, 1), DENY);
    CHECK_INT(ask(&p, SYS_io_setup, 1, 0), DENY);
    CHECK_INT(ask(&p, SYS_clone, 0x10000000, 0), DENY);
    seccomp_free(&p);
}

TEST(profiles, the_kernel_takes_them)
{
    static const char *const name[] = {"container", "vm", "untar", "isolate"};
    for (int i = 0; i < 4; i++) {
        struct seccomp_prog p = shipped(name[i]);
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
            struct err e;
            _exit(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || seccomp_install(&p, &e) ? 1 : syscall(SYS_mount, "", "/", "", 0, "") < 0 && errno == EPERM ? 0 : 2);
        }
        int st;
        CHECK_INT(waitpid(pid, &st, 0), pid);
        CHECK_INT(st, 0);
        seccomp_free(&p);
    }
}

TEST_MAIN
