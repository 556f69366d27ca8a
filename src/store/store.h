/* State on disk: rows in, rows out, no opinion about what they mean.
 *
 * One SQLite file in WAL mode, one connection, one store thread. Everything in
 * this header is called on the loop thread. Writes are copied and queued; the
 * store thread takes all that is queued and commits it as one transaction, so
 * a burst costs one commit. Order is kept. done() is called on the loop thread
 * after the commit (e == NULL) or when the row or its whole batch failed; it
 * may be NULL. A statement that fails alone does not take its batch with it.
 *
 * Durability: a committed row survives a crash of the process, always. Rows
 * of templates, keys, volumes, secrets, snapshots and meta, and sandbox rows marked `durable`, are also
 * fsynced before done(), so they survive a power cut; the rest does not need
 * to (nothing that runs survives one either) and does not pay for it. A cut
 * never leaves a torn or reordered state, only a shorter one.
 *
 * The file is locked: a second daemon on the same home is refused E_CONFLICT. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct loop;
struct store;
typedef void store_done(void *arg, const struct err *e); /* e == NULL: committed */

/* Makes the file (0600) if there is none, applies missing migrations. E_UNSUPPORTED: written by a newer hutch.
 * E_INTERNAL: damaged or unreadable. E_CONFLICT: in use. */
struct store *store_open(struct loop *l, const char *path, struct err *e);
void store_close(struct store *s); /* commits what is queued and runs its callbacks, then none ever; NULL is fine */
void store_flush(struct store *s); /* blocking: until all queued so far is committed and called back; start-up, shutdown, tests */
size_t store_depth(struct store *s); /* requests not yet called back */

/* -- rows. Strings are borrowed; NULL is stored as NULL. Put inserts or replaces the row with that id. -- */
struct sandbox_row {
    const char *id, *name, *box_id, *template_id, *template_name, *tier, *state;
    int64_t cpu_millis, memory_mib, disk_mib, timeout_s;
    const char *on_timeout;
    int64_t created_wall_ns, started_wall_ns, expires_wall_ns, ended_wall_ns; /* 0: not yet */
    const char *end_reason, *end_message, *env_json, *metadata_json;
    int64_t generation;
    const char *token, *start_path;
    int64_t start_ns; /* how long the start took */
    const char *kernel, *boot_id;
    const char *life_json; /* how it pauses and ends; see core/sandbox/life.h */
    const char *kept_json; /* see core/sandbox/kept.h; NULL: as schema 5 wrote it, in … */
    const char *options_json;
    bool durable;     /* no column: fsync before done(), for what must outlive a power cut (paused to disk) */
};
struct template_row {
    const char *id, *name;
    int64_t created_wall_ns;
    const char *source, *parent, *json;
};
struct key_row {
    const char *id, *name, *prefix, *sha256; /* hex of the whole key */
    int64_t created_wall_ns, last_used_wall_ns, revoked_wall_ns; /* 0: never */
    const char *tenant, *role,
        *scope; /* NULL in rows of before they existed: core/host/auth.c knows what that means */
    int64_t expires_wall_ns; /* 0: never */
};
struct volume_row {
    const char *id, *name, *state;
    int64_t size_mib, inodes, created_wall_ns;
    const char *token;
};
struct attachment_row { /* a volume in a sandbox; one row per place */
    const char *sandbox, *path, *volume;
    int64_t read_only;
};
struct secret_row {
    const char *name, *sandbox, *sealed;
    int64_t created_wall_ns, updated_wall_ns, calls_max, bytes_max, calls, bytes;
    const char *id, *metadata; /* NULL in rows of before they existed */
    int64_t version;
};
struct snapshot_row {
    const char *id, *name;
    int64_t created_wall_ns;
    const char *json;
};
struct event_row {
    int64_t seq, at_wall_ns;
    const char *type, *sandbox, *data_json;
};

void store_put_sandbox(struct store *s, const struct sandbox_row *r, store_done *done, void *arg);
void store_del_sandbox(struct store *s, const char *id, store_done *done, void *arg); /* absent is fine, here and below */
void store_put_template(struct store *s, const struct template_row *r, store_done *done, void *arg);
void store_del_template(struct store *s, const char *id, store_done *done, void *arg);
void store_put_key(struct store *s, const struct key_row *r, store_done *done, void *arg);
void store_touch_key(struct store *s, const char *id, int64_t last_used_wall_ns); /* not durable; never moves back */
void store_del_key(struct store *s, const char *id, store_done *done, void *arg);
void store_put_volume(struct store *s, const struct volume_row *r, store_done *done, void *arg);
void store_del_volume(struct store *s, const char *id, store_done *done, void *arg);
void store_put_attachment(struct store *s, const struct attachment_row *r, store_done *done, void *arg);
void store_del_attachments(struct store *s, const char *sandbox, store_done *done, void *arg); /* all of one sandbox */
void store_put_secret(struct store *s, const struct secret_row *r, store_done *done, void *arg);
void store_del_secret(struct store *s, const char *name, store_done *done, void *arg);
void store_put_snapshot(struct store *s, const struct snapshot_row *r, store_done *done, void *arg);
void store_del_snapshot(struct store *s, const char *id, store_done *done, void *arg);
void store_put_meta(struct store *s, const char *k, const char *v /* NULL deletes */, store_done *done, void *arg);

/* -- events: append-only; the newest `cap` are kept (100000 unless set). The number is given out here, at once, so it can
 * be announced; r->seq is ignored. Numbers grow but may have gaps. -- */
int64_t store_add_event(struct store *s, const struct event_row *r, store_done *done, void *arg);
int64_t store_last_seq(const struct store *s); /* given out last, also by earlier runs; 0: none */
void store_event_cap(struct store *s, int64_t cap);
/* The oldest `limit` with seq > since, of one sandbox or of all (NULL). Asynchronous; sees every write queued before. Rows
 * are valid during the call. */
typedef void store_events_cb(void *arg, const struct event_row *rows, size_t n, const struct err *e);
void store_list_events(struct store *s, int64_t since, const char *sandbox, int limit, store_events_cb *fn, void *arg);

/* -- loads: blocking, for start-up, before the loop runs. A row is valid during its callback; nonzero stops (returned as 0).
 * Sandboxes, templates and keys come oldest first. -- */
int store_load_sandboxes(struct store *s, int (*fn)(void *arg, const struct sandbox_row *r), void *arg, struct err *e);
int store_load_templates(struct store *s, int (*fn)(void *arg, const struct template_row *r), void *arg, struct err *e);
int store_load_keys(struct store *s, int (*fn)(void *arg, const struct key_row *r), void *arg, struct err *e);
int store_load_volumes(struct store *s, int (*fn)(void *arg, const struct volume_row *r), void *arg, struct err *e);
int store_load_attachments(struct store *s, int (*fn)(void *arg, const struct attachment_row *r), void *arg, struct err *e);
int store_load_secrets(struct store *s, int (*fn)(void *arg, const struct secret_row *r), void *arg, struct err *e);
int store_load_snapshots(struct store *s, int (*fn)(void *arg, const struct snapshot_row *r), void *arg, struct err *e);
char *store_get_meta(struct store *s, const char *k, struct err *e); /* owned; NULL with e->code E_NOT_FOUND if absent */
