/* What a box says on stderr and, of a VM, what its guest prints on the serial
 * port: one pipe. The last LOG_TAIL bytes are kept, in memory.
 *
 * Hostile side: whoever writes. It fills no disk (the log gets a few lines,
 * once, when the box ends) and does not keep this one thread busy: after a
 * burst a box is only read from at ticks. A VM's end of the pipe does not block,
 * so that what comes faster is lost there and the emulator goes on; other
 * boxes lose their stderr after TOTAL_MAX. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "spawn/server.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TOTAL_MAX  (1u << 20)
#define BURST      256               /* reads of one box until it has to wait for ticks … */
#define PER_TICK   4                 /* … and then at each: a full pipe */
#define TICK_NS    (500 * NS_PER_MS)
#define LOG_BYTES  4096u             /* that go to the log when a box ends by itself: a guest chooses them, */
#define LOG_LINES  64                /* and each line has a head; a panic with its trace takes some 40 */

static void tail_put(struct box *b, const char *p, size_t n)
{
    if (!b->tail)
        b->tail = xmalloc(LOG_TAIL);
    b->tail_total += n;
    if (n > LOG_TAIL)
        p += n - LOG_TAIL, n = LOG_TAIL;
    size_t at = (size_t)((b->tail_total - n) % LOG_TAIL), first = n < LOG_TAIL - at ? n : LOG_TAIL - at;
    memcpy(b->tail + at, p, first);
    memcpy(b->tail, p + first, n - first);
}

static size_t tail_copy(const struct box *b, char out[LOG_TAIL])
{
    if (!b->tail)
        return 0;
    size_t n = b->tail_total < LOG_TAIL ? (size_t)b->tail_total : LOG_TAIL;
    size_t at = (size_t)((b->tail_total - n) % LOG_TAIL), first = n < LOG_TAIL - at ? n : LOG_TAIL - at;
    memcpy(out, b->tail + at, first);
    memcpy(out + first, b->tail, n - first);
    return n;
}

static void pipe_close(struct box *b)
{
    server_unwatch(b->srv, &b->w_err);
    cleanup_fd(&b->errpipe);
    b->errpipe = -1;
}

/* One read. False: there is no more for now. */
static bool pipe_read(struct box *b)
{
    char t[16384];
    ssize_t n = b->errpipe < 0 ? -1 : read(b->errpipe, t, sizeof t);
    if (n > 0)
        tail_put(b, t, (size_t)n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || (b->kind != SP_KIND_VM && b->tail_total >= TOTAL_MAX))
        pipe_close(b);
    return n > 0 && b->errpipe >= 0;
}

static void on_pipe(struct server *s, struct watch *w)
{
    struct box *b = w->arg;
    (void)pipe_read(b);
    if (--b->tail_reads > 0 || b->errpipe < 0)
        return;
    server_unwatch(s, &b->w_err);
    b->tail_waits = true;
    if (!s->console_at)
        s->console_at = clock_mono() + TICK_NS;
}

int console_tick(struct server *s, int64_t now)
{
    size_t i = 0;
    if (!s->console_at)
        return -1;
    if (s->console_at > now)
        return (int)((s->console_at - now) / NS_PER_MS) + 1;
    s->console_at = 0;
    for (struct map_entry *m; (m = map_next(&s->boxes, &i));) {
        struct box *b = m->value;
        if (!b->tail_waits || b->errpipe < 0)
            continue;
        b->tail_waits = false;
        b->tail_reads = PER_TICK;
        if (server_watch(s, &b->w_err, b->errpipe, on_pipe, b) < 0)
            pipe_close(b);
    }
    return -1;
}

int box_log_pipe(struct box *b, uint32_t uid, int *ret_write_end, struct err *e)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return err_sys(e, errno, "pipe");
    b->errpipe = p[0];
    b->tail_reads = BURST;
    /* owned by the box, or it could not open /dev/stderr again */
    if (fd_nonblock(p[0]) < 0 || (b->kind == SP_KIND_VM && fd_nonblock(p[1]) < 0) || fchown(p[1], uid, uid) < 0 ||
        server_watch(b->srv, &b->w_err, p[0], on_pipe, b) < 0) {
        int sys = errno;
        (void)close(p[1]);
        return err_sys(e, sys, "pipe");
    }
    *ret_write_end = p[1];
    return 0;
}

void console_catch_up(struct box *b)
{
    for (int i = 0; i < PER_TICK && pipe_read(b); i++)
        ;
}

int console_open(struct box *b, struct err *e)
{
    char text[LOG_TAIL];
    console_catch_up(b);
    size_t n = tail_copy(b, text);
    auto_fd fd = memfd_create("console", MFD_CLOEXEC);
    if (fd < 0 || !fd_write_all(fd, text, n) || lseek(fd, 0, SEEK_SET) < 0)
        return err_sys(e, errno, "console of %s", b->id);
    return take_fd(&fd);
}

/* Where the lines begin that go to the log. Empty ones count. */
static size_t last_lines(const char *text, size_t n)
{
    size_t at = n, least = n > LOG_BYTES ? n - LOG_BYTES : 0;
    for (int lines = 0; at > least; at--)
        if (text[at - 1] == '\n' && at < n && ++lines == LOG_LINES)
            break;
    return at;
}

/* The end, and the last words line by line. Of a VM that was to end nobody asks for them. */
void console_log_end(struct box *b)
{
    char text[LOG_TAIL];
    size_t n = b->kind == SP_KIND_VM && b->removing ? 0 : tail_copy(b, text);
    log_info("%s ended: %s %d oom_kills=%u", b->id, b->exit.signaled ? "signal" : "status", b->exit.code, b->exit.oom_kills);
    for (size_t at = last_lines(text, n); at < n;) {
        const char *nl = memchr(text + at, '\n', n - at);
        size_t end = nl ? (size_t)(nl - text) : n;
        if (end > at)
            log_info("%s stderr: %.*s", b->id, (int)(end - at), text + at);
        at = end + 1;
    }
}
