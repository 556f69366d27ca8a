/* Between egress.c (the gate) and egress_boxes.c (what it serves). */
#pragma once
#include "base/map.h"
#include "core/network/egress.h"
#include "gate/client.h"
#include "loop/loop.h"

#define HOST_GROUP "host" /* all sandboxes: what the operator allows them together */

struct egress {
    struct core *core;
    struct gate_client *client;
    struct map boxes; /* box id -> gated */
    char id[22];      /* of the process, at the spawner */
    bool starting, running, stopped;
    bool
        known; /* the gate has said which boxes it serves already: their sockets exist and are not made again */
    bool settled;    /* the daemon has found all its boxes again */
    struct map held; /* boxes the gate serves for an earlier daemon, until they are put here */
    int64_t started, backoff;
    struct timer restart, used;
    struct gate_ceiling ceiling;
};

void egress_configured(void *arg, const struct err *e, uint64_t cut); /* logs */
void egress_boxes_void(
    struct egress *eg); /* the gate went, or is another: nothing of what was asked of it counts */
void egress_boxes_known(struct egress *eg, const char *const *box,
                        size_t n); /* which it serves already: the rest is put */
void egress_boxes_free(struct egress *eg);
