/* A volume in a VM while it runs: two streams, one to the process in the VM
 * that has it mounted (OP_SHARE on the VM's channel for volumes), one to the
 * volume's keeper (OP_SERVE), and the bytes between them, which nobody here
 * looks at. Bounded by credit: what one side does not take, the other is not
 * allowed to send. Main loop only. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

struct agent;
struct share;
struct share_ops {
    void (*up)(void *arg); /* it is mounted and served */
    void (*down)(void *arg,
                 const struct err *e); /* last; before up: it did not work. The share is gone. */
};
/* flags: SHARE_* */
struct share *share_open(struct agent *vm, struct agent *keeper, const char *volume,
                         const char *path, unsigned flags, const struct share_ops *ops, void *arg,
                         struct err *e);
void share_close(
    struct share *s); /* no callback after this; the mount stays, whoever uses it waits */
