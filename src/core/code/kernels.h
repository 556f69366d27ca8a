/* The kernel programs (share/kernels): what they are called, where they lie in
 * a sandbox, how one is started. A template built by this version has them
 * already; into any other sandbox they are written at first use. The directory
 * is named by a hash over their text, so versions never mix. Main loop only. */
#pragma once
#include "base/err.h"
#include "core/catalog/language.h"
#include <stdbool.h>
#include <stddef.h>

struct core;
struct agent;

int kernels_load(struct core *c, struct err *e); /* blocking, at start */
void kernels_free(struct core *c);
/* cb once, later: they are there; the end of the agent is an error as well. -1 + e: refused at once. */
int kernels_ensure(struct core *c, struct agent *a /* NULL: e is set */,
                   void (*cb)(void *arg, const struct err *e), void *arg, struct err *e);
const char *kernels_version(const struct core *c); /* changes with their text */

#define KERNEL_ARGS 8
struct kernel_cmd {
    char text[160];
    const char *argv[KERNEL_ARGS];
};
/* Sets of languages, as templates name them: "python javascript"; bit 1 << enum language. "" and "none" are the empty set. */
/* warm: with the usual modules loaded, for a template's snapshot. */
void kernels_command(struct core *c, enum language l, bool warm, struct kernel_cmd *ret);
