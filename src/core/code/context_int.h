/* Contexts and cells, for context.c, context_kernel.c and eval.c only. */
#pragma once
#include "base/buf.h"
#include "base/list.h"
#include "core/code/context.h"
#include "core/host/ref.h"
#include "core/sandbox/object.h"

#define CONTEXTS_MAX 32
#define QUEUE_MAX    64

struct contexts { /* of one sandbox; by its id: contexts_at */
    struct core *core;
    char sandbox[22];
    struct list all; /* in order of creation */
    size_t n;
    enum { CX_UNKNOWN, CX_ASKING, CX_KNOWN } known;
    struct list asks; /* wait until the process list is known */
    enum { FILES_UNKNOWN, FILES_ASKING, FILES_THERE } files;
    int64_t next_cell;
};

struct contexts *contexts_at(const struct core *c, const char *sandbox); /* NULL */

struct context {
    struct list link;
    struct contexts *of;
    char id[CONTEXT_ID], tag[CONTEXT_TAG];
    enum language language;
    bool is_default, hidden; /* hidden: a default that was removed; its next use brings it back */
    char *cwd;               /* NULL: the sandbox's default */
    struct kv env;
    uint32_t found; /* pid of its kernel, not attached to yet */
    struct kernel *kernel;
    enum { CX_OFF, CX_STARTING, CX_ON } state;
    bool waits_for_files;
    bool born;           /* had a kernel once: its id is somebody's, also when that one dies */
    struct list waiters; /* of create and restart */
    struct list queue;   /* evals */
    struct eval *cell;   /* the one that runs */
    uint64_t cells;
    struct timer grace; /* for a cell whose client left */
};

struct eval {
    struct list link;
    struct core *core;
    char sandbox[22];
    struct context *cx; /* once known */
    char *context;
    enum language language;
    struct buf code;
    struct kv env;
    uint64_t timeout_ms;
    size_t max_output, output, results;
    struct eval_ops ops;
    void *arg;
    int64_t cell;
    bool begun, orphan, held, failed, interrupted, timed_out, marked;
    bool running,
        stop; /* the kernel said that it runs; it is to be interrupted as soon as it does */
    struct eval_end end;
    struct timer deadline;
    struct ask *ask;
};

/* context.c */
struct ask;
typedef void ask_fn(void *arg, struct contexts *cs, const struct err *e);
struct ask *contexts_ask(struct sandbox *sb, ask_fn *fn, void *arg,
                         struct err *e); /* NULL + e: refused */
void contexts_unask(struct ask *a);
struct context *context_add(struct contexts *cs, enum language l,
                            const char *id /* NULL: the default */);
bool context_full(const struct contexts *cs, struct err *e); /* E_QUOTA */
struct context *context_find(struct contexts *cs, const char *id, struct err *e);
struct context *context_default(struct contexts *cs, enum language l, struct err *e);
void context_fill(const struct context *cx, struct context_info *ret);
/* context_kernel.c */
void context_push(struct context *cx);                            /* start what can be started */
void context_wait(struct context *cx, context_cb *cb, void *arg); /* until its kernel is ready */
void context_tell(struct context *cx, const struct err *e);       /* who waits for that */
void context_fail_queue(struct context *cx, const struct err *e);
void context_kill(struct context *cx,
                  const struct err *why); /* its kernel; a cell that runs is lost */
void context_grace(void *context);        /* of its timer */
/* eval.c */
void eval_begin(struct eval *v); /* it is the context's cell now */
void eval_event(struct eval *v, const struct kernel_event *ev);
void eval_lost(struct eval *v, const struct err *why); /* its kernel is gone */
void eval_fail(struct eval *v, const struct err *e);   /* it never began */
void eval_interrupt(struct eval *v);                   /* the context's cell */
