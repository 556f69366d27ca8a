/* Recipe builds: the steps run inside a sandbox started from the parent
 * template, or from what an earlier build kept, never on the host. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/quote.h"
#include "core/build/recipe_int.h"
#include "core/code/kernels.h"
#include "core/catalog/snapshot.h"
#include "core/build/step_cache.h"
#include "core/host/ref.h"
#include "core/sandbox/object.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUILD_S (3 * 3600)

bool recipe_run_finished(const struct recipe_run *r) { return r->finished; }

struct sandbox *recipe_box(struct recipe_run *r)
{
    return *r->sandbox ? sandbox_find(r->build->core, r->sandbox, NULL) : NULL;
}

void recipe_run_free(struct recipe_run *r)
{
    if (!r)
        return;
    struct sandbox *sb = recipe_box(r);
    if (r->x)
        exec_detach(r->x);
    if (sb)
        (void)sandbox_kill(sb, END_KILLED, "the build is over", NULL, NULL,
                           NULL); /* refused only when it is ending */
    if (r->pipe_w >= 0) {
        io_stop(&r->pipe_io);
        (void)close(r->pipe_w);
    }
    if (r->context_fd >= 0)
        (void)close(r->context_fd);
    if (r->parsed)
        recipe_fini(&r->recipe);
    plan_free(r->plan);
    network_spec_free(&r->network);
    kv_free(&r->env);
    free(r->tenant);
    buf_free(&r->partial), buf_free(&r->queue);
    free(r->user), free(r->cwd);
    loop_defer(r->build->core->loop, free, r);
}

void recipe_fail(struct recipe_run *r, enum err_code code, const char *fmt, ...)
{
    struct err e;
    va_list ap;
    va_start(ap, fmt);
    err_vset(&e, code, fmt, ap);
    va_end(ap);
    build_fail(r->build, &e);
}

void recipe_step_failed(struct recipe_run *r, int line, const char *what)
{
    struct err e;
    err_why(&e, REASON_STEP_FAILED, E_GUEST, "line %d: %s failed with status %d%s%.120s", line,
            what, r->status, *r->tail ? ": " : "", r->tail);
    build_fail(r->build, &e);
}

/* ---- begin ---- */
static void start(struct recipe_run *r);

static void created(void *arg, struct sandbox *sb, const struct err *e)
{
    struct build *b = build_take(arg);
    if (!b || !b->recipe) {
        if (sb)
            (void)sandbox_kill(sb, END_KILLED, "the build is over", NULL, NULL, NULL);
        return;
    }
    struct recipe_run *r = b->recipe;
    if (e && r->cached && e->code != E_QUOTA &&
        e->code !=
            E_UNAVAILABLE) { /* of a machine that is not the one we have now, or damaged: without it */
        struct snapshot *s = snapshot_at(b->core, r->from);
        log_info("build cache: %s cannot be used: %s", r->from, e->msg);
        if (s)
            step_drop(s);
        start(r);
        return;
    }
    if (e) {
        build_fail(b, e);
        return;
    }
    memcpy(r->sandbox, sb->id, sizeof r->sandbox);
    recipe_begin(r);
}

static void already_there(void *arg)
{
    struct build *b = arg;
    struct template *t = template_named(b->core, b->t->tenant, b->t->name);
    b->done = true;
    b->ops.done(b->arg, t, NULL);
    build_cancel(b);
}

static char *cmd_text(const struct recipe_cmd *c)
{
    if (!c->argc)
        return NULL;
    if (c->shell)
        return xstrdup(c->argv[0]);
    struct buf b = {0};
    for (size_t i = 0; i < c->argc; i++) {
        if (i)
            buf_putc(&b, ' ');
        shell_quote(&b, c->argv[i]);
    }
    return buf_take(&b);
}

static void start(struct recipe_run *r)
{
    struct build *b = r->build;
    struct core *c = b->core;
    struct err e;
    struct sandbox_spec spec = {.template = b->t->parent,
                                .network = r->network.text ? &r->network : NULL,
                                .tenant = r->tenant,
                                .timeout_s = BUILD_S < c->cfg.max_timeout_s ? BUILD_S
                                                                            : c->cfg.max_timeout_s};
    spec.from = recipe_find_kept(r);
    kv_set(&spec.metadata, S("hutch.build"), str_of(b->t->name));
    struct ref *ref = ref_new(c, b->t->id);
    int rc = sandbox_create(c, &spec, created, ref, &e);
    kv_free(&spec.metadata);
    if (!rc)
        return;
    created(ref, NULL, &e);
}

static void planned(struct build *b, struct plan *p)
{
    struct recipe_run *r = b->recipe;
    const struct template *same = template_named(b->core, b->t->tenant, b->t->name);
    r->plan = p;
    b->t->content_key = xstrdup(p->content_key);
    if (!r->force && same && same->content_key && !strcmp(same->content_key, p->content_key)) {
        already_there(b);
        return;
    }
    start(r);
}

struct build *build_recipe(struct core *c, const struct recipe_spec *s, const struct build_ops *ops,
                           void *arg, struct err *e)
{
    auto_fd ctx = s->context_fd;
    struct recipe rec;
    unsigned kernels = 0;
    if (recipe_parse(s->text.p, s->text.n, &rec, e))
        return NULL;
    struct caller who = s->by ? *s->by : caller_of_tenant(s->tenant);
    const struct template *parent =
        rec.debian ? template_find(c, "base", e) : template_find_for(c, &who, rec.from, e);
    if (parent && s->by &&
        caller_may_start(s->by, parent->name, parent->id, c->cfg.default_tier->name, 0, 0, 0, e)) {
        recipe_fini(&rec);
        return NULL;
    }
    if (!parent && !rec.debian)
        err_set(
            e, E_NOT_FOUND,
            "FROM %.60s%s%.40s: there is no such template. Images are not pulled: `podman save -o image.tar IMAGE`, then `hutch template import %.60s image.tar`",
            rec.from, *rec.tag ? ":" : "", rec.tag, rec.from);
    struct build *b = parent && (!rec.kernels || !kernels_parse(rec.kernels, &kernels, e))
                          ? build_new(c, s->tenant, s->name, "recipe", ops, arg, e)
                          : NULL;
    if (!b) {
        recipe_fini(&rec);
        return NULL;
    }
    struct recipe_run *r = b->recipe = xcalloc(1, sizeof *r);
    *r = (struct recipe_run){
        .build = b, .recipe = rec, .parsed = true, .context_fd = take_fd(&ctx), .pipe_w = -1};
    b->t->parent = xstrdup(parent->id);
    r->whole = parent->packed; /* its image was written elsewhere: the host puts no difference onto that */
    r->since_ns = parent->created_ns < clock_wall()
                      ? parent->created_ns
                      : clock_wall(); /* its image was complete before */
    /* plain Debian is root's, as the image of that name is; base is the same tree for its user */
    const char *user = rec.debian ? "root" : parent->user,
               *workdir = rec.debian ? "/" : parent->workdir;
    b->t->user = user ? xstrdup(user) : NULL;
    b->t->workdir = workdir ? xstrdup(workdir) : NULL;
    b->t->start = cmd_text(&rec.start), b->t->ready = cmd_text(&rec.ready);
    b->t->kernels = rec.kernels ? kernels : parent->kernels;
    kv_copy(&b->t->env, &parent->env);
    kv_copy(&r->env, &parent->env);
    r->user = xstrdup(user ? user : "root"), r->cwd = xstrdup(workdir ? workdir : "/");
    if (r->context_fd >= 0)
        (void)lseek(r->context_fd, 0, SEEK_SET);
    if (s->network) {
        r->network.text = xstrdup(s->network->text);
        kv_copy(&r->network.values, &s->network->values);
    }
    r->tenant = s->tenant ? xstrdup(s->tenant) : NULL;
    r->force = s->force, r->cached_line = s->cached_line;
    build_stage(b, 2, 60);
    plan_make(b, s, parent, r->context_fd, planned);
    return b;
}
