/* See ndjson.h. The splitter keeps one buffer and never scans a byte twice. */
#include "cli/ndjson.h"
#include "base/clock.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

void splitter_push(struct splitter *s, const char *p, size_t n)
{
    if (s->at) {
        buf_drop(&s->b, s->at);
        s->seen -= s->at;
        s->at = 0;
    }
    buf_put(&s->b, p, n);
}

bool splitter_next(struct splitter *s, struct str *line)
{
    if (s->seen >= s->b.n)
        return false;
    char *nl = memchr(s->b.p + s->seen, '\n', s->b.n - s->seen);
    if (!nl) {
        s->seen = s->b.n;
        return false;
    }
    *line = (struct str){s->b.p + s->at, (size_t)(nl - s->b.p) - s->at};
    if (line->n && line->p[line->n - 1] == '\r')
        line->n--;
    s->at = s->seen = (size_t)(nl - s->b.p) + 1;
    return true;
}

size_t splitter_rest(const struct splitter *s) { return s->b.n - s->at; }
void splitter_free(struct splitter *s) { buf_free(&s->b); }

enum lines_got lines_next(struct lines *l, int tick_ms, struct str *line, struct err *e)
{
    for (;;) {
        if (splitter_next(&l->split, line)) {
            if (line->n)
                return LINES_LINE;
            continue;
        }
        if (splitter_rest(&l->split) > LINE_MAX_BYTES) {
            (void)err_set(e, E_TOO_LARGE, "the server sent a line that is too long");
            return LINES_BROKEN;
        }
        const struct http_head *h = http_client_head(l->c, e);
        if (!h)
            return LINES_BROKEN;
        /* A body of known length is over without another byte to wake us. */
        bool over = h->framing == HTTP_BODY_NONE || (h->framing == HTTP_BODY_LENGTH && l->got >= h->length);
        struct pollfd p[2] = {{.fd = http_client_fd(l->c), .events = POLLIN}, {.fd = l->sigfd, .events = POLLIN}};
        bool ready = over || http_client_pending(l->c);
        int n = poll(p, 2, ready ? 0 : tick_ms);
        if (n < 0 && errno != EINTR) {
            (void)err_sys(e, errno, "poll");
            return LINES_BROKEN;
        }
        if (n > 0 && p[1].revents)
            return LINES_SIGNAL;
        if (n <= 0 && !ready) {
            if (n == 0)
                return LINES_TICK;
            continue;
        }
        char chunk[65536];
        struct err re = {0};
        http_client_timeout(l->c, NS_PER_MS); /* "readable" may be the end of a chunk and nothing more: never stay inside the read */
        ssize_t got = http_client_read(l->c, chunk, sizeof chunk, &re);
        http_client_timeout(l->c, 0);
        if (got < 0 && re.code == E_TIMEOUT)
            continue;
        if (got < 0) {
            if (e)
                *e = re;
            return LINES_BROKEN;
        }
        if (got == 0) {
            if (!splitter_rest(&l->split))
                return LINES_END;
            (void)err_set(e, E_UNAVAILABLE, "the server's stream ended in the middle of a line");
            return LINES_BROKEN;
        }
        l->got += (uint64_t)got;
        splitter_push(&l->split, chunk, (size_t)got);
    }
}

int signals_open(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL))
        return -1;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int signals_take(int fd)
{
    struct signalfd_siginfo si;
    return fd >= 0 && read(fd, &si, sizeof si) == (ssize_t)sizeof si ? (int)si.ssi_signo : 0;
}
