/* hutch-egress as an object: boxes with their listeners, their policies and
 * connections, and the control socket. One thread, one loop. bin/hutch-egress.c
 * builds it after it has given up its privileges. */
#pragma once
#include "base/err.h"
#include "gate/resolve.h"
#include "loop/loop.h"
#include <sys/types.h>

struct tls_trust;
struct gate;
struct gate_setup {
    struct loop *loop;
    int control_fd;          /* listening SEQPACKET socket; taken */
    uid_t allow_uid;         /* besides root */
    int log_dir;             /* directory of the logs; taken */
    struct tls_trust *trust; /* upstream certificates; taken */
    const struct resolver_addr *resolvers;
    size_t nresolvers;
};
struct gate *gate_new(const struct gate_setup *s, struct err *e);
void gate_free(struct gate *g); /* cuts everything */
