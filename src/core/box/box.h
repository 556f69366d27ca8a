/* A box: one jailed machine that the spawner holds, of either tier, with the
 * agent channel on our side. It exists before a sandbox owns it (pool) and is
 * never reused after one did.
 *
 *   STARTING -> WAITING -> (READY ->) LIVE -> DEAD
 *
 * WAITING: the process is there (a container's agent listens; a VM's emulator
 * waits for its snapshot). READY: a VM restored, primed and stopped. LIVE:
 * configured with an identity; user code may run. Main loop only. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/list.h"
#include "base/map.h"
#include "json/kv.h"
#include "core/host/host.h"
#include "tier/tier.h"
#include "loop/loop.h"
#include "spawn/op.h"
#include <stdbool.h>
#include <stdint.h>

struct machine;
struct agent;

enum box_phase { BOX_STARTING, BOX_WAITING, BOX_READY, BOX_LIVE, BOX_DEAD };

struct box_spec {
    char template_id[22];
    const struct tier *tier;
    uint32_t cpu_millis, memory_mib, disk_mib;
};
bool box_spec_eq(const struct box_spec *a, const struct box_spec *b);
struct sp_limit box_limit(const struct box_spec *s);

struct box_identity {
    const char *sandbox, *hostname, *user,
        *workdir;           /* user, workdir may be NULL: the agent's default */
    const struct kv *env;   /* may be NULL */
    const struct kv *files; /* path -> text, 0644; may be NULL */
    uint64_t generation;
    const char *machine_id; /* 32 hex; NULL with prime */
    bool takeover;          /* the daemon restarted, the guest did not */
    bool prime;             /* no identity yet: a template or a pool member is being made */
    bool rehearsal;         /* a pool member: as the claim will be, without hooks */
    bool resume; /* itself, from disk: it stays frozen until OP_THAW, and phase WAITING */
};

/* All of them, by id. */
void boxes_init(struct core *c);
void boxes_free(struct core *c);
const struct map *boxes(const struct core *c);
struct box *box_at(const struct core *c, const char *id);

struct box;
typedef void box_cb(void *arg, struct box *b, const struct err *e);

struct box {
    struct core *core;
    char id[22];
    struct box_spec spec;
    enum box_phase phase;
    struct agent *agent;
    struct machine *machine; /* its tier's; NULL before it started */
    struct start *start;     /* … while it does */
    struct agent *
        volumes; /* tier vm: the channel for its volumes, once box_volumes was asked; may be NULL again */
    struct sandbox *owner;
    uint64_t oom_seen; /* what the host counted of the OOM killer, as last asked */
    struct list pool;  /* in a pool class while unowned */
    bool low_priority, removing, synced, restored, awake;
    bool keep_files;     /* boxes/<id> outlives it: a paused sandbox's */
    bool torn;           /* the channel may hold half a frame of an earlier life */
    char from[22];       /* the snapshot it is made of; "" */
    unsigned copies;     /* … as one of so many */
    bool booting;        /* a kernel comes up: configure may take longer */
    bool waits_on;       /* configured, not at work yet: still frozen, or it was a rehearsal */
    bool on_time;        /* being configured: its clock has to be right afterwards */
    struct buf identity; /* … with this, once its processor runs */
    struct err wake_err; /* waking failed while nobody waited for it */
    int64_t started_mono;
    char kernel[80]; /* from the agent's answer to configure */
    /* the one operation in flight */
    box_cb *cb;
    void *cb_arg;
    struct timer deadline;
    struct list removers;
};

/* The result comes by cb: e == NULL: WAITING. On failure b is only valid during the callback; it removes itself. */
struct box *box_start(struct core *c, const struct box_spec *spec, bool low_priority, box_cb *cb,
                      void *arg);
/* The same on a snapshot: with its memory, or (boot) on its files alone; a container always boots. */
struct box *box_start_from(struct core *c, const struct box_spec *spec, const char *snapshot,
                           bool boot, unsigned copies /* asked for at once */, box_cb *cb,
                           void *arg);
/* Wake it (restore, cont, or nothing), take the channel, configure: then LIVE. All in one flight; 30 s deadline. */
void box_configure(struct box *b, const struct box_identity *id, box_cb *cb, void *arg);
/* The first part of it alone, for what must be there before it is configured; box_configure does not do it twice. */
void box_wake(struct box *b);
/* The channel of a VM's volumes, opened and synced. The callback comes later, once; the agent is the box's. */
void box_volumes(struct box *b, void (*cb)(void *arg, struct agent *a, const struct err *e),
                 void *arg);
/* Stop one that was configured for priming: READY. Nothing to do for one that is not copied. */
void box_rest(struct box *b, box_cb *cb, void *arg);
/* Start the machine of boxes/<id> again, as it was saved or (boot) from its files alone; a container always boots. As
 * box_start; but boxes/<id> stays, whatever happens, until keep_files is cleared. */
struct box *box_resume(struct core *c, const char *id, const struct box_spec *spec, bool boot,
                       box_cb *cb, void *arg);
/* Everything in it stands still, its agent too; and goes on. */
void box_hold(struct box *b, bool on, box_cb *cb, void *arg);
/* Take over a box of an earlier daemon; then box_configure() as usual (torn stream). */
void box_adopt(struct core *c, const char *id, const struct box_spec *spec, box_cb *cb, void *arg);
/* Nothing is heard of it any more: the operation in flight and calls under way fail now, those to its emulator are dropped.
 * Then only box_remove. */
void box_silence(struct box *b);
/* Kill, clean, forget. done when the spawner said that nothing is left; b is freed after it. May be called at any phase. */
void box_remove(struct box *b, void (*done)(void *arg), void *arg);
void box_remove_files(struct core *c, const char *id, void (*done)(void *arg),
                      void *arg); /* of a box that does not run */
/* Did the kernel's OOM killer act in this container since this was asked last? -1: the agent inside knows by itself. */
int box_ask_oom(struct box *b, void (*cb)(void *arg, const struct err *e, bool oom), void *arg);
void box_stat(struct box *b, void (*cb)(void *arg, const struct err *e, const struct sp_stat *st),
              void *arg);
void box_on_exit(struct box *b, const struct sp_exit *ex); /* from the spawner's event */
void box_spawner_lost(struct box *b);                      /* … which took it along */
void box_leave(struct box *b); /* the daemon stops and leaves it running: forget without killing */
