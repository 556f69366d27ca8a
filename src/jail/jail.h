/* The jail: one ordered list of confinement steps for every kind of process
 * hutch runs, with a profile that says how far each step goes.
 *
 * Life: the parent fills a struct jail (plain data, all descriptors open, all
 * strings built), jail_spawn() clones, the parent maps ids and builds the
 * mounts that need the child's user namespace, jail_go() hands them over. The
 * child walks the list and execs. Between clone and exec the child calls no
 * malloc, no stdio stream, no log.
 *
 * A container's child is told in two parts, jail_box_ids() and jail_box_go():
 * between them it waits, furnished, for the box it is to become.
 *
 * The sync socket tells how it went: a `struct err` (a step failed; its name
 * is in the message), or the byte 'X' and then EOF (exec succeeded; the
 * descriptor is CLOEXEC), or EOF alone (killed on the way). */
#pragma once
#include "base/err.h"
#include "jail/cgroup.h"
#include "jail/fds.h"
#include "jail/seccomp.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum jail_kind {
    JAIL_BOX,   /* a container: its init is root of its own user namespace */
    JAIL_VM,    /* QEMU: one unprivileged id, nothing to see */
    JAIL_UNTAR, /* unpacks a foreign archive into one directory, /out */
    JAIL_KEEPER, /* serves the files of a volume: the volume is its root, and there is nothing else: no /proc, no /dev */
    JAIL_ISOLATE, /* an interpreter and its warden: one unprivileged id, a template read-only, no network at all */
    JAIL_SENTRY, /* runsc and what it starts: root of its own user namespace, its bundle read-only, the sandbox's files at /rootfs */
};

#define JAIL_TAP_FD    8  /* QEMU's number for the tap it gets from jail_go() */
#define JAIL_CHANNEL_FD 3 /* a container's init: its channel */
#define SENTRY_ROOTFS   "/rootfs" /* where the jail of a JAIL_SENTRY has the sandbox's files */
#define JAIL_LOW_FDS   10 /* descriptors are placed below */
#define JAIL_PLACE_MAX 4
#define JAIL_KEEP_MAX  40

/* What a waiting container's child is told when it is wanted, and the descriptors beside it. */
struct jail_box {
    char hostname[64];
    char boot_id[40];  /* 36 characters + newline; what the box reads as the kernel's boot id */
    char shm_size[24]; /* of its tmpfs */
};
enum { JAIL_BOX_ROOT, JAIL_BOX_EXEC, JAIL_BOX_STDERR, JAIL_BOX_CHANNEL, JAIL_BOX_FDS };

struct jail {
    enum jail_kind kind;
    const char *attach_at;  /* an existing directory of the parent's mount namespace, where the new root is put for a moment */
    const char *hostname;
    const char *run_size;   /* tmpfs */
    int cgroup2;            /* born in it; -1: none */
    int join[CG_TREES], njoin;
    uid_t owner;            /* of its user namespace: the first of its ids outside */
    bool sibling;           /* our parent's child, not ours: who keeps it need not be who makes it */
    const struct seccomp_prog *filter;
    struct { int from, to; } place[JAIL_PLACE_MAX]; /* descriptors by number */
    int nplace;
    int keep[JAIL_KEEP_MAX]; /* descriptors that keep their number */
    int nkeep;
    int exec_fd;            /* executed by descriptor; -1: `path`, seen from inside */
    const char *path;
    char *const *argv, *const *envp;

    /* child only */
    int sync;
    int root, dev, out, tools; /* mounts from jail_go() */
    int proc, sys, pts, at;
    struct jail_box box;
};

struct jailed { pid_t pid; int pidfd, sync; };

/* inside ids first..first+count-1 of each kind */
uint32_t jail_first_id(enum jail_kind k);
uint32_t jail_id_count(enum jail_kind k);

int jail_spawn(struct jail *j, struct jailed *ret, struct err *e) __attribute__((warn_unused_result));
/* BOX only. The ids are mapped; /dev. Then, whenever: its root and what else it needs. */
int jail_box_ids(int sync, int dev, struct err *e) __attribute__((warn_unused_result));
int jail_box_go(int sync, const struct jail_box *box, const int fds[JAIL_BOX_FDS], struct err *e) __attribute__((warn_unused_result));
/* All others. */
int jail_go(int sync, int root, int extra /* ISOLATE, SENTRY: /dev, VM: its tap, UNTAR: /out; -1 */, int tools /* ISOLATE: /run, SENTRY: /rootfs; -1 */, struct err *e) __attribute__((warn_unused_result));
/* One look at the sync socket (non-blocking if it is): 1 = executed, 0 = not yet, -1 + e = failed. Keep `armed` between calls. */
int jail_result(int sync, bool *armed, struct err *e) __attribute__((warn_unused_result));
