/* What a tier shares with containers if hutch-spawn makes its machines as boxes with a writable layer (spawn/op.h: sp_box). Its
 * machine_ops name the request (box_op) and take the rest from here. */
#pragma once
#include "tier/machine.h"

void container_start(struct start *st);
void container_adopt(struct tier_host *h, const struct tier *t, const char *id, int *fds, int nfds,
                     machine_cb *cb, void *arg);
int container_chan(const struct machine *m);
bool container_wake(struct machine *m, machine_cb *cb, void *arg);
bool container_waking(const struct machine *m);
bool container_running(const struct machine *m);
void container_hold(struct machine *m, bool on, machine_cb *cb, void *arg);
void container_drop(struct machine *m);
