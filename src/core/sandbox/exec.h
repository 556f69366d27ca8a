/* Commands inside a sandbox: start, attach, feed, signal, list. Thin over the
 * agent channel; the one place that decides what an exit means (a container's
 * OOM kill is only visible from the host). Main loop only. */
#pragma once
#include "base/err.h"
#include "base/buf.h"
#include "wire/frame.h" /* CH_* */
#include "wire/msg.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sandbox;
struct exec;

struct exec_exit {
    enum exit_kind kind;
    int code; /* status or signal */
    uint64_t timeout_ms;
};

struct exec_spec {
    char *const *argv;            /* NULL-terminated, at least one */
    char *const *env;             /* "K=V", NULL-terminated, may be NULL */
    const char *cwd, *user, *tag; /* may be NULL */
    uint64_t timeout_ms;          /* 0: none */
    bool stdin_pipe;
    unsigned cols, rows; /* both > 0: PTY */
    bool detached;       /* output goes to the ring only */
};

struct exec_ops { /* all optional but `done`; chan is CH_STDOUT, CH_STDERR or CH_PTY */
    void (*started)(void *arg, uint32_t pid, uint64_t offset);
    void (*output)(void *arg, uint8_t chan, const unsigned char *p,
                   size_t n); /* answer with exec_consumed() when it has left */
    void (*lost)(void *arg, uint64_t n);
    void (*room)(void *arg); /* exec_input_room() grew */
    void (*exited)(void *arg, const struct exec_exit *x, uint64_t offset); /* at most once */
    void (*done)(
        void *arg,
        const struct err *
            e); /* last: NULL after `exited` (or a detached start), else why there is no exit status */
};

#define EXEC_RECENT \
    (UINT64_MAX - 1) /* exec_attach: from now; one that ended more than 30 s ago is not found */
/* NULL + e when the sandbox does not run. Otherwise callbacks follow, never before return. */
struct exec *exec_start(struct sandbox *sb, const struct exec_spec *spec,
                        const struct exec_ops *ops, void *arg, struct err *e);
struct exec *exec_attach(struct sandbox *sb, const char *who /* "77" or "tag:name" */,
                         uint64_t offset /* UINT64_MAX: from now */, const struct exec_ops *ops,
                         void *arg, struct err *e);
void exec_consumed(struct exec *x, size_t n);
size_t exec_input_room(const struct exec *x);
size_t exec_input(struct exec *x, const void *p, size_t n); /* returns how much was taken */
void exec_input_eof(struct exec *x);
void exec_detach(struct exec *x); /* no more callbacks; the process lives on */
void exec_kill(struct exec *x);   /* kill its tree and detach */

struct proc_info {
    uint32_t pid;
    const char *tag, *cwd, *user;   /* NULL if none; valid during the callback */
    char *const *argv, *const *env; /* env: of the start request, may be NULL */
    int64_t started_wall_ns;
    uint64_t output_bytes;
    bool running, pty;
    struct exec_exit exit;
};
typedef void exec_cb(void *arg, const struct err *e);
/* Unary calls: cb exactly once, later. -1 + e: not running, cb never called. */
int exec_list(struct sandbox *sb,
              void (*cb)(void *arg, const struct err *e, const struct proc_info *p, size_t n),
              void *arg, struct err *e);
int exec_signal(struct sandbox *sb, const char *who, int signo, bool group, exec_cb *cb, void *arg,
                struct err *e);
int exec_resize(struct sandbox *sb, const char *who, unsigned cols, unsigned rows, exec_cb *cb,
                void *arg, struct err *e);
int exec_write(struct sandbox *sb, const char *who, const void *p, size_t n /* <= 60 KiB */,
               exec_cb *cb, void *arg, struct err *e);
int exec_close_stdin(struct sandbox *sb, const char *who, exec_cb *cb, void *arg, struct err *e);

const char *signal_name(int signo);  /* "SIGKILL"; "SIG?" if unknown */
int signal_number(const char *name); /* "SIGTERM", "TERM" or "15"; -1 */
