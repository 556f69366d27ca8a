/* How a sandbox pauses, wakes and ends: the part of its row that is policy, and
 * where it lies while it is paused. Stored as one JSON column. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

enum pause_kind { PAUSE_NONE, PAUSE_DISK, PAUSE_STANDBY };
const char *pause_name(enum pause_kind k); /* "disk", "standby"; NULL */
enum pause_why { WHY_CALL, WHY_TIMEOUT, WHY_IDLE, WHY_SHUTDOWN, WHY_QUOTA, WHY_MAX };
const char *pause_why_name(enum pause_why w); /* "call", "timeout", "idle", "shutdown", "quota" */

enum on_timeout { ON_TIMEOUT_KILL = 0, ON_TIMEOUT_PAUSE };
const char *on_timeout_name(enum on_timeout o); /* "kill", "pause" */
int on_timeout_parse(const char *s);            /* -1 unknown */

struct life {
    /* asked for */
    bool auto_resume; /* any call or traffic wakes it */
    bool
        files_only; /* a pause that nobody asked for in particular (timeout, idle) keeps files only */
    uint32_t idle_s; /* after so long without work (core/life/idle.h) `on_idle` happens; 0: never */
    enum on_timeout on_idle;
    uint32_t
        lifetime_s; /* from its creation, running or not; no extension passes it; 0: no bound */
    bool kept;      /* it failed, and its disk is still there */
    /* while it is paused */
    enum pause_kind paused;
    enum pause_why why;
    bool memory;       /* the pause holds its memory; false: a resume boots it */
    int64_t paused_ns; /* wall */
    uint64_t bytes;    /* of memory and devices on disk */
    uint64_t held;     /* of all its files, known a moment after the pause (usage.h) */
};

char *life_to_json(const struct life *l);
int life_from_json(struct life *l, const char *text /* NULL: all default */, struct err *e);
