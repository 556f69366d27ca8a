/* The event log: what happened to which sandbox, in order, stored, and pushed
 * to whoever follows. Main loop only. */
#pragma once
#include "base/list.h"
#include "base/str.h"
#include "core/host/rights.h"
#include <stdint.h>
struct core;
void events_init(struct core *c);
void events_free(struct core *c);
struct event {
    uint64_t seq;
    int64_t at_ns;
    char type[40];
    char tenant[TENANT_NAME_MAX + 1]; /* whose it is; "": the host's, for who sees all */
    char sandbox[22];
    char *data_json; /* object text */
};
struct follower {
    struct list link;
    void (*fn)(void *arg, const struct event *ev);
    void *arg;
};
/* type like "sandbox.running"; data_json may be NULL (= {}). */
void event_emit(struct core *c, const char *type, const char *tenant /* NULL: the host's */,
                const char *sandbox, const char *data_json);
void event_follow(struct core *c, struct follower *f);
void event_unfollow(struct follower *f);
/* Kept in memory: the last 4096, oldest first. fn for each that the caller sees with seq > since (and of that sandbox, if given). */
void event_each(struct core *c, const struct caller *who, uint64_t since, const char *sandbox,
                void (*fn)(void *arg, const struct event *ev), void *arg);
