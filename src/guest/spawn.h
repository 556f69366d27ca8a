/* Starting one process. The child borrows our memory until it execs
 * (CLONE_VM | CLONE_VFORK): nothing is copied, and a failed start is told
 * through plain memory instead of a pipe. Between clone and exec it makes raw
 * system calls only and writes to nothing but its own stack and `struct
 * launch`. */
#pragma once
#include "base/err.h"
#include "guest/users.h"
#include <stdbool.h>
#include <sys/types.h>

enum launch_stage { LAUNCH_OK, LAUNCH_SESSION, LAUNCH_STDIO, LAUNCH_TTY, LAUNCH_USER, LAUNCH_CWD, LAUNCH_EXEC };
struct launch {
    char *const *argv, *const *envp;
    const char *path;   /* PATH to search argv[0] in */
    const char *cwd;
    bool cwd_asked;     /* false: fall back to "/" */
    struct user user;
    uint32_t groups[USER_GROUPS_MAX];
    int ngroups;
    int in, out, err;   /* become 0, 1, 2; all > 2 */
    bool tty;           /* `in` becomes the controlling terminal */
    int cgroup;         /* fd of a cgroup2 directory, or -1: its tree gets a mark */
    int mark;           /* answer, the caller's to close, also after a failure; -1: none (tree.h) */
    bool vm;
    bool scored;        /* what it inherits from us is right when memory runs out */
    volatile int stage, sys; /* written by the child */
};
pid_t launch_start(struct launch *l, struct err *e);
void launch_limit_caps(bool vm); /* once: what no process started from here on can ever gain */
