/* One kernel process in a sandbox: started or found, then lines of JSON both
 * ways (share/kernels/README.md). Nothing it says is trusted: lines are
 * bounded, anything malformed is ignored, and what a cell may send in all is
 * the cell's business (core/code/eval.c). Main loop only.
 *
 * `ended` is the last callback and frees it; kernel_kill and kernel_leave are
 * the other ways: after those no callback comes. No callback comes before the
 * call that made it has returned. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "core/code/kernels.h"
#include "json/kv.h"
#include <stdbool.h>
#include <stdint.h>

#define MIME_MAX 32 /* types of one result */
struct mime {
    struct str type, value;
    bool json; /* value is JSON text, checked, ASCII; else a string */
};

enum kernel_event_type { KE_COUNT, KE_OUT, KE_RESULT, KE_ERROR, KE_DONE };
struct kernel_event { /* strings are valid during the callback */
    enum kernel_event_type type;
    int64_t cell;
    int64_t n;               /* count */
    bool is_stderr, is_main; /* out, result */
    struct str text;         /* out */
    struct str name, value, traceback;
    const struct mime *mime;
    size_t nmime;
    size_t bytes; /* of its line */
};

struct sandbox;
struct kernel;
struct kernel_ops {
    void (*ready)(void *arg); /* cells may be sent */
    void (*event)(void *arg, const struct kernel_event *ev);
    void (*ended)(void *arg, const struct err *e); /* the process is gone, or never came to be */
};
struct kernel_spec {
    enum language language;
    const char *tag, *cwd;
    const struct kv *env; /* cwd, env may be NULL */
};

/* The files must be there (kernels_ensure). NULL + e: refused at once. */
struct kernel *kernel_start(struct sandbox *sb, const struct kernel_spec *s,
                            const struct kernel_ops *ops, void *arg, struct err *e);
/* One that runs already, by pid: it is told whom it works for now. Ready at once, in the sense that cells may be sent. */
struct kernel *kernel_attach(struct sandbox *sb, uint32_t pid, const struct kernel_ops *ops,
                             void *arg, struct err *e);
void kernel_run(struct kernel *k, int64_t cell, struct str code,
                const struct kv *env /* may be NULL */);
void kernel_interrupt(struct kernel *k, int64_t cell);
bool kernel_hears(
    const struct kernel *
        k); /* an interrupt of a cell that was sent and has not begun; true at the earliest when ready */
void kernel_hold(struct kernel *k,
                 bool hold);         /* while held, the kernel's output waits in the sandbox */
void kernel_kill(struct kernel *k);  /* with everything it started */
void kernel_leave(struct kernel *k); /* it lives on */
uint32_t kernel_pid(const struct kernel *k); /* 0 until it is known */
