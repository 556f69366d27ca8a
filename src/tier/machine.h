/* Machines: what a tier makes, and a box of core holds. The same questions for every tier; which of them may be
 * asked is in its capabilities (tier.h).
 *
 * Thread: the loop's. Callbacks: each call that takes one has exactly one, `e` is NULL on success and borrowed
 * otherwise. Those of machine_start and machine_adopt always come, unless the host is freed first. All others are
 * dropped with their machine or saving. None runs inside the call, except that of machine_adopt, and that of
 * machine_hold if hutch-spawn cannot be asked. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"
#include "tier/tier.h"
#include <stdbool.h>
#include <stdint.h>

struct loop;
struct jobs;
struct spawn_client;
struct vm_host;
struct variant;
struct variant_spec;
struct variant_ops;

/* What the tiers of one daemon share; all of it borrowed. */
struct tier_host {
    struct loop *loop;
    struct jobs *jobs;
    struct spawn_client *spawn;
    int home_fd;
    const char *bin;    /* where hutch's programs are */
    bool kvm;           /* the probe's verdict */
    uint32_t tsc_khz;   /* of this host; for emulated machines */
    struct vm_host *vm; /* the vm tier's own; NULL: QEMU is not here */
    /* The frozen machine that a template's copies begin as: loaded, or booted and prepared first. */
    void (*variant)(void *arg, const struct variant_spec *spec,
                    void (*cb)(void *cb_arg, struct variant *v, const struct err *e), void *cb_arg);
    void *variant_arg;
    struct list
        flights; /* what is under way and cannot be called off: goes with the host if it never ends */
};
void tier_host_init(struct tier_host *h); /* each tier finds out whether it can be had here */
void tier_host_close(
    struct tier_host *h); /* no callback follows; every machine was dropped before */
void tier_host_fini(struct tier_host *h); /* after that: what was under way is forgotten */
bool tier_here(const struct tier_host *h, const struct tier *t);
bool tier_ready(const struct tier_host *h,
                const struct tier *t); /* it is here and has what its machines boot with */
/* The guest kernel and the agent that machines with a kernel of their own boot with; both fds stay the caller's. Blocks. */
int tiers_load(struct tier_host *h, int kernel_dir_fd, int agent_fd, struct err *e);

struct machine {
    const struct tier *tier;
    struct tier_host *host;
    char id[22]; /* of its box, and of boxes/<id> */
    void (*lost)(
        void *arg,
        const struct err *why); /* who holds it sets these: it is out of reach. How it ended */
    void *lost_arg;             /* comes as the spawner's exit event */
};
typedef void machine_cb(void *arg, struct machine *m, const struct err *e);

struct machine_start {
    char id[22], template_id[22];
    uint32_t memory_mib, cpu_millis, disk_mib;
    bool low_priority;
    char snapshot[22]; /* begins as that snapshot; "": as the template … */
    bool own_files;    /* … or on boxes/<id>, as it was saved */
    bool boot;         /* of either: on the files alone */
    unsigned copies;   /* asked for of one snapshot at once */
};
/* m is the callback's, waiting for machine_wake. A failed start leaves nothing of a new box, and one's own files as they were. */
struct start; /* under way, until its callback */
struct start *machine_start(struct tier_host *h, const struct tier *t,
                            const struct machine_start *s, machine_cb *cb, void *arg);
/* Not wanted any more: no further step of it begins. The callback still comes. false: something is being made on the host already, so
 * whoever cleans up waits for it. */
bool start_cancel(struct start *st);
/* One of an earlier daemon. fds: as SP_ATTACH gave them; those that are taken become -1. */
void machine_adopt(struct tier_host *h, const struct tier *t, const char *id, int *fds, int nfds,
                   machine_cb *cb, void *arg);
int machine_chan(
    const struct machine *m); /* a descriptor for the agent's channel, the caller's to close; -1 */
bool machine_wake(
    struct machine *m, machine_cb *cb,
    void *arg); /* its processors run; false: they do already, and nothing will be called */
bool machine_waking(
    const struct machine
        *m); /* its memory is being read: what it is told now is old when it hears it */
bool machine_running(const struct machine *m);
void machine_hold(struct machine *m, bool on, machine_cb *cb,
                  void *arg); /* everything in it stands still, its agent too; off: it goes on */
void machine_drop(struct machine *m); /* forget it; its process goes on. NULL is fine */

/* ---- TIER_MEMORY: a machine on its way to boxes/<id>/saved, or to a snapshot ---- */
struct saving {
    const struct tier *tier;
};
struct saved {
    uint64_t generation;
    bool memory;
    uint64_t bytes;      /* without the disk layer */
    uint64_t disk_bytes; /* of a snapshot */
    int64_t at_wall_ns;
};
typedef void saving_cb(void *arg, struct saving *s, const struct err *e);
/* Three steps, so that what can be done before and after is not done while it stands still: new, take (it must stand still),
 * publish (it is there whole, or not at all). Without memory a pause needs no take. */
struct saving *saving_new(struct machine *m, const char *snapshot /* NULL: its own pause */,
                          bool memory, saving_cb *cb, void *arg);
struct saving *saving_of_saved(struct tier_host *h, const struct tier *t, const char *id,
                               const char *snapshot, bool memory, saving_cb *cb,
                               void *arg); /* then publish */
void saving_take(struct saving *s, saving_cb *cb, void *arg);
void saving_publish(struct saving *s, uint64_t generation, saving_cb *cb, void *arg);
struct saved saving_facts(const struct saving *s); /* after publish */
void saving_free(struct saving *s); /* what was not published is removed. NULL is fine */
int saved_read(struct tier_host *h, const struct tier *t, const char *id, struct saved *ret,
               struct err *e); /* blocks */
void saved_drop(struct tier_host *h, const struct tier *t,
                const char *id); /* it runs again; on a worker. Nothing to do without TIER_MEMORY */

/* ---- TIER_KERNEL ---- */
int machine_console(struct tier_host *h, const struct tier *t, const char *id,
                    void (*cb)(void *arg, struct str text, const struct err *e), void *arg,
                    struct err *e);

/* ---- for the tiers themselves ---- */
struct machine_ops {
    /* Of the host; each may be NULL: nothing to do, always here, always ready. */
    void (*open)(struct tier_host *h);
    void (*close)(struct tier_host *h);
    bool (*here)(const struct tier_host *h);
    bool (*ready)(const struct tier_host *h);
    int (*load)(struct tier_host *h, int kernel_dir_fd, int agent_fd, struct err *e);
    const struct variant_ops *variants; /* TIER_VARIANTS: variant.h */
    uint32_t
        box_op; /* of hutch-spawn's boxes: the request that starts one (container/container.h) */
    void (*start)(struct start *st); /* ends in start_end, later */
    void (*adopt)(struct tier_host *h, const struct tier *t, const char *id, int *fds, int nfds,
                  machine_cb *cb, void *arg);
    int (*chan)(const struct machine *m);
    bool (*wake)(struct machine *m, machine_cb *cb, void *arg);
    bool (*waking)(const struct machine *m);
    bool (*running)(const struct machine *m);
    void (*hold)(struct machine *m, bool on, machine_cb *cb, void *arg);
    void (*drop)(struct machine *m);
    /* TIER_MEMORY */
    struct saving *(*save)(struct machine *m, const char *snapshot, bool memory, saving_cb *cb,
                           void *arg);
    struct saving *(*save_saved)(struct tier_host *h, const struct tier *t, const char *id,
                                 const char *snapshot, bool memory, saving_cb *cb, void *arg);
    void (*take)(struct saving *s, saving_cb *cb, void *arg);
    void (*publish)(struct saving *s, uint64_t generation, saving_cb *cb, void *arg);
    struct saved (*facts)(const struct saving *s);
    void (*scrap)(struct saving *s);
    int (*saved_read)(struct tier_host *h, const char *id, struct saved *ret, struct err *e);
    void (*saved_drop)(struct tier_host *h, const char *id);
    /* TIER_KERNEL */
    int (*console)(struct tier_host *h, const char *id,
                   void (*cb)(void *arg, struct str text, const struct err *e), void *arg,
                   struct err *e);
};
extern const struct machine_ops vm_ops, gvisor_ops, container_ops;

/* Heap memory of something under way; the first member of what is allocated. */
struct flight {
    struct list link;
};
void flight_begin(struct tier_host *h, struct flight *f);
void flight_end(struct flight *f); /* the caller frees it */

struct start {
    struct flight flight;
    struct tier_host *host;
    const struct tier *tier;
    struct machine_start spec;
    machine_cb *cb;
    void *arg;
    bool canceled;
    bool on_host;   /* the tier says so before it makes anything there */
    struct err err; /* for the tier */
};
struct start *start_new(struct tier_host *h, const struct tier *t, const struct machine_start *s,
                        machine_cb *cb, void *arg);
bool start_over(
    struct start *st,
    const struct err *
        e); /* between two steps: true if that is an error or it was canceled, and it has ended with that */
void start_end(struct start *st, struct machine *m, const struct err *e); /* tells, and frees it */
struct sp_limit start_limit(const struct start *st);
