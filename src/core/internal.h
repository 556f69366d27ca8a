/* struct core, for core's own files only. */
#pragma once
#include "base/list.h"
#include "base/map.h"
#include "core/core.h"
#include "core/box.h"
#include "core/event.h"
#include "core/ref.h"
#include "core/sandbox.h"
#include "core/tenant.h"

#define EVENTS_KEPT 4096

struct store;
struct spawn_client;
struct vm_host;
struct pool;
struct egress;
struct secrets;
struct presets;
struct variants;
struct sp_exit;
struct template;
struct kernels;

struct core {
    struct loop *loop;
    struct jobs *jobs;
    struct config cfg;
    struct store *store;
    struct spawn_client *spawn;
    bool spawn_lost;
    struct timer spawn_again; /* while it is lost: is there a new one? */
    int home_fd, templates_fd;
    char host_boot_id[40];
    struct map sandboxes, names, boxes; /* id -> sandbox, name -> sandbox, box id -> box */
    struct list keys;
    size_t nkeys;
    struct event events[EVENTS_KEPT];
    uint64_t event_head;
    struct list followers;
    struct map templates; /* id -> template */
    struct map snapshots; /* id -> snapshot */
    struct timer snapshot_expiry;
    struct map volumes, volume_names; /* id -> volume, name -> volume */
    struct map contexts;  /* sandbox id -> struct contexts (context.c) */
    struct kernels *kernels;
    struct vm_host *vmh;
    char accel[8];        /* "kvm" or "tcg" */
    char accel_why[160];
    struct variants *variants;
    struct pool *pool;
    struct egress *egress;
    struct tenants tenants;
    struct secrets *secrets;
    struct presets *presets;
    uint64_t creates, create_failures;
    bool stopping, keep, shutting; /* shutting: the spawner was told to end */
    struct timer stop_limit;
    size_t stop_waiting;
    struct list builds;
    struct list isolates; /* isolate.c */
    struct list refs;     /* ref.h */
    void (*stop_fn)(void *arg);
    void *stop_arg;
    struct timer policy;  /* see policy.h */
    struct timer sweep;   /* forgets gone sandboxes after a day */
    int64_t last_created_ns;
};

int auth_load(struct core *c, struct err *e);
void auth_free(struct core *c);
int templates_load(struct core *c, struct err *e);
void templates_free(struct core *c);
/* expiry.c */
void sandbox_arm_expiry(struct sandbox *sb, int64_t in_ns); /* no later than its longest life */
void sandbox_on_expiry(void *sb);
void sandbox_time_up(struct sandbox *sb, enum on_timeout what, enum pause_why which, uint32_t seconds);
void sandbox_lifetime_over(struct sandbox *sb);
#define OPT_TENANT "tenant" /* in options: whose a sandbox or a snapshot is */
/* sandbox.c, sandbox_end.c, for each other, pause, box and recovery */
struct sandbox *sandbox_new(struct core *c);
void sandbox_release(struct sandbox *sb); /* its timers and its name */
void sandbox_drop_box(struct sandbox *sb, bool keep, void (*done)(void *arg), void *arg); /* keep: its disk stays, and so does its template */
int sandbox_advance(struct sandbox *sb, enum sb_event ev, struct err *e);
void sandbox_announce(struct sandbox *sb);
void sandbox_set_end(struct sandbox *sb, enum end_reason why, const char *message);
void sandbox_use_template(struct sandbox *sb, int by);
void sandbox_store_durable(struct sandbox *sb, void (*done)(void *arg, const struct err *e), void *arg); /* survives a power cut */
struct box_spec sandbox_box_spec(const struct sandbox *sb);
/* For waits that outlive the sandbox. */
struct sandbox_ref { struct core *core; char id[22]; };
struct sandbox_ref *sandbox_ref_new(struct sandbox *sb);
struct sandbox_ref sandbox_ref_take(void *ref); /* frees it */
void sandbox_box_ended(struct sandbox *sb, enum end_reason why, const char *message, bool host_fault);
struct sandbox *sandbox_adopt_row(struct core *c, const void *row /* struct sandbox_row */);
void sandbox_configure(struct sandbox *sb, void (*cb)(void *arg, struct box *b, const struct err *e), void *arg); /* network_force.c: with its network in force */
void sandbox_configure_box(struct sandbox *sb, void (*cb)(void *arg, struct box *b, const struct err *e), void *arg); /* volumes and identity alone */
void sandbox_tell_identity(struct sandbox *sb, void (*cb)(void *arg, struct box *b, const struct err *e), void *arg);
void sandbox_resumed(struct sandbox *sb); /* adopted: running again */
void sandbox_lost(struct sandbox *sb, enum end_reason why, const char *message); /* its box is not there any more */
int sandbox_ended_err(const struct sandbox *sb, struct err *e); /* E_GONE and why; sys EOWNERDEAD: recover brings it back; -1 */
bool sandbox_has_files(const struct sandbox *sb); /* boxes/<box> is there */
void sandbox_store(struct sandbox *sb, void (*done)(void *arg, const struct err *e), void *arg);
void sandbox_forget(struct sandbox *sb);
void sandbox_sweep(struct core *c);
void sandbox_environment(const struct sandbox *sb, struct kv *ret); /* what every process of it gets: template, caller, dialect */
/* template.c, build.c */
void template_tool_exit(struct core *c, const struct sp_exit *ex); /* an exit that is no box's */
void template_warm(struct core *c, struct template *t);            /* make its default pool classes exist */
void builds_cancel(struct core *c, enum err_code code, const char *why);
int template_unlink(struct core *c, const char *id, struct err *e); /* worker */
int core_load_kernel(struct core *c, struct err *e);
/* recover.c */
void recover_sweep(struct core *c); /* what lies in boxes/ and belongs to nobody goes */
void recover_start(struct core *c, void (*done)(void *arg, const struct err *e), void *arg);
