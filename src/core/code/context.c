/* The contexts of a sandbox: which there are, found again by the tags of their kernels' processes after a restart,
 * and what can be asked of them. What runs in one is in context_kernel.c. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/enc.h"
#include "core/catalog/template.h"
#include "core/code/context.h"
#include "core/code/context_int.h"
#include "core/sandbox/exec.h"
#include "crypto/digest.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG "kernel:"

/* ---- names ---- */
static void context_uuid(const unsigned char b[16], char out[CONTEXT_ID])
{
    char hex[33];
    hex_encode(b, 16, hex);
    (void)snprintf(out, CONTEXT_ID, "%.8s-%.4s-4%.3s-a%.3s-%.12s", hex, hex + 8, hex + 13, hex + 17,
                   hex + 20);
}

/* The same after a restart of the daemon, another in every sandbox. */
static void default_id(const char *sandbox, enum language l, char out[CONTEXT_ID])
{
    unsigned char b[SHA256_BYTES];
    char text[64];
    (void)snprintf(text, sizeof text, "context %s %s", sandbox, language_name(l));
    sha256(text, strlen(text), b);
    context_uuid(b, out);
}

struct code {
    struct map contexts; /* struct contexts by the sandbox's id */
};

void code_init(struct core *c) { c->code = xcalloc(1, sizeof *c->code); }
void code_free(struct core *c)
{
    map_free(&c->code->contexts);
    free(c->code);
    c->code = NULL;
}
struct contexts *contexts_at(const struct core *c, const char *sandbox)
{
    return map_get(&c->code->contexts, sandbox);
}

void context_tag(enum language l, const char *id, char out[CONTEXT_TAG])
{
    (void)snprintf(out, CONTEXT_TAG, TAG "%s:%s", language_name(l), id ? id : "default");
}

static const char *default_cwd(const struct contexts *cs)
{
    const struct sandbox *sb = sandbox_find(cs->core, cs->sandbox, NULL);
    const struct template *t = sb ? template_at(cs->core, sb->template_id) : NULL;
    if (t && t->workdir)
        return t->workdir;
    return t && t->user && !strcmp(t->user, "root") ? "/root" : "/home/user";
}

void context_fill(const struct context *cx, struct context_info *ret)
{
    bool busy = cx->cell || !list_empty(&cx->queue);
    const char *state = cx->state == CX_STARTING          ? "starting"
                        : busy                            ? "busy"
                        : cx->state == CX_ON || cx->found ? "idle"
                                                          : "new";
    *ret = (struct context_info){.id = cx->id,
                                 .language = cx->language,
                                 .cwd = cx->cwd ? cx->cwd : default_cwd(cx->of),
                                 .state = state,
                                 .is_default = cx->is_default,
                                 .cells = cx->cells};
}

/* ---- the table ---- */
struct context *context_add(struct contexts *cs, enum language l,
                            const char *id /* NULL: the default */)
{
    struct context *cx = xcalloc(1, sizeof *cx);
    cx->of = cs, cx->language = l, cx->is_default = !id;
    if (id)
        (void)snprintf(cx->id, sizeof cx->id, "%s", id);
    else
        default_id(cs->sandbox, l, cx->id);
    context_tag(l, id, cx->tag);
    list_init(&cx->waiters), list_init(&cx->queue);
    timer_init(&cx->grace, cs->core->loop, context_grace, cx);
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

static void context_forget(struct context *cx)
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

bool context_full(const struct contexts *cs, struct err *e)
{
    if (cs->n < CONTEXTS_MAX)
        return false;
    err_set(e, E_QUOTA, "the sandbox already has %d code contexts, the limit; remove one",
            CONTEXTS_MAX);
    return true;
}

struct context *context_default(struct contexts *cs, enum language l, struct err *e)
{
    struct context *cx;
    list_each(cx, &cs->all, link)
        if (cx->is_default && cx->language == l) {
            cx->hidden = false;
            return cx;
        }
    return context_full(cs, e) ? NULL : context_add(cs, l, NULL);
}

/* ---- finding out what runs ---- */
struct ask {
    struct list link;
    struct contexts *cs;
    ask_fn *fn;
    void *arg;
};

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
    return colon && strlen(*id) < CONTEXT_ID &&
           !language_parse((struct str){name, (size_t)(colon - name)}, l);
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
    cx->born = true;
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

static void listed(void *arg, const struct err *e, const struct proc_info *p, size_t n)
{
    struct sandbox_ref r = sandbox_ref_take(arg);
    struct contexts *cs = contexts_at(r.core, r.id);
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
    struct contexts *cs = contexts_at(sb->core, sb->id);
    if (cs)
        return cs;
    cs = xcalloc(1, sizeof *cs);
    cs->core = sb->core;
    cs->next_cell = clock_wall() / 1000; /* beyond those of an earlier daemon */
    memcpy(cs->sandbox, sb->id, sizeof cs->sandbox);
    list_init(&cs->all), list_init(&cs->asks);
    map_set(&sb->core->code->contexts, sb->id, cs);
    return cs;
}

static void answer_later(void *arg)
{
    struct sandbox_ref r = sandbox_ref_take(arg);
    struct contexts *cs = contexts_at(r.core, r.id);
    if (cs && cs->known == CX_KNOWN)
        answer_asks(cs, NULL);
}

struct ask *contexts_ask(struct sandbox *sb, ask_fn *fn, void *arg, struct err *e)
{
    if (!sandbox_agent(sb, e))
        return NULL;
    struct contexts *cs = contexts_of(sb);
    if (cs->known == CX_UNKNOWN) {
        struct sandbox_ref *r = sandbox_ref_new(sb);
        if (exec_list(sb, listed, r, e)) {
            free(r);
            return NULL;
        }
        cs->known = CX_ASKING;
    } else if (cs->known == CX_KNOWN) {
        loop_defer(sb->core->loop, answer_later, sandbox_ref_new(sb));
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

/* ---- the end ---- */
size_t contexts_resting(const struct sandbox *sb)
{
    struct contexts *cs = contexts_at(sb->core, sb->id);
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
    struct contexts *cs = map_del(&sb->core->code->contexts, sb->id);
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
        context_tell(cx, why);
        context_fail_queue(cx, why);
        context_forget(cx);
    }
    loop_defer(sb->core->loop, contexts_bury, cs);
}

/* ---- what can be asked of them, once it is known which there are ---- */
enum verb { V_GET, V_RESTART, V_INTERRUPT, V_REMOVE, V_CREATE };
struct call_wait {
    enum verb verb;
    char id[CONTEXT_ID + 28];
    enum language language;
    char *cwd;
    struct kv env;
    context_cb *cb;
    void *arg;
};

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
        if (!cx->is_default && cx->state == CX_OFF && !cx->born && list_empty(&cx->queue) &&
            list_empty(&cx->waiters))
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
    default: context_fill(cx, &info); w->cb(w->arg, NULL, &info);
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

static int by_id(struct sandbox *sb, enum verb verb, const char *id, context_cb *cb, void *arg,
                 struct err *e)
{
    struct call_wait w = {.verb = verb, .cb = cb, .arg = arg};
    (void)snprintf(w.id, sizeof w.id, "%s", id);
    return call(sb, w, e);
}

int context_get(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e)
{
    return by_id(sb, V_GET, id, cb, arg, e);
}
int context_restart(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e)
{
    return by_id(sb, V_RESTART, id, cb, arg, e);
}
int context_interrupt(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e)
{
    return by_id(sb, V_INTERRUPT, id, cb, arg, e);
}
int context_remove(struct sandbox *sb, const char *id, context_cb *cb, void *arg, struct err *e)
{
    return by_id(sb, V_REMOVE, id, cb, arg, e);
}

int context_create(struct sandbox *sb, const struct context_spec *s, context_cb *cb, void *arg,
                   struct err *e)
{
    struct call_wait w = {.verb = V_CREATE,
                          .language = s->language,
                          .cwd = s->cwd ? xstrdup(s->cwd) : NULL,
                          .cb = cb,
                          .arg = arg};
    if (s->env)
        kv_copy(&w.env, s->env);
    return call(sb, w, e);
}

struct list_wait {
    void (*cb)(void *arg, const struct err *e, const struct context_info *c, size_t n);
    void *arg;
};

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

int context_list(struct sandbox *sb,
                 void (*cb)(void *arg, const struct err *e, const struct context_info *c, size_t n),
                 void *arg, struct err *e)
{
    struct list_wait *w = xcalloc(1, sizeof *w);
    *w = (struct list_wait){cb, arg};
    if (contexts_ask(sb, list_known, w, e))
        return 0;
    free(w);
    return -1;
}
