/* VM variants (a template booted and frozen at one size): load, or build on
 * first use; many may wait for one build. Main loop only. */
#pragma once
#include "backend/vm/vm.h"
struct core;
typedef void variant_cb(void *arg, struct vm_variant *v /* a reference for the callee */, const struct err *e);
typedef void variant_progress(void *arg, int percent, const char *what);
/* cb never runs inside the call. progress may be NULL; it is called for builds only. */
void variant_get(struct core *c, const struct vm_spec *spec, variant_progress *progress, void *progress_arg, variant_cb *cb, void *arg);
void variant_drop(struct core *c, const char *template_id); /* drop what is cached of a template */
void variants_free(struct core *c);
