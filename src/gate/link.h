/* One SEQPACKET connection of the control protocol, either end: whole messages
 * in, whole messages out with a bounded queue. Embedded in its owner. */
#pragma once
#include "base/buf.h"
#include "base/list.h"
#include "gate/ctl.h"
#include "loop/loop.h"
#include "wire/rec.h"
#include <stdbool.h>

struct gate_link {
    struct loop *loop;
    int fd; /* owned; -1: not in use */
    struct io io;
    struct list out;
    size_t queued; /* messages */
    char *in;
    /* Descriptors are the callee's from here on. */
    void (*on_msg)(void *arg, const struct gate_head *h, struct rec r, const int *fds, int nfds);
    void (*on_end)(void *arg, const char *why); /* once; the link is closed already */
    void *arg;
};

void gate_link_open(struct gate_link *l, struct loop *loop, int fd); /* callbacks and arg are set before; takes the fd */
void gate_link_close(struct gate_link *l);                           /* no on_end; safe on a closed one */

/* A message: begin, rec_put… into b, send. Send takes b's bytes; descriptors stay the caller's. False: too large, or the link is closed. */
void gate_msg(struct buf *b, enum gate_op op, uint32_t serial, int code);
bool gate_link_send(struct gate_link *l, struct buf *b, const int *fds, int nfds);
