/* Processes the host started: their output, input, exit and tree.
 *
 * Life: started -> reaped (waitid told its status) -> done (output at EOF, or
 * given up because it was killed) -> kept for attach -> forgotten. Listeners
 * are streams that follow the output; one that holds credit also holds the
 * ring: the pipes are not read past what it still has to get. */
#pragma once
#include "guest/agent.h"
#include "guest/ring.h"

#define INPUT_MAX    (1u << 20)
#define INPUT_WINDOW (64u << 10)

struct input {
    struct list node;
    uint32_t stream; /* whose window to open again; 0: OP_INPUT */
    uint32_t n, at;
    unsigned char p[];
};

struct proc {
    struct list hash, all, parting;
    pid_t pid;
    char *tag;
    struct buf desc;        /* fields for OP_PROCS */
    struct io out, err, in; /* pty: `out` is the master, in both directions */
    bool pty, in_eof, in_gone;
    bool stalled;           /* a pipe is not read because a listener lags by the whole ring */
    bool reaped, done;
    bool ended;             /* by OP_SIGNAL or the timeout: do not wait for EOF */
    bool killed, timed_out;
    uint64_t group;         /* vm: its cgroup, see group.h; 0: none */
    int group_fd;
    bool group_spent;
    int mark; /* where there are no groups: of its tree, see tree.h; -1: none */
    uint8_t kind;
    int code;
    int64_t done_at;        /* monotonic */
    size_t drain;           /* bytes still read after the end of an ended process */
    struct ring ring;
    struct list listeners;
    struct list inq;
    size_t inq_bytes;
    struct timer timer;     /* timeout while alive, forgetting afterwards */
};

void procs_init(struct agent *a);
void procs_fini(struct agent *a);
void procs_reap(struct agent *a);
struct proc *proc_find(struct agent *a, struct rec r, struct err *e); /* by T_PID or T_TAG */
struct proc *proc_new(void);
void proc_started(struct agent *a, struct proc *p, pid_t pid);
void proc_free(struct agent *a, struct proc *p); /* also a half-built one */
void proc_kill_tree(struct agent *a, struct proc *p);
void proc_on_out(struct agent *a, struct io *io, uint32_t events);
void proc_on_err(struct agent *a, struct io *io, uint32_t events);
void proc_on_in(struct agent *a, struct io *io, uint32_t events);
void proc_on_timeout(struct agent *a, struct timer *t);
void proc_end_now(struct agent *a, struct proc *p); /* reaped and ended: take what is readable, then done */
void proc_rearm(struct agent *a, struct proc *p);
/* procin.c */
int proc_input(struct agent *a, struct proc *p, uint32_t stream, const unsigned char *b, uint32_t n, struct err *e);
void proc_input_eof(struct agent *a, struct proc *p);
void proc_input_flush(struct agent *a, struct proc *p);
void proc_input_drop(struct agent *a, struct proc *p);
/* listen.c */
void listen_new(const struct req *q, struct proc *p, uint64_t offset);
uint64_t listen_floor(struct proc *p);
void listen_wake(struct agent *a, struct proc *p);
/* pty.c */
int pty_open(unsigned cols, unsigned rows, uint32_t uid, int *ret_slave, struct err *e); /* returns the master, non-blocking */
int pty_resize(int master, unsigned cols, unsigned rows);
