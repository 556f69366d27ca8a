/* Code contexts of a sandbox: stateful interpreters, and cells run in them.
 *
 * A context is a kernel process (core/code/kernel.h) with a tag that says language
 * and id, so nothing about contexts is stored: after a restart of the daemon,
 * a resume or a fork they are found again in the sandbox's process list. Every
 * language has a default context, made at first use; python's and javascript's
 * are always listed. Cells of one context run one after another.
 *
 * Main loop only. Asynchronous calls answer exactly once, after they returned;
 * -1 or NULL + e: refused at once, no callback. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "core/code/kernel.h"
#include "json/kv.h"
#include <stdbool.h>
#include <stdint.h>

struct sandbox;
struct core;

#define CONTEXT_ID 37
struct context_info { /* valid during the callback */
    const char *id;
    enum language language;
    const char *cwd;
    const char *state; /* "new" (no process yet), "starting", "idle", "busy" */
    bool is_default;
    uint64_t cells; /* run through this daemon */
};
typedef void context_cb(void *arg, const struct err *e,
                        const struct context_info *c /* NULL on error, and after a removal */);

struct context_spec {
    enum language language;
    const char *cwd;
    const struct kv *env; /* cwd, env may be NULL */
};
int context_create(struct sandbox *sb, const struct context_spec *s, context_cb *cb, void *arg,
                   struct err *e); /* answers when it is ready */
int context_get(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e);
int context_restart(struct sandbox *sb, const char *id, context_cb *cb, void *arg,
                    struct err *e); /* fresh state, same id; answers when it is ready */
int context_interrupt(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e);
int context_remove(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e);
int context_list(struct sandbox *sb,
                 void (*cb)(void *arg, const struct err *e, const struct context_info *c, size_t n),
                 void *arg, struct err *e);

/* ---- cells ---- */
struct eval;
struct eval_spec {
    const char *context; /* NULL: the default of `language` */
    enum language language;
    struct str code;      /* copied */
    const struct kv *env; /* for this cell; may be NULL; copied */
    uint64_t
        timeout_ms;    /* 0: none. Then interrupted; if that does not help, the kernel is killed */
    size_t max_output; /* bytes of stdout and stderr passed on; 0: EVAL_OUTPUT */
};
#define EVAL_OUTPUT  (8u << 20)
#define EVAL_RESULTS (64u << 20) /* bytes of results of one cell */

enum eval_how {
    EVAL_OK,
    EVAL_ERROR,
    EVAL_INTERRUPTED,
    EVAL_TIMEOUT,
    EVAL_LOST /* the kernel went away under it */
};
const char *eval_how_name(enum eval_how h);
struct eval_end {
    enum eval_how how;
    bool state_lost;      /* the kernel had to go: variables are gone */
    uint64_t cut_output;  /* bytes of output not passed on */
    uint64_t cut_results; /* results not passed on */
    const struct err
        *e; /* EVAL_LOST: why; E_GONE: the sandbox itself ended. EVAL_TIMEOUT: says so. Else NULL */
};
struct eval_ops {
    void (*started)(void *arg, const struct context_info *c); /* its turn has come */
    void (*event)(
        void *arg,
        const struct kernel_event *ev); /* KE_COUNT, KE_OUT, KE_RESULT, at most one KE_ERROR */
    void (*done)(void *arg, const struct eval_end *end); /* last, once it has started */
    void (*failed)(void *arg,
                   const struct err *e); /* last, if it never did: no such context, no kernel, … */
};
struct eval *eval_start(struct sandbox *sb, const struct eval_spec *s, const struct eval_ops *ops,
                        void *arg, struct err *e);
void eval_hold(struct eval *v,
               bool hold); /* the reader is slow: the code is stopped at its next output */
void eval_cancel(
    struct eval *
        v); /* the client left: interrupt it, or kill it if it does not end. No callback after this */

/* ---- for core ---- */
size_t contexts_resting(
    const struct sandbox *sb); /* kernels we are connected to that run no cell */
#define CONTEXT_TAG 64
void context_tag(enum language l, const char *id /* NULL: the default's */,
                 char out[CONTEXT_TAG]); /* of its kernel's process */
void contexts_drop(
    struct sandbox *sb,
    const struct err *why); /* its box goes: nothing of it can be reached from here on */
void code_init(struct core *c);
void code_free(struct core *c);
