/* A socket through TLS (crypto/tls.h) as a struct transport, and the steps of
 * its handshake for who drives it: front.c without blocking, dial.c with. */
#pragma once
#include "crypto/tls.h"
#include "loop/transport.h"

struct transport *tls_transport(int fd, struct tls *tls); /* takes both */
struct tls *tls_of(struct transport *t);                  /* of such a one; still its own */

/* The handshake: fill, step, flush, again until tls_ready. step touches no socket and may run on another thread, alone. */
ssize_t tls_fill(struct transport *t); /* ciphertext from the socket; like recv(2) */
void tls_step(struct transport *t);
int tls_flush(struct transport *t); /* 0: all is the kernel's, 1: not yet, -1: broken */
