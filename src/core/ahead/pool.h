/* Boxes made ahead of demand. A class is one (template, tier, size); it exists
 * from its first use until nobody asked for ten minutes, and is refilled in
 * quiet moments, one box at a time, at low priority. Main loop only. */
#pragma once
#include "core/box/box.h"
struct core;
void pool_start(struct core *c);
void pool_refill(struct core *c); /* look at once */
void pool_stop(struct core *c);   /* no more refills; the members are left to the caller */
/* A WAITING or READY box (path: "pool", "prestarted", "slot"), no longer the pool's; NULL: none. Notes the demand either way. */
struct box *pool_take(struct core *c, const struct box_spec *spec, const char **path);
struct template;
void pool_want_template(struct core *c, struct template *t); /* its default classes */
void pool_want(struct core *c, const struct box_spec *spec); /* make the class exist (start-up) */
void pool_lost(struct box *b);                               /* an unowned box died */
void pool_drop_template(struct core *c, const char *template_id, void (*done)(void *arg),
                        void *arg);
void pool_counts(struct core *c, size_t *vm_ready, size_t *vm_started, size_t *slots,
                 size_t *making /* in the works */);
size_t host_free_mib(void);  /* memory the host could give now */
size_t host_total_mib(void); /* … and what it has in all */
