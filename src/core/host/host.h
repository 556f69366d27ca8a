/* What every room of core works with: the services of the daemon, what lower rooms tell higher ones, and for
 * each room a pointer to the state that is its own. The types behind those pointers are complete only there. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "core/host/config.h"
#include "core/host/reason.h"
#include "core/host/tenant.h"
#include "json/kv.h"
#include "loop/job.h"
#include "loop/loop.h"
#include "tier/machine.h"
#include <stdbool.h>
#include <stdint.h>

struct box;
struct sandbox;
struct template;

/* A room never calls one above it (src/LAYERS). What such a room has to hear goes through here; core.c fills it in. */
struct hooks {
    /* box */
    void (*box_ended)(struct box *b, enum end_reason why, const char *message,
                      bool host_fault); /* by itself, while nobody waited for it */
    void (*box_removed)(struct core *c,
                        const char *box); /* being removed: it is no longer anybody's */
    /* sandbox */
    void (*sandbox_loaded)(struct sandbox *sb); /* from its row */
    void (*sandbox_forgotten)(struct sandbox *sb,
                              const struct err *why); /* nobody finds it any more … */
    void (*sandbox_buried)(struct sandbox *sb); /* … and at the end of the turn it is freed */
    void (*sandbox_expired)(void *sb);          /* its timer fired */
    /* code */
    void (*sandbox_environment)(const struct sandbox *sb, struct kv *ret);
    /* catalog */
    void (*template_gone)(struct core *c, const char *id, void (*done)(void *arg),
                          void *arg); /* everything made of it goes; then done */
};

struct core {
    struct loop *loop;
    struct jobs *jobs;
    struct config cfg;
    const struct hooks *on;
    struct store *store;
    struct tier_host tiers;
    struct spawn_client *spawn;
    int home_fd;
    char host_boot_id[40];
    bool spawn_lost;         /* hutch-spawn is away; its successor is awaited */
    bool stopping, keep;     /* keep: sandboxes are left to the next daemon */
    int64_t last_created_ns; /* creation times of sandboxes and snapshots are a total order */
    struct tenants tenants;
    struct list refs;  /* ref.h */
    struct keys *keys; /* host */
    struct events *events;
    struct boxes *boxes;         /* box */
    struct sandboxes *sandboxes; /* sandbox */
    struct volumes *volumes;     /* volume */
    struct egress *egress;       /* network */
    struct secrets *secrets;
    struct presets *presets;
    struct catalog *catalog; /* catalog */
    struct kernels *kernels; /* code */
    struct code *code;
    struct variants *variants; /* ahead */
    struct pool *pool;
    struct timers *timers;     /* life */
    struct isolates *isolates; /* isolate */
    struct builds *builds;     /* build */
    struct daemon_life *life;  /* core.c: how it stops */
};
