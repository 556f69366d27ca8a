/* The sandbox's side of its network (wire/net.h). A container finds its
 * addresses made; a VM makes its own, once, before it is frozen: a clone has
 * nothing to do and nothing to say on the wire when it wakes up. */
#pragma once
#include "base/err.h"
#include <stdbool.h>

int network_up(struct err *e);                 /* vm, at boot: eth0 */
int network_resolver(const char *etc, struct err *e); /* etc/resolv.conf names ours, whatever the image had there */
bool network_own_port(unsigned port);          /* one of the gate's, not the user's */
