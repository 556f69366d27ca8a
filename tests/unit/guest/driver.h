/* The host's end of the agent channel for tests: synchronous, one thread. The
 * agent runs for real as PID 1 of its own pid, mount and uts namespace, with a
 * private /etc, so that it may be told anything without touching the machine.
 *
 * HUTCH_TEST_EXEC=/path/hutch-agent  runs that (static) program instead of the code linked here
 * HUTCH_TEST_USERNS=1                inside a user namespace, as the jail does */
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/err.h"
#include "base/fd.h"
#include "guest/agent.h"
#include "test.h"
#include "wire/frame.h"
#include "wire/msg.h"
#include "wire/rec.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct host {
    int fd;
    struct frame_reader rd;
    struct buf in;
    size_t at;
    uint32_t next_id;
    pid_t pid; /* the agent, seen from outside */
};

/* What came back on one stream, added up. */
struct result {
    bool over;
    int code;
    char msg[256];
    struct buf out, err, pty, file, tunnel, res, events; /* res: record of FR_RES; events: T_ENTRY* and watch records */
    bool started, exited, tunnel_eof;
    uint64_t pid, offset, total, lost, kind, status, granted;
    uint64_t no_credit; /* do not give new credit for what arrives */
};

static inline void result_free(struct result *r)
{
    buf_free(&r->out), buf_free(&r->err), buf_free(&r->pty), buf_free(&r->file), buf_free(&r->tunnel), buf_free(&r->res), buf_free(&r->events);
    *r = (struct result){0};
}

static char driver_dir[] = "/tmp/.etcXXXXXX";
static inline void driver_copy(const char *path)
{
    char to[128];
    size_t n;
    char *s = fd_slurp_at(AT_FDCWD, path, 1 << 20, &n);
    if (!s)
        return;
    (void)snprintf(to, sizeof to, "%s%s", driver_dir, path + 4);
    int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && fd_write_all(fd, s, n));
    close(fd);
    free(s);
}

/* A private /etc; `user` is uid 1000 with group 1234 besides. */
static inline void driver_etc(void)
{
    CHECK(!mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    CHECK(mkdtemp(driver_dir));
    CHECK(!mount("tmpfs", driver_dir, "tmpfs", 0, "mode=755"));
    static const char *const files[] = {"/etc/ld.so.cache", "/etc/nsswitch.conf", "/etc/hosts", "/etc/hostname"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        driver_copy(files[i]);
    char path[64];
    (void)snprintf(path, sizeof path, "%s/passwd", driver_dir);
    FILE *f = fopen(path, "w");
    fputs("root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000::/tmp/home:/bin/bash\nbroken line\n", f);
    fclose(f);
    (void)snprintf(path, sizeof path, "%s/group", driver_dir);
    f = fopen(path, "w");
    fputs("root:x:0:\nuser:x:1000:\nextra:x:1234:other,user\nnot:x:77:users\n", f);
    fclose(f);
    CHECK(!mount(driver_dir, "/etc", NULL, MS_MOVE, NULL));
    CHECK(!rmdir(driver_dir));
}

/* With the address sanitizer: what the agent still holds after its end. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
static int *driver_leaked; /* shared with the agent */
static inline int driver_leaks(void)
{
    (void)prctl(PR_SET_DUMPABLE, 1);
    if (!__lsan_do_recoverable_leak_check || !__lsan_do_recoverable_leak_check())
        return 0;
    *driver_leaked = 1;
    return 1;
}

static inline void driver_map(pid_t pid, const char *file)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && write(fd, "0 0 65536", 9) == 9);
    close(fd);
}

static const char *driver_isolate;   /* language: the agent is an isolate's warden */
static void (*driver_furnish)(void); /* in its namespaces, before it starts */

static inline void driver_agent(int fd)
{
    const char *prog = getenv("HUTCH_TEST_EXEC");
    char n[16];
    if (!prog)
        _exit(agent_run(&(struct agent_opts){.fd = fd, .isolate = driver_isolate}) || driver_leaks());
    (void)snprintf(n, sizeof n, "%d", fd);
    fcntl(fd, F_SETFD, 0);
    execl(prog, "hutch-agent", "--container", "--fd", n, (char *)NULL);
    _exit(99);
}

static inline void host_start_raw(struct host *h)
{
    int sv[2], pp[2], up[2], down[2];
    bool userns = getenv("HUTCH_TEST_USERNS");
    if (geteuid())
        SKIP("needs root");
    *h = (struct host){.next_id = 1};
    driver_leaked = mmap(NULL, sizeof *driver_leaked, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(driver_leaked != MAP_FAILED);
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) && !pipe(pp) && !pipe(up) && !pipe(down));
    pid_t mid = fork();
    if (!mid) {
        char c;
        if (unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | (userns ? CLONE_NEWUSER : 0)))
            _exit(77);
        CHECK(!userns || (write(up[1], "u", 1) == 1 && read(down[0], &c, 1) == 1 && !setresgid(0, 0, 0) && !setresuid(0, 0, 0)));
        pid_t pid = fork();
        if (!pid) {
            driver_etc();
            CHECK(!mount("proc", "/proc", "proc", 0, NULL));
            CHECK(!mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777"));
            mkdir("/tmp/home", 0755), mkdir("/tmp/small", 0755);
            CHECK(!mount("tmpfs", "/tmp/small", "tmpfs", 0, "size=64k"));
            CHECK(!chown("/tmp/home", 1000, 1000));
            close(sv[0]), close(pp[0]), close(pp[1]), close(up[0]), close(up[1]), close(down[0]), close(down[1]);
            sv[1] = fcntl(sv[1], F_DUPFD_CLOEXEC, 10);
            if (driver_furnish)
                driver_furnish();
            driver_agent(sv[1]);
        }
        CHECK(write(pp[1], &pid, sizeof pid) == sizeof pid);
        _exit(0);
    }
    int st;
    if (userns) {
        char c;
        CHECK(read(up[0], &c, 1) == 1);
        driver_map(mid, "uid_map"), driver_map(mid, "gid_map");
        CHECK(write(down[1], "g", 1) == 1);
    }
    close(up[0]), close(up[1]), close(down[0]), close(down[1]);
    waitpid(mid, &st, 0);
    if (WIFEXITED(st) && WEXITSTATUS(st) == 77)
        SKIP("no namespaces here");
    CHECK(read(pp[0], &h->pid, sizeof h->pid) == sizeof h->pid);
    close(pp[0]), close(pp[1]), close(sv[1]);
    h->fd = sv[0];
}

static inline void host_write(struct host *h, const void *p, size_t n) { CHECK(fd_write_all(h->fd, p, n)); }

/* Next frame; false at the deadline or end of file. The payload lives until the next call. */
static inline bool host_frame(struct host *h, struct frame *f, int ms)
{
    int64_t deadline = clock_mono() + ms * NS_PER_MS;
    if (h->at) {
        buf_drop(&h->in, h->at);
        h->at = 0;
    }
    for (;;) {
        size_t used;
        enum frame_result r = frame_next(&h->rd, (unsigned char *)h->in.p, h->in.n, &used, f);
        if (r == FRAME_GOT) {
            h->at = used;
            return true;
        }
        if (r == FRAME_SYNC)
            f->type = 0;
        buf_drop(&h->in, used);
        CHECK(r != FRAME_BAD);
        if (r == FRAME_SYNC)
            return true;
        struct pollfd w = {.fd = h->fd, .events = POLLIN};
        int64_t left = deadline - clock_mono();
        if (left <= 0 || poll(&w, 1, (int)(left / NS_PER_MS) + 1) <= 0)
            return false;
        buf_reserve(&h->in, 65536);
        ssize_t n = read(h->fd, h->in.p + h->in.n, 65536);
        if (n <= 0)
            return false;
        h->in.n += (size_t)n;
    }
}

static inline void host_sync(struct host *h, uint32_t epoch, bool flush)
{
    struct buf b = {0};
    struct frame f;
    frame_put_sync(&b, epoch, false, flush);
    host_write(h, b.p, b.n);
    buf_free(&b);
    h->rd = (struct frame_reader){.want_epoch = epoch, .want_ack = true};
    buf_drop(&h->in, h->at), h->at = 0;
    CHECK(host_frame(h, &f, 5000) && f.type == 0 && h->rd.peer_version == WIRE_VERSION);
}

static inline void host_send(struct host *h, enum frame_type t, uint8_t chan, uint32_t id, const void *p, size_t n)
{
    struct buf b = {0};
    frame_put(&b, h->rd.epoch, t, chan, id, p, n);
    host_write(h, b.p, b.n);
    buf_free(&b);
}

static inline void host_credit(struct host *h, uint32_t id, uint32_t n)
{
    unsigned char x[4];
    put_le32(x, n);
    host_send(h, FR_CREDIT, 0, id, x, 4);
}

/* `rec` is a record without the op byte; freed here. */
static inline uint32_t host_req(struct host *h, uint8_t op, struct buf *rec)
{
    struct buf b = {0};
    uint32_t id = h->next_id++;
    buf_putc(&b, (char)op);
    if (rec) {
        buf_put(&b, rec->p, rec->n);
        buf_free(rec);
    }
    host_send(h, FR_REQ, 0, id, b.p, b.n);
    buf_free(&b);
    return id;
}

static inline void take_event(struct result *r, const struct frame *f)
{
    struct rec x = {f->p + 1, f->n - 1};
    switch (f->p[0]) {
    case EV_STARTED:
        r->started = true;
        r->pid = rec_u64_or(x, T_PID, 0), r->offset = rec_u64_or(x, T_OFFSET, 0);
        break;
    case EV_EXIT:
        r->exited = true;
        r->kind = rec_u64_or(x, T_EXIT_KIND, 0), r->status = rec_u64_or(x, T_EXIT_CODE, 0), r->total = rec_u64_or(x, T_OFFSET, 0);
        break;
    case EV_LOST:
        r->lost += rec_u64_or(x, T_SIZE, 0);
        break;
    case EV_ENTRIES:
        buf_put(&r->events, x.p, x.n);
        break;
    case EV_WATCH:
        rec_put(&r->events, T_ENTRY, x.p, x.n);
        break;
    default:
        CHECK(!"unknown event");
    }
}

static inline void take_frame(struct host *h, struct result *r, const struct frame *f)
{
    struct buf *const chan[CH_MAX] = {[CH_STDOUT] = &r->out, [CH_STDERR] = &r->err, [CH_PTY] = &r->pty, [CH_FILE] = &r->file, [CH_TUNNEL] = &r->tunnel};
    struct str m;
    switch (f->type) {
    case FR_RES:
        r->over = true;
        r->code = f->p[0];
        buf_put(&r->res, f->p + 1, f->n - 1);
        if (rec_get((struct rec){f->p + 1, f->n - 1}, T_MESSAGE, &m))
            (void)snprintf(r->msg, sizeof r->msg, "%.*s", (int)m.n, m.p);
        break;
    case FR_EVENT:
        take_event(r, f);
        break;
    case FR_DATA:
        CHECK(chan[f->chan]);
        buf_put(chan[f->chan], f->p, f->n);
        if (!r->no_credit)
            host_credit(h, f->stream, f->n);
        break;
    case FR_EOF:
        r->tunnel_eof = true;
        break;
    case FR_CREDIT:
        r->granted += get_le32(f->p);
        break;
    default:
        CHECK(!"unexpected frame");
    }
}

/* One frame of stream id into r; frames of other streams are dropped. false: deadline */
static inline bool host_step(struct host *h, uint32_t id, struct result *r, int ms)
{
    struct frame f;
    int64_t deadline = clock_mono() + ms * NS_PER_MS;
    while (host_frame(h, &f, (int)((deadline - clock_mono()) / NS_PER_MS) + 1)) {
        if (f.stream == id) {
            take_frame(h, r, &f);
            return true;
        }
        if (clock_mono() > deadline)
            break;
    }
    return false;
}

static inline void host_wait(struct host *h, uint32_t id, struct result *r)
{
    while (!r->over)
        CHECK(host_step(h, id, r, 100000));
}

static inline void host_call(struct host *h, uint8_t op, struct buf *rec, struct result *r) { host_wait(h, host_req(h, op, rec), r); }

static inline void host_configure(struct host *h)
{
    struct buf b = {0};
    struct result r = {0};
    char e[32] = {1};
    rec_put(&b, T_ENTROPY, e, sizeof e);
    rec_put_u64(&b, T_WALL_NS, (uint64_t)clock_wall());
    rec_put_str(&b, T_HOSTNAME, "box-one");
    rec_put_str(&b, T_MACHINE_ID, "0123456789abcdef0123456789abcdef");
    rec_put_u64(&b, T_GENERATION, 7);
    rec_put_str(&b, T_SANDBOX, "i0");
    rec_put_str(&b, T_ENV, "FROM_CONFIG=yes");
    rec_put_str(&b, T_USER, "user");
    host_call(h, OP_CONFIGURE, &b, &r);
    if (r.code)
        printf("# configure: %s\n", r.msg);
    CHECK_INT(r.code, 0);
    result_free(&r);
}

static inline void host_start(struct host *h)
{
    host_start_raw(h);
    host_sync(h, 0x1234, false);
    host_configure(h);
}

static inline void host_stop(struct host *h)
{
    struct result r = {0};
    struct pollfd w = {.fd = (int)syscall(SYS_pidfd_open, h->pid, 0), .events = POLLIN};
    host_call(h, OP_SHUTDOWN, NULL, &r);
    CHECK_INT(r.code, 0);
    result_free(&r);
    char c;
    CHECK(read(h->fd, &c, 1) <= 0); /* the agent lets go, */
    CHECK(w.fd < 0 || poll(&w, 1, 20000) == 1); /* ends, */
    CHECK(!*driver_leaked); /* and held nothing more */
    if (w.fd >= 0)
        close(w.fd);
    close(h->fd);
    buf_free(&h->in);
}

/* A start request for sh -c. */
static inline struct buf sh_credit(const char *cmd, uint64_t credit)
{
    struct buf b = {0};
    rec_put_str(&b, T_ARG, "sh");
    rec_put_str(&b, T_ARG, "-c");
    rec_put_str(&b, T_ARG, cmd);
    rec_put_u64(&b, T_CREDIT, credit);
    return b;
}
static inline struct buf sh(const char *cmd) { return sh_credit(cmd, 1 << 20); }

static inline void host_sh(struct host *h, const char *cmd, struct result *r)
{
    struct buf b = sh(cmd);
    host_call(h, OP_START, &b, r);
}

#ifdef __SANITIZE_ADDRESS__
#define MEMORY_COUNTS 0 /* the sanitizer's own memory hides the agent's */
#else
#define MEMORY_COUNTS 1
#endif
static inline uint64_t agent_rss_kib(struct host *h)
{
    char path[64], line[256];
    uint64_t kib = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", h->pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %" SCNu64, &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}
