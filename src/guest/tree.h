/* Killing all that came of a process where it has no cgroup of its own.
 *
 * The mark is a cgroup namespace (under gVisor, which has none, one of host names). We enter a new one before each start; whatever
 * is forked or executed from there is in it, and only CAP_SYS_ADMIN can leave,
 * which nothing that we start can get: a daemon that forked twice, made a
 * session of its own and emptied its environment is still found. All of them
 * have the same root, so that nobody sees a difference. */
#pragma once
#include "base/err.h"

int tree_mark(
    struct err *
        e); /* what is started next has it. The descriptor is owned, and keeps the mark from being given again */
void tree_kill(int mark); /* every process that has it, except us */
