/* The sandbox as an object: made, listed, advanced, stored, forgotten. For the rooms of core; the API has sandbox.h. */
#pragma once
#include "base/map.h"
#include "core/box/box.h"
#include "core/sandbox/sandbox.h"

/* All of them. */
void sandboxes_init(struct core *c);
void sandboxes_free(struct core *c);
const struct map *sandboxes(const struct core *c);                /* by id */
struct sandbox *sandbox_at(const struct core *c, const char *id); /* NULL */
struct sandbox *sandbox_named(const struct core *c, const char *tenant,
                              const char *name); /* of the tenant, that has the name now; NULL */
void sandbox_sweep(struct core *c);              /* those that are gone for a day */
void sandbox_count_create(struct core *c, bool well);
void sandbox_creates(const struct core *c, uint64_t *ret_well, uint64_t *ret_failed);

/* One of them. */
struct sandbox *sandbox_new(struct core *c);
struct sandbox *sandbox_adopt_row(struct core *c, const void *row /* struct sandbox_row */);
void sandbox_enter(struct sandbox *sb);     /* found by its id, and while it lives by its name */
void sandbox_free_name(struct sandbox *sb); /* another may have it */
void sandbox_forget(struct sandbox *sb);
int sandbox_advance(struct sandbox *sb, enum sb_event ev, struct err *e);
void sandbox_announce(struct sandbox *sb);
void sandbox_set_end(struct sandbox *sb, enum end_reason why, const char *message);
int sandbox_ended_err(const struct sandbox *sb,
                      struct err *e); /* E_GONE and why; REASON_FAILED: it can be recovered; -1 */
void sandbox_store(struct sandbox *sb, void (*done)(void *arg, const struct err *e), void *arg);
void sandbox_store_durable(struct sandbox *sb, void (*done)(void *arg, const struct err *e),
                           void *arg); /* survives a power cut */
struct box_spec sandbox_box_spec(const struct sandbox *sb);
bool sandbox_has_files(const struct sandbox *sb); /* boxes/<box> is there */

/* For waits that outlive the sandbox. */
struct sandbox_ref {
    struct core *core;
    char id[22];
};
struct sandbox_ref *sandbox_ref_new(struct sandbox *sb);
struct sandbox_ref sandbox_ref_take(void *ref); /* frees it */
