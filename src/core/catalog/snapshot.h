/* Snapshots: the state of a sandbox at one moment, kept under snapshots/<id>, of
 * which any number of sandboxes can be made, also when the first one is gone.
 * A fork is a snapshot that nobody can name.
 *
 * A VM that was made of a snapshot has the snapshot's disk below its own, and
 * so has every snapshot taken of it: files stay as long as something stands on
 * them. To delete a snapshot therefore takes its name and its place in the list
 * at once, and its files when nothing needs them any more (`deleted` until
 * then). A container begins with a copy and needs nothing.
 *
 * When is there a snapshot? When its directory was renamed into place and its
 * row stored, in this order. Directories without a row, and rows without a
 * directory, are swept at the next start. Main loop only; a pointer is good for
 * the turn of the loop. */
#pragma once
#include "base/err.h"
#include "json/kv.h"
#include "core/sandbox/sandbox.h"
#include <stdbool.h>
#include <stdint.h>

#define SNAPSHOT_STEP 65 /* a build step's key in hex */

struct snapshot {
    struct core *core;
    char id[22];
    char *name;       /* or NULL */
    char sandbox[22]; /* it was taken of; "": it came in a pack */
    char parent[22];  /* the one its sandbox had taken or come from before: the tree; "" */
    char base[22];    /* the one whose disk lies below its own; "" */
    char template_id[22];
    char *template_name;
    const struct tier *tier;
    bool memory, deleted, making;
    unsigned bearing; /* forks that are not over: it stays until they have answered */
    bool
        bare; /* a container's that came in a pack: its template holds all its files, there is no layer */
    char *path; /* of one directory: where it lay; NULL: of the whole sandbox (snapshot_tree.c) */
    char signer[64]; /* of the pack it came in; "": it was taken here */
    uint32_t cpu_millis, memory_mib, disk_mib;
    uint64_t generation;            /* of its sandbox at the time */
    int64_t created_ns, expires_ns; /* wall; 0: never */
    uint64_t memory_bytes, disk_bytes;
    int64_t downtime_ns;      /* how long its sandbox stood still for it */
    int64_t used_ns;          /* of a step: wall; 0: not since the daemon started */
    struct kv env;            /* what its sandbox was created with */
    char *tenant;             /* whose it is (core/host/tenant.h); NULL: the operator's */
    char step[SNAPSHOT_STEP]; /* see snapshot_step; "": it keeps none */
    struct kv dialect;        /* of the dialect that took it; nobody else looks into it */
    struct kv
        volumes; /* with memory: those mounted in it; path -> how, and id (snapshot_volumes.c) */
};
typedef void snapshot_cb(void *arg, struct snapshot *s /* NULL on error */, const struct err *e);

struct snapshot_spec {
    const char *name;   /* NULL: none */
    const char *path;   /* snapshot_take_tree: the directory; NULL otherwise */
    bool files_only;    /* no memory: what is made of it boots */
    bool memory_wanted; /* refuse rather than keep files only */
    bool nameless;      /* a fork's: born deleted */
    uint32_t expires_s; /* 0: never */
    uint32_t keep_last; /* afterwards only so many nameless ones of this sandbox stay; 0: all */
    char step[SNAPSHOT_STEP]; /* of a build step; "": of none */
    struct kv dialect;        /* copied */
};
/* The sandbox goes on; what it does meanwhile waits for as long as its memory and disk are copied. -1 + e: refused at once. */
int snapshot_take(struct sandbox *sb, const struct snapshot_spec *how, snapshot_cb *done, void *arg,
                  struct err *e);

/* One directory of a running sandbox, how->path; needs tar inside. Its files are read as they are at the time, one after the other. */
int snapshot_take_tree(struct sandbox *sb, const struct snapshot_spec *how, snapshot_cb *done,
                       void *arg, struct err *e);
/* Puts such a directory into a running sandbox, in place of what lies there. path: NULL: where it lay. */
int snapshot_put_tree(struct snapshot *s, struct sandbox *sb, const char *path,
                      void (*done)(void *arg, const struct err *e), void *arg, struct err *e);

struct snapshot *snapshot_find_for(struct core *c, const struct caller *who, const char *id_or_name,
                                   struct err *e); /* of what it sees; not deleted ones */
/* done when it is out of the list for good, and its files are gone unless something stands on them. */
int snapshot_delete(struct snapshot *s, void (*done)(void *arg, const struct err *e), void *arg,
                    struct err *e);
unsigned snapshot_users(const struct snapshot *s); /* sandboxes and snapshots that stand on it */

struct snapshot_filter {
    const struct caller *who; /* only what it sees; NULL: all */
    const char *sandbox, *name;
    const char *cursor;
    size_t limit;
    bool whole; /* not of directories */
    bool (*match)(const struct snapshot *s, void *arg);
    void *arg;
};
/* Newest first. SIZE_MAX + e: a bad cursor. */
size_t snapshot_list(struct core *c, const struct snapshot_filter *f, struct snapshot **ret,
                     bool *ret_more, struct err *e);

/* -- sandboxes made of one -- */
const char *sandbox_base(const struct sandbox *sb); /* the snapshot it stands on; NULL */
const char *sandbox_last_snapshot(
    const struct sandbox *sb); /* the one it took last, or came from; NULL */
const char *snapshot_step(
    const struct snapshot *
        s); /* the key of the build step that it keeps (core/build/step_cache.h); NULL. No list shows those */
const char *snapshot_tenant(
    const struct snapshot *s); /* whose it is (core/host/tenant.h); "": the operator's */
void sandbox_stands_on(struct sandbox *sb, const struct snapshot *s);
/* The sandbox becomes what it was in that snapshot of its own. boot: on the files alone. Calls wait meanwhile. */
int sandbox_rollback(struct sandbox *sb, const struct snapshot *s, bool boot, sandbox_cb *done,
                     void *arg, struct err *e);
/* Fits it what the caller asks for? Fills what he left open. */
int snapshot_fit(const struct snapshot *s, struct sandbox_spec *spec, struct err *e);

/* With memory: the volumes that are mounted in it are added to those asked for, or this is refused. ret: what spec then has. */
struct volume_mount;
int snapshot_mounts(const struct snapshot *s, struct sandbox_spec *spec, struct volume_mount *ret,
                    struct err *e);

/* -- for the rooms of core -- */
struct map;
const struct map *snapshots(const struct core *c); /* by id */
struct snapshot *snapshot_at(const struct core *c, const char *id);
int snapshots_load(struct core *c, struct err *e); /* after sandboxes and templates */
void snapshots_recover(struct core *c);            /* after adoption */
void snapshots_collect(struct core *c);            /* something that stood on one may be gone */
void snapshots_free(struct core *c);

/* -- of snapshot*.c and pack_import.c alone -- */
int snapshot_name_free(struct core *c, const char *tenant, const char *name /* NULL: always */,
                       struct err *e);
struct snapshot *snapshot_add(
    struct core *c, const struct snapshot *like); /* a copy, made from elsewhere; `making` */
struct snapshot *snapshot_new(struct sandbox *sb, const struct snapshot_spec *how);
void snapshot_note_volumes(struct snapshot *s, const struct sandbox *sb);
int snapshot_volumes_fit(const struct snapshot *s, const struct sandbox *sb,
                         struct err *e); /* the sandbox still has those of its memory */
void snapshot_store(struct snapshot *s, void (*done)(void *arg, const struct err *e), void *arg);
int snapshot_from_json(struct snapshot *s, const char *text,
                       struct err *e);    /* of its row; s is half filled after -1 */
void snapshot_forget(struct snapshot *s); /* it did not come to be */
void snapshot_made(struct snapshot *s, uint32_t keep_last);
