#include "core/ahead/pool.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "core/host/event.h"
#include "core/sandbox/object.h"
#include "core/agent/prime.h"
#include "core/catalog/template.h"
#include "core/code/warm.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define IDLE_NS      (600 * NS_PER_S)
#define QUIET_NS     (30 * NS_PER_MS) /* after the last create, before the next refill */
#define RETRY_NS     (10 * NS_PER_S)  /* after a failed refill */
#define CLASSES_MAX  8
#define KERNEL_SLOTS 2    /* containers that wait with kernels in them: some 100 MiB each */
#define FREE_MIB     1024 /* host memory that refills leave alone */

struct class {
    struct list link;
    struct box_spec spec;
    struct list waiting, ready;
    size_t nwaiting, nready;
    int64_t used_ns;
};

struct pool {
    struct core *core;
    struct list classes;
    struct timer tick;
    struct box *making; /* the one in the works */
    struct class *making_for;
    struct prime *prime;
    struct warm *warm;
    unsigned kernels; /* its template's, for its size */
    bool to_ready, stopped;
    int64_t busy_until;
};

static void refill(void *arg);

static struct class *class_of(struct pool *p, const struct box_spec *spec)
{
    struct class *k;
    list_each(k, &p->classes, link)
        if (box_spec_eq(&k->spec, spec))
            return k;
    return NULL;
}

static void again(struct pool *p, int64_t ns)
{
    if (!p->stopped)
        timer_arm(&p->tick, ns);
}

static void class_free(struct class *k)
{
    struct box *b;
    list_each(b, &k->waiting, pool) {
        list_del(&b->pool);
        box_remove(b, NULL, NULL);
    }
    list_each(b, &k->ready, pool) {
        list_del(&b->pool);
        box_remove(b, NULL, NULL);
    }
    list_del(&k->link);
    free(k);
}

void pool_start(struct core *c)
{
    struct pool *p = c->pool = xcalloc(1, sizeof *p);
    p->core = c;
    list_init(&p->classes);
    timer_init(&p->tick, c->loop, refill, p);
    again(p, 200 * NS_PER_MS);
}

void pool_want(struct core *c, const struct box_spec *spec)
{
    struct pool *p = c->pool;
    struct class *k = class_of(p, spec);
    if (!k) {
        struct class *old = NULL, *it;
        size_t n = 0;
        list_each(it, &p->classes, link) {
            n++;
            if (!old || it->used_ns < old->used_ns)
                old = it;
        }
        if (n >= CLASSES_MAX && old != p->making_for)
            class_free(old);
        k = xcalloc(1, sizeof *k);
        k->spec = *spec;
        list_init(&k->waiting), list_init(&k->ready);
        list_add_tail(&p->classes, &k->link);
    }
    k->used_ns = clock_mono();
    again(p, QUIET_NS);
}

struct box *pool_take(struct core *c, const struct box_spec *spec, const char **path)
{
    struct pool *p = c->pool;
    pool_want(c, spec);
    p->busy_until = clock_mono() + QUIET_NS;
    struct class *k = class_of(p, spec);
    struct box *b = NULL;
    if (k && !list_empty(&k->ready)) {
        b = container_of(k->ready.next, struct box, pool);
        k->nready--;
        *path = "pool";
    } else if (k && !list_empty(&k->waiting)) {
        b = container_of(k->waiting.next, struct box, pool);
        k->nwaiting--;
        *path = spec->tier->waiting;
    }
    if (b)
        list_del(&b->pool);
    return b;
}

/* ---- making one ---- */
static void stop_warming(struct pool *p)
{
    prime_cancel(p->prime);
    warm_cancel(p->warm);
    p->prime = NULL, p->warm = NULL;
}

static void give_up(struct pool *p, const struct err *e)
{
    struct box *b = p->making;
    log_warn("pool: %s", e->msg);
    p->making = NULL, p->making_for = NULL;
    if (b && b->phase != BOX_STARTING)
        box_remove(b, NULL, NULL);
    again(p, RETRY_NS);
}

static void made(struct pool *p)
{
    struct box *b = p->making;
    struct class *k = p->making_for;
    p->making = NULL, p->making_for = NULL;
    if (b->phase == BOX_READY) {
        list_add_tail(&k->ready, &b->pool);
        k->nready++;
    } else {
        list_add_tail(&k->waiting, &b->pool);
        k->nwaiting++;
    }
    again(p, 1 * NS_PER_MS);
}

static void rested(void *arg, struct box *b, const struct err *e)
{
    (void)b;
    if (e)
        give_up(arg, e);
    else
        made(arg);
}

static void rehearsed(void *arg, struct box *b, const struct err *e)
{
    struct pool *p = arg;
    if (e)
        give_up(p, e);
    else
        box_rest(b, rested, p);
}

/* As a claim will do it: every path that a claim takes has then been run, and files it writes are in the layer. The next
 * configure replaces all of it. */
static void rehearse(struct pool *p)
{
    struct box_identity id = {.sandbox = "pool",
                              .hostname = "rehearsal",
                              .machine_id = "11111111111111111111111111111111",
                              .rehearsal = true};
    box_configure(p->making, &id, rehearsed, p);
}

static void warmed(void *arg, const struct err *e)
{
    struct pool *p = arg;
    p->warm = NULL;
    if (e)
        give_up(p, e);
    else
        rehearse(p);
}

/* A VM's kernels came out of its snapshot; a container's begin here. */
static void primed(void *arg, const struct err *e)
{
    struct pool *p = arg;
    p->prime = NULL;
    if (e || !p->kernels)
        warmed(p, e);
    else
        p->warm = warm_run(
            p->core, p->making->agent, p->kernels,
            tier_can(p->making->spec.tier, TIER_VARIANTS) ? WARM_REHEARSE : WARM_START, warmed, p);
}

static void configured(void *arg, struct box *b, const struct err *e)
{
    struct pool *p = arg;
    if (e)
        give_up(p, e);
    else if (tier_can(b->spec.tier, TIER_VARIANTS))
        p->prime = prime_run(p->core->loop, b->agent, prime_pool, prime_pool_n, primed, p);
    else
        primed(p, NULL);
}

static void started(void *arg, struct box *b, const struct err *e)
{
    struct pool *p = arg;
    if (e) {
        p->making = NULL, p->making_for = NULL; /* it removes itself */
        log_warn("pool: %s", e->msg);
        again(p, RETRY_NS);
        return;
    }
    struct template *t = template_at(p->core, b->spec.template_id);
    struct box_identity id = {.sandbox = "pool", .hostname = "hutch", .prime = true};
    p->kernels = template_kernels(t, b->spec.memory_mib);
    if (t)
        id.user = t->user, id.workdir = t->workdir, id.env = &t->env;
    if (p->to_ready || (!tier_can(b->spec.tier, TIER_VARIANTS) && p->kernels))
        box_configure(b, &id, configured, p);
    else if (!tier_can(b->spec.tier, TIER_VARIANTS))
        rehearse(p);
    else
        made(p);
}

size_t host_total_mib(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) >> 20;
}

size_t host_free_mib(void)
{
    size_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "MemAvailable: %zu", &kib) == 1)
            break;
    if (f)
        (void)fclose(f);
    return kib / 1024;
}

static void refill(void *arg)
{
    struct pool *p = arg;
    struct core *c = p->core;
    struct class *k;
    int64_t now = clock_mono();
    if (p->stopped || p->making || c->spawn_lost)
        return;
    if (now < p->busy_until) {
        again(p, p->busy_until - now);
        return;
    }
    list_each(k, &p->classes, link) {
        if (now - k->used_ns > IDLE_NS) {
            class_free(k);
            continue;
        }
        bool vm = tier_can(k->spec.tier, TIER_VARIANTS);
        if (!template_at(c, k->spec.template_id))
            continue;
        bool want_ready = vm && k->nready < c->cfg.pool_vm;
        bool kernels = template_kernels(template_at(c, k->spec.template_id), k->spec.memory_mib);
        size_t slots =
            kernels && c->cfg.pool_container > KERNEL_SLOTS ? KERNEL_SLOTS : c->cfg.pool_container;
        bool want_waiting = k->nwaiting < (vm ? c->cfg.pool_vm_started : slots);
        if (!want_ready && !want_waiting)
            continue;
        if (host_free_mib() < FREE_MIB + (vm || kernels ? 256 : 32)) {
            log_warn("pool: host memory is short, not refilling");
            break;
        }
        p->to_ready = want_ready;
        p->making_for = k;
        p->making = box_start(c, &k->spec, true, started, p);
        return;
    }
    again(p, 5 * NS_PER_S);
}

void pool_refill(struct core *c) { again(c->pool, 1 * NS_PER_MS); }

void pool_lost(struct box *b)
{
    struct pool *p = b->core->pool;
    struct class *k = p ? class_of(p, &b->spec) : NULL;
    if (p && p->making == b) {
        stop_warming(p);
        p->making = NULL, p->making_for = NULL;
        again(p, RETRY_NS);
    } else if (k && b->pool.next) {
        /* its phase is DEAD by now and does not tell which list it was in: count again */
        struct box *it;
        k->nready = k->nwaiting = 0;
        list_del(&b->pool);
        list_each(it, &k->ready, pool)
            k->nready++;
        list_each(it, &k->waiting, pool)
            k->nwaiting++;
        again(p, RETRY_NS);
    }
    box_remove(b, NULL, NULL);
}

struct drop_wait {
    size_t left;
    void (*done)(void *arg);
    void *arg;
};
static void dropped(void *arg)
{
    struct drop_wait *w = arg;
    if (--w->left)
        return;
    if (w->done)
        w->done(w->arg);
    free(w);
}
static void dropped_later(void *arg) { dropped(arg); }

void pool_drop_template(struct core *c, const char *template_id, void (*done)(void *arg), void *arg)
{
    struct pool *p = c->pool;
    struct class *k;
    struct box *b;
    struct drop_wait *w = xcalloc(1, sizeof *w);
    *w = (struct drop_wait){1, done, arg};
    list_each(k, &p->classes, link) {
        if (strcmp(k->spec.template_id, template_id))
            continue;
        list_each(b, &k->waiting, pool) {
            w->left++;
            box_remove(b, dropped, w);
        }
        list_each(b, &k->ready, pool) {
            w->left++;
            box_remove(b, dropped, w);
        }
        if (p->making_for == k && p->making) {
            b = p->making;
            b->cb = NULL;
            stop_warming(p);
            p->making = NULL, p->making_for = NULL;
            w->left++;
            box_remove(b, dropped, w);
        }
        class_free(k);
    }
    loop_defer(c->loop, dropped_later, w);
}

void pool_stop(struct core *c)
{
    struct pool *p = c->pool;
    if (!p)
        return;
    p->stopped = true;
    timer_stop(&p->tick);
    stop_warming(p);
    if (p->making)
        p->making->cb = NULL;
    p->making = NULL;
    struct class *k;
    list_each(k, &p->classes, link) {
        struct box *b;
        list_each(b, &k->waiting, pool)
            list_del(&b->pool);
        list_each(b, &k->ready, pool)
            list_del(&b->pool);
        list_del(&k->link);
        free(k);
    }
    free(p);
    c->pool = NULL;
}

void pool_counts(struct core *c, size_t *vm_ready, size_t *vm_started, size_t *slots,
                 size_t *making)
{
    struct class *k;
    *vm_ready = *vm_started = *slots = *making = 0;
    if (!c->pool)
        return;
    *making = c->pool->making != NULL;
    list_each(k, &c->pool->classes, link)
        if (tier_can(k->spec.tier, TIER_VARIANTS))
            *vm_ready += k->nready, *vm_started += k->nwaiting;
        else
            *slots += k->nwaiting;
}

void pool_want_template(struct core *c, struct template *t)
{
    for (size_t i = 0; tiers[i]; i++) {
        struct box_spec s = {.tier = tiers[i],
                             .cpu_millis = 1000,
                             .memory_mib = c->cfg.def_memory_mib,
                             .disk_mib = c->cfg.def_disk_mib};
        bool copies = tier_can(s.tier, TIER_VARIANTS),
             kept = copies ? c->cfg.pool_vm || c->cfg.pool_vm_started : c->cfg.pool_container;
        if (!tier_can(s.tier, TIER_AHEAD) || !tier_here(&c->tiers, s.tier) ||
            s.tier->strength < c->cfg.min_tier->strength || !kept)
            continue;
        memcpy(s.template_id, t->id, sizeof s.template_id);
        if (copies && s.disk_mib < t->disk_min_mib)
            s.disk_mib = t->disk_min_mib;
        pool_want(c, &s);
    }
}
