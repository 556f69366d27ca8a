/* Variants of microVMs as the tier's: variant.h in terms of vm.h. */
#include "base/buf.h"
#include "tier/variant.h"
#include "tier/vm/vm.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(VARIANT_PREPARED == VM_PREPARED, "one name for what runs in it");

struct vm_ref {
    struct variant v;
    struct vm_variant *vm;
};
static struct vm_ref *of(struct variant *v) { return (struct vm_ref *)v; }

struct vm_variant *vm_variant_of(struct variant *v) { return v ? of(v)->vm : NULL; }

static struct variant *ref_of(const struct tier *t, struct vm_variant *vm /* taken */)
{
    struct vm_ref *r = xcalloc(1, sizeof *r);
    *r = (struct vm_ref){{t}, vm};
    return &r->v;
}
static struct variant *ref(struct variant *v) { return ref_of(v->tier, vm_variant_ref(of(v)->vm)); }
static void unref(struct variant *v)
{
    vm_variant_unref(of(v)->vm);
    free(v);
}

static struct vm_spec spec_of(const struct variant_spec *s)
{
    struct vm_spec r = {.ram_mib = s->memory_mib, .vcpus = s->vcpus, .disk_mib = s->disk_mib};
    memcpy(r.template_id, s->template_id, sizeof s->template_id);
    memcpy(r.prepared, s->prepared, sizeof r.prepared);
    return r;
}

/* ---- load ---- */
struct load {
    struct flight flight;
    const struct tier *tier;
    variant_cb *cb;
    void *arg;
};
static void loaded(void *arg, struct vm_variant *vm, const struct err *e)
{
    struct load l = *(struct load *)arg;
    flight_end(arg);
    free(arg);
    l.cb(l.arg, e ? NULL : ref_of(l.tier, vm), e);
}
static void load(struct tier_host *h, const struct variant_spec *s, variant_cb *cb, void *arg)
{
    struct load *l = xcalloc(1, sizeof *l);
    struct vm_spec spec = spec_of(s);
    *l = (struct load){.tier = s->tier, .cb = cb, .arg = arg};
    flight_begin(h, &l->flight);
    vm_variant_load(h->vm, &spec, loaded, l);
}

static void sweep(struct tier_host *h) { vm_variants_sweep(h->vm); }

/* ---- build: progress, prepare (perhaps twice), done ---- */
struct building {
    struct flight flight;
    struct variant_build b;
    struct vm_build *vm;
    const struct variant_build_ops *ops;
    void *arg;
};
static struct building *building_of(struct variant_build *b)
{
    return (struct building *)((char *)b - offsetof(struct building, b));
}

static void on_progress(void *arg, int percent, const char *what)
{
    struct building *b = arg;
    if (b->ops->progress)
        b->ops->progress(b->arg, percent, what);
}
static void on_prepare(void *arg, struct vm_build *vm, int chan_fd)
{
    struct building *b = arg;
    b->vm = vm;
    b->ops->prepare(b->arg, &b->b, chan_fd);
}
static void on_done(void *arg, struct vm_variant *vm, const struct err *e)
{
    struct building b = *(struct building *)arg;
    flight_end(&((struct building *)arg)->flight);
    free(arg);
    b.ops->done(b.arg, e ? NULL : ref_of(b.b.tier, vm), e);
}
static struct variant_build *build(struct tier_host *h, const struct variant_spec *s,
                                   const struct variant_build_ops *ops, void *arg, struct err *e)
{
    static const struct vm_build_ops on = {on_progress, on_prepare, on_done};
    struct building *b = xcalloc(1, sizeof *b);
    struct vm_spec spec = spec_of(s);
    *b = (struct building){.b = {s->tier}, .ops = ops, .arg = arg};
    if (!(b->vm = vm_variant_build(h->vm, &spec, &on, b, e))) {
        free(b);
        return NULL;
    }
    flight_begin(h, &b->flight);
    return &b->b;
}
static void prepared(struct variant_build *b, const struct err *why)
{
    vm_build_prepared(building_of(b)->vm, why);
}
static void silent(struct variant_build *b, const struct err *why)
{
    vm_build_silent(building_of(b)->vm, why);
}
static void cancel(struct variant_build *b)
{
    vm_build_cancel(building_of(b)->vm);
    flight_end(&building_of(b)->flight);
    free(building_of(b));
}

const struct variant_ops vm_variant_ops = {
    .load = load,
    .ref = ref,
    .unref = unref,
    .sweep = sweep,
    .build = build,
    .prepared = prepared,
    .silent = silent,
    .cancel = cancel,
};
