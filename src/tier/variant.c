#include "tier/variant.h"

static const struct variant_ops *of(const struct tier *t) { return t->ops->variants; }

void variant_load(struct tier_host *h, const struct variant_spec *s, variant_cb *cb, void *arg)
{
    of(s->tier)->load(h, s, cb, arg);
}
struct variant *variant_ref(struct variant *v) { return of(v->tier)->ref(v); }
void variant_unref(struct variant *v)
{
    if (v)
        of(v->tier)->unref(v);
}
void variants_sweep(struct tier_host *h)
{
    for (size_t i = 0; tiers[i]; i++)
        if (tier_can(tiers[i], TIER_VARIANTS) && tier_here(h, tiers[i]))
            of(tiers[i])->sweep(h);
}
struct variant_build *variant_build(struct tier_host *h, const struct variant_spec *s,
                                    const struct variant_build_ops *ops, void *arg, struct err *e)
{
    return of(s->tier)->build(h, s, ops, arg, e);
}
void variant_prepared(struct variant_build *b, const struct err *why)
{
    of(b->tier)->prepared(b, why);
}
void variant_silent(struct variant_build *b, const struct err *why) { of(b->tier)->silent(b, why); }
void variant_build_cancel(struct variant_build *b) { of(b->tier)->cancel(b); }
