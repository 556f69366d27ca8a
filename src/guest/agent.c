#include "guest/agent.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fd.h"
#include "guest/group.h"
#include "guest/isolate.h"
#include "guest/sys.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#define RUNS_PER_TURN 64
#define EVENTS_MAX    32

enum { ANY = 1 /* before CONFIGURE */, COLD = 2 /* while frozen */ };
enum { I = ROLE_INIT, K = ROLE_KEEPER, V = ROLE_SHARE };
static const struct {
    op_fn *fn;
    uint8_t when, who;
} ops[OP_MAX] = {
    [OP_CONFIGURE] = {op_configure, ANY | COLD, I},
    [OP_PING] = {op_ping, ANY | COLD, I | K | V},
    [OP_START] = {op_start, 0, I},
    [OP_ATTACH] = {op_attach, COLD, I},
    [OP_PROCS] = {op_procs, COLD, I},
    [OP_SIGNAL] = {op_signal, COLD, I},
    [OP_RESIZE] = {op_resize, COLD, I},
    [OP_INPUT] = {op_input, COLD, I},
    [OP_CLOSE_STDIN] = {op_close_stdin, COLD, I},
    [OP_STAT] = {op_stat, 0, I | K},
    [OP_LIST] = {op_list, 0, I | K},
    [OP_MKDIR] = {op_mkdir, 0, I | K},
    [OP_MOVE] = {op_move, 0, I | K},
    [OP_REMOVE] = {op_remove, 0, I | K},
    [OP_SETATTR] = {op_setattr, 0, I | K},
    [OP_SYMLINK] = {op_symlink, 0, I | K},
    [OP_READ] = {op_read, 0, I | K},
    [OP_WRITE] = {op_write, 0, I | K},
    [OP_WATCH] = {op_watch, 0, I},
    [OP_METRICS] = {op_metrics, COLD, I},
    [OP_PORTS] = {op_ports, COLD, I},
    [OP_CONNECT] = {op_connect, 0, I},
    [OP_GROW] = {op_grow, 0, I},
    [OP_SYNC] = {op_sync, 0, I | K},
    [OP_FREEZE] = {op_freeze, COLD, I},
    [OP_THAW] = {op_thaw, COLD, I},
    [OP_SHUTDOWN] = {op_shutdown, ANY | COLD, I | K},
    [OP_SERVE] = {op_serve, ANY, K},
    [OP_SHARE] = {op_share, ANY, V},
};

void agent_request(struct agent *a, uint32_t id, uint8_t op, struct rec r)
{
    struct err e = {0};
    struct req q = {a, id, op, r};
    if (a->iso) {
        iso_request(a, id, op, r);
        return;
    }
    if (op >= OP_MAX || !(ops[op].who & a->role))
        err_set(&e, E_UNSUPPORTED, "the agent does not know operation %u", op);
    else if (!rec_ok(r))
        err_set(&e, E_INVALID, "malformed request");
    else if (!a->configured && !(ops[op].when & ANY))
        err_set(&e, E_UNAVAILABLE, "the sandbox is not configured yet");
    else if (a->frozen && !(ops[op].when & COLD))
        err_set(&e, E_UNAVAILABLE, "the sandbox is frozen");
    else {
        ops[op].fn(&q);
        return;
    }
    reply_err(a, id, &e);
}

/* Only a sandbox has an identity to be given; the others are ready as they are. */
void agent_on_sync(struct agent *a) { a->configured = a->role != ROLE_INIT; }

void op_ping(const struct req *q)
{
    rec_put_u64(reply_begin(q->a), T_GENERATION, q->a->generation);
    reply_send(q->a, q->id);
}

static void on_sigchld(struct agent *a, struct io *io, uint32_t events)
{
    struct signalfd_siginfo si;
    (void)events;
    (void)!read(io->fd, &si, sizeof si); /* SIGCHLD does not queue: one read takes it, waitid below takes them all */
    if (a->iso)
        iso_reap(a);
    else
        procs_reap(a);
}

/* Best effort: what the jail or kernel does not allow is left as it is. */
static void harden(struct agent *a)
{
    struct rlimit rl;
    /* The first process of a machine is never chosen; what it starts inherits the rest. */
    a->first = a->vm && getpid() == 1;
    const char *score = a->first ? "100" : "-1000";
    auto_fd fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)!write(fd, score, strlen(score));
    if (!getrlimit(RLIMIT_NOFILE, &rl) && rl.rlim_cur < rl.rlim_max) {
        rl.rlim_cur = rl.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &rl);
    }
    (void)prctl(PR_SET_DUMPABLE, 0); /* after the write above: /proc/self changes owner */
    (void)signal(SIGPIPE, SIG_IGN);
    umask(022);
}

int agent_init(struct agent *a, const struct agent_opts *o, struct err *e)
{
    sigset_t set;
    a->vm = o->vm;
    a->role = o->role ? o->role : ROLE_INIT;
    a->users.none = a->role == ROLE_KEEPER;
    a->def_user = a->role == ROLE_KEEPER ? xstrdup("1000") : NULL; /* whose a volume's top directory is */
    a->cg_user = a->cg_freeze = a->cg_events = a->urandom = a->root = -1;
    for (int i = 0; i < ID_FILES; i++)
        a->id_fd[i] = -1;
    a->child_io = (struct io){.fd = -1, .fn = on_sigchld};
    procs_init(a);
    list_init(&a->shares);
    harden(a);
    if (loop_init(&a->loop))
        return err_sys(e, errno, "epoll");
    a->devnull = a->role == ROLE_KEEPER ? fcntl(0, F_DUPFD_CLOEXEC, 3) : open("/dev/null", O_RDWR | O_CLOEXEC);
    if (a->devnull < 0)
        return err_sys(e, errno, "/dev/null");
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    a->child_io.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (a->child_io.fd < 0)
        return err_sys(e, errno, "signalfd");
    io_set(&a->loop, &a->child_io, EPOLLIN);
    if (fd_nonblock(o->fd) || fd_cloexec(o->fd, true))
        return err_sys(e, errno, "channel");
    chan_init(a, o->fd, o->vm);
    if (o->isolate)
        return iso_init(a, o->isolate, e);
    sys_init(a);
    return 0;
}

bool agent_turn(struct agent *a, bool wait)
{
    struct epoll_event ev[EVENTS_MAX];
    struct chan *c = &a->chan;
    chan_resume(a);
    for (int i = 0; i < RUNS_PER_TURN && !list_empty(&c->runq) && chan_pending(c) < OUT_RUN; i++) {
        struct stream *s = container_of(c->runq.next, struct stream, run);
        list_del(&s->run);
        if (s->ops->run(a, s))
            stream_wake(a, s);
    }
    if (!chan_flush(a))
        a->stop = true;
    groups_tidy(a);
    loop_funeral(&a->loop);
    if (a->stop)
        return false;
    bool busy = !wait || (!list_empty(&c->runq) && chan_pending(c) < OUT_RUN) || (c->stalled && chan_pending(c) <= OUT_READ / 2);
    int n = epoll_wait(a->loop.ep, ev, EVENTS_MAX, loop_wait_ms(&a->loop, busy));
    for (int i = 0; i < n; i++) {
        struct io *io = ev[i].data.ptr;
        if (io->fd >= 0)
            io->fn(a, io, ev[i].events);
    }
    loop_timers(&a->loop, a);
    return true;
}

void agent_fini(struct agent *a)
{
    chan_fini(a);
    if (a->iso)
        iso_fini(a);
    shares_fini(a);
    procs_fini(a);
    io_close(&a->loop, &a->child_io);
    int *fd[] = {&a->devnull, &a->cg_user, &a->cg_freeze, &a->cg_events, &a->urandom, &a->root,
                 &a->id_fd[ID_HOSTNAME], &a->id_fd[ID_HOSTS], &a->id_fd[ID_MACHINE]};
    for (size_t i = 0; i < sizeof fd / sizeof *fd; i++)
        cleanup_fd(fd[i]);
    users_free(&a->users);
    free(a->def_user), free(a->def_cwd);
    buf_free(&a->env);
    loop_fini(&a->loop);
}

int agent_run(const struct agent_opts *o)
{
    struct err e = {0};
    struct agent *a = xcalloc(1, sizeof *a); /* half a megabyte of buffers: not a page of it is there before it is used */
    if (agent_init(a, o, &e)) {
        sys_console("hutch-agent: %s\n", e.msg);
        return 1;
    }
    while (agent_turn(a, true))
        ;
    sys_end(a);
    agent_fini(a);
    free(a);
    return 0;
}
