/* Input for a process that is known by pid or tag only: ordered pieces of at
 * most 60 KiB, one on its way at a time, through exec_write. Used for the
 * stdin endpoint, for the stdin of background commands and for attached
 * terminals. May call back before feed_put and feed_finish return. */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

struct api;
struct feed;
struct feed_ops {
    void (*idle)(void *arg);                         /* everything so far was taken; may be NULL */
    void (*done)(void *arg, const struct err *e);    /* last: finished (e NULL) or failed; the feed is freed afterwards */
};
/* ops NULL: nobody waits; the feed ends itself. */
struct feed *feed_new(struct api *a, const char *sandbox, const char *who, const struct feed_ops *ops, void *arg);
void feed_put(struct feed *f, const void *p, size_t n); /* the caller holds back while feed_busy */
bool feed_busy(const struct feed *f);
void feed_finish(struct feed *f, bool close); /* when all is taken: close stdin if asked, then done */
void feed_drop(struct feed *f);               /* no callback after this; NULL is fine */
