/* TIER_VARIANTS: a variant is a template's machine at one size, booted, prepared and frozen. Copies begin as it, so
 * nothing boots when one is asked for.
 *
 * Thread: the loop's. Each call that takes a callback has exactly one, never inside the call, and none after the
 * build was canceled or the host closed. `e` is NULL on success and borrowed otherwise. */
#pragma once
#include "tier/machine.h"

#define VARIANT_PREPARED 96

struct variant_spec {
    const struct tier *tier;
    char template_id[22];
    uint32_t memory_mib, vcpus, disk_mib;
    char prepared
        [VARIANT_PREPARED]; /* names what else runs in it; "": nothing. Another name, another variant */
};

struct variant { /* a reference; the first member of the tier's own */
    const struct tier *tier;
};
typedef void variant_cb(void *arg, struct variant *v /* the callback's own reference */,
                        const struct err *e);

/* E_NOT_FOUND: never built. E_CONFLICT: what was built does not fit any more; build it again. */
void variant_load(struct tier_host *h, const struct variant_spec *s, variant_cb *cb, void *arg);
struct variant *variant_ref(struct variant *v);
void variant_unref(struct variant *v); /* NULL is fine */
/* Removes, on a worker, variants that cannot be used any more and that no box and no snapshot is based on. */
void variants_sweep(struct tier_host *h);

struct variant_build {
    const struct tier *tier;
};
struct variant_build_ops {
    void (*progress)(void *arg, int percent, const char *what);
    /* The machine boots. chan_fd (borrowed) is its agent's channel. Prepare it, then call variant_prepared() once. A
     * second call means that the first boot hung: the earlier channel is dead, as it is after variant_prepared(). */
    void (*prepare)(void *arg, struct variant_build *b, int chan_fd);
    void (*done)(void *arg, struct variant *v, const struct err *e); /* b is gone */
};
/* NULL + e only for sizes that cannot be and a host that is not ready. */
struct variant_build *variant_build(struct tier_host *h, const struct variant_spec *s,
                                    const struct variant_build_ops *ops, void *arg, struct err *e);
void variant_prepared(struct variant_build *b,
                      const struct err *why); /* why: it answered, and the answer was no */
void variant_silent(struct variant_build *b,
                    const struct err *why); /* no answer: one more try, then it fails */
void variant_build_cancel(struct variant_build *b);

/* ---- for the tiers themselves ---- */
struct variant_ops {
    void (*load)(struct tier_host *h, const struct variant_spec *s, variant_cb *cb, void *arg);
    struct variant *(*ref)(struct variant *v);
    void (*unref)(struct variant *v);
    void (*sweep)(struct tier_host *h);
    struct variant_build *(*build)(struct tier_host *h, const struct variant_spec *s,
                                   const struct variant_build_ops *ops, void *arg, struct err *e);
    void (*prepared)(struct variant_build *b, const struct err *why);
    void (*silent)(struct variant_build *b, const struct err *why);
    void (*cancel)(struct variant_build *b);
};
extern const struct variant_ops vm_variant_ops;
