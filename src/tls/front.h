/* What stands before a server that speaks TLS: takes accepted sockets, makes
 * their handshakes, hands them on as transports. Loop thread; signing, the
 * expensive part, is done by workers.
 *
 * A socket has FRONT_PATIENCE from being accepted until its handshake is over.
 * At most FRONT_MAX handshakes are under way; one more, and the oldest that
 * waits for its peer makes room. Who speaks plain HTTP gets a 400 that says so,
 * and nothing of what it sent is looked at. */
#pragma once
#include "loop/job.h"
#include "loop/loop.h"
#include "loop/transport.h"
#include "tls/files.h"

#define FRONT_MAX 1024

struct tls_front;
typedef void tls_front_ready(void *arg, struct transport *t); /* takes t */
struct tls_front *tls_front_new(struct loop *l, struct jobs *workers, struct tls_files *files,
                                tls_front_ready *ready, void *arg);
void tls_front_patience(struct tls_front *f, int64_t ns); /* instead of 10 s */
void tls_front_take(void *front, int fd);
int tls_front_busy(const struct tls_front *f); /* handshakes under way */
void tls_front_free(struct tls_front *f);      /* drops them; before the loop and the workers go */
