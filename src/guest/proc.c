#include "guest/proc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "guest/group.h"
#include "guest/sys.h"
#include "guest/tree.h"
#include "wire/msg.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_CHUNK   (64u << 10)
#define REAP_PER_TURN 2048

static struct list *bucket(struct agent *a, pid_t pid) { return &a->procs_hash[(unsigned)pid % PROC_HASH]; }

void procs_init(struct agent *a)
{
    list_init(&a->procs), list_init(&a->exited);
    groups_init(a);
    for (int i = 0; i < PROC_HASH; i++)
        list_init(&a->procs_hash[i]);
}

struct proc *proc_new(void)
{
    struct proc *p = xcalloc(1, sizeof *p);
    p->out = (struct io){.fd = -1, .fn = proc_on_out};
    p->err = (struct io){.fd = -1, .fn = proc_on_err};
    p->in = (struct io){.fd = -1, .fn = proc_on_in};
    list_init(&p->listeners), list_init(&p->inq);
    p->drain = RING_CAP;
    p->group_fd = p->mark = -1;
    return p;
}

void proc_started(struct agent *a, struct proc *p, pid_t pid)
{
    p->pid = pid;
    list_add(bucket(a, pid), &p->hash); /* in front of an exited one with the same pid */
    list_add_tail(&a->procs, &p->all);
    a->nprocs++;
}

void proc_free(struct agent *a, struct proc *p)
{
    if (!p)
        return;
    timer_stop(&a->loop, &p->timer);
    io_close(&a->loop, &p->out), io_close(&a->loop, &p->err), io_close(&a->loop, &p->in);
    proc_input_drop(a, p);
    ring_free(&p->ring);
    group_drop(a, p);
    cleanup_fd(&p->mark);
    if (p->all.next)
        p->done ? a->nexited-- : a->nprocs--;
    list_del(&p->hash), list_del(&p->all);
    free(p->tag);
    buf_free(&p->desc);
    loop_bury(&a->loop, p);
}

void procs_fini(struct agent *a)
{
    struct proc *p;
    list_each(p, &a->procs, all)
        proc_free(a, p);
    list_each(p, &a->exited, all)
        proc_free(a, p);
    groups_fini(a);
}

struct proc *proc_find(struct agent *a, struct rec r, struct err *e)
{
    struct proc *p;
    uint64_t pid;
    struct str tag;
    if (rec_u64(r, T_PID, &pid)) {
        struct list *h = bucket(a, (pid_t)pid);
        list_each(p, h, hash)
            if ((uint64_t)p->pid == pid)
                return p;
        err_set(e, E_NOT_FOUND, "process %llu does not exist", (unsigned long long)pid);
        return NULL;
    }
    if (!rec_get(r, T_TAG, &tag)) {
        err_set(e, E_INVALID, "a process is named by pid or tag");
        return NULL;
    }
    list_each(p, &a->procs, all)
        if (p->tag && str_eqz(tag, p->tag))
            return p;
    for (struct list *l = a->exited.prev; l != &a->exited; l = l->prev) { /* newest first */
        p = container_of(l, struct proc, all);
        if (p->tag && str_eqz(tag, p->tag))
            return p;
    }
    err_set(e, E_NOT_FOUND, "process with tag '%.*s' does not exist", (int)(tag.n > 100 ? 100 : tag.n), tag.p);
    return NULL;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

static void on_forget(struct agent *a, struct timer *t)
{
    struct proc *p = container_of(t, struct proc, timer);
    if (list_empty(&p->listeners))
        proc_free(a, p);
    else
        timer_start(&a->loop, t, clock_mono() + EXITED_NS); /* someone is still reading it */
}

static void check_done(struct agent *a, struct proc *p)
{
    if (p->done || !p->reaped || p->out.fd >= 0 || p->err.fd >= 0)
        return;
    p->done = true;
    p->done_at = clock_mono();
    io_close(&a->loop, &p->in);
    proc_input_drop(a, p);
    p->in_gone = true;
    ring_seal(&p->ring);
    group_leave(a, p);
    list_del(&p->all);
    a->nprocs--;
    list_add_tail(&a->exited, &p->all);
    a->nexited++;
    p->timer.fn = on_forget;
    timer_start(&a->loop, &p->timer, clock_mono() + EXITED_NS);
    listen_wake(a, p);
    if (a->nexited > EXITED_MAX) {
        struct proc *old;
        list_each(old, &a->exited, all)
            if (list_empty(&old->listeners)) {
                proc_free(a, old);
                break;
            }
    }
}

/* ---- output ----------------------------------------------------------------------------------------------------- */

/* One read. false: nothing more to get from this pipe now (stalled, empty, or closed). */
static bool read_some(struct agent *a, struct proc *p, struct io *io, uint8_t chan)
{
    struct iovec v[2];
    if (io->fd < 0)
        return false;
    size_t room = ring_room(&p->ring, chan, listen_floor(p));
    if (!room) {
        io_set(&a->loop, io, 0);
        p->stalled = true;
        return false;
    }
    int k = ring_space(&p->ring, room < READ_CHUNK ? room : READ_CHUNK, v);
    ssize_t n = k ? readv(io->fd, v, k) : 0;
    if (n > 0) {
        ring_commit(&p->ring, chan, (size_t)n);
        if (p->reaped && p->ended) {
            p->drain -= p->drain < (size_t)n ? p->drain : (size_t)n;
            if (!p->drain)
                goto over;
        }
        listen_wake(a, p);
        return true;
    }
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN && !(p->reaped && p->ended))
        return false;
over: /* EOF; EIO of a terminal without users; or an ended process without more to say */
    io_close(&a->loop, io);
    return false;
}

void proc_on_out(struct agent *a, struct io *io, uint32_t events)
{
    struct proc *p = container_of(io, struct proc, out);
    if (p->pty && (events & EPOLLOUT))
        proc_input_flush(a, p);
    if (events & ~(uint32_t)EPOLLOUT) {
        (void)read_some(a, p, io, p->pty ? CH_PTY : CH_STDOUT);
        check_done(a, p);
    }
}

void proc_on_err(struct agent *a, struct io *io, uint32_t events)
{
    struct proc *p = container_of(io, struct proc, err);
    (void)events;
    (void)read_some(a, p, io, CH_STDERR);
    check_done(a, p);
}

/* An ended process: take what is readable now and close. Stops early when a listener lags; proc_rearm comes back. */
static void drain(struct agent *a, struct proc *p)
{
    while (read_some(a, p, &p->out, p->pty ? CH_PTY : CH_STDOUT))
        ;
    while (read_some(a, p, &p->err, CH_STDERR))
        ;
    check_done(a, p);
}

void proc_end_now(struct agent *a, struct proc *p) { drain(a, p); }

void proc_rearm(struct agent *a, struct proc *p)
{
    if (!p->stalled)
        return;
    uint64_t floor = listen_floor(p);
    if (ring_room(&p->ring, CH_STDOUT, floor) < RING_CAP / 4 || ring_room(&p->ring, CH_STDERR, floor) < RING_CAP / 4)
        return; /* worth a wake-up only when a real piece fits */
    p->stalled = false;
    if (p->reaped && p->ended) {
        drain(a, p);
        return;
    }
    io_set(&a->loop, &p->out, EPOLLIN | (p->pty && p->inq_bytes ? EPOLLOUT : 0));
    io_set(&a->loop, &p->err, EPOLLIN);
}

/* ---- exit ------------------------------------------------------------------------------------------------------- */

static void on_exit_status(struct agent *a, struct proc *p, const siginfo_t *si)
{
    bool by_signal = si->si_code != CLD_EXITED;
    p->reaped = true;
    p->code = si->si_status;
    p->kind = by_signal ? EXIT_SIGNAL : EXIT_CODE;
    if (p->timed_out)
        p->kind = EXIT_TIMEOUT;
    else if (by_signal && p->code == SIGKILL && !p->killed && a->vm && sys_oom_happened(a))
        p->kind = EXIT_OOM;
    if (p->pty)
        p->ended = true; /* the session leader is gone: its terminal ends, like anywhere else */
    if (p->ended)
        drain(a, p);
    else
        check_done(a, p);
}

void procs_reap(struct agent *a)
{
    bool orphans = false;
    int i = 0;
    for (; i < REAP_PER_TURN; i++) {
        siginfo_t si = {0};
        if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG) || !si.si_pid)
            break;
        struct list *h = bucket(a, si.si_pid);
        struct proc *p;
        bool ours = false;
        list_each(p, h, hash)
            if (p->pid == si.si_pid && !p->reaped) {
                ours = true;
                on_exit_status(a, p, &si);
                break;
            }
        orphans |= !ours;
    }
    if (orphans)
        groups_retry(a);
    if (i == REAP_PER_TURN)
        (void)kill(getpid(), SIGCHLD); /* blocked: makes the signalfd readable again, so others get a turn first */
}

void proc_kill_tree(struct agent *a, struct proc *p)
{
    (void)a;
    p->killed = true;
    if (group_kill(p))
        return;
    if (p->mark >= 0)
        tree_kill(p->mark);
    if (!p->reaped)
        (void)kill(-p->pid, SIGKILL); /* setsid ran before exec, so the group exists */
}

void proc_on_timeout(struct agent *a, struct timer *t)
{
    struct proc *p = container_of(t, struct proc, timer);
    p->timed_out = p->ended = true;
    proc_kill_tree(a, p);
    if (p->reaped) { /* it ended itself, but what it left behind kept the output open */
        p->kind = EXIT_TIMEOUT;
        drain(a, p);
    } /* else the end comes from waitid */
}
