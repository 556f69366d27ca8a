#include "tier/vm/qmp.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/fd.h"
#include "base/list.h"
#include "loop/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define READ_CHUNK 16384
#define WRITE_SEGS 16

/* A command: first waiting to be written, then to be answered. QEMU takes at most one descriptor per command, and it
 * belongs to the command whose first byte it came with; so a write never starts in the middle of a run that has one. */
struct cmd {
    struct list node;
    uint64_t id;
    char *text;
    size_t n, sent;
    int fd;           /* -1: none, or gone already */
    int64_t deadline; /* 0: none */
    qmp_cb *cb;
    void *arg;
};

struct qmp {
    struct loop *loop;
    struct io io;
    struct timer timer; /* earliest deadline; at once when lost */
    int fd;
    const struct qmp_ops *ops;
    void *arg;
    bool greeted; /* the greeting was seen or is not expected */
    bool resync;  /* dropping what an earlier session left */
    bool lost, dead;
    bool tell; /* lost inside qmp_command: the owner is told by the timer */
    struct err why;
    struct list cmds; /* in order of sending = order of answers */
    unsigned ncmds;
    uint64_t next_id;
    struct buf in;
    int64_t rate_start;
    size_t rate_bytes;
};

static void on_io(void *arg, int events);
static void on_timer(void *arg);

static void cmd_free(struct cmd *c)
{
    list_del(&c->node);
    if (c->fd >= 0)
        (void)close(c->fd);
    free(c->text);
    free(c);
}

static void want(struct qmp *q)
{
    bool out = false;
    struct cmd *c;
    list_each(c, &q->cmds, node)
        out |= c->sent < c->n;
    io_want(&q->io, IO_READ | (out ? IO_WRITE : 0));
}

static void arm(struct qmp *q)
{
    int64_t first = 0;
    struct cmd *c;
    list_each(c, &q->cmds, node)
        if (c->deadline && (!first || c->deadline < first))
            first = c->deadline;
    if (!first) {
        timer_stop(&q->timer);
        return;
    }
    int64_t left = first - clock_mono();
    timer_arm(&q->timer, left > 0 ? left : 0);
}

struct qmp *qmp_new(struct loop *l, int fd, bool fresh, const struct qmp_ops *ops, void *arg,
                    int64_t timeout_ns, qmp_cb *ready, void *ready_arg)
{
    struct qmp *q = xcalloc(1, sizeof *q);
    q->loop = l;
    q->fd = fd;
    q->ops = ops;
    q->arg = arg;
    q->greeted = !fresh;
    q->resync = !fresh;
    list_init(&q->cmds);
    uint32_t base = 0;
    if (!fresh) /* never one that an earlier session used */
        random_bytes(&base, sizeof base);
    q->next_id = ((uint64_t)base << 20) + 1;
    (void)fd_nonblock(fd); /* a socket: F_SETFL does not fail on it */
    io_init(&q->io, l, fd, on_io, q);
    timer_init(&q->timer, l, on_timer, q);
    qmp_command(q, fresh ? "qmp_capabilities" : "query-status", NULL, -1, timeout_ns, ready,
                ready_arg);
    if (!fresh) { /* qmp-spec, "Forcing the JSON parser into known-good state": a lexical error ends half a command */
        struct cmd *c = container_of(q->cmds.next, struct cmd, node);
        char *t = xasprintf("\xff\n%s", c->text);
        free(c->text);
        c->text = t;
        c->n += 2;
    }
    return q;
}

static void bury(void *arg)
{
    struct qmp *q = arg;
    buf_free(&q->in);
    free(q);
}

void qmp_free(struct qmp *q)
{
    if (!q || q->dead)
        return;
    q->dead = q->lost = true;
    io_stop(&q->io);
    timer_stop(&q->timer);
    struct cmd *c;
    list_each(c, &q->cmds, node)
        cmd_free(c);
    (void)close(q->fd);
    loop_defer(q->loop, bury, q); /* we may be inside one of our own callbacks */
}

bool qmp_is_lost(const struct qmp *q) { return q->lost; }

void qmp_command(struct qmp *q, const char *name, const char *args, int fd, int64_t timeout_ns,
                 qmp_cb *cb, void *arg)
{
    struct cmd *c = xcalloc(1, sizeof *c);
    c->id = q->next_id++;
    c->cb = cb;
    c->arg = arg;
    c->fd = -1;
    /* short: QEMU reads its monitor byte by byte, some 10 us each */
    c->text = xasprintf("{\"execute\":\"%s\"%s%s,\"id\":%" PRIu64 "}", name,
                        args ? ",\"arguments\":" : "", args ? args : "", c->id);
    c->n = strlen(c->text);
    c->deadline = timeout_ns > 0 ? clock_mono() + timeout_ns : 0;
    list_add_tail(&q->cmds, &c->node);
    bool full = ++q->ncmds > QMP_PENDING;
    if (!q->lost && (full || (fd >= 0 && (c->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0))) {
        if (full)
            (void)err_set(&q->why, E_INTERNAL, "too many commands to the emulator at once");
        else
            (void)err_sys(&q->why, errno, "passing a file to the emulator");
        q->lost = q->tell = true;
        io_stop(&q->io);
    }
    if (q->lost) {
        timer_arm(&q->timer, 0); /* the callback must not run inside this call */
        return;
    }
    want(q);
    arm(q);
}

/* Everything pending fails, then the owner is told. `q->dead` is looked at after every callback: each may free us. */
static void fail_all(struct qmp *q)
{
    while (!list_empty(&q->cmds)) {
        struct cmd *c = container_of(q->cmds.next, struct cmd, node);
        qmp_cb *cb = c->cb;
        void *arg = c->arg;
        cmd_free(c);
        q->ncmds--;
        if (cb)
            cb(arg, NULL, &q->why);
        if (q->dead)
            return;
    }
}

static void lose(struct qmp *q, const struct err *why)
{
    if (q->lost)
        return;
    q->lost = true;
    q->why = *why;
    io_stop(&q->io);
    timer_stop(&q->timer);
    fail_all(q);
    if (!q->dead && q->ops->lost)
        q->ops->lost(q->arg, &q->why);
}

static void on_timer(void *arg)
{
    struct qmp *q = arg;
    if (q->lost) { /* commands given after the loss, or the loss happened inside qmp_command */
        bool tell = q->tell;
        q->tell = false;
        fail_all(q);
        if (!q->dead && tell && q->ops->lost)
            q->ops->lost(q->arg, &q->why);
        return;
    }
    int64_t now = clock_mono();
    struct cmd *c;
    list_each(c, &q->cmds, node) {
        if (c->deadline && c->deadline <= now) {
            struct err e;
            (void)err_set(&e, E_TIMEOUT, "the emulator did not answer in time");
            lose(q, &e);
            return;
        }
    }
    arm(q);
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void flush(struct qmp *q)
{
    for (;;) {
        struct iovec iov[WRITE_SEGS];
        int n = 0, fd = -1;
        struct cmd *c;
        list_each(c, &q->cmds, node) {
            if (c->sent == c->n)
                continue;
            if (n == WRITE_SEGS || (n && c->fd >= 0))
                break;
            if (c->fd >= 0)
                fd = c->fd;
            iov[n++] = (struct iovec){c->text + c->sent, c->n - c->sent};
        }
        if (!n)
            break;
        union {
            struct cmsghdr h;
            char room[CMSG_SPACE(sizeof(int))];
        } ctl = {0};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)n};
        if (fd >= 0) {
            m.msg_control = &ctl;
            m.msg_controllen = sizeof ctl;
            ctl.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
                                     .cmsg_level = SOL_SOCKET,
                                     .cmsg_type = SCM_RIGHTS};
            memcpy(CMSG_DATA(&ctl.h), &fd, sizeof fd);
        }
        ssize_t w = sendmsg(q->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0 && errno == EAGAIN)
            break;
        if (w < 0) {
            struct err e;
            (void)err_sys(&e, errno, "the emulator's control channel");
            lose(q, &e);
            return;
        }
        list_each(c, &q->cmds, node) {
            if (c->sent == c->n || !w)
                continue;
            size_t part = c->n - c->sent < (size_t)w ? c->n - c->sent : (size_t)w;
            if (c->fd >= 0)
                (void)close(take_fd(&c->fd)); /* went with the first byte */
            c->sent += part;
            w -= (ssize_t)part;
        }
    }
    want(q);
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

static void violation(struct qmp *q, const char *what)
{
    struct err e;
    (void)err_set(&e, E_GUEST, "the emulator's control channel: %s", what);
    lose(q, &e);
}

static void on_answer(struct qmp *q, const struct qmp_msg *m)
{
    struct cmd *c = list_empty(&q->cmds) ? NULL : container_of(q->cmds.next, struct cmd, node);
    if (!c || !m->has_id || m->id != c->id || c->sent != c->n) {
        violation(q, "an unexpected answer");
        return;
    }
    qmp_cb *cb = c->cb;
    void *arg = c->arg;
    cmd_free(c);
    q->ncmds--;
    arm(q);
    if (!cb)
        return;
    if (m->kind == QMP_RETURN) {
        cb(arg, m, NULL);
    } else {
        struct err e;
        (void)err_set(&e, E_GUEST, "the emulator refused: %s", m->desc);
        cb(arg, NULL, &e);
    }
}

static void on_line(struct qmp *q, const char *p, size_t n)
{
    struct qmp_msg m;
    struct err e;
    if (q->resync) { /* the answer to our query ends it; half lines and another session's answers do not count */
        struct cmd *c = container_of(q->cmds.next, struct cmd, node);
        if (qmp_parse(p, n, &m, &e) || (m.kind != QMP_RETURN && m.kind != QMP_ERROR) || !m.has_id ||
            m.id != c->id)
            return;
        q->resync = false;
        on_answer(q, &m);
        return;
    }
    if (qmp_parse(p, n, &m, &e)) {
        lose(q, &e);
        return;
    }
    if (!q->greeted) {
        if (m.kind != QMP_GREETING)
            violation(q, "no greeting");
        q->greeted = true;
        return;
    }
    switch (m.kind) {
    case QMP_GREETING: violation(q, "a second greeting"); break;
    case QMP_RETURN:
    case QMP_ERROR: on_answer(q, &m); break;
    case QMP_EVENT:
        if (q->ops->event)
            q->ops->event(q->arg, &m);
        break;
    }
}

static void read_some(struct qmp *q)
{
    buf_reserve(&q->in, READ_CHUNK);
    ssize_t r = recv(q->fd, q->in.p + q->in.n, READ_CHUNK, MSG_DONTWAIT);
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (r <= 0) {
        struct err e;
        (void)err_set(&e, E_GONE, "the emulator closed its control channel");
        lose(q, &e);
        return;
    }
    int64_t now = clock_mono();
    if (now - q->rate_start > NS_PER_S)
        q->rate_start = now, q->rate_bytes = 0;
    q->rate_bytes += (size_t)r;
    if (q->rate_bytes > QMP_RATE_MAX) {
        violation(q, "too much input");
        return;
    }
    size_t scan = q->in.n, start = 0;
    q->in.n += (size_t)r;
    char *nl;
    while ((nl = memchr(q->in.p + scan, '\n', q->in.n - scan))) {
        size_t end = (size_t)(nl - q->in.p);
        on_line(q, q->in.p + start, end - start);
        if (q->lost)
            return;
        start = scan = end + 1;
    }
    buf_drop(&q->in, start);
    if (q->in.n > QMP_LINE_MAX)
        violation(q, "a line that is too long");
}

static void on_io(void *arg, int events)
{
    struct qmp *q = arg;
    if (events & IO_WRITE)
        flush(q);
    if (!q->lost && (events & IO_READ))
        read_some(q);
}
