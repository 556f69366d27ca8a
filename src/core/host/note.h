/* What parts of the daemon above core keep over a restart: a text by name, and a secret of their
 * own. Main loop only. */
#pragma once
#include "base/err.h"
#include "core/host/keyfile.h"

struct core;
void core_note(struct core *c, const char *name, const char *text /* NULL: forget it */);
char *core_noted(struct core *c, const char *name); /* owned, NULL: nothing. Blocks: at the start */
/* 32 bytes in a file of the home, made on first use. Blocks: at the start. */
int core_keyfile(struct core *c, const char *file, unsigned char ret[KEYFILE_BYTES], struct err *e);
