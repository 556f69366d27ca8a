/* See server_task.c. */
#pragma once
#include "jail/fds.h"
#include "spawn/server.h"
/* body runs in the new process and its result is the exit status; descriptors not in `keep` are closed there. */
int task_start(struct box *b, struct fd_keep *keep, int (*body)(void *arg, struct err *e), void *arg, struct err *e)
    __attribute__((warn_unused_result));
int task_wait(pid_t pid); /* -> wait status, -1 */
