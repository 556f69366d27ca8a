/* zygote.so: the fork server inside an interpreter. Loaded with LD_PRELOAD (or,
 * by node, with process.dlopen) into an interpreter of the template, it takes
 * the place of the C library's fork():
 *
 *   parent   never returns; waits on ZY_SOCKET and makes one process per call
 *   child    returns 0 with the call's descriptors as 0..3, everything else
 *            closed and the limits set
 *
 * So a driver (share/isolate) loads what it wants, asks for its parent's pid (or
 * for no alarm), calls its language's own fork (with all the housekeeping that
 * language does around one), and goes on once per call. Then it asks again,
 * which is the signal to put the filter on: from there the caller's code may
 * run. Before the first asking a module that is loaded can start no program:
 * forks fail. The process is a child
 * of the warden, not of the interpreter (CLONE_PARENT): who kills it also waits
 * for it, and a pid cannot mean somebody else.
 *
 * No library of ours and none of the C library's state: raw system calls, so
 * that it loads into any interpreter of whatever libc. Symbols of node and
 * libuv are weak. Anything that fails in a child ends it with EXIT_SETUP, and
 * without the 'L' no answer of it is believed. */
#include "wire/zygote.h"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <ucontext.h>

#define EXIT_SETUP  125
#define FILTER_MAX  4096
#define FDS_MAX     256
#define OWN_NOFILE  64
#define EXPORT      __attribute__((visibility("default")))
#define WEAK        __attribute__((weak))
#define MADV_NOFORK 10 /* MADV_DONTFORK */

/* ---- the kernel ----------------------------------------------------------------------------------------------- */

static long sys6(long n, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall" : "=a"(ret) : "0"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return ret;
}
#define SYS3(n, a, b, c) sys6(n, (long)(a), (long)(b), (long)(c), 0, 0, 0)
#define SYS4(n, a, b, c, d) sys6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static void leave(int status) __attribute__((noreturn));
static void leave(int status)
{
    for (;;)
        (void)SYS3(SYS_exit_group, status, 0, 0);
}

/* ---- what the interpreter holds, once ------------------------------------------------------------------------- */

static struct sock_filter filter[FILTER_MAX];
static unsigned short filter_n;
static uint64_t own_data, own_space; /* bytes */
static long own_pid;
static int last_fd;
static enum { LOADING, ARMED, SERVING, FORKED, LOCKED } state;

static long read_file(const char *path, void *p, size_t room)
{
    long fd = SYS4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), got = 0, n;
    if (fd < 0)
        return fd;
    while ((size_t)got < room && (n = SYS3(SYS_read, fd, (char *)p + got, room - (size_t)got)) > 0)
        got += n;
    (void)SYS3(SYS_close, fd, 0, 0);
    return got;
}

/* /proc/self/statm: size resident shared text lib data dt, in pages */
static bool measure(void)
{
    char t[256];
    uint64_t v[7] = {0};
    long n = read_file("/proc/self/statm", t, sizeof t);
    int k = 0;
    for (long i = 0; i < n && k < 7; i++)
        if (t[i] >= '0' && t[i] <= '9')
            v[k] = v[k] * 10 + (uint64_t)(t[i] - '0');
        else
            k++;
    own_space = v[0] << 12;
    own_data = v[5] << 12;
    return k >= 6;
}

static bool load_filter(void)
{
    long n = read_file(ZY_FILTER, filter, sizeof filter);
    filter_n = (unsigned short)(n > 0 ? (size_t)n / sizeof *filter : 0);
    return filter_n && (size_t)n % sizeof *filter == 0 && filter_n < FILTER_MAX;
}

/* Each open descriptor gets an owner that a new one does not have: in the child that tells the interpreter's own,
 * shared with every other call, from what its event loop made anew under the same numbers. */
static void mark_fds(void)
{
    for (int fd = 0; fd < FDS_MAX; fd++)
        if (SYS3(SYS_fcntl, fd, F_SETOWN, own_pid) >= 0)
            last_fd = fd;
}

static void note(uint32_t kind, uint64_t id, int pid, int err)
{
    struct zy_note m = {.id = id, .kind = kind, .pid = pid, .sys = err};
    (void)sys6(SYS_sendto, ZY_SOCKET, (long)&m, sizeof m, MSG_NOSIGNAL, 0, 0); /* a warden that is gone shows at the next read */
}

/* ---- the child ------------------------------------------------------------------------------------------------ */

extern int uv_loop_fork(void *loop) WEAK;
extern void *uv_default_loop(void) WEAK;

static void limit(int what, uint64_t v)
{
    struct rlimit l = {v, v};
    if (SYS4(SYS_prlimit64, 0, what, &l, 0) < 0)
        leave(EXIT_SETUP);
}

static void place_fds(const int *fd)
{
    for (int i = 0; i < ZY_FDS; i++)
        if (SYS3(SYS_dup3, fd[i], i, 0) < 0) /* they arrived above ZY_SOCKET: none is overwritten before its turn */
            leave(EXIT_SETUP);
    (void)SYS3(SYS_close, ZY_SOCKET, 0, 0);
    for (int i = 0; i < ZY_FDS; i++)
        (void)SYS3(SYS_close, fd[i], 0, 0);
    if (uv_loop_fork && uv_default_loop && uv_loop_fork(uv_default_loop()))
        leave(EXIT_SETUP);
}

/* Late: the interpreter's own housekeeping after a fork wants to close some of them itself. */
static void close_marked(void)
{
    for (int i = ZY_FDS; i <= last_fd; i++)
        if (SYS3(SYS_fcntl, i, F_GETOWN, 0) == own_pid)
            (void)SYS3(SYS_close, i, 0, 0);
    (void)SYS3(SYS_close_range, FDS_MAX, ~0u, 0);
}

static void enter(const struct zy_call *c, const int *fd)
{
    long adj;
    state = FORKED;
    place_fds(fd);
    adj = SYS4(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
    if (adj >= 0) { /* if memory runs out after all, a call goes first, not the interpreter of all calls */
        (void)SYS3(SYS_write, adj, "1000", 4);
        (void)SYS3(SYS_close, adj, 0, 0);
    }
    limit(RLIMIT_DATA, own_data + c->data_bytes);
    limit(RLIMIT_AS, own_space + c->space_bytes);
    limit(RLIMIT_CPU, c->cpu_s);
    limit(RLIMIT_NOFILE, OWN_NOFILE);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_CORE, 0);
    limit(RLIMIT_MEMLOCK, 0);
    limit(RLIMIT_MSGQUEUE, 0);
}

/* A call outside the list arrives here instead of in the kernel. It leaves its name, then makes one more such call while
 * SIGSYS is blocked, which the kernel answers with death by SIGSYS: that status cannot be caught or faked by a return. */
static void on_trap(int sig, siginfo_t *si, void *uc)
{
    const ucontext_t *u = uc;
    struct zy_trap t = {.magic = ZY_TRAP_MAGIC, .nr = (uint32_t)si->si_syscall};
    (void)sig;
    t.arg[0] = (uint64_t)u->uc_mcontext.gregs[REG_RDI];
    t.arg[1] = (uint64_t)u->uc_mcontext.gregs[REG_RSI];
    t.arg[2] = (uint64_t)u->uc_mcontext.gregs[REG_RDX];
    (void)SYS3(SYS_write, ZY_RESULT, &t, sizeof t);
    (void)SYS3(SYS_reboot, 0, 0, 0);
    leave(EXIT_SETUP);
}

/* What rt_sigaction(2) of x86-64 takes; the C library's struct differs. */
struct action { void (*fn)(int, siginfo_t *, void *); unsigned long flags; void (*restorer)(void); uint64_t mask; };
static void restorer(void) __attribute__((naked, noinline));
static void restorer(void) { __asm__ volatile("mov %0, %%eax\n syscall" : : "i"(SYS_rt_sigreturn)); }
#define ACTION_RESTORER 0x04000000ul

static void lock(void)
{
    struct action a = {.fn = on_trap, .flags = SA_SIGINFO | ACTION_RESTORER, .restorer = restorer, .mask = ~0ull};
    struct sock_fprog p = {filter_n, filter};
    uint64_t none = 0;
    close_marked();
    state = LOCKED;
    if (SYS3(SYS_write, ZY_RESULT, "L", 1) != 1 || SYS4(SYS_rt_sigaction, SIGSYS, &a, 0, 8) < 0 ||
        SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, 8) < 0 || SYS3(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p) != 0)
        leave(EXIT_SETUP);
}

/* ---- the parent ----------------------------------------------------------------------------------------------- */

/* 0: not one of ours; the warden never sends such, so it is skipped */
static bool take_call(struct zy_call *c, int fd[ZY_FDS])
{
    union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int) * ZY_FDS)]; } u;
    struct iovec v = {c, sizeof *c};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &u, .msg_controllen = sizeof u};
    long n;
    do
        n = SYS3(SYS_recvmsg, ZY_SOCKET, &m, MSG_CMSG_CLOEXEC);
    while (n == -4 /* EINTR */);
    if (n <= 0)
        leave(0); /* the warden is gone */
    if (n != (long)sizeof *c || m.msg_controllen < CMSG_LEN(sizeof(int) * ZY_FDS) || u.h.cmsg_len != CMSG_LEN(sizeof(int) * ZY_FDS))
        return false;
    for (int i = 0; i < ZY_FDS; i++)
        fd[i] = ((int *)(void *)CMSG_DATA(&u.h))[i];
    return true;
}

static void serve(void)
{
    struct zy_call c = {0};
    int fd[ZY_FDS];
    own_pid = SYS3(SYS_getpid, 0, 0, 0);
    if (!load_filter() || !measure())
        leave(EXIT_SETUP);
    mark_fds();
    state = SERVING;
    note(ZY_READY, 0, 0, 0);
    for (;;) {
        if (!take_call(&c, fd))
            continue;
        long pid = sys6(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0, 0);
        if (!pid) {
            enter(&c, fd);
            return;
        }
        for (int i = 0; i < ZY_FDS; i++)
            (void)SYS3(SYS_close, fd[i], 0, 0);
        note(pid > 0 ? ZY_STARTED : ZY_FAILED, c.id, (int)pid, pid < 0 ? (int)-pid : 0);
    }
}

/* ---- what interpreters call ----------------------------------------------------------------------------------- */

static int refused(void);
EXPORT int fork(void);
EXPORT int fork(void)
{
    if (state != ARMED)
        return refused();
    serve();
    return 0;
}

EXPORT int getppid(void);
EXPORT int getppid(void)
{
    if (state == LOADING)
        state = ARMED;
    else if (state == FORKED)
        lock();
    return (int)SYS3(SYS_getppid, 0, 0, 0);
}

/* The same for PHP, whose extensions do not see us; pcntl_alarm(0) is in the program itself. */
EXPORT unsigned alarm(unsigned seconds);
EXPORT unsigned alarm(unsigned seconds)
{
    if (state == LOADING && !seconds)
        state = ARMED;
    if (state == FORKED && !seconds) {
        lock();
        return 0;
    }
    if (state == LOCKED && seconds >= ZY_LEAVE && seconds < ZY_LEAVE + 256) /* PHP's own way out takes longer than the call */
        leave((int)(seconds - ZY_LEAVE));
    return (unsigned)SYS3(SYS_alarm, seconds, 0, 0);
}

/* The C library blocks all signals while it makes a thread or starts a program, and a trap that is blocked kills without
 * a word. So these ask in its place, once the filter is on, and the trap finds them awake. */
extern void *dlsym(void *handle, const char *name) WEAK;
extern int *__errno_location(void) WEAK;
#define NEXT ((void *)-1l)

static int refused(void)
{
    uint64_t none = 0;
    if (state == LOADING || state == ARMED) {
        state = LOADING; /* who was refused one way tries the next (vfork, then fork): that is not the driver's */
        if (__errno_location)
            *__errno_location() = 1; /* EPERM */
        return -1;
    }
    (void)SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &none, 0, 8);
    (void)sys6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    return -1;
}

typedef int make_thread(void *, const void *, void *(*)(void *), void *);
EXPORT make_thread pthread_create;
EXPORT int pthread_create(void *t, const void *attr, void *(*fn)(void *), void *arg)
{
    make_thread *real = state == LOCKED || !dlsym ? NULL : (make_thread *)dlsym(NEXT, "pthread_create");
    return real ? real(t, attr, fn, arg) : refused() ? 11 /* EAGAIN */ : 0;
}

EXPORT int system(const char *command);
EXPORT int system(const char *command) { return (void)command, refused(); }
EXPORT void *popen(const char *command, const char *mode);
EXPORT void *popen(const char *command, const char *mode) { return (void)command, (void)mode, (void)refused(), NULL; }
EXPORT int posix_spawn(void *pid, const char *path, void *actions, void *attr, char **argv, char **envp);
EXPORT int posix_spawn(void *pid, const char *path, void *actions, void *attr, char **argv, char **envp)
{
    return (void)pid, (void)path, (void)actions, (void)attr, (void)argv, (void)envp, refused();
}
EXPORT int posix_spawnp(void *pid, const char *path, void *actions, void *attr, char **argv, char **envp);
EXPORT int posix_spawnp(void *pid, const char *path, void *actions, void *attr, char **argv, char **envp)
{
    return posix_spawn(pid, path, actions, attr, argv, envp);
}
EXPORT int vfork(void);
EXPORT int vfork(void) { return refused(); }

/* Python opens the file of a syntax error to show the line; the program has none and is called "<program>". */
typedef void *open_file(const char *path, const char *mode);
static void *open_by(const char *name, const char *path, const char *mode)
{
    if (state == LOCKED && path && path[0] == '<')
        return NULL;
    open_file *real = dlsym ? (open_file *)dlsym(NEXT, name) : NULL;
    return real ? real(path, mode) : NULL;
}
EXPORT open_file fopen, fopen64;
EXPORT void *fopen(const char *path, const char *mode) { return open_by("fopen", path, mode); }
EXPORT void *fopen64(const char *path, const char *mode) { return open_by("fopen64", path, mode); }

/* V8 excludes its heap from forks, to make those of child processes cheap. Here the heap is what a fork is for. */
EXPORT int madvise(void *p, size_t n, int advice);
EXPORT int madvise(void *p, size_t n, int advice)
{
    return advice == MADV_NOFORK ? 0 : SYS3(SYS_madvise, p, n, advice) < 0 ? -1 : 0;
}

/* ---- node: a native module with serve() and exit(status) -------------------------------------------------------- */

extern int napi_create_function(void *env, const char *name, size_t n, void *(*fn)(void *, void *), void *data, void **ret) WEAK;
extern int napi_set_named_property(void *env, void *object, const char *name, void *value) WEAK;
extern int napi_get_cb_info(void *env, void *info, size_t *argc, void **argv, void **self, void **data) WEAK;
extern int napi_get_value_int32(void *env, void *value, int32_t *ret) WEAK;

static void *node_serve(void *env, void *info)
{
    (void)env, (void)info;
    serve();
    lock();
    return NULL;
}

/* node's own way out joins threads that this process does not have */
static void *node_exit(void *env, void *info)
{
    size_t argc = 1;
    void *arg = NULL;
    int32_t status = 0;
    (void)napi_get_cb_info(env, info, &argc, &arg, NULL, NULL);
    (void)napi_get_value_int32(env, arg, &status);
    leave(status & 255);
}

EXPORT void *napi_register_module_v1(void *env, void *exports);
EXPORT void *napi_register_module_v1(void *env, void *exports)
{
    void *f;
    if (!napi_create_function(env, "serve", 5, node_serve, NULL, &f))
        (void)napi_set_named_property(env, exports, "serve", f);
    if (!napi_create_function(env, "exit", 4, node_exit, NULL, &f))
        (void)napi_set_named_property(env, exports, "exit", f);
    return exports;
}
