/* Is a sandbox at work? For those that asked for it (life.idle_s), looked at
 * from time to time. Work is
 *
 *   - a call that needs the sandbox, and a stream that a client holds open;
 *   - processor time: more than a twentieth of one core since the last look;
 *   - bytes through the network gate.
 *
 * A process that only sleeps is no work; looking from outside (state, metrics,
 * events) neither. Main loop only. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct core;
struct sandbox;

bool idle_rests(struct sandbox *sb); /* the last look found no work, and there was none since */
void idle_tick(
    struct sandbox
        *sb); /* of core/life/timers.c: look if it is time; what is due happens after the look */
