/* When a sandbox last did something for somebody. Calls leave their mark here; core/life/idle.h looks at it. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct sandbox;

struct activity {
    int64_t since;  /* mono: the last sign of work */
    int64_t looked; /* mono: when the figures below were taken; 0: not yet */
    uint64_t cpu_ns, traffic;
    bool looking;
};

void activity_begin(struct sandbox *sb); /* it runs (again), or the rule changed: counts from now */
void activity_touch(struct sandbox *sb); /* a sign of work */
