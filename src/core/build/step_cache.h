/* Steps of recipes that need not run again. After a RUN or a COPY the build's
 * sandbox is kept as a snapshot that no list shows, under the key of everything
 * that led to it (recipe_keys in image/recipe.h, of the parent template, the
 * tier, the tenant and the network). A later build that begins with the same
 * steps goes on from the last one that is here.
 *
 * They count for no tenant and hold no template: they go with the template they
 * stand on, after a week, and when all of them take more than HUTCH_BUILD_CACHE
 * MiB, those not used for longest first. Main loop only. */
#pragma once
#include "core/sandbox/sandbox.h"
#include "image/recipe.h"

struct core;
struct snapshot;

struct snapshot *step_find(
    struct core *c, const unsigned char key[RECIPE_KEY]); /* NULL: not here. It counts as used */
/* The sandbox as it is now. done exactly once, perhaps with the reason why it could not be kept. -1 + e: refused at once. */
int step_keep(struct sandbox *sb, const unsigned char key[RECIPE_KEY],
              void (*done)(void *arg, const struct err *e), void *arg, struct err *e);
void step_drop(struct snapshot *s);                       /* it is of no use */
void steps_drop(struct core *c, const char *template_id); /* that template goes */
void steps_recover(struct core *c); /* at start, after templates and snapshots */
