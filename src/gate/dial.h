/* A TCP connection outwards, to the first of a few addresses that answers,
 * through the host's proxy if there is one for it. */
#pragma once
#include "gate/ip.h"
#include "gate/via.h"
#include "loop/loop.h"

#define DIAL_MAX 8

struct dial {
    struct loop *loop;
    struct ip ip[DIAL_MAX];
    size_t n, at; /* at: the one being tried, or connected to */
    uint16_t port;
    struct str name; /* borrowed until it is over; n == 0: none */
    struct via via;  /* port 0: straight */
    struct buf answer; /* the proxy's, so far */
    bool asked;
    char why[80];    /* what it said if it did not agree */
    int fd, last; /* errno of the last try */
    struct io io;
    struct timer timer;
    void (*done)(void *arg, int fd /* the callee's; -1 */, const char *why);
    void *arg;
};
/* ip, n, port, name, done and arg are set. Never calls back before it returns. */
void dial_start(struct dial *d, struct loop *l, const struct vias *v);
void dial_cancel(struct dial *d); /* safe on a zeroed or finished one */
