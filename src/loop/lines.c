#include "loop/lines.h"
#include "base/fd.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES (300u << 10)

static void feed(struct lines *l)
{
    char *nl;
    while (l->io.loop && (nl = memchr(l->buf.p, '\n', l->buf.n))) {
        size_t n = (size_t)(nl - l->buf.p);
        *nl = 0;
        char *line = xstrndup(l->buf.p, n);
        buf_drop(&l->buf, n + 1);
        if (!l->skipping)
            l->fn(l->arg, line);
        l->skipping = false;
        free(line);
    }
    if (l->buf.n > LINE_MAX_BYTES) { /* an endless line is dropped, not collected */
        l->buf.n = 0;
        l->skipping = true;
    }
}

static void on_io(void *arg, int events)
{
    struct lines *l = arg;
    (void)events;
    buf_reserve(&l->buf, 4096);
    ssize_t n = read(l->fd, l->buf.p + l->buf.n, 4096);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        void (*eof)(void *) = l->eof;
        void *a = l->arg;
        if (l->buf.n && !l->skipping) {
            buf_putc(&l->buf, '\n');
            feed(l);
        }
        lines_stop(l);
        if (eof)
            eof(a);
        return;
    }
    l->buf.n += (size_t)n;
    l->buf.p[l->buf.n] = 0;
    feed(l);
}

void lines_start(struct lines *l, struct loop *loop, int fd, void (*fn)(void *arg, char *line),
                 void (*eof)(void *arg), void *arg)
{
    *l = (struct lines){.fd = fd, .fn = fn, .eof = eof, .arg = arg};
    (void)fd_nonblock(fd);
    io_init(&l->io, loop, fd, on_io, l);
    io_want(&l->io, IO_READ);
}

void lines_stop(struct lines *l)
{
    if (!l->io.loop)
        return;
    io_stop(&l->io);
    (void)close(l->fd);
    buf_free(&l->buf);
    l->io.loop = NULL;
}
