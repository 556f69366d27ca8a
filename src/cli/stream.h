/* Running a command in a sandbox with its streams here: NDJSON in, raw bytes
 * out, standard input pumped by a thread with a connection of its own. */
#pragma once
#include "cli/client.h"
#include <sys/types.h>

struct exec_run {
    const char *id;
    struct buf body;      /* the JSON request, see exec_body; freed by exec_stream */
    int stdin_fd;         /* forwarded until EOF; -1: none */
    bool forward_signals; /* INT and TERM go to the command; a second one leaves. Otherwise the first one leaves. Needs x->sigfd. */
    int out_fd, err_fd;   /* -1: dropped */
    bool escape_err; /* what goes to err_fd is for a person to read, not the command's result */
    /* results */
    int status;           /* for our own exit */
    bool ended;           /* the command ended by itself: status is its own */
    int left_by;          /* signal that made us leave, 0 */
    bool pipe_broken;     /* whoever read our output is gone */
};

/* {"cmd":[…],…,"stream":true}; env entries are "K=V". Returns -1 with x->err if one is malformed. */
struct exec_req {
    char *const *argv;
    int argc;
    const char *user, *cwd;
    int64_t timeout_ms;
    bool keep_stdin, background;
    struct args *args;      /* its --env options, may be NULL */
    const char *const *env; /* more, NULL-terminated, may be NULL */
};
int exec_body(struct cli *x, const struct exec_req *q, struct buf *out);
/* 0: see the results. -1: x->err (refused, stream broken, "interrupted"). */
int exec_stream(struct cli *x, struct exec_run *r);
/* EXIT object -> our exit status; a line on stderr for oom and timeout unless quiet. */
int exit_status(struct json *exit, bool quiet);
bool at_terminal(
    struct args *
        a); /* standard input and output are terminals: the command gets one. --timeout keeps to plain streams, whose end has a reason */
bool stdin_worth_forwarding(void); /* not a terminal, not closed, not /dev/null */
int json_env(struct cli *x, struct jw *w, const char *key, struct args *a, const char *opt); /* K=V options as an object */
