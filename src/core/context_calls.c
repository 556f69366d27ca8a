/* What can be asked of contexts, once it is known which there are. */
#include "base/cleanup.h"
#include "base/enc.h"
#include "core/context_int.h"
#include <stdio.h>
#include <stdlib.h>

enum verb { V_GET, V_RESTART, V_INTERRUPT, V_REMOVE, V_CREATE };
struct call_wait { enum verb verb; char id[CONTEXT_ID + 28]; enum language language; char *cwd; struct kv env; context_cb *cb; void *arg; };

static void call_free(struct call_wait *w)
{
    free(w->cwd);
    kv_free(&w->env);
    free(w);
}

static void remove_context(struct context *cx)
{
    struct err e;
    err_set(&e, E_CANCELED, "the context was removed");
    context_kill(cx, &e);
    context_tell(cx, &e);
    context_fail_queue(cx, &e);
    if (cx->is_default)
        cx->hidden = true;
    else
        context_forget(cx);
}

static void create_context(struct contexts *cs, struct call_wait *w)
{
    struct err e;
    unsigned char random[16];
    char id[CONTEXT_ID];
    if (context_full(cs, &e)) {
        w->cb(w->arg, &e, NULL);
        return;
    }
    random_bytes(random, sizeof random);
    context_uuid(random, id);
    struct context *cx = context_add(cs, w->language, id);
    cx->cwd = take_ptr(&w->cwd);
    cx->env = w->env;
    w->env = (struct kv){0};
    context_wait(cx, w->cb, w->arg);
}

/* A context that never got going is not kept: its creator has no use for the id. */
static void sweep_unborn(struct contexts *cs)
{
    struct context *cx;
    list_each(cx, &cs->all, link)
        if (!cx->is_default && cx->state == CX_OFF && !cx->born && list_empty(&cx->queue) && list_empty(&cx->waiters))
            context_forget(cx);
}

static void call_known(void *arg, struct contexts *cs, const struct err *e)
{
    struct call_wait *w = arg;
    struct err no;
    struct context_info info;
    if (e) {
        w->cb(w->arg, e, NULL);
        call_free(w);
        return;
    }
    sweep_unborn(cs);
    if (w->verb == V_CREATE) {
        create_context(cs, w);
        call_free(w);
        return;
    }
    struct context *cx = context_find(cs, w->id, &no);
    if (!cx) {
        w->cb(w->arg, &no, NULL);
        call_free(w);
        return;
    }
    switch (w->verb) {
    case V_RESTART:
        err_set(&no, E_CANCELED, "the context was restarted");
        context_kill(cx, &no);
        context_wait(cx, w->cb, w->arg);
        break;
    case V_REMOVE:
        remove_context(cx);
        w->cb(w->arg, NULL, NULL);
        break;
    case V_INTERRUPT:
        if (cx->cell) {
            cx->cell->interrupted = true;
            eval_interrupt(cx->cell);
        }
        __attribute__((fallthrough));
    default:
        context_fill(cx, &info);
        w->cb(w->arg, NULL, &info);
    }
    call_free(w);
}

static int call(struct sandbox *sb, struct call_wait w, struct err *e)
{
    struct call_wait *copy = xmalloc(sizeof *copy);
    *copy = w;
    if (contexts_ask(sb, call_known, copy, e))
        return 0;
    call_free(copy);
    return -1;
}

static int by_id(struct sandbox *sb, enum verb verb, const char *id, context_cb *cb, void *arg, struct err *e)
{
    struct call_wait w = {.verb = verb, .cb = cb, .arg = arg};
    (void)snprintf(w.id, sizeof w.id, "%s", id);
    return call(sb, w, e);
}

int context_get(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e) { return by_id(sb, V_GET, id, cb, arg, e); }
int context_restart(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e) { return by_id(sb, V_RESTART, id, cb, arg, e); }
int context_interrupt(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e) { return by_id(sb, V_INTERRUPT, id, cb, arg, e); }
int context_remove(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e) { return by_id(sb, V_REMOVE, id, cb, arg, e); }

int context_create(struct sandbox *sb, const struct context_spec *s, context_cb *cb, void *arg, struct err *e)
{
    struct call_wait w = {.verb = V_CREATE, .language = s->language, .cwd = s->cwd ? xstrdup(s->cwd) : NULL, .cb = cb, .arg = arg};
    if (s->env)
        kv_copy(&w.env, s->env);
    return call(sb, w, e);
}

struct list_wait { void (*cb)(void *arg, const struct err *e, const struct context_info *c, size_t n); void *arg; };

static void list_known(void *arg, struct contexts *cs, const struct err *e)
{
    struct list_wait w = *(struct list_wait *)arg;
    struct context_info info[CONTEXTS_MAX + LANG_COUNT];
    struct context *cx;
    size_t n = 0;
    free(arg);
    if (!e) {
        sweep_unborn(cs);
        list_each(cx, &cs->all, link)
            if (!cx->hidden && n < sizeof info / sizeof *info)
                context_fill(cx, &info[n++]);
    }
    w.cb(w.arg, e, info, n);
}

int context_list(struct sandbox *sb, void (*cb)(void *arg, const struct err *e, const struct context_info *c, size_t n), void *arg, struct err *e)
{
    struct list_wait *w = xcalloc(1, sizeof *w);
    *w = (struct list_wait){cb, arg};
    if (contexts_ask(sb, list_known, w, e))
        return 0;
    free(w);
    return -1;
}
