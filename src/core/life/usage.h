/* What a tenant holds on disk that nothing runs on: its snapshots (also deleted
 * ones that something still stands on, and forks') and its paused sandboxes.
 * Counted when it is asked for, from what the rows say. */
#pragma once
#include "base/err.h"
#include <stdint.h>
struct core;
struct sandbox;
struct usage {
    const char *tenant /* "": the operator's; borrowed */;
    unsigned snapshots, paused;
    uint64_t snapshot_bytes, paused_bytes, limit_bytes /* 0: none */;
};
void usage_each(struct core *c, void (*fn)(void *arg, const struct usage *u),
                void *arg); /* the operator's first, then by name */
/* E_QUOTA: its held_bytes (HUTCH_TENANTS) are used up, or would be by so many more. */
int usage_check(struct core *c, const char *tenant, uint64_t more, struct err *e);
void usage_measure(struct sandbox *sb); /* it was just paused: ask what its files take */
