/* Raw mode is entered once the session stands and left on return, on exit(3),
 * on fatal signals (restored in the handler, then raised again) and when INT,
 * TERM or HUP are sent to us, which arrive through a signalfd. */
#include "cli/pty.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "cli/args.h"
#include "cli/stream.h"
#include "http/ws.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static volatile sig_atomic_t raw;

static void restore(void)
{
    if (raw) {
        raw = 0;
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &saved); /* also async-signal-safe */
    }
}

static void on_fatal(int sig)
{
    restore();
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

static int make_raw(struct cli *x)
{
    struct termios t = saved;
    cfmakeraw(&t);
    if (tcsetattr(STDIN_FILENO, TCSANOW, &t))
        return err_sys(&x->err, errno, "cannot switch the terminal to raw mode");
    raw = 1;
    return 0;
}

static void size_now(int *cols, int *rows)
{
    struct winsize w = {0};
    bool ok = ioctl(STDIN_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col && w.ws_row;
    *cols = ok ? w.ws_col : 80;
    *rows = ok ? w.ws_row : 24;
}

static char *target(const char *id, int argc, char *const *argv, const char *user, const char *cwd, struct args *env)
{
    int cols, rows, i = 0;
    size_now(&cols, &rows);
    char num[2][16];
    (void)snprintf(num[0], 16, "%d", cols);
    (void)snprintf(num[1], 16, "%d", rows);
    char *t = url("/v1/sandboxes/{}/pty?cols={}&rows={}", id, num[0], num[1]);
    for (int k = 0; k < argc; k++)
        url_arg(&t, "cmd", argv[k]);
    url_arg(&t, "user", user);
    url_arg(&t, "cwd", cwd);
    const char *term = getenv("TERM"), *kv;
    url_arg(&t, "env.TERM", term && *term ? term : "xterm");
    while (env && (kv = args_list(env, "env", &i))) {
        const char *eq = strchr(kv, '=');
        auto_free char *name = xasprintf("env.%.*s", (int)(eq ? eq - kv : (ptrdiff_t)strlen(kv)), kv);
        url_arg(&t, name, eq ? eq + 1 : getenv(kv));
    }
    return t;
}

static int on_message(struct cli *x, int op, struct str data, int *status)
{
    if (op == WS_BINARY)
        return fd_write_all(STDOUT_FILENO, data.p, data.n) ? 0 : err_sys(&x->err, errno, "cannot write to the terminal");
    if (op != WS_TEXT)
        return 0;
    auto_json j = json_parse_obj(data.p, data.n, NULL);
    struct json *exit = json_get(j, "exit"), *error = json_get(j, "error");
    if (error) {
        api_problem_json(x, error);
        return -1;
    }
    if (exit)
        *status = exit_status(exit, true);
    return 0;
}

static int on_signal(struct cli *x, struct http_client *c, int sfd, int *status)
{
    struct signalfd_siginfo si;
    if (read(sfd, &si, sizeof si) != (ssize_t)sizeof si)
        return 0;
    int cols, rows;
    char msg[64];
    switch (si.ssi_signo) {
    case SIGCONT: /* a shell may have changed the modes while we were stopped */
        if (make_raw(x))
            return -1;
        __attribute__((fallthrough));
    case SIGWINCH:
        size_now(&cols, &rows);
        (void)snprintf(msg, sizeof msg, "{\"resize\":{\"cols\":%d,\"rows\":%d}}", cols, rows);
        return http_client_ws_send(c, WS_TEXT, msg, strlen(msg), &x->err);
    default:
        *status = 128 + (int)si.ssi_signo;
        return 0;
    }
}

static int relay(struct cli *x, struct http_client *c, int sfd)
{
    int status = -1;
    bool eof = false;
    while (status < 0) {
        struct pollfd p[3] = {{.fd = http_client_fd(c), .events = POLLIN}, {.fd = sfd, .events = POLLIN}, {.fd = eof ? -1 : STDIN_FILENO, .events = POLLIN}};
        if (poll(p, 3, http_client_pending(c) ? 0 : -1) < 0 && errno != EINTR)
            return err_sys(&x->err, errno, "poll");
        if (p[1].revents && on_signal(x, c, sfd, &status))
            return -1;
        if (p[2].revents && status < 0) {
            char data[8192];
            ssize_t n = read(STDIN_FILENO, data, sizeof data);
            if (n > 0 && http_client_ws_send(c, WS_BINARY, data, (size_t)n, &x->err))
                return -1;
            eof = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
            if (eof)
                return 128 + SIGHUP; /* our terminal is gone */
        }
        for (int got = 1; got && status < 0 && (p[0].revents || http_client_pending(c));) {
            int op = 0, code = 0;
            struct str data = {0};
            if ((got = http_client_ws_recv(c, false, &op, &data, &code, &x->err)) < 0)
                return -1;
            if (got && op == WS_CLOSE)
                return err_set(&x->err, E_UNAVAILABLE, "the terminal session was closed (%d) %.*s", code, (int)(data.n > 100 ? 100 : data.n),
                               data.n ? data.p : "");
            if (got && on_message(x, op, data, &status))
                return -1;
        }
    }
    return status;
}

int pty_run(struct cli *x, const char *id, int argc, char *const *argv, const char *user, const char *cwd, struct args *env)
{
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &saved)) {
        (void)snprintf(x->hint, sizeof x->hint, "`hutch exec ID -- CMD` works with pipes and files");
        return err_set(&x->err, E_INVALID, "an interactive terminal needs a terminal on standard input and output");
    }
    auto_free char *t = target(id, argc, argv, user, cwd, env);
    auto_client c = api_open(x);
    if (!c)
        return -1;
    api_about(x, t);
    if (http_client_ws(c, t, api_headers(x, NULL), &x->err)) {
        struct err first = x->err;
        auto_free char *look = url("/v1/sandboxes/{}", id); /* no such sandbox, no key: said better by a plain request */
        if (api_call(x, "GET", look, NULL, NULL) == 0)
            x->err = first;
        return -1;
    }
    static const int fatal[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGQUIT};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        (void)signal(fatal[i], on_fatal);
    (void)atexit(restore);
    sigset_t set, old;
    sigemptyset(&set);
    static const int mine[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        sigaddset(&set, mine[i]);
    sigprocmask(SIG_BLOCK, &set, &old);
    auto_fd sfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    int status = sfd < 0 ? err_sys(&x->err, errno, "signalfd") : make_raw(x);
    if (!status)
        status = relay(x, c, sfd);
    restore();
    sigprocmask(SIG_SETMASK, &old, NULL);
    return status;
}
