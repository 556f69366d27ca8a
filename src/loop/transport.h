/* The bytes of a connected socket, plain or through something that wraps them
 * (src/tls). Whoever reads and writes does not know which it is. Nothing here
 * blocks, whatever the descriptor's own mode.
 *
 * recv: like recv(2): bytes, 0 when the peer has properly ended its side, -1
 *   and errno. Give it room for TRANSPORT_READ: then no byte that has arrived
 *   stays hidden behind a descriptor that is not readable any more.
 * send: how many of these bytes are the kernel's now, or -1 and errno. What was
 *   not taken must be offered again, the same bytes, perhaps with more behind
 *   them: some of them may be on their way already.
 * shut: we send no more. Only when all was taken. False: not yet, call again
 *   when the descriptor is writable. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TRANSPORT_READ (64u << 10)

struct transport;
struct transport_ops {
    ssize_t (*recv)(struct transport *t, void *p, size_t cap);
    ssize_t (*send)(struct transport *t, const void *p, size_t n);
    bool (*shut)(struct transport *t);
    void (*free)(struct transport *t); /* not the descriptor */
};
struct transport {
    const struct transport_ops *ops;
    int fd; /* owned */
};

struct transport *transport_plain(int fd);
static inline ssize_t transport_recv(struct transport *t, void *p, size_t cap)
{
    return t->ops->recv(t, p, cap);
}
static inline ssize_t transport_send(struct transport *t, const void *p, size_t n)
{
    return t->ops->send(t, p, n);
}
static inline bool transport_shut(struct transport *t) { return t->ops->shut(t); }
void transport_close(struct transport *t); /* at once; NULL is fine */
