/* What is under way with a sandbox, and who waits for it. */
#include "core/life/transit.h"
#include "tier/machine.h"
#include "base/buf.h"
#include "base/clock.h"
#include "core/agent/prime.h"
#include <stdlib.h>
#include <string.h>

struct waiter {
    struct list link;
    sandbox_cb *done;
    void *arg;
    bool settle; /* only wants to know that it is over */
};

struct sandbox *transit_owner(const struct transit *t)
{
    struct sandbox *sb = sandbox_at(t->core, t->id);
    return sb && sb->transit == t ? sb : NULL;
}

void transit_wait(struct transit *t, sandbox_cb *done, void *arg, bool settle)
{
    if (!done)
        return;
    struct waiter *w = xcalloc(1, sizeof *w);
    *w = (struct waiter){.done = done, .arg = arg, .settle = settle};
    list_add_tail(&t->waiters, &w->link);
}

static void bury(void *arg)
{
    struct transit *t = arg;
    if (!t->refs)
        free(t);
}

struct transit *transit_hold(struct transit *t)
{
    t->refs++;
    return t;
}
bool transit_back(struct transit *t)
{
    t->refs--;
    if (!t->over)
        return true;
    if (!t->refs)
        loop_defer(t->core->loop, bury, t);
    return false;
}

int transit_call(struct transit *t, enum agent_op op, const struct buf *body,
                 const struct call_ops *ops, struct err *e)
{
    if (!agent_call(transit_owner(t)->box->agent, op, body, ops, t, e))
        return -1;
    (void)transit_hold(t); /* it never calls back before it returns */
    return 0;
}

void transit_deadline(struct transit *t, int64_t ns, void (*late)(void *transit))
{
    timer_stop(&t->deadline);
    timer_init(&t->deadline, t->core->loop, late, t);
    timer_arm(&t->deadline, ns);
}

void transit_end(struct transit *t, const struct err *e)
{
    struct sandbox *sb = transit_owner(t);
    struct list all;
    struct waiter *w;
    struct err copy = e ? *e : (struct err){0};
    if (t->over)
        return;
    t->over = true;
    timer_stop(&t->deadline);
    saving_free(t->saving);
    prime_cancel(t->prime);
    if (sb)
        sb->transit = NULL, sb->busy = false, sb->coming_base = NULL;
    if (t->on_end) {
        t->refs++; /* callbacks that come back inside must not bury it */
        t->on_end(t, e ? &copy : NULL);
        t->refs--;
    }
    list_init(&all);
    list_each(w, &t->waiters, link) {
        list_del(&w->link);
        list_add_tail(&all, &w->link);
    }
    if (!t->refs)
        loop_defer(t->core->loop, bury, t);
    list_each(w, &all, link) {
        list_del(&w->link);
        sb = sandbox_at(t->core, t->id);
        if (w->settle || !e)
            w->done(w->arg, sb, NULL);
        else
            w->done(w->arg, NULL, &copy);
        free(w);
    }
}

void transit_abort(struct sandbox *sb, const struct err *why)
{
    if (sb->transit)
        transit_end(sb->transit, why);
}

struct transit *transit_new(struct sandbox *sb, enum transit_kind kind, void (*on_deadline)(void *))
{
    struct transit *t = xcalloc(1, sizeof *t);
    t->core = sb->core;
    t->kind = kind;
    t->begun = clock_mono();
    memcpy(t->id, sb->id, sizeof t->id);
    list_init(&t->waiters);
    timer_init(&t->deadline, sb->core->loop, on_deadline, t);
    sb->transit = t;
    sb->busy = kind != SNAPSHOT;
    return t;
}

/* The other transition is over: try what was asked for. */
static void again(void *arg, struct sandbox *sb, const struct err *e)
{
    struct transit_again a = *(struct transit_again *)arg;
    struct err why;
    (void)e;
    free(arg);
    sb = sandbox_at(a.core, a.id);
    if (!sb)
        err_set(&why, E_GONE, "sandbox %s ended", a.id);
    else if (a.kind == PAUSE ? !sandbox_pause(sb, &a.pause, a.done, a.arg, &why)
                             : !sandbox_resume(sb, &a.resume, a.done, a.arg, &why))
        return;
    if (a.done)
        a.done(a.arg, NULL, &why);
}

int transit_after(struct sandbox *sb, struct transit_again a)
{
    struct transit_again *w = xcalloc(1, sizeof *w);
    *w = a;
    w->core = sb->core;
    memcpy(w->id, sb->id, sizeof w->id);
    transit_wait(sb->transit, again, w, true);
    return 0;
}

int transit_not_now(const struct sandbox *sb, const char *what, struct err *e)
{
    if (sb->state == SB_GONE || sb->state == SB_STOPPING || sb->state == SB_FAILED)
        return sandbox_ended_err(sb, e);
    return err_why(e, sb->state == SB_PAUSED ? REASON_PAUSED : REASON_NONE, E_CONFLICT,
                   "sandbox %s is %s and cannot be %s", sb->id, state_name(sb->state), what);
}

/* ---- calls that need it awake ---------------------------------------------------------------------------------------- */

struct wake {
    struct core *core;
    char id[22];
    sandbox_cb *done;
    void *arg;
    unsigned tries;
};

static void wake_look(void *arg);

static void woke(void *arg, struct sandbox *sb, const struct err *e)
{
    struct wake *w = arg;
    if (e) {
        struct wake x = *w;
        free(w);
        x.done(x.arg, NULL, e);
        return;
    }
    (void)sb;
    wake_look(w);
}

static void wake_look(void *arg)
{
    struct wake *w = arg;
    struct sandbox *sb = sandbox_at(w->core, w->id);
    struct resume_spec how = {0};
    struct err e;
    if (sb && sb->busy && w->tries++ < 8) {
        transit_wait(sb->transit, woke, w, true);
        return;
    }
    if (sb && sb->state == SB_PAUSED && sb->life.auto_resume && w->tries++ < 8) {
        if (sandbox_resume(sb, &how, woke, w, &e))
            woke(w, NULL, &e);
        return;
    }
    struct wake x = *w;
    free(w);
    if (!sb)
        err_set(&e, E_NOT_FOUND, "sandbox '%s' no longer exists", x.id);
    else if (sandbox_agent(sb, &e)) {
        x.done(x.arg, sb, NULL);
        return;
    }
    x.done(x.arg, NULL, &e);
}

void sandbox_wake(struct sandbox *sb, sandbox_cb *done, void *arg)
{
    struct wake *w = xcalloc(1, sizeof *w);
    *w = (struct wake){.core = sb->core, .done = done, .arg = arg};
    memcpy(w->id, sb->id, sizeof w->id);
    loop_defer(sb->core->loop, wake_look, w);
}
