#include "core/ahead/variant.h"
#include "base/clock.h"
#include "base/enc.h"
#include "base/log.h"
#include "core/agent/agent.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/code/kernels.h"
#include "core/agent/prime.h"
#include "core/catalog/template.h"
#include "core/code/warm.h"
#include "base/cleanup.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <errno.h>
#include <fcntl.h>

#define CACHED_MAX 8
/* The clock of a guest that is being prepared is this much behind. A restored one is stepped to the right time, and whatever keeps
 * random state of its own and renews it by the clock does so then: OpenSSL within an hour. */
#define BEHIND_NS  (2 * 3600 * NS_PER_S)

struct waiter {
    struct list link;
    variant_progress *progress;
    void *progress_arg;
    variant_cb *cb;
    void *arg;
};

struct entry {
    struct list link;
    struct core *core;
    struct variant_spec spec;
    struct list waiters;
    struct variant *v; /* our reference once loaded */
    bool busy;
    int64_t used_ns;
    struct variant_build *build;
    struct agent *agent; /* of the guest being prepared */
    struct prime *prime;
    struct warm *warm;
};

struct variants {
    struct list all;
};

static void try_load(struct entry *en);

static void agent_drop(struct entry *en)
{
    prime_cancel(en->prime);
    en->prime = NULL;
    warm_cancel(en->warm);
    en->warm = NULL;
    struct agent *a = en->agent;
    en->agent = NULL; /* first: calls that end with it are no answer of the guest's */
    agent_free(a);
}

static void answer(struct entry *en, struct variant *v, const struct err *e)
{
    struct waiter *w;
    struct list ready;
    list_init(&ready);
    en->busy = false;
    list_each(w, &en->waiters, link) {
        list_del(&w->link);
        list_add_tail(&ready, &w->link);
    }
    list_each(w, &ready, link) {
        list_del(&w->link);
        w->cb(w->arg, v ? variant_ref(v) : NULL, e);
        free(w);
    }
}

/* ---- preparing a booted guest ---- */
static void prepared(struct entry *en, const struct err *e)
{
    struct variant_build *b = en->build;
    bool silent =
        e && agent_broken(en->agent); /* its kernel hangs, died, or never ran: not an answer */
    struct err why = e ? *e : (struct err){0};
    agent_drop(en);
    if (silent)
        variant_silent(b, &why);
    else
        variant_prepared(b, e ? &why : NULL);
}

static void frozen(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct entry *en = arg;
    if (en->agent)
        prepared(en, e);
}

static void all_runs(void *arg, const struct err *e)
{
    struct entry *en = arg;
    static const struct call_ops ops = {.done = frozen};
    struct err no;
    en->warm = NULL;
    if (e) {
        prepared(en, e);
        return;
    }
    /* user processes stand still until the first configure after a restore thaws them: nothing of the
     * template's own (START) runs on old entropy, an old clock or the template's identity */
    auto_buf rec = {0};
    rec_put_u64(&rec, T_FLAGS, FREEZE_USER_ONLY);
    if (!agent_call(en->agent, OP_FREEZE, &rec, &ops, en, &no))
        prepared(en, &no);
}

static void step_done(void *arg, const struct err *e)
{
    struct entry *en = arg;
    struct template *t = template_at(en->core, en->spec.template_id);
    en->prime = NULL;
    unsigned kernels = template_kernels(t, en->spec.memory_mib);
    if (e || !kernels)
        all_runs(en, e);
    else
        en->warm = warm_run(en->core, en->agent, kernels, WARM_START, all_runs, en);
}

/* START and READY of the template, and its kernels, run in the guest that becomes the snapshot. */
static void warmed(void *arg, const struct err *e)
{
    struct entry *en = arg;
    struct template *t = template_at(en->core, en->spec.template_id);
    en->prime = NULL;
    if (e || !t || (!t->start && !t->ready)) {
        step_done(en, e);
        return;
    }
    en->prime = prime_start(en->core->loop, en->agent, t->start, t->ready, step_done, en);
}

static void grown(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct entry *en = arg;
    if (!en->agent)
        return;
    if (e) {
        prepared(en, e);
        return;
    }
    en->prime = prime_run(en->core->loop, en->agent, prime_template, prime_template_n, warmed, en);
}

static void configured(void *arg, const struct err *e, struct rec r)
{
    (void)r;
    struct entry *en = arg;
    static const struct call_ops ops = {.done = grown};
    struct err no;
    if (!en->agent)
        return;
    if (e || !agent_call(en->agent, OP_GROW, NULL, &ops, en, &no))
        prepared(en, e ? e : &no);
}

static void channel_broken(void *arg, const struct err *why)
{
    (void)arg;
    log_debug("preparing a variant: %s", why->msg); /* the build's own watchdog decides */
}

static void prepare(void *arg, struct variant_build *b, int chan_fd)
{
    static const struct call_ops ops = {.done = configured};
    struct entry *en = arg;
    struct err e;
    (void)b;
    agent_drop(en);
    en->agent = agent_new(en->core->loop, dup(chan_fd), channel_broken, en);
    agent_sync(en->agent, false, NULL, NULL);
    auto_buf rec = {0};
    unsigned char entropy[64];
    random_bytes(entropy, sizeof entropy);
    rec_put(&rec, T_ENTROPY, entropy, sizeof entropy);
    rec_put_u64(&rec, T_WALL_NS, (uint64_t)(clock_wall() - BEHIND_NS));
    rec_put_str(&rec, T_HOSTNAME, "hutch");
    rec_put_str(&rec, T_MACHINE_ID, "00000000000000000000000000000000");
    rec_put_u64(&rec, T_GENERATION, 0);
    rec_put_str(&rec, T_SANDBOX, "template");
    rec_put_u64(&rec, T_FLAGS, CFG_PRIME);
    struct template *t = template_at(en->core, en->spec.template_id);
    char **env = t ? kv_to_env(&t->env) : NULL;
    for (char **p = env; p && *p; p++)
        rec_put_str(&rec, T_ENV, *p);
    env_free(env);
    rec_put_str(&rec, T_USER, t && t->user ? t->user : "user");
    if (t && t->workdir)
        rec_put_str(&rec, T_CWD, t->workdir);
    if (!agent_call(en->agent, OP_CONFIGURE, &rec, &ops, en, &e))
        prepared(en, &e);
}

static void build_progress(void *arg, int percent, const char *what)
{
    struct entry *en = arg;
    struct waiter *w;
    list_each(w, &en->waiters, link)
        if (w->progress)
            w->progress(w->progress_arg, percent, what);
}

static void evict(struct core *c)
{
    struct entry *en, *oldest = NULL;
    size_t n = 0;
    list_each(en, &c->variants->all, link)
        if (en->v && !en->busy) {
            n++;
            if (!oldest || en->used_ns < oldest->used_ns)
                oldest = en;
        }
    if (n <= CACHED_MAX || !oldest)
        return;
    list_del(&oldest->link);
    variant_unref(oldest->v);
    free(oldest);
}

static void loaded(struct entry *en, struct variant *v)
{
    en->v = v;
    struct template *t = template_at(en->core, en->spec.template_id);
    if (t)
        t->warm_vm = true;
    answer(en, v, NULL);
    evict(en->core);
}

static void build_done(void *arg, struct variant *v, const struct err *e)
{
    struct entry *en = arg;
    agent_drop(en);
    en->build = NULL;
    if (e) {
        struct err wrapped = *e;
        err_wrap(&wrapped, "preparing the microVM snapshot");
        answer(en, NULL, &wrapped);
        return;
    }
    loaded(en, v);
}

static void load_done(void *arg, struct variant *v, const struct err *e)
{
    static const struct variant_build_ops ops = {
        .progress = build_progress, .prepare = prepare, .done = build_done};
    struct entry *en = arg;
    struct err no;
    if (!e) {
        loaded(en, v);
        return;
    }
    if (e->code != E_NOT_FOUND && e->code != E_CONFLICT) {
        answer(en, NULL, e);
        return;
    }
    if (e->code == E_CONFLICT)
        log_info("rebuilding a microVM snapshot: %s", e->msg);
    if (!(en->build = variant_build(&en->core->tiers, &en->spec, &ops, en, &no)))
        answer(en, NULL, &no);
}

static void try_load(struct entry *en) { variant_load(&en->core->tiers, &en->spec, load_done, en); }

static bool same(const struct variant_spec *a, const struct variant_spec *b)
{
    return a->tier == b->tier && !strcmp(a->template_id, b->template_id) &&
           a->memory_mib == b->memory_mib && a->vcpus == b->vcpus && a->disk_mib == b->disk_mib;
}

static void answer_later(void *arg)
{
    struct entry *en = arg;
    if (en->v)
        answer(en, en->v, NULL);
}

/* A snapshot with kernels in it is another when they, or their text, change. */
static void name_prepared(struct core *c, struct variant_spec *s)
{
    const struct template *t = template_at(c, s->template_id);
    char kernels[KERNELS_TEXT];
    if (!template_kernels(t, s->memory_mib))
        return;
    kernels_format(t->kernels, kernels);
    (void)snprintf(s->prepared, sizeof s->prepared, "kernels %s %s", kernels_version(c), kernels);
}

void variant_get(struct core *c, const struct variant_spec *spec, variant_progress *progress,
                 void *progress_arg, variant_cb *cb, void *arg)
{
    struct entry *en = NULL, *it;
    if (!c->variants) {
        c->variants = xcalloc(1, sizeof *c->variants);
        list_init(&c->variants->all);
    }
    list_each(it, &c->variants->all, link)
        if (same(&it->spec, spec))
            en = it;
    if (!en) {
        en = xcalloc(1, sizeof *en);
        en->core = c, en->spec = *spec;
        name_prepared(c, &en->spec);
        list_init(&en->waiters);
        list_add_tail(&c->variants->all, &en->link);
    }
    en->used_ns = clock_mono();
    struct waiter *w = xcalloc(1, sizeof *w);
    *w = (struct waiter){.progress = progress, .progress_arg = progress_arg, .cb = cb, .arg = arg};
    list_add_tail(&en->waiters, &w->link);
    if (en->busy)
        return;
    en->busy = true;
    if (en->v)
        loop_defer(c->loop, answer_later, en);
    else
        try_load(en);
}

void variant_drop(struct core *c, const char *template_id)
{
    struct entry *en;
    if (!c->variants)
        return;
    list_each(en, &c->variants->all, link)
        if (!en->busy && !strcmp(en->spec.template_id, template_id)) {
            list_del(&en->link);
            variant_unref(en->v);
            free(en);
        }
}

void variants_free(struct core *c)
{
    struct entry *en;
    if (!c->variants)
        return;
    list_each(en, &c->variants->all, link) {
        list_del(&en->link);
        agent_drop(en);
        if (en->build)
            variant_build_cancel(en->build);
        variant_unref(en->v);
        struct waiter *w;
        list_each(w, &en->waiters, link)
            free(w);
        free(en);
    }
    free(c->variants);
    c->variants = NULL;
}

int variants_load_kernel(struct core *c, struct err *e)
{
    auto_fd kernel = openat(c->home_fd, "kernel", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kernel < 0 ||
        faccessat(kernel, "vmlinux", F_OK, 0)) /* its folder is there from the first start on */
        return err_set(
            e, E_NOT_FOUND,
            "the guest kernel is not installed yet; `hutch template build base` fetches it");
    char path[256];
    (void)snprintf(path, sizeof path, "%s/hutch-agent", c->cfg.bin);
    auto_fd agent = open(path, O_RDONLY | O_CLOEXEC);
    if (agent < 0)
        return err_sys(e, errno, "hutch-agent");
    return tiers_load(&c->tiers, kernel, agent, e);
}
