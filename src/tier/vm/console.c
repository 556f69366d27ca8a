/* The console of a VM: what QEMU and the guest's kernel printed last. The
 * spawner keeps the bytes (spawn/server_console.c); here they become text that
 * is safe to print, and, when a guest did not come up, an entry in
 * log/console.log. Guests choose these bytes: nothing but printable ASCII and
 * line ends passes, and the file has a bound. */
#include "tier/vm/console.h"
#include "tier/vm/vm_int.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "base/log.h"
#include "loop/job.h"
#include "spawn/client.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define LOG_NAME       "console.log"
#define LOG_MAX        (256u << 10) /* then it becomes console.log.1 */
#define LINE_MAX_SHOWN 120u

void console_text(struct str raw, struct buf *out)
{
    bool fresh = true; /* at the start of a line */
    for (size_t i = 0; i < raw.n; i++) {
        unsigned char c = (unsigned char)raw.p[i];
        if (c == '\n' || c == '\r') {
            if (!fresh)
                buf_putc(out, '\n');
            fresh = true;
            continue;
        }
        fresh = false;
        if (c == '\t')
            buf_putc(out, ' ');
        else if (c < 0x20 || c > 0x7e)
            buf_printf(out, "\\x%02x", c);
        else
            buf_putc(out, (char)c);
    }
    if (!fresh)
        buf_putc(out, '\n');
}

struct str console_last(struct str text, int lines)
{
    size_t at = text.n;
    while (at && lines > 0) {
        at--; /* the line's end */
        while (at && text.p[at - 1] != '\n')
            at--;
        lines--;
    }
    return (struct str){text.p + at, text.n - at};
}

static bool contains(struct str s, const char *word)
{
    return memmem(s.p, s.n, word, strlen(word)) != NULL;
}

/* The line that names the cause, if one does; what a kernel says afterwards is how it went down. */
struct str console_cause(struct str text)
{
    static const char *const words[] = {"hutch-agent: ", "Kernel panic", "qemu-system-x86_64: "};
    struct str last = {0};
    bool named = false;
    for (size_t at = 0; at < text.n;) {
        const char *nl = memchr(text.p + at, '\n', text.n - at);
        struct str line = {text.p + at, nl ? (size_t)(nl - text.p) - at : text.n - at};
        at += line.n + 1;
        bool names = false;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            names |= contains(line, words[i]);
        if (names || !named)
            last = line;
        named |= names;
    }
    last.n = last.n > LINE_MAX_SHOWN ? LINE_MAX_SHOWN : last.n;
    return last;
}

/* ---- asking the spawner ---- */

struct ask {
    vm_console_cb *cb;
    void *arg;
};

static void on_console(void *arg, const struct sp_rep *rep, int *fds, int nfds)
{
    struct ask a = *(struct ask *)arg;
    auto_buf text = {0};
    size_t n = 0;
    free(arg);
    if (rep->rc) {
        a.cb(a.arg, (struct str){0}, &rep->err);
        return;
    }
    auto_free char *raw = nfds == 1 ? fd_slurp(fds[0], SP_CONSOLE_MAX, &n) : NULL;
    console_text((struct str){raw, n}, &text);
    a.cb(a.arg, (struct str){text.p, text.n}, NULL);
}

int vm_console(struct vm_host *h, const char *box_id, vm_console_cb *cb, void *arg, struct err *e)
{
    struct sp_req q = {.op = SP_CONSOLE};
    struct ask *a = xcalloc(1, sizeof *a);
    *a = (struct ask){cb, arg};
    (void)snprintf(q.u.id.id, sizeof q.u.id.id, "%s", box_id);
    if (!spawn_call(h->conf.spawn, &q, NULL, 0, on_console, a, e))
        return 0;
    free(a);
    return -1;
}

/* ---- the file ---- */

struct entry {
    int home;
    struct buf text;
};

static int open_log(int dir)
{
    return openat(dir, LOG_NAME, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* By copying: the folder is root's, and both files are there from the start (spawn/place.h). */
static void begin_anew(int dir, int log)
{
    size_t n = 0;
    auto_free char *text = lseek(log, 0, SEEK_SET) ? NULL : fd_slurp(log, 4 * LOG_MAX, &n);
    auto_fd older =
        openat(dir, LOG_NAME ".1", O_WRONLY | O_TRUNC | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool kept = text && older >= 0 && fd_write_all(older, text, n);
    if (ftruncate(log, 0) || !kept)
        log_warn("log/" LOG_NAME ".1: %s", strerror(errno));
}

static void write_entry(void *arg)
{
    struct entry *en = arg;
    struct stat st;
    /* O_PATH: it is root's, and may be walked but not listed */
    auto_fd dir = openat(en->home, "log", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    auto_fd fd = dir < 0 ? -1 : open_log(dir);
    if (fd >= 0 && !fstat(fd, &st) && st.st_size > (off_t)LOG_MAX)
        begin_anew(dir, fd);
    if (fd < 0 || !fd_write_all(fd, en->text.p, en->text.n))
        log_warn("log/" LOG_NAME ": %s", strerror(errno));
    cleanup_fd(&en->home);
    buf_free(&en->text);
    free(en);
}

void console_log(struct vm_host *h, const char *what, struct str text)
{
    struct entry *en = xcalloc(1, sizeof *en);
    time_t now = time(NULL);
    struct tm tm;
    char at[32];
    (void)gmtime_r(&now, &tm);
    (void)strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", &tm);
    en->home = fcntl(h->conf.home_fd, F_DUPFD_CLOEXEC, 0);
    buf_printf(&en->text, "==== %s %s\n", at, what);
    for (struct str rest = text;
         rest.n;) { /* indented: no line of a guest's looks like one of ours */
        const char *nl = memchr(rest.p, '\n', rest.n);
        size_t n = nl ? (size_t)(nl - rest.p) + 1 : rest.n;
        buf_puts(&en->text, "  ");
        buf_put(&en->text, rest.p, n);
        rest.p += n, rest.n -= n;
    }
    if (!text.n)
        buf_puts(&en->text, "(nothing was printed)\n");
    job_run(h->conf.jobs, write_entry, NULL, en);
}

void console_explain(struct err *e, struct str text)
{
    struct str line = console_cause(text);
    size_t n = strlen(e->msg);
    if (line.n)
        (void)snprintf(e->msg + n, sizeof e->msg - n,
                       "; its console (log/" LOG_NAME " in HUTCH_HOME) says: %.*s", (int)line.n,
                       line.p);
    else
        (void)snprintf(e->msg + n, sizeof e->msg - n,
                       "; its console stayed empty: the guest's kernel did not start");
}
