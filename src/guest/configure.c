/* OP_CONFIGURE: what makes this sandbox itself and not its template. Every
 * step names itself when it fails, and nothing is answered as if it had
 * worked. No process is started unless there are hooks. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest/identity.h"
#include "guest/network.h"
#include "guest/path.h"
#include "guest/spawn.h"
#include "guest/sys.h"
#include "guest/tree.h"
#include "wire/msg.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <poll.h>
#include <stddef.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#define HOOKS_NS  (5 * NS_PER_S)
#define HOOKS_MAX 64
#define ENTROPY_MIN 32
#define ENTROPY_MAX 512

static int add_entropy(struct agent *a, struct rec r, struct err *e)
{
    struct str s;
    union { struct rand_pool_info info; unsigned char bytes[sizeof(struct rand_pool_info) + ENTROPY_MAX]; } pool;
    if (!rec_get(r, T_ENTROPY, &s) || s.n < ENTROPY_MIN || s.n > ENTROPY_MAX)
        return err_set(e, E_INVALID, "entropy: %d to %d bytes are needed", ENTROPY_MIN, ENTROPY_MAX);
    pool.info.entropy_count = (int)s.n * 8;
    pool.info.buf_size = (int)s.n;
    memcpy(pool.bytes + offsetof(struct rand_pool_info, buf), s.p, s.n);
    int rc = ioctl(a->urandom, RNDADDENTROPY, &pool) || ioctl(a->urandom, RNDRESEEDCRNG, 0) ? err_sys(e, errno, "entropy") : 0;
    explicit_bzero(&pool, sizeof pool);
    return rc;
}

static int step_clock(struct rec r, struct err *e)
{
    uint64_t ns;
    if (!rec_u64(r, T_WALL_NS, &ns))
        return err_set(e, E_INVALID, "clock: no time given");
    struct timespec t = {.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
    return clock_settime(CLOCK_REALTIME, &t) ? err_sys(e, errno, "clock") : 0;
}

static int write_one(struct agent *a, struct rec f, struct err *e)
{
    struct str bytes = {"", 0};
    auto_place p;
    if (place_open(a, f, T_PATH, true, &p, e))
        return -1;
    (void)rec_get(f, T_BYTES, &bytes);
    auto_fd fd = open_beneath(p.dir, p.base, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0 || (bytes.n && !fd_write_all(fd, bytes.p, bytes.n)))
        return path_err(e, errno, p.path);
    return fchmod(fd, rec_u64_or(f, T_MODE, 0644) & 07777) ? path_err(e, errno, p.path) : 0;
}

static int step_files(struct agent *a, struct rec r, struct err *e)
{
    struct field f;
    while (rec_next(&r, &f))
        if (f.tag == T_FILE && (!rec_ok(field_rec(f)) || write_one(a, field_rec(f), e)))
            return e->code ? err_wrap(e, "file") : err_set(e, E_INVALID, "file: malformed");
    return 0;
}

static int step_defaults(struct agent *a, struct rec r, struct err *e)
{
    struct field f;
    struct str s;
    struct buf env = {0};
    for (struct rec at = r; rec_next(&at, &f);)
        if (f.tag == T_ENV) {
            if (!f.v.n || !memchr(f.v.p, '=', f.v.n) || memchr(f.v.p, 0, f.v.n)) {
                buf_free(&env);
                return err_set(e, E_INVALID, "environment: an entry is not NAME=value");
            }
            buf_put(&env, f.v.p, f.v.n);
            buf_putc(&env, 0);
        }
    buf_free(&a->env);
    a->env = env;
    free(a->def_user), free(a->def_cwd);
    a->def_user = rec_dup(r, T_USER), a->def_cwd = rec_dup(r, T_CWD);
    if (a->def_user && !*a->def_user)
        free(take_ptr(&a->def_user));
    if (a->def_cwd && !*a->def_cwd)
        free(take_ptr(&a->def_cwd));
    a->generation = rec_u64_or(r, T_GENERATION, 0);
    a->sandbox[0] = 0;
    if (rec_get(r, T_SANDBOX, &s) && s.n < sizeof a->sandbox)
        memcpy(a->sandbox, s.p, s.n), a->sandbox[s.n] = 0;
    return 0;
}

/* ---- hooks ------------------------------------------------------------------------------------------------------ */

static int by_bytes(const struct dirent **x, const struct dirent **y) { return strcmp((*x)->d_name, (*y)->d_name); }
static int not_dot(const struct dirent *d) { return d->d_name[0] != '.'; }

static int run_hook(struct agent *a, const char *path, int64_t deadline, struct err *e)
{
    char gen[48], box[96];
    char *argv[] = {(char *)path, NULL};
    char *envp[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root", gen, box, NULL};
    siginfo_t si = {0};
    (void)snprintf(gen, sizeof gen, "HUTCH_GENERATION=%llu", (unsigned long long)a->generation);
    (void)snprintf(box, sizeof box, "HUTCH_SANDBOX_ID=%s", a->sandbox);
    struct launch l = {.argv = argv, .envp = envp, .path = "", .cwd = "/", .user = {.name = "root"}, .ngroups = 1,
                       .in = a->devnull, .out = a->devnull, .err = a->devnull, .cgroup = -1, .vm = a->vm, .scored = a->first};
    pid_t pid = launch_start(&l, e);
    auto_fd mark = l.mark;
    if (pid < 0)
        return -1;
    auto_fd pfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd w = {.fd = pfd, .events = POLLIN};
    int64_t left = deadline - clock_mono();
    if (pfd >= 0 && (left <= 0 || poll(&w, 1, (int)(left / NS_PER_MS)) <= 0)) {
        if (mark >= 0)
            tree_kill(mark);
        (void)kill(-pid, SIGKILL);
        (void)waitid(P_PID, (id_t)pid, &si, WEXITED);
        return err_set(e, E_TIMEOUT, "%s did not finish in time", path);
    }
    if (waitid(P_PID, (id_t)pid, &si, WEXITED))
        return err_sys(e, errno, "%s", path);
    if (si.si_code != CLD_EXITED || si.si_status)
        return err_set(e, E_GUEST, "%s failed with %s %d", path, si.si_code == CLD_EXITED ? "status" : "signal", si.si_status);
    return 0;
}

static int step_hooks(struct agent *a, struct err *e)
{
    struct dirent **d;
    struct stat st;
    char path[320];
    int rc = 0;
    if (stat(HOOKS_DIR, &st))
        return 0;
    int n = scandir(HOOKS_DIR, &d, not_dot, by_bytes);
    int64_t deadline = clock_mono() + HOOKS_NS;
    for (int i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, HOOKS_DIR "/%.255s", d[i]->d_name);
        if (!rc && i < HOOKS_MAX && !access(path, X_OK))
            rc = run_hook(a, path, deadline, e);
        free(d[i]);
    }
    if (n >= 0)
        free(d);
    return rc ? err_wrap(e, "post-restore hook") : 0;
}

/* A machine that comes back from disk is still frozen, and its saved memory may be needed again until the host has
 * written down that it runs: not a byte may go to its disk before OP_THAW. */
static int resume(struct agent *a, struct rec r, struct err *e)
{
    return !a->vm ? err_set(e, E_UNSUPPORTED, "resume is for virtual machines") : add_entropy(a, r, e) || step_clock(r, e) || step_defaults(a, r, e) ? -1 : 0;
}

static int configure(struct agent *a, struct rec r, struct err *e)
{
    uint64_t flags = rec_u64_or(r, T_FLAGS, 0);
    if (flags & CFG_RESUME)
        return resume(a, r, e);
    if (sys_thaw_fs(a, e)) /* the steps below write; user processes stay frozen until the last one */
        return -1;
    if (a->vm && add_entropy(a, r, e)) /* a container shares the host's generator */
        return -1;
    if (a->vm && !(flags & CFG_NO_CLOCK) && step_clock(r, e))
        return -1;
    /* once, then it is the user's to change: a VM's template has it on its disk already */
    if (flags & CFG_PRIME || !(a->vm || flags & CFG_TAKEOVER) ? network_resolver("/etc", e) : 0)
        return -1;
    if (identity_set(a, r, flags, e) || step_files(a, r, e) || step_defaults(a, r, e))
        return -1;
    if (!(flags & (CFG_PRIME | CFG_TAKEOVER | CFG_REHEARSAL)) && step_hooks(a, e))
        return -1;
    return sys_thaw_user(a, e);
}

static int thaw(struct agent *a, struct rec r, struct err *e)
{
    struct str s;
    if (!a->vm)
        return err_set(e, E_UNSUPPORTED, "thaw is for virtual machines; a container's host does it");
    if (sys_thaw_fs(a, e) || (rec_get(r, T_ENTROPY, &s) && add_entropy(a, r, e)) || (rec_get(r, T_WALL_NS, &s) && step_clock(r, e)) || step_files(a, r, e))
        return -1;
    if (rec_u64_or(r, T_FLAGS, 0) & THAW_HOOKS && step_hooks(a, e))
        return -1;
    return sys_thaw_user(a, e);
}

void op_thaw(const struct req *q)
{
    struct err e = {0};
    if (thaw(q->a, q->rec, &e))
        reply_err(q->a, q->id, &e);
    else
        reply_ok(q->a, q->id);
}

/* They do not change: a clone answers with what its template found. */
static void look_around(struct agent *a)
{
    struct utsname u;
    struct sysinfo si;
    if (*a->release)
        return;
    if (!uname(&u))
        (void)snprintf(a->release, sizeof a->release, "%s", u.release);
    if (!sysinfo(&si))
        a->mem_bytes = (uint64_t)si.totalram * si.mem_unit;
}

void op_configure(const struct req *q)
{
    struct agent *a = q->a;
    struct err e = {0};
    a->configured = false;
    if (configure(a, q->rec, &e)) {
        err_wrap(&e, "configure");
        reply_err(a, q->id, &e);
        return;
    }
    a->configured = true;
    look_around(a);
    struct buf *b = reply_begin(a);
    rec_put_u64(b, T_GENERATION, a->generation);
    rec_put_u64(b, T_WALL_NS, (uint64_t)clock_wall());
    rec_put_str(b, T_KERNEL, a->release);
    rec_put_str(b, T_VERSION, HUTCH_VERSION);
    rec_put_u64(b, T_MEM_BYTES, a->mem_bytes);
    reply_send(a, q->id);
}
