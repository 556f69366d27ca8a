/* A way to isolate, and what may be asked of it. Nothing above this folder tests which one it has: it asks what
 * that one can do. A new one is a row in tier.c and, if it has machines of its own kind, a folder beside vm/. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum {
    /* Sandboxes can be made of it. An isolate only runs calls (core/isolate). */
    TIER_SANDBOX = 1 << 0,
    /* A kernel of its own, with a clock and a console. */
    TIER_KERNEL = 1 << 1,
    /* Its memory can be kept on disk: pauses, snapshots and forks have it. */
    TIER_MEMORY = 1 << 2,
    /* Starts as a copy of a template's frozen machine (variant.h), in which START and READY ran. */
    TIER_VARIANTS = 1 << 3,
    /* Its disk lies on that of the snapshot it came from, for as long as it lives. */
    TIER_CHAINS = 1 << 4,
    /* The host's freezer makes it stand still; otherwise its own processor is stopped. */
    TIER_FREEZER = 1 << 5,
    /* Volumes are served into it; otherwise the host mounts them there. */
    TIER_FUSE = 1 << 6,
    /* Only the host knows its memory, its processes and whether the OOM killer came. */
    TIER_COUNTED = 1 << 7,
    /* A few wait for every template before anybody asked for one. */
    TIER_AHEAD = 1 << 8,
};

struct machine_ops;

struct tier {
    const char *name;
    int strength; /* the larger, the stronger: floors compare it */
    unsigned can;
    uint32_t pids_max;       /* tasks on the host that one of them may have */
    const char *cold;        /* how a start is called for which nothing was waiting … */
    const char *waiting;     /* … and one for which a process was */
    const char *boundary[2]; /* in plain words, without and with KVM */
    const char *accel[2];
    const char *missing; /* what is told to who asks for it on a host that does not have it */
    const struct machine_ops *ops; /* machine.h */
};

/* Strongest first; NULL ends it. Tests put others in its place (fake/fake.h). */
extern const struct tier *const *tiers;
extern const struct tier tier_isolate;
const struct tier *tier_find(const char *name); /* NULL: there is none */
const struct tier *tier_default(void);          /* the strongest */
static inline unsigned tier_can(const struct tier *t, unsigned what) { return t->can & what; }
