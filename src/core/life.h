/* How a sandbox pauses, wakes and ends: the part of its row that is policy, and
 * where it lies while it is paused. Stored as one JSON column. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum pause_kind { PAUSE_NONE, PAUSE_DISK, PAUSE_STANDBY };
const char *pause_name(enum pause_kind k); /* "disk", "standby"; NULL */

struct life {
    /* asked for */
    bool auto_resume;        /* any call or traffic wakes it */
    bool files_only;         /* a pause that nobody asked for in particular (timeout, idle) keeps files only */
    /* while it is paused */
    enum pause_kind paused;
    bool memory;             /* the pause holds its memory; false: a resume boots it */
    int64_t paused_ns;       /* wall */
    uint64_t bytes;          /* of memory and devices on disk */
};

char *life_to_json(const struct life *l);
int life_from_json(struct life *l, const char *text /* NULL: all default */, struct err *e);
