#include "tier/tier.h"
#include "tier/machine.h"
#include <string.h>

static const struct tier vm = {
    .name = "vm",
    .strength = 100,
    .can = TIER_SANDBOX | TIER_KERNEL | TIER_MEMORY | TIER_VARIANTS | TIER_CHAINS | TIER_FUSE |
           TIER_AHEAD,
    .pids_max = 64,
    .cold = "restore",
    .waiting = "prestarted",
    .boundary = {"own kernel under QEMU microvm (TCG emulation), emulator jailed on the host",
                 "own kernel under QEMU microvm (KVM), emulator jailed on the host"},
    .accel = {"tcg", "kvm"},
    .missing = "microVMs cannot run on this host",
    .ops = &vm_ops,
};

#define GVISOR \
    "own kernel in user space (gVisor, systrap): no system call of the guest reaches the host's kernel; " \
    "that kernel is jailed like a container"
static const struct tier gvisor = {
    .name = "gvisor",
    .strength = 80,
    .can = TIER_SANDBOX | TIER_FREEZER | TIER_COUNTED,
    .pids_max = 2048, /* a thread of the guest is more than one on the host */
    .cold = "cold",
    .waiting = "slot",
    .boundary = {GVISOR, GVISOR},
    .accel = {"none", "none"},
    .missing =
        "runsc, gVisor's program, is not installed: `hutch gvisor install`, or name it with HUTCH_RUNSC",
    .ops = &gvisor_ops,
};

#define CONTAINER "shared host kernel: namespaces, own uid range, seccomp allow-list, cgroup limits"
static const struct tier container = {
    .name = "container",
    .strength = 50,
    .can = TIER_SANDBOX | TIER_FREEZER | TIER_COUNTED | TIER_AHEAD,
    .pids_max = 1024,
    .cold = "cold",
    .waiting = "slot",
    .boundary = {CONTAINER, CONTAINER},
    .accel = {"none", "none"},
    .ops = &container_ops,
};

#define ISOLATE \
    "shared host kernel: a new process per call in a jail without files, network or other programs; " \
    "a seccomp list of a few dozen calls"
const struct tier tier_isolate = {
    .name = "isolate",
    .strength = 10,
    .boundary = {ISOLATE, ISOLATE},
    .accel = {"none", "none"},
};

static const struct tier *const all[] = {&vm, &gvisor, &container, &tier_isolate, NULL};
const struct tier *const *tiers = all;

const struct tier *tier_find(const char *name)
{
    for (size_t i = 0; tiers[i]; i++)
        if (!strcmp(tiers[i]->name, name))
            return tiers[i];
    return NULL;
}

const struct tier *tier_default(void) { return tiers[0]; }
