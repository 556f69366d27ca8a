/* A sandbox: the row, its living box, its clock. Created, found and ended here
 * and nowhere else. A pointer is valid until the loop turn ends; whoever waits
 * keeps the id and looks it up again. */
#pragma once
#include "base/err.h"
#include "base/list.h"
#include "base/str.h"
#include "core/host/reason.h"
#include "core/host/rights.h"
#include "core/sandbox/activity.h"
#include "core/sandbox/kept.h"
#include "core/sandbox/life.h"
#include "core/sandbox/state.h"
#include "loop/loop.h"
#include "tier/tier.h"
#include <stdbool.h>
#include <stdint.h>

struct core;
struct box;
struct prime;
struct agent;
struct volume_mount;
struct network;
struct network_spec;
struct snapshot;

struct sandbox_spec {
    const char *template; /* NULL: base */
    struct snapshot *
        from; /* made of that instead (core/catalog/snapshot.h); NULL. Sizes and tier are then the snapshot's */
    bool boot;          /* on the files of the snapshot alone */
    unsigned copies;    /* it is one of so many that are made of it at once; 0: one */
    bool asleep;        /* START and READY of its template do not run: it is only looked at */
    const char *name;   /* NULL: none */
    const char *tenant; /* whose it is (core/host/tenant.h); NULL: nobody's */
    /* Who asks: its scope counts, and it names only what it sees. NULL: the tenant itself. */
    const struct caller *by;
    const struct tier *tier;                              /* NULL: the operator's default */
    uint32_t cpu_millis, memory_mib, disk_mib, timeout_s; /* 0: default */
    enum on_timeout on_timeout;
    struct kv env, metadata;            /* copied */
    struct kept kept;                   /* what kept_copy() copies */
    const struct volume_mount *volumes; /* core/volume/volume.h */
    size_t nvolumes;
    const struct network_spec *network; /* core/network/network.h; NULL: none */
    bool auto_resume, files_only;       /* these four: see core/sandbox/life.h */
    uint32_t idle_s, lifetime_s;
    enum on_timeout on_idle;
};

struct sandbox {
    struct core *core;
    char id[22];
    char *name, *template_name;
    char template_id[22], box_id[22];
    const struct tier *tier;
    enum sb_state state;
    uint32_t cpu_millis, memory_mib, disk_mib, timeout_s;
    enum on_timeout on_timeout;
    int64_t created_ns, started_ns, expires_ns, ended_ns; /* wall */
    int64_t expires_mono;                                 /* what the timer obeys */
    enum end_reason end_reason;
    char *end_message;
    struct kv env, metadata;
    struct kept kept;
    uint64_t generation;
    char token[41];
    char *start_path, *kernel; /* "pool", "6.1.0-…" */
    double start_ms;
    bool uses_template; /* counted among its template's users */
    struct box *box;    /* while creating, running, stopping, in standby, and on the way between */
    struct life life;
    struct transit *transit; /* what is under way with it (core/life/transit.h) */
    bool busy;               /* … which ends in another state: calls wait for it */
    const char *coming_base; /* … which rolls it back to this snapshot; NULL */
    struct rescue *rescue;   /* recover under way (rescue.c) */
    struct prime *prime;     /* START and READY of a container, while creating */
    struct timer expiry;
    struct activity activity;
    struct network *net; /* core/network/network.h */
    struct timer net_later;
    struct network_change *net_change; /* under way; NULL: none */
    bool
        net_trusting; /* one is bringing the gate's certificate in, perhaps not that one any more */
    struct list waiters;     /* callers of kill that wait for the end */
    struct list attachments; /* volumes: struct attachment.of_sandbox */
    bool volumes_lost;       /* it failed, and one of them was deleted since */
};

static inline bool sandbox_busy(const struct sandbox *sb)
{
    return sb->busy;
} /* between two states */

typedef void sandbox_cb(void *arg, struct sandbox *sb /* NULL on error */, const struct err *e);
/* Validates, claims or starts a box, configures it, stores the row, then calls back. -1 + e: refused at once. */
int sandbox_create(struct core *c, const struct sandbox_spec *spec, sandbox_cb *done, void *arg,
                   struct err *e);
struct sandbox *sandbox_find(
    struct core *c, const char *id_or_name,
    struct err *
        e); /* gone ones only by id, for 24 h; a failed one by its name too, unless a living one has it */
/* The same of what the caller sees. A name is first its own tenant's. */
struct sandbox *sandbox_find_for(struct core *c, const struct caller *who, const char *id_or_name,
                                 struct err *e);
/* Ends it; done (may be NULL) when nothing of it is left. Idempotent while stopping. */
int sandbox_kill(struct sandbox *sb, enum end_reason why, const char *message, sandbox_cb *done,
                 void *arg, struct err *e);
int sandbox_set_timeout(struct sandbox *sb, uint32_t seconds, struct err *e);
int sandbox_keep_alive(struct sandbox *sb, uint32_t seconds /* 0: its timeout */,
                       struct err *e); /* extends, never shortens */
void sandbox_set_idle(struct sandbox *sb, uint32_t seconds /* 0: never */, enum on_timeout what);
int64_t sandbox_lifetime_end(const struct sandbox *sb); /* wall; INT64_MAX: none */
const char *sandbox_tenant(const struct sandbox *sb);   /* "": the operator's */
int sandbox_rename(struct sandbox *sb, const char *name /* NULL: none */, struct err *e);
void sandbox_keep(struct sandbox *sb, const char *key, const char *value); /* in kept.dialect */
void sandbox_set_on_timeout(struct sandbox *sb, enum on_timeout what);
int sandbox_set_metadata(struct sandbox *sb, const struct kv *m, struct err *e);
/* The channel of a running sandbox; NULL + typed error (not running, gone, …) otherwise. */
struct agent *sandbox_agent(struct sandbox *sb, struct err *e);
struct agent *sandbox_channel(struct sandbox *sb,
                              struct err *e); /* the same, for looking: does not count as work */

struct sandbox_filter {
    const struct caller *who; /* only what it sees; NULL: all */
    unsigned states;          /* bit set over sb_state; 0: all but gone */
    const char *name, *template;
    struct kv meta; /* all must match */
    size_t limit;
    const char *cursor; /* "" or NULL: from the newest */
};
/* Newest first. Returns the number; ret_more: another page follows after the last one. */
size_t sandbox_list(struct core *c, const struct sandbox_filter *f, struct sandbox **ret,
                    size_t max, bool *ret_more, struct err *e);

struct sandbox_metrics {
    uint64_t cpu_ns, mem_used, mem_cache, mem_total, disk_used, disk_total, nproc;
    uint32_t cpu_count;
};
int sandbox_metrics(struct sandbox *sb,
                    void (*cb)(void *arg, const struct err *e, const struct sandbox_metrics *m),
                    void *arg, struct err *e);
/* Its console, as lines of printable ASCII; empty: nothing was printed. A VM that has a process; else -1 + e. */
int sandbox_console(struct sandbox *sb, void (*cb)(void *arg, struct str text, const struct err *e),
                    void *arg, struct err *e);
const char *sandbox_boundary(const struct sandbox *sb); /* in plain words */
const char *sandbox_accel(const struct sandbox *sb);    /* "kvm", "tcg" or "none" */
