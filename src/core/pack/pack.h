/* Snapshots that leave as a signed file, and come from one (image/pack.h,
 * docs/decisions/023-packs.md). Both ways bytes go by in pieces, so a pack may
 * be larger than memory. Files are touched on workers; all calls and callbacks
 * belong to the main loop, callbacks never come before the call returns. */
#pragma once
#include "base/err.h"
#include "core/catalog/snapshot.h"
#include <stddef.h>
#include <stdint.h>

#define PACK_CHUNK (1u << 20)

struct pack_export;
struct pack_export_ops {
    void (*opened)(void *arg, uint64_t bytes); /* of the whole file; ask for the first piece */
    void (*data)(void *arg, const char *p,
                 size_t n); /* one piece; ask for the next with pack_export_more */
    void (*done)(void *arg, const struct err *e); /* last */
};
/* What it holds is opened first: the snapshot may be deleted meanwhile. */
struct pack_export *pack_export_start(struct snapshot *s, const struct pack_export_ops *ops,
                                      void *arg, struct err *e);
void pack_export_more(struct pack_export *x);
void pack_export_cancel(struct pack_export *x); /* no callback follows */

struct pack_import;
struct pack_import_ops {
    void (*room)(void *arg); /* after a push that took all it could: more, please */
    void (*done)(void *arg, struct snapshot *s /* NULL on error */,
                 const struct err *e); /* last; may come before the end */
};
/* name: NULL: as the pack has it. tenant: whose it will be. Nothing is visible before all of it was checked; a failure leaves nothing. */
struct pack_import *pack_import_start(struct core *c, const char *name, const char *tenant,
                                      const struct pack_import_ops *ops, void *arg, struct err *e);
bool pack_import_push(
    struct pack_import *im, const void *p,
    size_t n); /* copied; at most PACK_CHUNK before `room`. true: stop until then */
void pack_import_end(struct pack_import *im);
void pack_import_cancel(struct pack_import *im); /* no callback follows; what it wrote goes */
