/* Private to crypto/: what connections of all kinds are made with. */
#pragma once
#include "crypto/tls.h"

struct ssl_ctx_st; /* SSL_CTX */
struct ssl_st;     /* SSL */
struct ssl_ctx_st *tls_context(
    bool server); /* TLS 1.2 or later, no tickets, no renegotiation; NULL: no memory */
struct tls *tls_make(struct ssl_ctx_st *ctx, struct err *e);
void tls_serve(struct tls *t); /* it waits for a client's hello */
int tls_pick_alpn(struct ssl_st *s, const unsigned char **out, unsigned char *n,
                  const unsigned char *in, unsigned in_n, void *arg);
