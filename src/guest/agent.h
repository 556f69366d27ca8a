/* hutch-agent: PID 1 of a sandbox. Everything it knows hangs on one struct, and
 * one thread works on it. The host end of the channel is trusted to command,
 * not to be well-formed; user processes are trusted with nothing. */
#pragma once
#include "base/err.h"
#include "guest/chan.h"
#include "guest/loop.h"
#include "guest/users.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PATH_LIMIT   4096
#define PROC_HASH    256
#define PROCS_MAX    1024 /* alive */
#define EXITED_MAX   64
#define EXITED_NS    (300 * 1000000000LL)

/* Files that say who the guest is, see identity.h. */
enum { ID_HOSTNAME, ID_HOSTS, ID_MACHINE, ID_FILES };

struct iso;
struct agent {
    struct loop loop;
    struct chan chan;
    struct users users;
    bool vm;
    bool first;      /* of a machine: the kernel spares it when memory runs out */
    uint8_t role;    /* ROLE_* */
    struct iso *iso; /* an isolate's warden and nothing else, see isolate.h; NULL: a sandbox's agent */
    bool configured; /* since the last sync */
    bool frozen;     /* user processes stand still; */
    bool fs_frozen;  /* the root file system too */
    bool stop;       /* OP_SHUTDOWN was answered, or the channel is gone */
    struct io child_io; /* signalfd of SIGCHLD */
    int devnull;
    int cg_user;     /* vm: fd of /sys/fs/cgroup/user, else -1; */
    int cg_freeze, cg_events; /* of its files */
    int urandom;     /* vm: the kernel's generator; -1 */
    int root;        /* vm: "/"; -1 */
    int id_fd[ID_FILES]; /* vm: open since its template was prepared; -1 */
    char release[65];         /* of the kernel, once asked */
    uint64_t mem_bytes;
    uint64_t generation;
    char sandbox[64];
    char *def_user, *def_cwd;
    struct buf env;  /* T_ENV of CONFIGURE: "K=V\0" one after the other */
    struct list procs_hash[PROC_HASH];
    struct list procs, exited; /* alive / ended, oldest first */
    struct list leaving;       /* ended, and their cgroup not yet looked at; */
    struct list stale;         /* …that still holds somebody they left behind */
    uint64_t groups, spare;    /* cgroups so far; the one that waits for the next process, */
    int spare_fd;              /* or -1 */
    unsigned nprocs, nexited;
    uint64_t oom_seen;         /* vm: /proc/vmstat oom_kill as last looked at */
    struct list shares;        /* ROLE_SHARE: volumes that are mounted */
    unsigned nshares;
};

/* What this process is, and with it which operations it knows. A keeper's root is a volume and nothing else: no /proc, no
 * /dev, no users by name, no processes. */
enum { ROLE_INIT = 1 /* PID 1 of a sandbox */, ROLE_KEEPER = 2, ROLE_SHARE = 4 /* a VM's second process: its volumes */ };
struct agent_opts {
    int fd;
    bool vm;
    uint8_t role; /* 0: ROLE_INIT */
    const char *isolate; /* language; NULL: none */
};
/* Serves the channel until shutdown or loss of the channel; returns what PID 1 should exit with. */
int agent_run(const struct agent_opts *o);
/* In steps, for tests and fuzzers; a: all zeros. */
int agent_init(struct agent *a, const struct agent_opts *o, struct err *e);
bool agent_turn(struct agent *a, bool wait); /* one loop turn; false: over */
void agent_fini(struct agent *a);
void agent_request(struct agent *a, uint32_t id, uint8_t op, struct rec r);
void agent_on_sync(struct agent *a); /* called by chan at a takeover */

void shares_fini(struct agent *a); /* share.c */

/* Handlers, one per operation; each answers exactly once, now or through a stream. */
typedef void op_fn(const struct req *q);
op_fn op_configure, op_ping, op_start, op_attach, op_procs, op_signal, op_resize, op_input, op_close_stdin, op_stat, op_list,
    op_mkdir, op_move, op_remove, op_setattr, op_symlink, op_read, op_write, op_watch, op_metrics, op_ports, op_connect, op_grow,
    op_sync, op_freeze, op_thaw, op_shutdown, op_serve, op_share;
