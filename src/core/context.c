#include "core/context.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "core/context_int.h"
#include "core/exec.h"
#include "core/template.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG "kernel:"

/* ---- names ---- */
static void uuid_text(const unsigned char b[16], char out[CONTEXT_ID])
{
    char hex[33];
    hex_encode(b, 16, hex);
    (void)snprintf(out, CONTEXT_ID, "%.8s-%.4s-4%.3s-a%.3s-%.12s", hex, hex + 8, hex + 13, hex + 17, hex + 20);
}

static void make_id(char out[CONTEXT_ID])
{
    unsigned char b[16];
    random_bytes(b, sizeof b);
    uuid_text(b, out);
}

/* The same after a restart of the daemon, another in every sandbox. */
static void default_id(const char *sandbox, enum language l, char out[CONTEXT_ID])
{
    unsigned char b[SHA256_BYTES];
    char text[64];
    (void)snprintf(text, sizeof text, "context %s %s", sandbox, language_name(l));
    sha256(text, strlen(text), b);
    uuid_text(b, out);
}

void context_tag(enum language l, const char *id, char out[CONTEXT_TAG])
{
    (void)snprintf(out, CONTEXT_TAG, TAG "%s:%s", language_name(l), id ? id : "default");
}

static const char *default_cwd(const struct contexts *cs)
{
    const struct sandbox *sb = sandbox_find(cs->core, cs->sandbox, NULL);
    const struct template *t = sb ? map_get(&cs->core->templates, sb->template_id) : NULL;
    if (t && t->workdir)
        return t->workdir;
    return t && t->user && !strcmp(t->user, "root") ? "/root" : "/home/user";
}

void context_fill(const struct context *cx, struct context_info *ret)
{
    bool busy = cx->cell || !list_empty(&cx->queue);
    const char *state = cx->state == CX_STARTING ? "starting" : busy ? "busy" : cx->state == CX_ON || cx->found ? "idle" : "new";
    *ret = (struct context_info){.id = cx->id, .language = cx->language, .cwd = cx->cwd ? cx->cwd : default_cwd(cx->of), .state = state,
                                 .is_default = cx->is_default, .cells = cx->cells};
}

/* ---- the table ---- */
static void on_grace(void *arg);

static struct context *context_add(struct contexts *cs, enum language l, const char *id /* NULL: the default */)
{
    struct context *cx = xcalloc(1, sizeof *cx);
    cx->of = cs, cx->language = l, cx->is_default = !id;
    if (id)
        (void)snprintf(cx->id, sizeof cx->id, "%s", id);
    else
        default_id(cs->sandbox, l, cx->id);
    context_tag(l, id, cx->tag);
    list_init(&cx->waiters), list_init(&cx->queue);
    timer_init(&cx->grace, cs->core->loop, on_grace, cx);
    list_add_tail(&cs->all, &cx->link);
    cs->n++;
    return cx;
}

static void context_bury(void *arg)
{
    struct context *cx = arg;
    free(cx->cwd);
    kv_free(&cx->env);
    free(cx);
}

static void context_free(struct context *cx)
{
    timer_stop(&cx->grace);
    list_del(&cx->link);
    cx->of->n--;
    loop_defer(cx->of->core->loop, context_bury, cx);
}

struct context *context_find(struct contexts *cs, const char *id, struct err *e)
{
    struct context *cx;
    list_each(cx, &cs->all, link)
        if (!cx->hidden && !strcmp(cx->id, id))
            return cx;
    err_set(e, E_NOT_FOUND, "Context %.64s not found", id);
    return NULL;
}

struct context *context_default(struct contexts *cs, enum language l, struct err *e)
{
    struct context *cx;
    list_each(cx, &cs->all, link)
        if (cx->is_default && cx->language == l) {
            cx->hidden = false;
            return cx;
        }
    if (cs->n >= CONTEXTS_MAX) {
        err_set(e, E_QUOTA, "the sandbox has %d code contexts already; remove one", CONTEXTS_MAX);
        return NULL;
    }
    return context_add(cs, l, NULL);
}

/* ---- finding out what runs ---- */
struct ask { struct list link; struct contexts *cs; ask_fn *fn; void *arg; };

static void answer_asks(struct contexts *cs, const struct err *e)
{
    while (!list_empty(&cs->asks)) {
        struct ask *a = container_of(cs->asks.next, struct ask, link);
        list_del(&a->link);
        a->fn(a->arg, cs, e);
        free(a);
    }
}

static bool parse_tag(const char *tag, enum language *l, const char **id)
{
    if (!tag || strncmp(tag, TAG, sizeof TAG - 1))
        return false;
    const char *name = tag + sizeof TAG - 1, *colon = strchr(name, ':');
    *id = colon ? colon + 1 : NULL;
    return colon && strlen(*id) < CONTEXT_ID && !language_parse((struct str){name, (size_t)(colon - name)}, l);
}

static void found_one(struct contexts *cs, const struct proc_info *p)
{
    enum language l;
    const char *id;
    struct context *cx = NULL, *it;
    if (!p->running || !parse_tag(p->tag, &l, &id) || cs->n >= CONTEXTS_MAX)
        return;
    list_each(it, &cs->all, link)
        if (!strcmp(it->tag, p->tag))
            cx = it;
    if (!cx)
        cx = context_add(cs, l, strcmp(id, "default") ? id : NULL);
    cx->found = p->pid;
    if (p->cwd && !cx->is_default) {
        free(cx->cwd);
        cx->cwd = xstrdup(p->cwd);
    }
    for (char *const *v = p->env; v && *v; v++) {
        const char *eq = strchr(*v, '=');
        if (eq)
            kv_set(&cx->env, (struct str){*v, (size_t)(eq - *v)}, str_of(eq + 1));
    }
}

struct listing { struct core *core; char sandbox[22]; };

static void listed(void *arg, const struct err *e, const struct proc_info *p, size_t n)
{
    struct listing l = *(struct listing *)arg;
    free(arg);
    struct contexts *cs = map_get(&l.core->contexts, l.sandbox);
    if (!cs || cs->known != CX_ASKING)
        return; /* dropped meanwhile; who waited was told */
    cs->known = e ? CX_UNKNOWN : CX_KNOWN;
    if (!e) {
        context_add(cs, LANG_PYTHON, NULL);
        context_add(cs, LANG_JAVASCRIPT, NULL);
        for (size_t i = 0; i < n; i++)
            found_one(cs, &p[i]);
    }
    answer_asks(cs, e);
}

static struct contexts *contexts_of(struct sandbox *sb)
{
    struct contexts *cs = map_get(&sb->core->contexts, sb->id);
    if (cs)
        return cs;
    cs = xcalloc(1, sizeof *cs);
    cs->core = sb->core;
    cs->next_cell = clock_wall() / 1000; /* beyond those of an earlier daemon */
    memcpy(cs->sandbox, sb->id, sizeof cs->sandbox);
    list_init(&cs->all), list_init(&cs->asks);
    map_set(&sb->core->contexts, sb->id, cs);
    return cs;
}

static void answer_later(void *arg)
{
    struct listing l = *(struct listing *)arg;
    free(arg);
    struct contexts *cs = map_get(&l.core->contexts, l.sandbox);
    if (cs && cs->known == CX_KNOWN)
        answer_asks(cs, NULL);
}

struct ask *contexts_ask(struct sandbox *sb, ask_fn *fn, void *arg, struct err *e)
{
    if (!sandbox_agent(sb, e))
        return NULL;
    struct contexts *cs = contexts_of(sb);
    struct listing *l = NULL;
    if (cs->known != CX_ASKING) {
        l = xcalloc(1, sizeof *l);
        l->core = sb->core;
        memcpy(l->sandbox, sb->id, sizeof l->sandbox);
    }
    if (cs->known == CX_UNKNOWN) {
        if (exec_list(sb, listed, l, e)) {
            free(l);
            return NULL;
        }
        cs->known = CX_ASKING;
    } else if (cs->known == CX_KNOWN) {
        loop_defer(sb->core->loop, answer_later, l);
    }
    struct ask *a = xcalloc(1, sizeof *a);
    *a = (struct ask){.cs = cs, .fn = fn, .arg = arg};
    list_add_tail(&cs->asks, &a->link);
    return a;
}

void contexts_unask(struct ask *a)
{
    if (!a)
        return;
    list_del(&a->link);
    free(a);
}

/* ---- kernels ---- */
struct waiter { struct list link; context_cb *cb; void *arg; };

static void tell_waiters(struct context *cx, const struct err *e)
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

static void fail_queue(struct context *cx, const struct err *e)
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
    tell_waiters(cx, NULL);
    if (cx->cell && cx->cell->stop && kernel_hears(cx->kernel)) /* sent to a kernel that was found, before it had answered */
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
        tell_waiters(cx, &why);
        fail_queue(cx, &why);
    }
    context_push(cx);
}

static const struct kernel_ops kernel_callbacks = {.ready = on_ready, .event = on_event, .ended = on_ended};

static void start_failed(struct context *cx, const struct err *e)
{
    struct err copy = *e;
    cx->state = CX_OFF, cx->found = 0;
    tell_waiters(cx, &copy);
    fail_queue(cx, &copy);
}

static void start_kernel(struct context *cx)
{
    struct err e;
    struct sandbox *sb = sandbox_find(cx->of->core, cx->of->sandbox, &e);
    struct kernel_spec s = {.language = cx->language, .tag = cx->tag, .cwd = cx->cwd, .env = cx->env.n ? &cx->env : NULL};
    if (!sb || !(cx->kernel = kernel_start(sb, &s, &kernel_callbacks, cx, &e)))
        start_failed(cx, &e);
}

static void files_there(void *arg, const struct err *e)
{
    struct listing l = *(struct listing *)arg;
    free(arg);
    struct contexts *cs = map_get(&l.core->contexts, l.sandbox);
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
    struct listing *l = xcalloc(1, sizeof *l);
    l->core = cs->core;
    memcpy(l->sandbox, cs->sandbox, sizeof l->sandbox);
    if (!sb || kernels_ensure(cs->core, sandbox_agent(sb, &e), files_there, l, &e)) {
        free(l);
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

static void on_grace(void *arg)
{
    struct context *cx = arg;
    struct err e;
    err_set(&e, E_CANCELED, "its client left and it did not end when it was interrupted");
    context_kill(cx, &e);
    context_push(cx);
}

/* ---- the calls ---- */
enum verb { V_GET, V_RESTART, V_INTERRUPT, V_REMOVE, V_CREATE };
struct call_wait { enum verb verb; char id[CONTEXT_ID + 28]; enum language language; char *cwd; struct kv env; context_cb *cb; void *arg; };

static void call_free(struct call_wait *w)
{
    free(w->cwd);
    kv_free(&w->env);
    free(w);
}

static void wait_ready(struct context *cx, struct call_wait *w)
{
    struct waiter *x = xcalloc(1, sizeof *x);
    *x = (struct waiter){.cb = w->cb, .arg = w->arg};
    list_add_tail(&cx->waiters, &x->link);
    context_push(cx);
}

static void remove_context(struct context *cx)
{
    struct err e;
    err_set(&e, E_CANCELED, "the context was removed");
    context_kill(cx, &e);
    tell_waiters(cx, &e);
    fail_queue(cx, &e);
    if (cx->is_default)
        cx->hidden = true;
    else
        context_free(cx);
}

static void create_context(struct contexts *cs, struct call_wait *w)
{
    struct err e;
    char id[CONTEXT_ID];
    if (cs->n >= CONTEXTS_MAX) {
        err_set(&e, E_QUOTA, "the sandbox has %d code contexts already; remove one", CONTEXTS_MAX);
        w->cb(w->arg, &e, NULL);
        return;
    }
    make_id(id);
    struct context *cx = context_add(cs, w->language, id);
    cx->cwd = take_ptr(&w->cwd);
    cx->env = w->env;
    w->env = (struct kv){0};
    wait_ready(cx, w);
}

/* A context that never got going is not kept: its creator has no use for the id. */
static void sweep_unborn(struct contexts *cs)
{
    struct context *cx;
    list_each(cx, &cs->all, link)
        if (!cx->is_default && cx->state == CX_OFF && !cx->found && !cx->cells && list_empty(&cx->queue) && list_empty(&cx->waiters))
            context_free(cx);
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
        wait_ready(cx, w);
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

/* ---- the end ---- */
size_t contexts_resting(const struct sandbox *sb)
{
    struct contexts *cs = map_get(&sb->core->contexts, sb->id);
    struct context *cx;
    size_t n = 0;
    if (cs)
        list_each(cx, &cs->all, link)
            n += cx->kernel && !cx->cell;
    return n;
}

static void contexts_bury(void *arg) { free(arg); }

void contexts_drop(struct sandbox *sb, const struct err *why)
{
    struct contexts *cs = map_del(&sb->core->contexts, sb->id);
    struct context *cx;
    if (!cs)
        return;
    cs->known = CX_UNKNOWN;
    answer_asks(cs, why);
    list_each(cx, &cs->all, link) {
        struct eval *v = cx->cell;
        if (cx->kernel)
            kernel_leave(cx->kernel);
        cx->kernel = NULL, cx->cell = NULL, cx->state = CX_OFF;
        if (v)
            eval_lost(v, why);
        tell_waiters(cx, why);
        fail_queue(cx, why);
        context_free(cx);
    }
    loop_defer(sb->core->loop, contexts_bury, cs);
}
