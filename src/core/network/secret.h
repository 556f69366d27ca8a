/* Secrets: values that the network gate puts into requests and that no sandbox
 * ever sees. At rest they are sealed with a key that is not in the database
 * (secrets.key in the home folder, or the file HUTCH_SECRETS_KEY names); in
 * this process they are opened only to be handed to the gate. Main loop only. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "core/host/rights.h"
#include "json/kv.h"
#include "gate/client.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct core;
#define SECRETS_MAX 4096

struct secret {
    char id[22];
    char *name; /* full_name(): what the store, the seal and the gate know it by */
    char *label,
        *tenant; /* what its owner calls it: secret_name_ok(); hidden: made by the daemon for one sandbox */
    char sandbox[22]; /* hidden: whose; "" */
    char *sealed;
    int64_t created_ns, updated_ns;
    uint64_t calls_max, bytes_max; /* 0: no budget */
    uint64_t calls, bytes;         /* used, as the gate last said */
    uint64_t version;              /* how many values it has had */
    struct kv metadata;
};
struct secret_spec {
    const char *name, *tenant; /* tenant NULL: the operator's */
    struct str value;
    uint64_t calls_max, bytes_max;
    const char *sandbox;       /* NULL: an ordinary one */
    const struct kv *metadata; /* NULL: as it was */
};
bool secret_name_ok(const char *name); /* ^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$ */
const char *secret_value_fault(
    struct str value); /* NULL: one that a header can hold; else what is wrong with it */
size_t secrets_room(const struct core *c); /* how many more there may be */

int secrets_load(struct core *c, struct err *e);
void secrets_free(struct core *c);
/* New, or a new value for one that is there (its use counts on, unless the budget changed). Stored before done. */
int secret_put(struct core *c, const struct secret_spec *s,
               void (*done)(void *arg, const struct err *e), void *arg, struct err *e);
void secret_delete(struct core *c, struct secret *s);
void secrets_of_sandbox_drop(struct core *c, const char *sandbox,
                             const char *policy /* those that it names stay; NULL: none does */);
struct secret *secret_find(struct core *c, const char *full_name); /* NULL */
/* Ordinary ones that the caller sees, by id or by name; NULL + e: there is none. */
struct secret *secret_find_for(struct core *c, const struct caller *who, const char *id_or_name,
                               struct err *e);
/* Of exactly that tenant: what a policy of its sandboxes may name. */
struct secret *secret_of_tenant(struct core *c, const char *tenant, const char *name);
size_t secret_list(struct core *c, const struct caller *who, struct secret **ret,
                   size_t max); /* likewise, by name */
/* The values, for the gate. fn borrows. */
typedef void secret_fn(void *arg, const char *name, struct str value,
                       const struct gate_budget *budget);
void secret_each(struct core *c, secret_fn *fn, void *arg);
bool secret_open(struct core *c, const char *name, secret_fn *fn,
                 void *arg); /* false: there is none, or it does not open */
/* Other things that must not lie open in the database (a sandbox's CA key), with the same key. */
void secret_seal(struct core *c, const char *about, const char *plain, struct buf *ret);
int secret_unseal(struct core *c, const char *about, const char *sealed, struct buf *ret,
                  struct err *e);
/* Ask the gate what was used; the numbers are then in the structs. */
void secret_refresh(struct core *c, void (*done)(void *arg), void *arg);
