/* gVisor as a tier: boxes as containers are, whose kernel is a process of ours in user space. hutch-spawn starts it
 * (spawn/op_gvisor.c); seen from here only the request differs, and whether the host has runsc. */
#include "spawn/op.h"
#include "spawn/runsc.h"
#include "tier/container/container.h"

static bool here(const struct tier_host *h)
{
    char path[512];
    return h->bin && runsc_find(h->bin, path, sizeof path);
}

const struct machine_ops gvisor_ops = {
    .box_op = SP_GVISOR_START,
    .here = here,
    .start = container_start,
    .adopt = container_adopt,
    .chan = container_chan,
    .wake = container_wake,
    .waking = container_waking,
    .running = container_running,
    .hold = container_hold,
    .drop = container_drop,
};
