#include "core/sandbox/spool.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "core/sandbox/exec.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 32768

/* GNU tar keeps attributes and stays on one file system; a smaller one gets the names of what is not a mount */
const char spool_root[] =
    "command -v tar >/dev/null || { echo 'the image has no tar' >&2; exit 2; }; cd /; "
    "if tar --version 2>/dev/null | grep -q GNU; then "
    "exec tar --one-file-system --numeric-owner --xattrs --xattrs-include='*' --warning=no-file-ignored "
    "--exclude=./proc --exclude=./sys --exclude=./dev --exclude=./run -cf - .; fi; set --; "
    "for f in * .[!.]*; do case $f in proc|sys|dev|run) ;; *) if [ -e \"$f\" ] || [ -L \"$f\" ]; then set -- \"$@\" \"$f\"; fi ;; esac; done; "
    "exec tar -cf - \"$@\"";

struct spool {
    struct loop *loop;
    struct exec *x;
    struct spool_spec how;
    char *what;
    uint64_t bytes;
    bool sent_eof, ended;
    struct exec_exit exit;
    char tail[200]; /* of what it said */
    struct err err; /* the first */
    void (*done)(void *arg, uint64_t bytes, const struct err *e);
    void *arg;
};

static void bury(struct spool *s)
{
    free(s->what);
    loop_defer(s->loop, free, s);
}

static void keep_tail(struct spool *s, const unsigned char *p, size_t n)
{
    while (n && (p[n - 1] == '\n' || p[n - 1] == '\r'))
        n--;
    const unsigned char *nl = n ? memrchr(p, '\n', n) : NULL;
    if (nl)
        n -= (size_t)(nl + 1 - p), p = nl + 1;
    if (n && str_utf8((struct str){(const char *)p, n}))
        (void)snprintf(s->tail, sizeof s->tail, "%.*s", (int)(n < 160 ? n : 160), (const char *)p);
}

/* After the first failure the rest is taken and dropped: the command ends by itself or is killed by its own broken pipe. */
static void on_output(void *arg, uint8_t chan, const unsigned char *p, size_t n)
{
    struct spool *s = arg;
    if (chan != CH_STDOUT || s->how.out < 0) {
        keep_tail(s, p, n);
    } else if (!s->err.code && n > s->how.max - s->bytes) {
        (void)err_set(&s->err, E_TOO_LARGE, "%s: more than the limit (%s) of %llu MiB", s->what,
                      s->how.limit, (unsigned long long)(s->how.max >> 20));
    } else if (!s->err.code && !fd_write_all(s->how.out, p, n)) {
        (void)err_set(&s->err, errno == ENOSPC || errno == EDQUOT ? E_QUOTA : E_INTERNAL,
                      "%s: it could not be stored; is the disk full?", s->what);
    } else {
        s->bytes += n;
    }
    if (!s->err.code) {
        exec_consumed(s->x, n);
        return;
    }
    struct exec *x = s->x;
    struct err e = s->err;
    s->x = NULL;
    exec_kill(x);
    s->done(s->arg, s->bytes, &e);
    bury(s);
}

static void on_room(void *arg)
{
    struct spool *s = arg;
    char chunk[CHUNK];
    while (s->how.in >= 0 && !s->sent_eof && s->x && exec_input_room(s->x)) {
        size_t room = exec_input_room(s->x), want = room < sizeof chunk ? room : sizeof chunk;
        ssize_t n = read(s->how.in, chunk, want);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            exec_input_eof(s->x);
            s->sent_eof = true;
        } else {
            s->bytes += (uint64_t)n;
            (void)exec_input(s->x, chunk, (size_t)n); /* at most the room: all of it is taken */
        }
    }
}

static void on_exited(void *arg, const struct exec_exit *x, uint64_t offset)
{
    struct spool *s = arg;
    (void)offset;
    s->exit = *x;
    s->ended = true;
}

static void on_done(void *arg, const struct err *e)
{
    struct spool *s = arg;
    struct err why;
    s->x = NULL;
    /* 1 of tar's: a file changed while it was read, which is no error of ours */
    if (!e && s->ended &&
        (s->exit.kind != EXIT_CODE || (s->exit.code && !(s->exit.code == 1 && s->how.out >= 0)))) {
        bool limit = s->exit.kind == EXIT_CODE && s->exit.code == SPOOL_LIMIT;
        (void)err_set(&why, limit ? E_TOO_LARGE : E_GUEST, "%s failed (%s %d)%s%.120s", s->what,
                      s->exit.kind == EXIT_CODE ? "status" : "signal", s->exit.code,
                      *s->tail ? ": " : "", s->tail);
        e = &why;
    }
    s->done(s->arg, s->bytes, e);
    bury(s);
}

struct spool *spool_start(struct sandbox *sb, const struct spool_spec *how,
                          void (*done)(void *arg, uint64_t bytes, const struct err *e), void *arg,
                          struct err *e)
{
    static const struct exec_ops ops = {
        .output = on_output, .exited = on_exited, .done = on_done, .room = on_room};
    size_t n = 0;
    while (how->args && how->args[n])
        n++;
    auto_free char **argv = xcalloc(n + 5, sizeof *argv);
    argv[0] = (char[]){"/bin/sh"}, argv[1] = (char[]){"-c"},
    argv[2] = (char *)(uintptr_t)how->script, argv[3] = (char[]){"hutch"};
    for (size_t i = 0; i < n; i++)
        argv[4 + i] = (char *)(uintptr_t)how->args[i];
    struct exec_spec spec = {.argv = argv,
                             .user = "root",
                             .cwd = "/",
                             .timeout_ms = how->timeout_ms,
                             .stdin_pipe = how->in >= 0};
    struct spool *s = xcalloc(1, sizeof *s);
    *s = (struct spool){
        .loop = sb->core->loop, .how = *how, .what = xstrdup(how->what), .done = done, .arg = arg};
    if (!(s->x = exec_start(sb, &spec, &ops, s, e))) {
        free(s->what);
        free(s);
        return NULL;
    }
    return s;
}

void spool_cancel(struct spool *s)
{
    if (s->x)
        exec_kill(s->x);
    s->x = NULL;
    bury(s);
}
