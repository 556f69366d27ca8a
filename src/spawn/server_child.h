/* A request that a process of its own works on, with one answer at its end, so
 * that others are served meanwhile. */
#pragma once
#include "spawn/server.h"

struct child_answer { int32_t rc, pad; struct err err; struct sp_saved saved; };
struct child_work {
    void (*body)(void *arg, int sock); /* in the child: ends with child_end() */
    void (*over)(void *arg);           /* in the parent, when it has ended, however; may be NULL; frees arg */
    void *arg;
};
/* 0: w->over will be called, and the request answered. -1: neither. */
int child_run(struct server *s, struct request *r, const struct child_work *w, struct err *e) __attribute__((warn_unused_result));
void child_end(int sock, const struct child_answer *a) __attribute__((noreturn));
