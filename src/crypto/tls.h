/* TLS 1.2 and 1.3 as a machine without sockets: ciphertext in and out, plain
 * bytes in and out. OpenSSL (libssl) stays behind this file. Everything of one
 * struct tls belongs to one thread; contexts are made at start, before a chroot.
 * HTTP/1.1 is the only protocol offered or accepted (ALPN). A connection never
 * stands for an earlier one, unless tls_trust_resume or a struct tls_pair says so. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <sys/types.h>

/* Whom we trust as a client: the certificates of these files (PEM bundles), all read now. */
struct tls_trust;
struct tls_trust *tls_trust_new(const char *const *files, int n, struct err *e);
void tls_trust_free(struct tls_trust *t);
void tls_trust_resume(
    struct tls_trust *t); /* the next connection to a server continues the last one's session */
/* Before anything else of this file, in a program whose threads may still be at work when main returns. */
void tls_outlive_main(void);
/* The host's bundle: the first that exists of the usual places, or NULL. */
const char *tls_trust_file(void);

/* A certificate authority that signs certificates for whatever name is asked (interception). Both PEM. */
struct tls_ca;
struct tls_ca *tls_ca_new(struct str cert, struct str key, struct err *e);
void tls_ca_free(struct tls_ca *ca); /* NULL is fine; connections made with it may live on */

/* A server's certificate, with the chain behind it, and its key, both PEM. Sessions can be resumed for two hours: they are
 * kept here, in memory, and go with the pair. No ticket, so no key that opens recorded traffic later. */
struct tls_pair;
struct tls_pair *tls_pair_new(struct str cert, struct str key, struct err *e);
void tls_pair_free(struct tls_pair *p); /* NULL is fine; connections made with it may live on */

struct tls;
struct tls *tls_client_new(struct tls_trust *t, const char *name, struct err *e); /* sends and verifies `name`, or verifies the address */
struct tls *tls_accept_new(struct tls_pair *p, struct err *e);                    /* a server with that certificate */
struct tls *tls_server_new(struct tls_ca *ca, const char *name, struct err *e);   /* answers as `name` */
void tls_free(struct tls *t);

void tls_feed(struct tls *t, const void *p, size_t n);  /* ciphertext from the peer */
void tls_feed_end(struct tls *t);                       /* the peer closed its socket */
bool tls_take(struct tls *t, struct buf *out);          /* ciphertext for the peer is appended; false if there was none */
/* Plain bytes; also drives the handshake (with cap 0 nothing else). > 0 bytes, 0 none at the moment, -1 the end (see tls_clean, tls_error). */
ssize_t tls_read(struct tls *t, void *p, size_t cap);
bool tls_ready(const struct tls *t);                    /* the handshake is over */
bool tls_write(struct tls *t, const void *p, size_t n); /* only when ready; false: broken */
void tls_finish(struct tls *t);                         /* we send no more: close_notify */
bool tls_clean(const struct tls *t);                    /* the peer ended with close_notify */
const char *tls_error(const struct tls *t);             /* why it broke, in words; NULL if it did not */
bool tls_resumed(const struct tls *t);                  /* the session is an earlier one's */

/* What can be done about it depends on this. */
enum tls_fault {
    TLS_FINE,
    TLS_UNTRUSTED,  /* nobody we trust signed the certificate */
    TLS_OTHER_NAME, /* it is for other names */
    TLS_EXPIRED,
    TLS_NOT_YET,
    TLS_FOREIGN,    /* the peer does not speak TLS */
    TLS_BROKEN,     /* anything else */
};
enum tls_fault tls_fault(const struct tls *t);
