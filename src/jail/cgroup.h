/* Control groups of both generations behind one face. A `struct cgroup_host`
 * is this daemon's subtree ("hutch-<tag>") on the host, a `struct cgroup` one
 * box in it. v1: limits in the v1 controllers, kill and freeze through a
 * controller-less cgroup2 when one is mounted, else the v1 freezer. v2: all in
 * one directory.
 *
 * Joining: on v1 the child writes "0" to `join` descriptors that the parent
 * opened (writing a pid from outside costs 10 ms); where there is a cgroup2
 * directory the child is born in it (`birth`). */
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CG_TREES  5 /* v1: cpu, cpuacct, memory, pids, freezer */
#define CG_NAME   32
#define CG_BOX_ATTR "trusted.hutch.box" /* of a cgroup2 that could not be given its box's name */

enum cg_tree { CG_CPU, CG_CPUACCT, CG_MEMORY, CG_PIDS, CG_FREEZER };

/* 0: unlimited */
struct cgroup_limit {
    uint64_t memory_bytes;
    uint32_t cpu_millis, pids_max;
    bool low_priority;
    bool all_sockets; /* its work is sockets: on v1, which counts their buffers apart, as much as of memory, not a quarter */
};
struct cgroup_usage { uint64_t cpu_ns, mem_bytes, mem_cache, mem_peak, oom_kills, nproc; };

struct cgroup_host {
    int version;          /* 1 or 2 */
    char tag[CG_NAME];
    int tree[CG_TREES];   /* v1: our directory in each hierarchy; a co-mounted one is opened once, the others are -1 */
    int v2;               /* cgroup2: our directory; -1: none (v1 only) */
    int lock[CG_TREES + 1]; /* the same directories once more, locked: nobody else may sweep them while we live */
    bool v2_kill, v2_cpu; /* cgroup2: has cgroup.kill; counts CPU time */
    char note[96];        /* what is missing, for the operator */
};

#define CGROUP_HOST_NONE ((struct cgroup_host){.tree = {-1, -1, -1, -1, -1}, .v2 = -1, .lock = {-1, -1, -1, -1, -1, -1}})

struct cgroup {
    char name[CG_NAME];
    int tree[CG_TREES];   /* -1: none */
    int v2;
    char v2_name[CG_NAME]; /* another one if its first process was born before anybody knew the name */
    bool live;            /* directories exist */
};
#define CGROUP_NONE ((struct cgroup){.tree = {-1, -1, -1, -1, -1}, .v2 = -1})

/* Finds the mounts in `mountinfo` (normally /proc/self/mountinfo), makes our directories and takes them: E_CONFLICT while somebody
 * who lives has them. Such a lock is seen by all who see the tree, from whatever mount, pid or network namespace, and it is
 * free the moment its owner dies. */
int cgroup_host_open(struct cgroup_host *h, const char *mountinfo, const char *tag, struct err *e) __attribute__((warn_unused_result));
/* What an earlier life with the same tag left behind: kills it and removes it. Returns how many groups there were, or -1. */
int cgroup_host_sweep(struct cgroup_host *h, struct err *e) __attribute__((warn_unused_result));
/* The tree of another tag: groups and processes in it (one may count in several hierarchies), and those that live in a pid
 * namespace we cannot look into. Returns in how many hierarchies there is one. */
struct cgroup_census { int groups, procs, unseen; };
int cgroup_host_census(const struct cgroup_host *h, const char *tag, struct cgroup_census *ret);
/* Kills and removes it; E_CONFLICT if somebody has locked it, but versions that did not are the caller's to find. Returns as the sweep does. */
int cgroup_host_clear(const struct cgroup_host *h, const char *tag, struct err *e) __attribute__((warn_unused_result));
/* Number `n` is ours until the returned descriptor is closed; -1 and errno EAGAIN: somebody has it, another errno: it cannot be told. Among all who see the tree. */
int cgroup_host_claim(const struct cgroup_host *h, unsigned n);
void cgroup_host_close(struct cgroup_host *h, bool remove); /* remove: what is empty and ours */

int cgroup_make(const struct cgroup_host *h, const char *name, const struct cgroup_limit *l, struct cgroup *ret, struct err *e)
    __attribute__((warn_unused_result));
/* In two parts, for a process that is born (in cgroup2, if there is one) and joins before its name and limits are known. */
int cgroup_begin(const struct cgroup_host *h, const char *name, struct cgroup *ret, struct err *e) __attribute__((warn_unused_result));
int cgroup_finish(const struct cgroup_host *h, const char *name, const struct cgroup_limit *l, struct cgroup *g, struct err *e)
    __attribute__((warn_unused_result)); /* a failure removes what can be removed */
int cgroup_join_fds(const struct cgroup *g, int fd[CG_TREES], struct err *e) __attribute__((warn_unused_result)); /* -> count; for the child to write "0" to, then close */
int cgroup_join(const int *fd, int n, struct err *e) __attribute__((warn_unused_result));                        /* in the child */
int cgroup_set(const struct cgroup_host *h, const struct cgroup *g, const struct cgroup_limit *l, struct err *e) __attribute__((warn_unused_result));
int cgroup_freeze(const struct cgroup *g, bool on, struct err *e) __attribute__((warn_unused_result));
int cgroup_kill(const struct cgroup_host *h, const struct cgroup *g, struct err *e) __attribute__((warn_unused_result)); /* also frozen ones */
void cgroup_usage(const struct cgroup_host *h, const struct cgroup *g, struct cgroup_usage *ret); /* what cannot be read is 0 */
/* 0: gone. 1: still busy, try again a little later. */
int cgroup_remove(const struct cgroup_host *h, struct cgroup *g);

/* ---- the two generations; only cgroup.c calls these ---- */
int cg1_host_open(struct cgroup_host *h, const char *mountinfo_text, struct err *e);
int cg1_limit(const struct cgroup *g, const struct cgroup_limit *l, bool fresh, struct err *e); /* fresh: all are at their defaults */
void cg1_usage(const struct cgroup *g, struct cgroup_usage *ret);
int cg1_freeze(const struct cgroup *g, bool on, struct err *e);
int cg1_kill(const struct cgroup *g, struct err *e);
int cg2_host_open(struct cgroup_host *h, const char *mountinfo_text, bool controllers, struct err *e);
int cg2_limit(const struct cgroup *g, const struct cgroup_limit *l, struct err *e);
void cg2_usage(const struct cgroup *g, struct cgroup_usage *ret);
int cg2_freeze(int dir, bool on, struct err *e);
int cg2_kill(int dir, struct err *e);

/* small file helpers of the family */
int cg_own_dir(int root, const char *tag);                               /* made if need be; -1 and errno */
int cg_write(int dir, const char *file, const char *text);               /* 0 or errno */
int cg_write_u64(int dir, const char *file, uint64_t v);
uint64_t cg_read_u64(int dir, const char *file);                         /* 0 if it cannot */
uint64_t cg_read_key(int dir, const char *file, const char *key);        /* "key N" lines */
uint64_t cg_cache(int dir, const char *key); /* of memory.stat: what it can give back */
bool cg_mount_find(const char *mountinfo, const char *fstype, const char *option, char *path, size_t size);
