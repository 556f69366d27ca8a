/* A byte stream to a TCP port inside a sandbox (its 127.0.0.1 or ::1), over the
 * agent channel. Main loop only. `done` is the last callback and frees it;
 * tunnel_close is the other way to end it: after that no callback comes. */
#pragma once
#include "base/err.h"
#include <stddef.h>

struct sandbox;
struct tunnel;
struct tunnel_ops {
    void (*up)(void *arg); /* connected; nothing is sent before */
    void (*data)(void *arg, const unsigned char *p,
                 size_t n);  /* answer with tunnel_consumed() when it has left */
    void (*eof)(void *arg);  /* the guest will send no more */
    void (*room)(void *arg); /* tunnel_room() grew */
    void (*done)(
        void *arg,
        const struct err *e); /* E_UNAVAILABLE: nothing listens there; E_GONE: the sandbox ended */
};
/* NULL + e when the sandbox does not run. Callbacks never come before it returns. */
struct tunnel *tunnel_open(struct sandbox *sb, unsigned port, const struct tunnel_ops *ops,
                           void *arg, struct err *e);
size_t tunnel_room(const struct tunnel *t);
size_t tunnel_send(struct tunnel *t, const void *p,
                   size_t n);      /* at most tunnel_room(); returns how much */
void tunnel_eof(struct tunnel *t); /* half-close */
void tunnel_consumed(struct tunnel *t, size_t n);
void tunnel_close(struct tunnel *t);
