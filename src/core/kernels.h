/* The kernel programs (share/kernels): what they are called, where they lie in
 * a sandbox, how one is started. A template built by this version has them
 * already; into any other sandbox they are written at first use. The directory
 * is named by a hash over their text, so versions never mix. Main loop only. */
#pragma once
#include "base/err.h"
#include "core/language.h"
#include <stdbool.h>
#include <stddef.h>

struct core;
struct sandbox;

int kernels_load(struct core *c, struct err *e); /* blocking, at start */
void kernels_free(struct core *c);
/* cb once, later: they are there. -1 + e: refused at once. */
int kernels_ensure(struct sandbox *sb, void (*cb)(void *arg, const struct err *e), void *arg, struct err *e);

#define KERNEL_ARGS 8
struct kernel_cmd { char text[160]; const char *argv[KERNEL_ARGS]; };
/* warm: with the usual modules loaded, for a template's snapshot. */
void kernels_command(struct core *c, enum language l, bool warm, struct kernel_cmd *ret);
