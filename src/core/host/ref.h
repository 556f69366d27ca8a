/* Waits that may outlive what they are for: they carry an id and look it up
 * again when they end. Loop thread. */
#pragma once
#include "base/list.h"
#include <stdbool.h>

struct core;

struct ref {
    struct list link; /* in core->refs: what never comes back goes with the core */
    struct core *core;
    char id[22];
    bool keep_files; /* of a box, when the wait began */
};

struct ref *ref_new(struct core *c, const char *id);
struct ref ref_take(void *ref); /* its content; frees it */
void refs_free(struct core *c);
