/* Cells: what a client asked to run in a context, from the queue to the last
 * line. Caps, deadline and "the client left" live here. */
#include "base/clock.h"
#include "core/code/context_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_NS (5 * NS_PER_S) /* between an interrupt and the kill */

const char *eval_how_name(enum eval_how h)
{
    static const char *const names[] = {[EVAL_OK] = "ok",
                                        [EVAL_ERROR] = "error",
                                        [EVAL_INTERRUPTED] = "interrupted",
                                        [EVAL_TIMEOUT] = "timeout",
                                        [EVAL_LOST] = "lost"};
    return names[h];
}

static void bury(void *arg)
{
    struct eval *v = arg;
    free(v->context);
    buf_free(&v->code);
    kv_free(&v->env);
    free(v);
}

static void release(struct eval *v)
{
    timer_stop(&v->deadline);
    loop_defer(v->core->loop, bury, v);
}

/* ---- the end of a cell ---- */
static void finish(struct eval *v, enum eval_how how, const struct err *e)
{
    v->end.how = how;
    v->end.e = e;
    if (!v->orphan)
        v->ops.done(v->arg, &v->end);
    release(v);
}

void eval_fail(struct eval *v, const struct err *e)
{
    if (v->begun) { /* it had been handed to a kernel that was not there any more */
        v->end.state_lost = true;
        finish(v, EVAL_LOST, e);
        return;
    }
    if (!v->orphan)
        v->ops.failed(v->arg, e);
    release(v);
}

static void timeout_error(const struct eval *v, struct err *e)
{
    err_set(e, E_TIMEOUT, "the cell took longer than its timeout of %llu ms%s",
            (unsigned long long)v->timeout_ms,
            v->end.state_lost ? "; it ignored the interrupt, so its kernel was killed"
                              : "; it was interrupted");
}

void eval_lost(struct eval *v, const struct err *why)
{
    struct err e;
    v->end.state_lost = true;
    if (v->timed_out) {
        timeout_error(v, &e);
        finish(v, EVAL_TIMEOUT, &e);
    } else {
        finish(v, EVAL_LOST, why);
    }
}

static void done(struct eval *v)
{
    struct err e;
    if (v->timed_out) {
        timeout_error(v, &e);
        finish(v, EVAL_TIMEOUT, &e);
    } else {
        finish(v, v->failed ? v->interrupted ? EVAL_INTERRUPTED : EVAL_ERROR : EVAL_OK, NULL);
    }
}

/* ---- what it says ---- */
static void pass_output(struct eval *v, const struct kernel_event *ev)
{
    struct kernel_event part = *ev;
    char mark[96];
    size_t room = v->max_output - v->output;
    if (ev->text.n <= room) {
        v->output += ev->text.n;
        v->ops.event(v->arg, ev);
        return;
    }
    size_t n = room;
    while (n && ((unsigned char)ev->text.p[n] & 0xc0) == 0x80)
        n--; /* not inside a character */
    part.text.n = n;
    if (n)
        v->ops.event(v->arg, &part);
    v->output = v->max_output;
    v->end.cut_output += ev->text.n - n;
    if (v->marked)
        return;
    v->marked = true;
    int k = snprintf(mark, sizeof mark, "\n[hutch: output cut here, the limit is %zu bytes]\n",
                     v->max_output);
    part.text = (struct str){mark, (size_t)k};
    v->ops.event(v->arg, &part);
}

/* An interrupt that came before the cell had begun would be lost on most kernels: between cells they ignore it. */
void eval_interrupt(struct eval *v)
{
    struct kernel *k = v->cx->kernel;
    v->stop = true;
    if (k && (v->running || kernel_hears(k)))
        kernel_interrupt(k, v->cell);
}

void eval_event(struct eval *v, const struct kernel_event *ev)
{
    if (ev->type == KE_DONE) {
        done(v);
        return;
    }
    if (ev->type == KE_COUNT && !v->running) {
        v->running = true;
        if (v->stop && !kernel_hears(v->cx->kernel))
            eval_interrupt(v);
    }
    if (ev->type == KE_ERROR) {
        if (v->failed)
            return;
        v->failed = true;
    }
    if (v->orphan)
        return;
    if (ev->type == KE_OUT) {
        pass_output(v, ev);
    } else if (ev->type == KE_RESULT && v->results + ev->bytes > EVAL_RESULTS) {
        v->end.cut_results++;
    } else {
        v->results += ev->type == KE_RESULT ? ev->bytes : 0;
        v->ops.event(v->arg, ev);
    }
}

/* ---- running ---- */
static void on_deadline(void *arg)
{
    struct eval *v = arg;
    struct context *cx = v->cx;
    struct err e;
    if (cx->cell != v || !cx->kernel)
        return;
    if (v->held) { /* a reader that does not read must not keep the code from hearing of its end */
        v->held = false;
        kernel_hold(cx->kernel, false);
    }
    if (!v->timed_out) {
        v->timed_out = true;
        eval_interrupt(v);
        timer_arm(&v->deadline, GRACE_NS);
        return;
    }
    err_set(&e, E_TIMEOUT, "the kernel was killed");
    context_kill(cx, &e);
    context_push(cx);
}

void eval_begin(struct eval *v)
{
    struct context_info info;
    v->running = false;
    if (v->timeout_ms)
        timer_arm(&v->deadline, (int64_t)v->timeout_ms * NS_PER_MS);
    if (v->begun)
        return;
    v->begun = true;
    context_fill(v->cx, &info);
    if (v->ops.started && !v->orphan)
        v->ops.started(v->arg, &info);
}

static void enqueue(void *arg, struct contexts *cs, const struct err *e)
{
    struct eval *v = arg, *it;
    struct err no;
    size_t n = 0;
    v->ask = NULL;
    if (e) {
        eval_fail(v, e);
        return;
    }
    v->cx = v->context ? context_find(cs, v->context, &no) : context_default(cs, v->language, &no);
    if (!v->cx) {
        eval_fail(v, &no);
        return;
    }
    list_each(it, &v->cx->queue, link)
        n++;
    if (n >= QUEUE_MAX) {
        err_set(&no, E_QUOTA, "%d cells are already waiting for this context, the limit",
                QUEUE_MAX);
        eval_fail(v, &no);
        return;
    }
    list_add_tail(&v->cx->queue, &v->link);
    context_push(v->cx);
}

struct eval *eval_start(struct sandbox *sb, const struct eval_spec *s, const struct eval_ops *ops,
                        void *arg, struct err *e)
{
    struct eval *v = xcalloc(1, sizeof *v);
    v->core = sb->core, v->ops = *ops, v->arg = arg, v->language = s->language;
    memcpy(v->sandbox, sb->id, sizeof v->sandbox);
    v->context = s->context ? xstrdup(s->context) : NULL;
    v->timeout_ms = s->timeout_ms;
    v->max_output = s->max_output ? s->max_output : EVAL_OUTPUT;
    timer_init(&v->deadline, sb->core->loop, on_deadline, v);
    v->ask = contexts_ask(sb, enqueue, v, e);
    if (!v->ask) {
        bury(v);
        return NULL;
    }
    buf_put(&v->code, s->code.p, s->code.n);
    if (s->env)
        kv_copy(&v->env, s->env);
    return v;
}

void eval_hold(struct eval *v, bool hold)
{
    if (v->held == hold || !v->cx || v->cx->cell != v || !v->cx->kernel || v->timed_out)
        return;
    v->held = hold;
    kernel_hold(v->cx->kernel, hold);
}

void eval_cancel(struct eval *v)
{
    struct context *cx = v->cx;
    if (v->orphan)
        return;
    v->orphan = true;
    if (!cx || cx->cell != v) {
        contexts_unask(v->ask);
        v->ask = NULL;
        list_del(&v->link);
        release(v);
        return;
    }
    timer_stop(&v->deadline);
    v->held = false;
    kernel_hold(cx->kernel, false);
    eval_interrupt(v);
    timer_arm(&cx->grace, GRACE_NS);
}
