/* The v1 hierarchies. The directory layout is <mount>/hutch-<tag>/<box>; a
 * co-mounted pair (cpu,cpuacct) is opened once. */
#include "base/cleanup.h"
#include "base/fd.h"
#include "jail/cgroup.h"
#include "jail/sys.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const name[CG_TREES] = {"cpu", "cpuacct", "memory", "pids", "freezer"};

/* Buffers of TCP and UDP are counted in the group only once this was written, and beside its memory, not within. ENOENT: a kernel that
 * has none. cgroup2 counts them as memory of the group. */
static int set_sockets(int dir, uint64_t bytes, struct err *e)
{
    char v[24] = "-1";
    if (bytes)
        (void)snprintf(v, sizeof v, "%llu", (unsigned long long)bytes);
    int sys = cg_write(dir, "memory.kmem.tcp.limit_in_bytes", v);
    return sys && sys != ENOENT ? err_sys(e, sys, "limit of socket buffers") : 0;
}

int cg1_host_open(struct cgroup_host *h, const char *mountinfo, struct err *e)
{
    char at[CG_TREES][256];
    for (int i = 0; i < CG_TREES; i++) {
        at[i][0] = 0;
        if (!cg_mount_find(mountinfo, "cgroup", name[i], at[i], sizeof at[i]))
            return err_set(e, E_UNSUPPORTED, "cgroup v1 without the %s controller", name[i]);
        /* a cgroup2 beside us kills, freezes and counts CPU time: two directories less per box */
        if ((i == CG_FREEZER && h->v2_kill) || (i == CG_CPUACCT && h->v2_cpu))
            continue;
        bool again = false;
        for (int j = 0; j < i; j++)
            again |= !strcmp(at[i], at[j]);
        if (again)
            continue;
        auto_fd root = open(at[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (root < 0 || (h->tree[i] = cg_own_dir(root, h->tag)) < 0)
            return err_sys(e, errno, "cgroup %s", name[i]);
    }
    /* The first group that counts socket buffers changes the kernel's code, the end of the last one changes it back: not with every box. */
    return set_sockets(h->tree[CG_MEMORY], 0, e);
}

static int dir_of(const struct cgroup *g, enum cg_tree t)
{
    return t == CG_CPUACCT && g->tree[t] < 0 ? g->tree[CG_CPU] : g->tree[t];
}

static int set_memory(int dir, uint64_t bytes, bool fresh, struct err *e)
{
    char v[24] = "-1";
    if (bytes)
        (void)snprintf(v, sizeof v, "%llu", (unsigned long long)bytes);
    /* memsw must never be below memory: growing needs it first, shrinking last. ENOENT: kernel without swap accounting. */
    if (!fresh)
        (void)cg_write(dir, "memory.memsw.limit_in_bytes", v);
    int sys = cg_write(dir, "memory.limit_in_bytes", v);
    (void)cg_write(dir, "memory.memsw.limit_in_bytes", v);
    return sys ? err_sys(e, sys, "memory limit") : 0;
}

int cg1_limit(const struct cgroup *g, const struct cgroup_limit *l, bool fresh, struct err *e)
{
    char quota[24] = "-1", pids[16] = "max";
    int sys;
    if (set_memory(g->tree[CG_MEMORY], l->memory_bytes, fresh, e) ||
        set_sockets(g->tree[CG_MEMORY], l->all_sockets ? l->memory_bytes : l->memory_bytes / 4, e))
        return -1;
    if (l->cpu_millis)
        (void)snprintf(quota, sizeof quota, "%llu", (unsigned long long)l->cpu_millis * 100);
    if ((sys = cg_write(g->tree[CG_CPU], "cpu.cfs_quota_us", quota))) /* of the default period, 100 ms */
        return err_sys(e, sys, "cpu limit");
    if (!fresh || l->low_priority)
        (void)cg_write(g->tree[CG_CPU], "cpu.shares", l->low_priority ? "16" : "1024"); /* a preference, not a limit */
    if (l->pids_max)
        (void)snprintf(pids, sizeof pids, "%u", l->pids_max);
    if ((sys = cg_write(g->tree[CG_PIDS], "pids.max", pids)))
        return err_sys(e, sys, "pids limit");
    return 0;
}

void cg1_usage(const struct cgroup *g, struct cgroup_usage *u)
{
    int mem = g->tree[CG_MEMORY];
    if (g->v2 >= 0)
        u->cpu_ns = cg_read_key(g->v2, "cpu.stat", "usage_usec") * 1000;
    if (!u->cpu_ns) /* no cgroup2, or one too old to count; EBADF and ENOENT read as 0 */
        u->cpu_ns = cg_read_u64(dir_of(g, CG_CPUACCT), "cpuacct.usage");
    u->mem_bytes = cg_read_u64(mem, "memory.usage_in_bytes") +
                   cg_read_u64(mem, "memory.kmem.tcp.usage_in_bytes");
    u->mem_peak = cg_read_u64(mem, "memory.max_usage_in_bytes");
    u->mem_cache = cg_cache(mem, "cache");
    u->oom_kills = cg_read_key(mem, "memory.oom_control", "oom_kill");
    u->nproc = cg_read_u64(g->tree[CG_PIDS], "pids.current");
}

int cg1_freeze(const struct cgroup *g, bool on, struct err *e)
{
    /* The state goes FREEZING -> FROZEN by itself; a caller that must know polls with SP_STAT-like reads, we do not wait. */
    int sys = cg_write(g->tree[CG_FREEZER], "freezer.state", on ? "FROZEN" : "THAWED");
    return sys ? err_sys(e, sys, "freezer") : 0;
}

/* Frozen v1 tasks do not die: signal first, then thaw. Twice over the list, against a fork meanwhile; what still gets
 * away dies with its pid namespace. */
int cg1_kill(const struct cgroup *g, struct err *e)
{
    for (int turn = 0; turn < 2; turn++) {
        auto_fd fd = openat(g->tree[CG_FREEZER], "cgroup.procs", O_RDONLY | O_CLOEXEC);
        auto_free char *list = fd < 0 ? NULL : fd_slurp(fd, 1 << 20, NULL);
        if (!list)
            return err_sys(e, errno, "freezer list");
        for (char *p = list; *p;) {
            long pid = strtol(p, &p, 10);
            if (pid > 1)
                (void)kill((pid_t)pid, SIGKILL);
            p += strspn(p, "\n ");
        }
        (void)cg_write(g->tree[CG_FREEZER], "freezer.state", "THAWED");
    }
    return 0;
}
