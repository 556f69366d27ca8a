/* What runs in a context: its kernel, started or found, and one cell after the
 * other from its queue. */
#include "core/code/context_int.h"
#include <stdlib.h>

struct waiter {
    struct list link;
    context_cb *cb;
    void *arg;
};

void context_tell(struct context *cx, const struct err *e)
{
    struct context_info info;
    context_fill(cx, &info);
    while (!list_empty(&cx->waiters)) {
        struct waiter *w = container_of(cx->waiters.next, struct waiter, link);
        list_del(&w->link);
        w->cb(w->arg, e, e ? NULL : &info);
        free(w);
    }
}

void context_fail_queue(struct context *cx, const struct err *e)
{
    while (!list_empty(&cx->queue)) {
        struct eval *v = container_of(cx->queue.next, struct eval, link);
        list_del(&v->link);
        eval_fail(v, e);
    }
}

static void on_ready(void *arg)
{
    struct context *cx = arg;
    if (cx->state == CX_STARTING)
        cx->state = CX_ON;
    cx->found = 0;
    cx->born = true;
    context_tell(cx, NULL);
    if (cx->cell && cx->cell->stop &&
        kernel_hears(cx->kernel)) /* sent to a kernel that was found, before it had answered */
        eval_interrupt(cx->cell);
    context_push(cx);
}

static void on_event(void *arg, const struct kernel_event *ev)
{
    struct context *cx = arg;
    struct eval *v = cx->cell;
    if (!v || v->cell != ev->cell)
        return; /* of a cell that nobody waits for any more */
    if (ev->type == KE_DONE) {
        timer_stop(&cx->grace);
        cx->cell = NULL;
        kernel_hold(cx->kernel, false);
    }
    eval_event(v, ev);
    if (ev->type == KE_DONE)
        context_push(cx);
}

static void on_ended(void *arg, const struct err *e)
{
    struct context *cx = arg;
    struct eval *v = cx->cell;
    struct err why = *e;
    bool stale = cx->found && why.code == E_NOT_FOUND; /* it ended between our look and our knock */
    bool starting = cx->state == CX_STARTING;
    cx->kernel = NULL, cx->state = CX_OFF, cx->found = 0, cx->cell = NULL;
    timer_stop(&cx->grace);
    if (stale && v && !v->orphan) {
        timer_stop(&v->deadline);
        list_add(&cx->queue, &v->link);
        v = NULL;
    }
    if (v)
        eval_lost(v, &why);
    if (starting && !stale) {
        context_tell(cx, &why);
        context_fail_queue(cx, &why);
    }
    context_push(cx);
}

static const struct kernel_ops kernel_callbacks = {
    .ready = on_ready, .event = on_event, .ended = on_ended};

static void start_failed(struct context *cx, const struct err *e)
{
    struct err copy = *e;
    cx->state = CX_OFF, cx->found = 0;
    context_tell(cx, &copy);
    context_fail_queue(cx, &copy);
}

static void start_kernel(struct context *cx)
{
    struct err e;
    struct sandbox *sb = sandbox_find(cx->of->core, cx->of->sandbox, &e);
    struct kernel_spec s = {.language = cx->language,
                            .tag = cx->tag,
                            .cwd = cx->cwd,
                            .env = cx->env.n ? &cx->env : NULL};
    if (!sb || !(cx->kernel = kernel_start(sb, &s, &kernel_callbacks, cx, &e)))
        start_failed(cx, &e);
}

static void files_there(void *arg, const struct err *e)
{
    struct sandbox_ref r = sandbox_ref_take(arg);
    struct contexts *cs = contexts_at(r.core, r.id);
    struct context *cx;
    if (!cs || cs->files != FILES_ASKING)
        return;
    cs->files = e ? FILES_UNKNOWN : FILES_THERE;
    list_each(cx, &cs->all, link) {
        if (!cx->waits_for_files)
            continue;
        cx->waits_for_files = false;
        if (e)
            start_failed(cx, e);
        else
            start_kernel(cx);
    }
}

static void want_files(struct context *cx)
{
    struct contexts *cs = cx->of;
    struct err e;
    cx->waits_for_files = true;
    if (cs->files == FILES_ASKING)
        return;
    struct sandbox *sb = sandbox_find(cs->core, cs->sandbox, &e);
    struct sandbox_ref *r = sb ? sandbox_ref_new(sb) : NULL;
    if (!sb || kernels_ensure(cs->core, sandbox_agent(sb, &e), files_there, r, &e)) {
        free(r);
        cx->waits_for_files = false;
        start_failed(cx, &e);
        return;
    }
    cs->files = FILES_ASKING;
}

static void turn_on(struct context *cx)
{
    struct err e;
    struct sandbox *sb = sandbox_find(cx->of->core, cx->of->sandbox, &e);
    if (cx->found && sb) {
        cx->kernel = kernel_attach(sb, cx->found, &kernel_callbacks, cx, &e);
        if (cx->kernel) {
            cx->state = CX_ON; /* what is sent now waits behind the greeting */
            return;
        }
    }
    cx->state = CX_STARTING;
    if (!sb)
        start_failed(cx, &e);
    else if (cx->of->files == FILES_THERE)
        start_kernel(cx);
    else
        want_files(cx);
}

void context_push(struct context *cx)
{
    bool wanted = !list_empty(&cx->queue) || !list_empty(&cx->waiters);
    if (cx->state == CX_OFF && wanted)
        turn_on(cx);
    if (cx->state != CX_ON || cx->cell || list_empty(&cx->queue))
        return;
    struct eval *v = container_of(cx->queue.next, struct eval, link);
    list_del(&v->link);
    cx->cell = v;
    cx->cells++;
    v->cell = cx->of->next_cell++;
    kernel_run(cx->kernel, v->cell, (struct str){v->code.p ? v->code.p : "", v->code.n}, &v->env);
    eval_begin(v);
}

void context_wait(struct context *cx, context_cb *cb, void *arg)
{
    struct waiter *w = xcalloc(1, sizeof *w);
    *w = (struct waiter){.cb = cb, .arg = arg};
    list_add_tail(&cx->waiters, &w->link);
    context_push(cx);
}

void context_kill(struct context *cx, const struct err *why)
{
    struct eval *v = cx->cell;
    timer_stop(&cx->grace);
    cx->cell = NULL;
    if (cx->kernel)
        kernel_kill(cx->kernel);
    else if (cx->found) { /* never spoken to: end it by its number */
        struct sandbox *sb = sandbox_find(cx->of->core, cx->of->sandbox, NULL);
        struct kernel *k = sb ? kernel_attach(sb, cx->found, &kernel_callbacks, cx, NULL) : NULL;
        if (k)
            kernel_kill(k);
    }
    cx->kernel = NULL, cx->state = CX_OFF, cx->found = 0, cx->waits_for_files = false;
    if (v)
        eval_lost(v, why);
}

void context_grace(void *arg)
{
    struct context *cx = arg;
    struct err e;
    err_set(&e, E_CANCELED, "its client disconnected and it did not stop when interrupted");
    context_kill(cx, &e);
    context_push(cx);
}
