"""What differs between the tiers, in one place. A test body is written once;
where the answer must differ it asks here, so that every difference is known,
named and has a reason.
"""

import os
import shutil

TIERS = ("vm", "gvisor", "container")


def runsc():
    """gVisor's program: HUTCH_RUNSC, or in PATH, or what `make runsc` built; None if there is none."""
    built = os.path.join(os.path.dirname(__file__), "../../.cache/runsc")
    return os.environ.get("HUTCH_RUNSC") or shutil.which("runsc") or (os.path.realpath(built) if os.access(built, os.X_OK) else None)


# Files whose tests for containers also run on gVisor, with --tier gvisor; the others test what does not depend on who the kernel is.
ON_GVISOR = ("test_lifecycle", "test_exec", "test_files", "test_network", "test_gvisor", "test_volumes", "test_limits", "test_pause", "test_recovery", "test_identity", "test_pty", "test_processes", "test_observe", "test_snapshots")
NOT_ON_GVISOR = {
    # file.test: reason
    "test_limits.processes_are_limited": "at the limit of its tasks on the host gVisor gives up, and the sandbox ends with it",
    "test_recovery.its_process_stands_still": "runsc stopped stops neither of its halves",
}


def on_gvisor(names, file, test):
    """The tiers of a test, with gVisor where it belongs."""
    like = "container" in names and "gvisor" not in names and file in ON_GVISOR and f"{file}.{test}" not in NOT_ON_GVISOR
    return (*names, "gvisor") if like else names


# ---- known differences of behaviour -----------------------------------------------------------------------------
DIFFERENCES = {
    # name: {tier: value}, reason
    "own_kernel": ({"vm": True, "gvisor": True, "container": False}, "a container shares the host's kernel"),
    "own_cpus": ({"vm": True, "gvisor": False, "container": False}, "gVisor and containers are held to their share of the host's cores, and see them all"),
    "own_clock": ({"vm": True, "gvisor": False, "container": False}, "a VM has a clock of its own; a container sees the host's and may not set it"),
    "memory_slack_mib": ({"vm": 160, "gvisor": 24, "container": 24}, "kernel text, page tables and the reserved pages of a guest kernel count as used"),
    "scale_mib": ({"vm": 220, "gvisor": 96, "container": 24}, "memory the scale test reckons with for one idle sandbox"),
    "own_boot_id": ({"vm": True, "gvisor": True, "container": False}, "boot_id belongs to the kernel"),
    "root_owns_kernel": ({"vm": True, "gvisor": True, "container": False}, "root in a VM may do to its own kernel what it likes"),
    "pids_limit": ({"vm": None, "gvisor": None, "container": True}, "a guest kernel has its own pid limits; the cgroup caps a container"),
}


def diff(name, tier):
    return DIFFERENCES[name][0][tier]


# ---- what an attack must meet -------------------------------------------------------------------------------------
# refused:   the call itself fails, for the sandbox's root as well as for its user.
# contained: the call may work, because it only reaches the guest's own kernel; the host and the neighbour must not notice.
# The third member is how much slower (ratio of medians to its own baseline) a neighbour may answer meanwhile.
REFUSED, CONTAINED = "refused", "contained"

ATTACKS = {
    "fork-bomb":       ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "thread-bomb":     ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "memory-heap":     ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "memory-tmpfs":    ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "memory-cache":    ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "disk-fill":       ({"vm": CONTAINED, "container": CONTAINED}, 20),
    "inode-fill":      ({"vm": CONTAINED, "container": CONTAINED}, 20),
    "fd-exhaustion":   ({"vm": CONTAINED, "container": CONTAINED}, 12),
    "zombie-flood":    ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "cpu-spin":        ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "proc-sys":        ({"vm": CONTAINED, "container": REFUSED}, 12),
    "sysrq":           ({"vm": CONTAINED, "container": REFUSED}, 12),
    "sysfs":           ({"vm": CONTAINED, "container": REFUSED}, 12),
    "core-pattern":    ({"vm": CONTAINED, "container": REFUSED}, 12),
    "release-agent":   ({"vm": CONTAINED, "container": REFUSED}, 12),
    "mount":           ({"vm": CONTAINED, "container": REFUSED}, 12),
    "ptrace-agent":    ({"vm": CONTAINED, "container": REFUSED}, 12),
    "mknod":           ({"vm": CONTAINED, "container": REFUSED}, 12),
    "module-load":     ({"vm": CONTAINED, "container": REFUSED}, 12),
    "bpf":             ({"vm": CONTAINED, "container": REFUSED}, 12),
    "io-uring":        ({"vm": CONTAINED, "container": REFUSED}, 12),
    "keyctl":          ({"vm": CONTAINED, "container": REFUSED}, 12),
    "userfaultfd":     ({"vm": CONTAINED, "container": REFUSED}, 12),
    "perf-event":      ({"vm": CONTAINED, "container": REFUSED}, 12),
    "unshare":         ({"vm": CONTAINED, "container": REFUSED}, 12),
    "setns":           ({"vm": CONTAINED, "container": REFUSED}, 12),
    "fd-leak":         ({"vm": REFUSED, "container": REFUSED}, 12),
    "host-environ":    ({"vm": REFUSED, "container": REFUSED}, 12),
    "file-names":      ({"vm": REFUSED, "container": REFUSED}, 12),
    "special-files":   ({"vm": REFUSED, "container": REFUSED}, 12),
    "kill-pid1":       ({"vm": CONTAINED, "container": CONTAINED}, 12),
    "channel-flood":   ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "exec-flood":      ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "long-line":       ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "odd-output":      ({"vm": CONTAINED, "container": CONTAINED}, 12),
    "abstract-socket": ({"vm": REFUSED, "container": REFUSED}, 12),
    "tiocsti":         ({"vm": CONTAINED, "container": CONTAINED}, 12),
    "foreign-abi":     ({"vm": CONTAINED, "container": REFUSED}, 12),
    "network":         ({"vm": REFUSED, "container": REFUSED}, 12),
    "setuid":          ({"vm": CONTAINED, "container": CONTAINED}, 12),
    "clock":           ({"vm": CONTAINED, "container": REFUSED}, 12),
    "hostile-agent":   ({"vm": CONTAINED, "container": CONTAINED}, 12),
    "runtime-binary":  ({"vm": CONTAINED, "container": REFUSED}, 12),
    "symlink-race":    ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "guest-crash":     ({"vm": CONTAINED, "container": REFUSED}, 12),
    "pty-exhaustion":  ({"vm": CONTAINED, "container": CONTAINED}, 12),
    "clone3":          ({"vm": CONTAINED, "container": REFUSED}, 12),
    "device-nodes":    ({"vm": CONTAINED, "container": REFUSED}, 12),
    "kernel-secrets":  ({"vm": CONTAINED, "container": REFUSED}, 12),
    "held-counters":   ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "socket-buffers":  ({"vm": CONTAINED, "container": CONTAINED}, 15),
    "deadline-daemon": ({"vm": CONTAINED, "container": CONTAINED}, 12),
    "host-wide-files": ({"vm": CONTAINED, "container": REFUSED}, 12),
}


# Attacks that take long in a VM and mostly exercise the guest's own kernel: on that tier with HUTCH_TEST_SLOW=1.
LONG_ON_VM = {"thread-bomb", "memory-heap", "memory-tmpfs", "memory-cache", "disk-fill", "inode-fill", "fd-exhaustion", "zombie-flood", "sysfs",
              "module-load", "keyctl", "exec-flood", "long-line", "tiocsti", "foreign-abi", "symlink-race", "pty-exhaustion"}


def expected(attack, tier):
    return ATTACKS[attack][0][tier]


def ratio(attack):
    return ATTACKS[attack][1]


# ---- skips that are allowed ---------------------------------------------------------------------------------------
# A skip whose reason starts with none of these counts as a failure.
ALLOWED_SKIPS = (
    "the seed home has no template",
    "runsc is not installed",  # gVisor: HUTCH_RUNSC, PATH or `make runsc`
    "this host reaches no server of its own ",  # real registries; stand-ins are tested anyway
    "slow: ",            # soak variants, run with HUTCH_TEST_SLOW=1
    "tier switched off",  # --tier
    "not enough memory",  # the scale test on a small machine
    "this host has more than a sandbox may ask for",
    "no template isolate",  # php and ruby: the packages could not be had
)
