/* A TCP connection outwards, to the first of a few addresses that answers. */
#pragma once
#include "gate/ip.h"
#include "loop/loop.h"

#define DIAL_MAX 8

struct dial {
    struct loop *loop;
    struct ip ip[DIAL_MAX];
    size_t n, at; /* at: the one being tried, or connected to */
    uint16_t port;
    int fd, last; /* errno of the last try */
    struct io io;
    struct timer timer;
    void (*done)(void *arg, int fd /* the callee's; -1 */, const char *why);
    void *arg;
};
/* ip, n, port, done and arg are set. Never calls back before it returns. */
void dial_start(struct dial *d, struct loop *l);
void dial_cancel(struct dial *d); /* safe on a zeroed or finished one */
