#include "guest/isolate.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "wire/isolate.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS (30 * NS_PER_S)

/* -I: no environment, no user paths; -S: no site; the driver decides what is loaded. */
static const char *const python_args[] = {"-I", "-S", "-B", ZY_DIR "/driver", NULL};
/* One thread, or the fork would lose the others: no compiler, hence no writable code pages either. */
static const char *const js_args[] = {"--single-threaded", "--jitless", "--no-expose-wasm", "--v8-pool-size=0", "--expose-gc",
                                      "--expose-internals", "--no-warnings", "--stack-size=900", ZY_DIR "/driver", NULL};
static const char *const php_args[] = {"-d", "memory_limit=-1", "-d", "display_errors=stderr", "-d", "html_errors=0", "-d", "log_errors=0",
                                       "-d", "max_execution_time=0", "-d", "pcre.jit=0", "-d", "opcache.enable_cli=0", ZY_DIR "/driver", NULL};
static const char *const ruby_args[] = {"--disable=gems,rubyopt", ZY_DIR "/driver", NULL};

static const struct iso_lang langs[] = {
    {"python", "python3", python_args, 64ull << 20},
    {"js", "node", js_args, 2048ull << 20}, /* V8 reserves far more than it uses */
    {"php", "php", php_args, 64ull << 20},
    {"ruby", "ruby", ruby_args, 128ull << 20},
};

const struct iso_lang *iso_lang(const char *name)
{
    for (size_t i = 0; i < sizeof langs / sizeof *langs; i++)
        if (!strcmp(langs[i].name, name))
            return &langs[i];
    return NULL;
}

/* ---- the interpreter -------------------------------------------------------------------------------------------- */

static bool find_program(const struct iso_lang *l, char path[64])
{
    static const char *const dirs[] = {"/usr/local/bin", "/usr/bin", "/bin"};
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
        (void)snprintf(path, 64, "%s/%s", dirs[i], l->program);
        if (!access(path, X_OK))
            return true;
    }
    return false;
}

static void exec_program(const struct iso_lang *l, const char *path, int sock, int err) __attribute__((noreturn));
static void exec_program(const struct iso_lang *l, const char *path, int sock, int err)
{
    static char *const env[] = {"LD_PRELOAD=" ZY_LIBRARY, "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/", "LANG=C.UTF-8", "LC_ALL=C.UTF-8",
                                "TZ=UTC0", /* a zone file would be looked at again by every call */
                                "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "MALLOC_ARENA_MAX=1", NULL};
    char *argv[24] = {(char *)(uintptr_t)path};
    int n = 1;
    for (const char *const *p = l->args; *p && n < 23; p++)
        argv[n++] = (char *)(uintptr_t)*p;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    /* 0, 1 and ZY_RESULT are /dev/null, so that nothing of the interpreter's own has a number that a call's pipes get; the
     * rest is close-on-exec. First away from those numbers: */
    sock = fcntl(sock, F_DUPFD, ZY_SOCKET + 1), err = fcntl(err, F_DUPFD, ZY_SOCKET + 1);
    if (sock >= 0 && err >= 0 && dup2(err, 2) >= 0 && dup2(sock, ZY_SOCKET) >= 0 && dup2(1, ZY_RESULT) >= 0 && !close(sock) && !close(err))
        (void)execve(path, argv, env);
    _exit(127);
}

static void lost(struct agent *a, const struct err *e)
{
    struct iso *x = a->iso;
    iso_calls_fail(a, e);
    io_close(&a->loop, &x->sock);
    io_close(&a->loop, &x->err);
    timer_stop(&a->loop, &x->start);
    if (getpid() == 1)
        (void)kill(-1, SIGKILL); /* the interpreter and every call of it, also one whose name never arrived; reaped as usual */
    else if (x->zygote)
        (void)kill(x->zygote, SIGKILL);
    x->ready = false;
}

static void on_start_timeout(struct agent *a, struct timer *t)
{
    struct err e;
    (void)t;
    err_set(&e, E_UNSUPPORTED, "%s did not get ready within %d s", a->iso->lang->name, (int)(START_NS / NS_PER_S));
    lost(a, &e);
}

static void on_err(struct agent *a, struct io *io, uint32_t events)
{
    struct iso *x = a->iso;
    char t[512];
    (void)events;
    ssize_t n = read(io->fd, t, sizeof t);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        io_close(&a->loop, io);
        return;
    }
    size_t keep = x->ntail, room = sizeof x->tail - (size_t)n; /* n <= sizeof tail */
    if (keep > room) {
        memmove(x->tail, x->tail + (keep - room), room);
        keep = room;
    }
    memcpy(x->tail + keep, t, (size_t)n);
    x->ntail = (unsigned)(keep + (size_t)n);
}

static void on_sock(struct agent *a, struct io *io, uint32_t events)
{
    struct iso *x = a->iso;
    (void)events;
    for (int i = 0; i < 64; i++) {
        struct zy_note m;
        ssize_t n = recv(io->fd, &m, sizeof m, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n != (ssize_t)sizeof m) { /* its end is at hand; wait(2) tells how */
            io_set(&a->loop, io, 0);
            return;
        }
        if (m.kind != ZY_READY) {
            iso_call_started(a, &m);
            continue;
        }
        char path[32];
        (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)x->zygote);
        auto_free char *statm = fd_slurp_at(AT_FDCWD, path, 256, NULL);
        unsigned long resident, shared, data;
        x->rss = x->data = 0;
        if (statm && sscanf(statm, "%*u %lu %lu %*u %*u %lu", &resident, &shared, &data) == 3)
            x->data = (uint64_t)data << 12;
        if (x->data && resident > shared)
            x->rss = (uint64_t)(resident - shared) << 12; /* a fork takes the private pages along; those of files come as they are used */
        x->ready = true;
        timer_stop(&a->loop, &x->start);
        iso_call_ready(a);
    }
}

static int start(struct agent *a, struct err *e)
{
    struct iso *x = a->iso;
    char path[64];
    int sv[2], ep[2];
    if (!find_program(x->lang, path))
        return err_set(e, E_UNSUPPORTED, "this template has no %s (looked for %s)", x->lang->name, x->lang->program);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(e, errno, "socketpair");
    if (pipe2(ep, O_CLOEXEC) < 0) {
        (void)close(sv[0]), (void)close(sv[1]);
        return err_sys(e, errno, "pipe");
    }
    pid_t pid = fork();
    if (!pid)
        exec_program(x->lang, path, sv[1], ep[1]);
    (void)close(sv[1]), (void)close(ep[1]);
    if (pid < 0) {
        (void)close(sv[0]), (void)close(ep[0]);
        return err_sys(e, errno, "fork");
    }
    x->zygote = pid;
    x->ready = false;
    x->ntail = 0;
    x->sock = (struct io){.fd = sv[0], .fn = on_sock};
    x->err = (struct io){.fd = ep[0], .fn = on_err};
    (void)fd_nonblock(sv[0]), (void)fd_nonblock(ep[0]);
    io_set(&a->loop, &x->sock, EPOLLIN);
    io_set(&a->loop, &x->err, EPOLLIN);
    timer_start(&a->loop, &x->start, clock_mono() + START_NS);
    return 0;
}

/* Its status, and the last line it wrote, so that whoever built the template sees what is missing in it. */
static void zygote_ended(struct agent *a, int status)
{
    struct iso *x = a->iso;
    struct err e;
    bool was_ready = x->ready;
    if (x->err.fd >= 0)
        on_err(a, &x->err, EPOLLIN);
    unsigned end = x->ntail, from;
    while (end && (x->tail[end - 1] == '\n' || x->tail[end - 1] == ' '))
        end--;
    for (from = end; from && x->tail[from - 1] != '\n';)
        from--;
    const char *telling = memmem(x->tail, end, "Error: ", 7); /* most languages put more behind the line that matters */
    if (telling) {
        from = (unsigned)(telling - x->tail);
        const char *nl = memchr(telling, '\n', end - from);
        end = nl ? (unsigned)(nl - x->tail) : end;
    }
    for (unsigned i = from; i < end; i++)
        if ((unsigned char)x->tail[i] < ' ' || (unsigned char)x->tail[i] > 126)
            x->tail[i] = '?';
    err_set(&e, was_ready ? E_GUEST : E_UNSUPPORTED, "%s %s (%s %d)%s%.*s", x->lang->name, was_ready ? "ended unexpectedly" : "did not start",
            WIFSIGNALED(status) ? "signal" : "status", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), end > from ? ": " : "",
            (int)(end - from > 120 ? 120 : end - from), x->tail + from);
    x->zygote = 0;
    lost(a, &e);
}

void iso_reap(struct agent *a)
{
    struct iso *x = a->iso;
    struct rusage ru;
    int st;
    pid_t pid;
    if (x->sock.fd >= 0 && x->sock.events)
        on_sock(a, &x->sock, EPOLLIN); /* notes of starts that are older than the ends below */
    while ((pid = wait4(-1, &st, WNOHANG, &ru)) > 0) {
        if (pid == x->zygote) {
            zygote_ended(a, st);
            continue;
        }
        struct iso_early r = {.pid = pid, .status = st, .rss = (uint64_t)ru.ru_maxrss << 10};
        r.cpu_ns = (ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * NS_PER_S + (ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * 1000LL;
        if (!iso_call_exited(a, &r) && iso_calls_nameless(a) && x->nearly < ISO_CALLS_MAX)
            x->early[x->nearly++] = r;
    }
    if (!iso_calls_nameless(a))
        x->nearly = 0;
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

static void eval(const struct req *q)
{
    struct iso *x = q->a->iso;
    struct err e = {0};
    if (x->ncalls >= ISO_CALLS_MAX) {
        err_set(&e, E_QUOTA, "more than %d calls at once", ISO_CALLS_MAX);
        reply_err(q->a, q->id, &e);
    } else if (!x->zygote && start(q->a, &e)) {
        reply_err(q->a, q->id, &e);
    } else {
        iso_call(q);
    }
}

void iso_request(struct agent *a, uint32_t id, uint8_t op, struct rec r)
{
    struct req q = {a, id, op, r};
    struct err e;
    if (!rec_ok(r)) {
        err_set(&e, E_INVALID, "malformed request");
        reply_err(a, id, &e);
    } else if (op == OP_PING) {
        op_ping(&q);
    } else if (op == OP_ISO_CALL) {
        eval(&q);
    } else {
        err_set(&e, E_UNSUPPORTED, "an isolate does not know operation %u", op);
        reply_err(a, id, &e);
    }
}

int iso_init(struct agent *a, const char *lang, struct err *e)
{
    const struct iso_lang *l = iso_lang(lang);
    if (!l)
        return err_set(e, E_INVALID, "unknown language %s", lang);
    struct iso *x = a->iso = xcalloc(1, sizeof *x);
    x->lang = l;
    x->sock.fd = x->err.fd = -1;
    x->start.fn = on_start_timeout;
    list_init(&x->calls);
    return 0;
}

void iso_fini(struct agent *a)
{
    struct err e;
    err_set(&e, E_GONE, "the isolate ends");
    lost(a, &e);
    free(a->iso);
    a->iso = NULL;
}
