/* Worker pool for blocking work. A job is linear blocking C over inputs it
 * owns: work(arg) runs on a worker, then done(arg) on the loop thread. Jobs
 * start in order of job_run. The pool and job_run belong to the loop thread. */
#pragma once
#include "loop/loop.h"

struct jobs;
struct jobs *jobs_new(struct loop *l, int nthreads);
void job_run(struct jobs *j, void (*work)(void *), void (*done)(void *) /* may be NULL */, void *arg);
int jobs_pending(const struct jobs *j); /* accepted, done() not yet called */
void jobs_finish(
    struct jobs *
        j); /* blocks until every accepted job is over and its done() was called; those that they begin too */
void jobs_free(struct jobs *j);         /* waits for every accepted job and calls its done() */
