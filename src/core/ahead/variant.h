/* Variants (a template booted and frozen at one size): load, or build on
 * first use; many may wait for one build. Main loop only. */
#pragma once
#include "tier/variant.h"
struct core;
typedef void variant_progress(void *arg, int percent, const char *what);
/* cb never runs inside the call. progress may be NULL; it is called for builds only. */
void variant_get(struct core *c, const struct variant_spec *spec, variant_progress *progress,
                 void *progress_arg, variant_cb *cb, void *arg);
void variant_drop(struct core *c, const char *template_id); /* drop what is cached of a template */
void variants_free(struct core *c);
int variants_load_kernel(
    struct core *c, struct err *e); /* the guest kernel and the agent that machines boot with */
