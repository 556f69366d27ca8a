/* Between snapshot_take.c, snapshot_take_vm.c and snapshot_take_container.c: a
 * snapshot that is being taken. */
#pragma once
#include "base/clock.h"
#include "core/agent/agent.h"
#include "core/catalog/snapshot.h"

#define FREEZE_NS  (60 * NS_PER_S)
#define TAKING_TMP 32

struct taking {
    struct core *core;
    const struct tier *tier;
    char id[22], sandbox[22]; /* of the snapshot; of what it is taken of */
    struct transit *t;        /* until the sandbox goes on; NULL before `free`: it was cut short */
    bool free;                /* the sandbox goes on */
    bool late;                /* user code may have gone on: nobody may join */
    bool busy;                /* a job or request that cannot be called off */
    bool nameless, memory;
    bool standing; /* of a VM in standby, which stays in it */
    uint32_t keep_last;
    struct saving *saving;
    struct list waiters;
    int64_t stood; /* since when; 0: it was paused anyway */
    int home, rc;  /* container: of the job under way; home is -1 for a VM */
    struct err err;
};

/* snapshot_take.c */
void taking_tmp(const struct taking *k,
                char tmp[TAKING_TMP]); /* its directory in snapshots/ until it is published */
void taking_sync(struct transit *t, const struct call_ops *then); /* as transit_call */
void taking_go_free(struct taking *k);                            /* the sandbox goes on */
bool taking_cut_short(
    struct taking
        *k); /* a job or request came back: true if there is nothing more to do, k is gone then */
void taking_fail(struct taking *k, const struct err *e);
void taking_stored(void *taking, const struct err *e); /* the last step: the row is there */

/* snapshot_take_vm.c, snapshot_take_container.c: each ends in taking_stored, taking_fail or transit_end with an error */
void taking_vm(struct taking *k, struct sandbox *sb);
void taking_vm_late(void *transit); /* its deadline */
void taking_container(struct taking *k);
void taking_container_late(void *transit);
