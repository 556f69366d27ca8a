/* Finding, starting and watching hutchd. It is started in a session of its own
 * with its output in $HUTCH_HOME/log/hutchd.log; the starter waits until it
 * answers, or shows the end of that log. A lock file lets only one of several
 * impatient commands do it. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/ours.h"
#include "cli/client.h"
#include "cli/out.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_NS (60 * NS_PER_S) /* hutchd itself gives hutch-spawn half of it */
#define LOG_LINES 12

bool daemon_answers(struct cli *x, struct json **ret_health)
{
    struct err e = {0};
    auto_client c = api_connect(x, &e);
    if (!c)
        return false;
    auto_buf b = {0};
    http_client_timeout(c, 5 * NS_PER_S);
    if (http_client_call(c, "GET", "/healthz", NULL, NULL, 0, &b, &e) != 200)
        return false;
    if (ret_health)
        *ret_health = json_parse_obj(b.p, b.n, NULL);
    return true;
}

char *daemon_find(struct cli *x)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 8);
    if (n > 0) {
        self[n] = 0;
        char *slash = strrchr(self, '/');
        if (slash) {
            strcpy(slash + 1, "hutchd"); /* eight bytes were kept free */
            if (!access(self, X_OK))
                return xstrdup(self);
            auto_free char *sbin =
                xasprintf("%.*s/../sbin/hutchd", (int)(slash - self), self); /* installed */
            if (!access(sbin, X_OK))
                return take_ptr(&sbin);
        }
    }
    const char *path = getenv("PATH");
    auto_free char *dirs = xstrdup(path ? path : "/usr/local/bin:/usr/bin:/bin");
    char *rest = dirs, *d;
    while ((d = strsep(&rest, ":"))) {
        if (d[0] != '/')
            continue; /* never from the current folder */
        auto_free char *p = xasprintf("%s/hutchd", d);
        if (!access(p, X_OK))
            return take_ptr(&p);
    }
    (void)err_set(&x->err, E_UNAVAILABLE, "hutchd is not next to hutch and not in PATH");
    (void)snprintf(x->hint, sizeof x->hint, "build it with `make`, or install it with `make install`");
    return NULL;
}

static int make_dirs(const char *path, mode_t mode)
{
    auto_free char *p = xstrdup(path);
    for (char *s = p + 1; *s; s++)
        if (*s == '/') {
            *s = 0;
            if (mkdir(p, 0755) && errno != EEXIST)
                return -1;
            *s = '/';
        }
    return mkdir(p, mode) && errno != EEXIST ? -1 : 0;
}

/* What the last ERROR line says, without its time and level. */
static void last_error(const char *text, size_t n, char *out, size_t cap)
{
    static const char mark[] = " ERROR hutchd: ";
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(text + at, '\n', n - at);
        size_t k = nl ? (size_t)(nl - text) - at : n - at;
        const char *m = memmem(text + at, k, mark, sizeof mark - 1);
        if (m)
            esc_text(
                (struct str){m + sizeof mark - 1, (size_t)(text + at + k - (m + sizeof mark - 1))},
                out, cap);
        at += k + 1;
    }
}

/* Shows the end of the log; *why gets the reason, if the log has one. */
static bool show_log_tail(const char *path, off_t from, char *why, size_t cap)
{
    auto_fd fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) || st.st_size <= from)
        return false;
    if (st.st_size - from > 16384)
        from = st.st_size - 16384;
    if (lseek(fd, from, SEEK_SET) < 0)
        return false;
    size_t n = 0;
    auto_free char *text = fd_slurp(fd, 65536, &n);
    if (!text)
        return false;
    while (n && text[n - 1] == '\n')
        n--;
    size_t at = n, lines = 0;
    while (at > 0 && !(text[at - 1] == '\n' && ++lines == LOG_LINES))
        at--;
    last_error(text, n, why, cap);
    auto_buf out = {0};
    for (size_t i = at; i < n;) {
        const char *nl = memchr(text + i, '\n', n - i);
        size_t k = nl ? (size_t)(nl - text) - i : n - i;
        buf_puts(&out, "  | ");
        esc_put(&out, (struct str){text + i, k});
        buf_putc(&out, '\n');
        i += k + 1;
    }
    (void)fd_write_all(STDERR_FILENO, out.p, out.n); /* nowhere else to complain */
    return true;
}

/* In the child: only async-signal-safe calls until exec. */
static void become_daemon(const char *path, int logfd, int failfd)
{
    sigset_t none;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    if (setsid() >= 0 && null >= 0 && dup2(null, 0) >= 0 && dup2(logfd, 1) >= 0 && dup2(logfd, 2) >= 0)
        execl(path, "hutchd", (char *)NULL);
    (void)!write(failfd, &errno, sizeof errno);
    _exit(127);
}

static int wait_ready(struct cli *x, pid_t pid, const char *log, off_t log_from)
{
    int64_t deadline = clock_mono() + START_NS, died = 0;
    for (;;) {
        if (daemon_answers(x, NULL))
            return 0;
        int64_t now = clock_mono();
        int st;
        if (!died && waitpid(pid, &st, WNOHANG) == pid)
            died = now;
        /* Dead, but another one may just have won the race for the socket: look a moment longer. */
        if ((died && now - died > NS_PER_S) || now > deadline) {
            char why[180] = "";
            bool shown = show_log_tail(log, log_from, why, sizeof why);
            (void)err_set(&x->err, E_UNAVAILABLE, "%s%s%s", died ? "hutchd did not start" : "hutchd started but does not answer", *why ? ": " : "", why);
            if (!shown || !died) /* else the reason was just shown */
                (void)snprintf(x->hint, sizeof x->hint, "`hutch up --foreground` shows what it does; its log is %.160s", log);
            else
                (void)snprintf(x->hint, sizeof x->hint, "`hutch doctor` checks this host");
            return -1;
        }
        (void)usleep(20000);
    }
}

/* The daemon writes to both folders, and we are root. */
static int open_lock(struct cli *x)
{
    auto_fd run = open(x->run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    auto_fd fd = run < 0 ? err_sys(&x->err, errno, "%s", x->run)
                         : ours_file(run, "start.lock", O_RDWR, &x->err);
    if (fd >= 0 && flock(fd, LOCK_EX))
        return err_sys(&x->err, errno, "cannot lock start.lock in %s", x->run);
    return fd < 0 ? -1 : take_fd(&fd);
}
static int open_log(struct cli *x)
{
    auto_fd home = open(x->home, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (home < 0 || (mkdirat(home, "log", 0700) && errno != EEXIST))
        return err_sys(&x->err, errno, "cannot create log in %s", x->home);
    auto_fd dir = openat(home, "log", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 ? err_sys(&x->err, errno, "log in %s", x->home)
                   : ours_file(dir, "hutchd.log", O_WRONLY | O_APPEND, &x->err);
}

int daemon_start(struct cli *x, bool quiet)
{
    auto_free char *prog = daemon_find(x);
    if (!prog)
        return -1;
    auto_free char *log = xasprintf("%s/log/hutchd.log", x->home);
    if (make_dirs(x->home, 0700))
        return err_sys(&x->err, errno, "cannot create the state directory %s", x->home);
    if (make_dirs(x->run, 0755))
        return err_sys(&x->err, errno, "cannot create the run directory %s", x->run);
    auto_fd lockfd = open_lock(x), logfd = -1;
    if (lockfd < 0)
        return -1;
    if (daemon_answers(x, NULL))
        return 0; /* someone else started it while we waited for the lock */
    if ((logfd = open_log(x)) < 0)
        return -1;
    off_t log_from = lseek(logfd, 0, SEEK_END);
    int fail[2], why = 0;
    if (pipe2(fail, O_CLOEXEC))
        return err_sys(&x->err, errno, "pipe");
    if (!quiet && isatty(STDERR_FILENO))
        (void)fprintf(stderr, "hutch: starting hutchd\n");
    pid_t pid = fork();
    if (!pid)
        become_daemon(prog, logfd, fail[1]);
    int sys = errno;
    (void)close(fail[1]);
    bool failed = pid > 0 && fd_read_all(fail[0], &why, sizeof why) == (ssize_t)sizeof why;
    (void)close(fail[0]);
    if (pid < 0)
        return err_sys(&x->err, sys, "fork");
    if (failed) {
        (void)waitpid(pid, NULL, 0);
        return err_sys(&x->err, why, "cannot run %s", prog);
    }
    return wait_ready(x, pid, log, log_from);
}

int daemon_doctor(struct cli *x, struct json **ret)
{
    auto_free char *prog = daemon_find(x);
    int p[2];
    if (!prog)
        return -1;
    if (pipe2(p, O_CLOEXEC))
        return err_sys(&x->err, errno, "pipe");
    pid_t pid = fork();
    if (!pid) {
        if (dup2(p[1], STDOUT_FILENO) >= 0)
            execl(prog, "hutchd", "--doctor", (char *)NULL);
        _exit(127);
    }
    (void)close(p[1]);
    size_t n = 0;
    auto_free char *text = pid > 0 ? fd_slurp(p[0], 1u << 20, &n) : NULL;
    (void)close(p[0]);
    if (pid > 0)
        (void)waitpid(pid, NULL, 0);
    *ret = text ? json_parse_obj(text, n, NULL) : NULL;
    return *ret ? 0 : err_set(&x->err, E_UNAVAILABLE, "hutchd --doctor gave no answer");
}

static bool process_lives(int64_t pid) /* a zombie does not: its parent may be slow to look */
{
    char path[48], text[512];
    (void)snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    auto_fd fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (n <= 0)
        return false;
    text[n] = 0;
    const char *name_end = strrchr(text, ')'); /* the name before it may hold anything */
    return name_end && name_end[1] && name_end[2] != 'Z' && name_end[2] != 'X';
}

int daemon_wait_gone(struct cli *x, int64_t pid, int64_t ns)
{
    int64_t deadline = clock_mono() + ns;
    while (daemon_answers(x, NULL) || process_lives(pid)) {
        if (clock_mono() > deadline)
            return err_set(&x->err, E_TIMEOUT, "hutchd is still running after %lld s", (long long)(ns / NS_PER_S));
        (void)usleep(20000);
    }
    return 0;
}
