/* The client's end: a connected socket becomes a transport that speaks TLS with
 * a server whose certificate was verified. Blocks. */
#pragma once
#include "crypto/tls.h"
#include "loop/transport.h"

/* Takes fd, also when it fails. The wait for each answer lasts at most timeout_ms. *ret_fault: why not, for whoever knows what to do. */
struct transport *tls_dial(struct tls_trust *trust, int fd, const char *name, int timeout_ms,
                           enum tls_fault *ret_fault, struct err *e);
