/* What this room keeps. */
#pragma once
#include "base/map.h"
#include "core/host/host.h"

struct catalog {
    struct map templates, snapshots; /* by id */
    int templates_fd;
    struct timer snapshot_expiry;
};
