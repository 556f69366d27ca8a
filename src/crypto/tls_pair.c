/* The certificate of a server of ours. */
#include "crypto/tls_int.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <stdlib.h>

#define SESSIONS_MAX 4096 /* about a KiB each */
#define SESSION_S    7200

struct tls_pair {
    SSL_CTX *ctx;
};

void tls_pair_free(struct tls_pair *p)
{
    if (p)
        SSL_CTX_free(p->ctx);
    free(p);
}

/* Without it libcrypto would ask at the terminal. */
static int no_password(char *buf, int size, int writing, void *arg)
{
    (void)buf, (void)size, (void)writing, (void)arg;
    return -1;
}

static int refuse(struct err *e, const char *what)
{
    unsigned long code = ERR_peek_last_error();
    const char *why = code ? ERR_reason_error_string(code) : NULL;
    (void)err_set(e, E_INVALID, "%s%s%s", what, why ? ": " : "", why ? why : "");
    ERR_clear_error();
    return -1;
}

/* The first certificate is the server's, the others lead to whoever signed it. */
static int use_chain(SSL_CTX *ctx, BIO *pem, struct err *e)
{
    X509 *x = PEM_read_bio_X509_AUX(pem, NULL, no_password, NULL);
    if (!x)
        return ERR_clear_error(), err_set(e, E_INVALID, "there is no PEM certificate");
    bool ok = SSL_CTX_use_certificate(ctx, x) == 1;
    X509_free(x);
    if (!ok)
        return refuse(e, "the certificate cannot be used");
    while ((x = PEM_read_bio_X509(pem, NULL, no_password, NULL)))
        if (!SSL_CTX_add0_chain_cert(ctx, x)) {
            X509_free(x);
            return refuse(e, "the chain of the certificate cannot be used");
        }
    unsigned long end = ERR_peek_last_error();
    ERR_clear_error();
    return ERR_GET_REASON(end) == PEM_R_NO_START_LINE
               ? 0
               : err_set(e, E_INVALID, "what follows the first certificate is not PEM");
}
static int use_key(SSL_CTX *ctx, BIO *pem, struct err *e)
{
    EVP_PKEY *k = PEM_read_bio_PrivateKey(pem, NULL, no_password, NULL);
    if (!k)
        return ERR_clear_error(),
               err_set(e, E_INVALID, "there is no PEM private key without a password");
    bool ok = SSL_CTX_use_PrivateKey(ctx, k) == 1 && SSL_CTX_check_private_key(ctx) == 1;
    EVP_PKEY_free(k);
    ERR_clear_error();
    return ok ? 0 : err_set(e, E_INVALID, "certificate and key do not belong together");
}
static int set_up(SSL_CTX *ctx, struct err *e)
{
    static const unsigned char about[] = "hutch";
    if (!SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") ||
        !SSL_CTX_set_session_id_context(ctx, about, sizeof about - 1))
        return refuse(e, "libssl refuses our settings");
    SSL_CTX_set_alpn_select_cb(ctx, tls_pick_alpn, NULL);
    /* tls_context has said NO_TICKET: a session is a number that we look up. */
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_SERVER);
    (void)SSL_CTX_sess_set_cache_size(ctx, SESSIONS_MAX);
    (void)SSL_CTX_set_timeout(ctx, SESSION_S);
    (void)SSL_CTX_set_num_tickets(ctx, 2);
    return 0;
}

struct tls_pair *tls_pair_new(struct str cert, struct str key, struct err *e)
{
    struct tls_pair *p = xcalloc(1, sizeof *p);
    BIO *cb = BIO_new_mem_buf(cert.p, (int)cert.n), *kb = BIO_new_mem_buf(key.p, (int)key.n);
    p->ctx = tls_context(true);
    int rc = cb && kb && p->ctx ? 0 : err_set(e, E_INTERNAL, "libssl: no server context");
    if (!rc)
        rc = use_chain(p->ctx, cb, e) || use_key(p->ctx, kb, e) || set_up(p->ctx, e) ? -1 : 0;
    BIO_free(cb), BIO_free(kb);
    if (!rc)
        return p;
    tls_pair_free(p);
    return NULL;
}

struct tls *tls_accept_new(struct tls_pair *p, struct err *e)
{
    struct tls *t = tls_make(p->ctx, e);
    if (t)
        tls_serve(t);
    return t;
}
