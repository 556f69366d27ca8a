/* The kernel programs (share/kernels): what they are called, where they lie in
 * a sandbox, how one is started. A template built by this version has them
 * already; into any other sandbox they are written at first use. The directory
 * is named by a hash over their text, so versions never mix. Main loop only. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stddef.h>

struct core;
struct sandbox;

enum language { LANG_PYTHON, LANG_JAVASCRIPT, LANG_TYPESCRIPT, LANG_BASH, LANG_R, LANG_JAVA, LANG_COUNT };
const char *language_name(enum language l);
int language_parse(struct str s, enum language *ret); /* any case, spaces around it, and js, ts, py, sh; -1 unknown */

int kernels_load(struct core *c, struct err *e); /* blocking, at start */
void kernels_free(struct core *c);
/* cb once, later: they are there. -1 + e: refused at once. */
int kernels_ensure(struct sandbox *sb, void (*cb)(void *arg, const struct err *e), void *arg, struct err *e);

#define KERNEL_ARGS 8
struct kernel_cmd { char text[160]; const char *argv[KERNEL_ARGS]; };
/* warm: with the usual modules loaded, for a template's snapshot. */
void kernels_command(struct core *c, enum language l, bool warm, struct kernel_cmd *ret);
