/* Tenants: whose sandbox it is. A tenant is the name of the API key that made
 * it: keys of one name are one tenant, so a key can be exchanged for another.
 * What was made over the daemon's own socket without a key belongs to the
 * operator and to no tenant. What each may have, all its sandboxes
 * together, is the operator's setting HUTCH_TENANTS:
 *
 *   {"acme": {"ceiling": POLICY, "connections": 500, "bytes_per_second": 10000000, "bytes_per_day": 5000000000, "held_bytes": 100000000000,
 *             "running": 20, "memory_mib": 16384},
 *    "*":    {…}}                                                     every tenant that is not named, each for itself
 *
 * held_bytes bounds what its snapshots and paused sandboxes take on disk (core/life/usage.h), running and memory_mib what runs at once (core/life/quota.h).
 * POLICY is a ceiling (gate/policy.h) for each of its sandboxes, under the host's; it cannot open closed addresses. */
#pragma once
#include "base/err.h"
#include "gate/client.h"
#include <stddef.h>

struct core;
struct tenant {
    char *name, *ceiling /* JSON, or NULL */;
    struct gate_limits limits;
    uint64_t held_bytes, memory_mib;
    uint32_t running; /* 0: no limit */
};
struct tenants {
    struct tenant *at;
    size_t n;
};

int tenants_parse(const char *text /* NULL: none */, struct tenants *ret, struct err *e);
void tenants_free(struct tenants *t);
const struct tenants *core_tenants(const struct core *c); /* in force now; borrowed */
const struct tenant *tenant_find(
    const struct tenants *t,
    const char *name); /* its own entry, else "*", else NULL; none for "" */
