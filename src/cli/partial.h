/* A file that is being received: it has a name of its own beside the real one,
 * which it gets when it is whole. After a failure, or a signal that ends us,
 * nothing is left of it. One at a time in a process. */
#pragma once
#include "base/err.h"
#include <sys/types.h>

struct partial {
    int dir, fd; /* both its own; -1: not begun */
    char name[32];
};
#define PARTIAL_NONE ((struct partial){.dir = -1, .fd = -1})

/* In dir, which stays the caller's. Never through a link. */
int partial_begin(struct partial *p, int dir, mode_t mode, struct err *e);
int partial_keep(
    struct partial *p, const char *name,
    struct err *e); /* whatever had that name is replaced; a link too, not what it leads to */
void partial_drop(struct partial *p); /* also after partial_keep: does nothing then */
