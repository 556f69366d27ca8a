/* cgroup2: the only hierarchy on new hosts, or a controller-less one beside
 * v1, where it is good for birth, kill and freeze. */
#include "base/cleanup.h"
#include "jail/cgroup.h"
#include "jail/sys.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int cg2_host_open(struct cgroup_host *h, const char *mountinfo, bool controllers, struct err *e)
{
    char at[256];
    if (!cg_mount_find(mountinfo, "cgroup2", NULL, at, sizeof at))
        return err_set(e, E_UNSUPPORTED, "no cgroup file system is mounted");
    auto_fd root = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_sys(e, errno, "cgroup2");
    int sys = controllers ? cg_write(root, "cgroup.subtree_control", "+cpu +memory +pids") : 0;
    if (sys)
        return err_sys(e, sys, "cgroup2: cannot enable cpu, memory and pids at the top");
    int own = h->v2 = cg_own_dir(root, h->tag); /* the caller's to close and remove, whatever follows */
    if (own < 0)
        return err_sys(e, errno, "cgroup2");
    if (controllers && (sys = cg_write(own, "cgroup.subtree_control", "+cpu +memory +pids")))
        return err_sys(e, sys, "cgroup2: controllers");
    h->v2_kill = !faccessat(own, "cgroup.kill", W_OK, 0);
    h->v2_cpu = !faccessat(own, "cpu.stat", R_OK, 0);
    if (!h->v2_kill && controllers)
        return err_set(e, E_UNSUPPORTED, "cgroup2 without cgroup.kill (Linux 5.14)");
    return 0;
}

int cg2_limit(const struct cgroup *g, const struct cgroup_limit *l, struct err *e)
{
    char v[48];
    int sys;
    (void)snprintf(v, sizeof v, l->memory_bytes ? "%llu" : "max", (unsigned long long)l->memory_bytes);
    if ((sys = cg_write(g->v2, "memory.max", v)))
        return err_sys(e, sys, "memory limit");
    (void)cg_write(g->v2, "memory.swap.max", l->memory_bytes ? "0" : "max"); /* absent without swap */
    if (l->cpu_millis)
        (void)snprintf(v, sizeof v, "%llu 100000", (unsigned long long)l->cpu_millis * 100);
    if ((sys = cg_write(g->v2, "cpu.max", l->cpu_millis ? v : "max 100000")))
        return err_sys(e, sys, "cpu limit");
    (void)cg_write(g->v2, "cpu.weight", l->low_priority ? "2" : "100"); /* a preference, not a limit */
    (void)snprintf(v, sizeof v, l->pids_max ? "%u" : "max", l->pids_max);
    if ((sys = cg_write(g->v2, "pids.max", v)))
        return err_sys(e, sys, "pids limit");
    return 0;
}

void cg2_usage(const struct cgroup *g, struct cgroup_usage *u)
{
    u->cpu_ns = cg_read_key(g->v2, "cpu.stat", "usage_usec") * 1000;
    u->mem_bytes = cg_read_u64(g->v2, "memory.current");
    u->mem_peak = cg_read_u64(g->v2, "memory.peak");
    u->mem_cache = cg_cache(g->v2, "file");
    u->oom_kills = cg_read_key(g->v2, "memory.events", "oom_kill");
    u->nproc = cg_read_u64(g->v2, "pids.current");
}

int cg2_freeze(int dir, bool on, struct err *e)
{
    int sys = cg_write(dir, "cgroup.freeze", on ? "1" : "0");
    return sys ? err_sys(e, sys, "cgroup.freeze") : 0;
}

int cg2_kill(int dir, struct err *e)
{
    int sys = cg_write(dir, "cgroup.kill", "1");
    return sys ? err_sys(e, sys, "cgroup.kill") : 0;
}
