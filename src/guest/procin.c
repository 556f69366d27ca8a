/* Input of a process: frames of attached streams and OP_INPUT, written in the
 * order they arrived. Written directly while the pipe takes it, queued
 * otherwise; a stream's window opens again only for what was really written. */
#include "guest/proc.h"
#include "wire/msg.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

static int in_fd(const struct proc *p) { return p->pty ? p->out.fd : p->in.fd; }

static void credit(struct agent *a, uint32_t stream, uint32_t n)
{
    struct stream *s = stream ? stream_find(a, stream) : NULL;
    if (s)
        stream_consumed(a, s, n);
}

static void arm(struct agent *a, struct proc *p)
{
    bool want = p->inq_bytes > 0;
    if (p->pty)
        io_set(&a->loop, &p->out, (p->stalled ? 0 : EPOLLIN) | (want ? EPOLLOUT : 0));
    else
        io_set(&a->loop, &p->in, want ? EPOLLOUT : 0); /* registered only while needed: a closed reader would wake us for ever */
}

void proc_input_drop(struct agent *a, struct proc *p)
{
    struct input *x;
    list_each(x, &p->inq, node) {
        credit(a, x->stream, x->n - x->at);
        list_del(&x->node);
        free(x);
    }
    p->inq_bytes = 0;
}

static void gone(struct agent *a, struct proc *p)
{
    p->in_gone = true;
    proc_input_drop(a, p);
    if (!p->pty)
        io_close(&a->loop, &p->in);
    else
        arm(a, p);
}

static void finish_eof(struct agent *a, struct proc *p)
{
    if (!p->in_eof || p->inq_bytes || p->in_gone)
        return;
    if (p->pty) {
        p->in_eof = false; /* a terminal has no end of file, only the character for it; more may follow */
        (void)!write(p->out.fd, "\x04", 1);
    } else {
        io_close(&a->loop, &p->in);
        p->in_gone = true;
    }
}

/* Bytes taken; -1: the process does not read any more. */
static ssize_t put(int fd, const unsigned char *b, size_t n)
{
    size_t at = 0;
    while (at < n) {
        ssize_t k = write(fd, b + at, n - at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno == EAGAIN ? (ssize_t)at : -1;
        at += (size_t)k;
    }
    return (ssize_t)at;
}

void proc_input_flush(struct agent *a, struct proc *p)
{
    while (p->inq_bytes) {
        struct input *x = container_of(p->inq.next, struct input, node);
        ssize_t k = put(in_fd(p), x->p + x->at, x->n - x->at);
        if (k < 0) {
            gone(a, p);
            return;
        }
        x->at += (uint32_t)k, p->inq_bytes -= (size_t)k;
        credit(a, x->stream, (uint32_t)k);
        if (x->at < x->n)
            break;
        list_del(&x->node);
        free(x);
    }
    arm(a, p);
    finish_eof(a, p);
}

void proc_on_in(struct agent *a, struct io *io, uint32_t events)
{
    (void)events;
    proc_input_flush(a, container_of(io, struct proc, in));
}

int proc_input(struct agent *a, struct proc *p, uint32_t stream, const unsigned char *b, uint32_t n, struct err *e)
{
    if (p->done || p->in_gone || in_fd(p) < 0)
        return err_set(e, E_GONE, p->done ? "the process has ended" : "the process does not read its input");
    if (p->in_eof)
        return err_set(e, E_GONE, "the input of the process was closed");
    if (!stream && p->inq_bytes + n > INPUT_MAX)
        return err_set(e, E_QUOTA, "the process has 1 MiB of unread input");
    ssize_t k = p->inq_bytes ? 0 : put(in_fd(p), b, n);
    if (k < 0) {
        gone(a, p);
        return err_set(e, E_GONE, "the process closed its input");
    }
    credit(a, stream, (uint32_t)k);
    if ((uint32_t)k == n)
        return 0;
    struct input *x = xmalloc(sizeof *x + n - (size_t)k);
    *x = (struct input){.stream = stream, .n = n - (uint32_t)k};
    memcpy(x->p, b + k, x->n);
    list_add_tail(&p->inq, &x->node);
    p->inq_bytes += x->n;
    arm(a, p);
    return 0;
}

void proc_input_eof(struct agent *a, struct proc *p)
{
    if (p->done || p->in_gone || in_fd(p) < 0)
        return;
    p->in_eof = true;
    finish_eof(a, p);
}
