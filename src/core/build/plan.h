/* What is known of a recipe's build before it begins: the key of the whole and
 * the key of every step. Files of the context are read for it, so a worker does
 * it. */
#pragma once
#include "core/build/build_int.h"
#include "image/recipe.h"

struct plan {
    char *content_key; /* same parent, same text, same network, same context: same template */
    unsigned char (
        *key)[RECIPE_KEY]; /* of each step (core/build/step_cache.h); NULL: they cannot be told */
};
/* A variable as a recipe's words see it: of the steps before and the parent template; PATH also as every process has it. NULL: unset. */
const char *plan_env(const struct kv *env, const char *name, size_t n);
void plan_free(struct plan *p); /* NULL is fine */

/* done with the build, if it is still there, and a plan that is then its own. The descriptor stays the caller's. */
void plan_make(struct build *b, const struct recipe_spec *s, const struct template *parent,
               int context_fd, void (*done)(struct build *b, struct plan *p));
