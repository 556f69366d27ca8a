/* The host's own addresses and the networks it is part of, followed over
 * rtnetlink: no sandbox may reach the machine it runs on, its neighbours or its
 * router, whatever range their addresses are of. */
#pragma once
#include "base/err.h"
#include "gate/ip.h"
#include "loop/loop.h"

struct hostaddr;
struct hostaddr *hostaddr_new(struct loop *l, struct err *e);
void hostaddr_free(struct hostaddr *h);
const char *hostaddr_why(void *h, const struct ip *a); /* for struct policy_set; NULL: not ours */
