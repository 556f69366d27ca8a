/* Who this guest is: host name, /etc/hosts, machine-id. A machine's snapshot is
 * restored many times, and each clone gets its own before user code runs: so in
 * a VM the files are links into /run/hutch, where writing one costs no journal,
 * and they are kept open from the template on: under emulation a clone pays for
 * every path through its kernel that it is the first to take.
 * Whoever replaces a link with a file of his own has it rewritten in place. */
#pragma once
#include "guest/agent.h"
int identity_set(struct agent *a, struct rec r, uint64_t flags, struct err *e);
/* What was added to /etc/hosts goes to disk: a cold boot starts from there. Before every sync; best effort. */
void identity_keep(void);
