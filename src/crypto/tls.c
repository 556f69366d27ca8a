#include "crypto/tls.h"
#include "base/list.h"
#include "crypto/tls_int.h"
#include "crypto/x509_int.h"
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAVES_MAX 64 /* certificates kept per authority */
#define LEAF_DAYS  30

static const unsigned char alpn[] = "\x08http/1.1";
#define ALPN_LEN (sizeof alpn - 1)

/* ---- contexts -------------------------------------------------------------------------------------------------- */

int tls_pick_alpn(SSL *s, const unsigned char **out, unsigned char *n, const unsigned char *in, unsigned in_n, void *arg)
{
    (void)s, (void)arg;
    unsigned char *sel;
    if (SSL_select_next_proto(&sel, n, alpn, ALPN_LEN, in, in_n) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL; /* a client that speaks only HTTP/2 is told so */
    *out = sel;
    return SSL_TLSEXT_ERR_OK;
}

SSL_CTX *tls_context(bool server)
{
    SSL_CTX *c = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    if (!c || !SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION)) {
        SSL_CTX_free(c);
        return NULL;
    }
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    (void)SSL_CTX_set_num_tickets(c, 0);
    SSL_CTX_set_mode(c, SSL_MODE_RELEASE_BUFFERS);
    return c;
}

/* The last session a server gave us, for the next connection to it: programs that connect again and again. */
struct tls_trust {
    SSL_CTX *ctx;
    pthread_mutex_t mu;
    SSL_SESSION *last;
    char *last_name;
};

static int session_new(SSL *s, SSL_SESSION *sess);
/* What was wrong with a certificate is told with the names it is for. */
static int verified(int ok, X509_STORE_CTX *ctx);

struct tls_trust *tls_trust_new(const char *const *files, int n, struct err *e)
{
    SSL_CTX *c = tls_context(false);
    if (!c || SSL_CTX_set_alpn_protos(c, alpn, ALPN_LEN)) {
        SSL_CTX_free(c);
        (void)err_set(e, E_INTERNAL, "libssl: no client context");
        return NULL;
    }
    for (int i = 0; i < n; i++)
        if (!SSL_CTX_load_verify_file(c, files[i])) {
            SSL_CTX_free(c);
            (void)err_set(e, E_INVALID, "%s contains no certificates", files[i]);
            return NULL;
        }
    SSL_CTX_set_verify(c, SSL_VERIFY_PEER, verified);
    struct tls_trust *t = xcalloc(1, sizeof *t);
    t->ctx = c;
    (void)pthread_mutex_init(&t->mu, NULL); /* the default kind cannot fail */
    return t;
}
void tls_trust_resume(struct tls_trust *t)
{
    SSL_CTX_set_session_cache_mode(t->ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(t->ctx, session_new);
    (void)SSL_CTX_set_app_data(t->ctx, t);
}
void tls_trust_free(struct tls_trust *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->ctx);
    SSL_SESSION_free(t->last);
    free(t->last_name);
    pthread_mutex_destroy(&t->mu);
    free(t);
}
/* Else libcrypto takes itself down at exit, under their feet. */
void tls_outlive_main(void) { (void)OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL); }
const char *tls_trust_file(void)
{
    static const char *const places[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
                                         "/etc/ssl/ca-bundle.pem"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!access(places[i], R_OK))
            return places[i];
    return NULL;
}

/* ---- the authority ------------------------------------------------------------------------------------------------ */

struct leaf { struct list node; char *name; X509 *cert; };
struct tls_ca { X509 *cert; EVP_PKEY *key, *leaf_key; struct list leaves; int nleaves; };

static SSL_CTX *server_ctx;
static pthread_once_t server_once = PTHREAD_ONCE_INIT;
static void make_server_ctx(void)
{
    server_ctx = tls_context(true);
    if (server_ctx)
        SSL_CTX_set_alpn_select_cb(server_ctx, tls_pick_alpn, NULL);
}

static void leaf_free(struct tls_ca *ca, struct leaf *l)
{
    list_del(&l->node);
    ca->nleaves--;
    free(l->name);
    X509_free(l->cert);
    free(l);
}
void tls_ca_free(struct tls_ca *ca)
{
    if (!ca)
        return;
    struct leaf *l;
    list_each(l, &ca->leaves, node)
        leaf_free(ca, l);
    X509_free(ca->cert);
    EVP_PKEY_free(ca->key);
    EVP_PKEY_free(ca->leaf_key);
    free(ca);
}
struct tls_ca *tls_ca_new(struct str cert, struct str key, struct err *e)
{
    pthread_once(&server_once, make_server_ctx);
    struct tls_ca *ca = xcalloc(1, sizeof *ca);
    list_init(&ca->leaves);
    BIO *cb = BIO_new_mem_buf(cert.p, (int)cert.n), *kb = BIO_new_mem_buf(key.p, (int)key.n);
    if (cb && kb) {
        ca->cert = PEM_read_bio_X509(cb, NULL, NULL, NULL);
        ca->key = PEM_read_bio_PrivateKey(kb, NULL, NULL, NULL);
        ca->leaf_key = EVP_EC_gen("P-256");
    }
    BIO_free(cb), BIO_free(kb);
    if (!server_ctx || !ca->cert || !ca->key || !ca->leaf_key || !X509_check_private_key(ca->cert, ca->key)) {
        ERR_clear_error();
        tls_ca_free(ca);
        (void)err_set(e, E_INVALID, "the sandbox's certificate authority is not a PEM certificate with its key");
        return NULL;
    }
    return ca;
}

static X509 *leaf_sign(struct tls_ca *ca, const char *name)
{
    char san[300];
    (void)snprintf(san, sizeof san, "DNS:%s", name); /* a canonical name: no comma, no colon */
    X509 *x = X509_new();
    if (x && X509_set_version(x, X509_VERSION_3) && x509_serial(x) && X509_gmtime_adj(X509_getm_notBefore(x), -86400) &&
        X509_time_adj_ex(X509_getm_notAfter(x), LEAF_DAYS, 0, NULL) &&
        X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                                   (const unsigned char *)(strlen(name) <= 64 ? name : "hutch"), -1, -1, 0) &&
        X509_set_issuer_name(x, X509_get_subject_name(ca->cert)) && X509_set_pubkey(x, ca->leaf_key) &&
        x509_ext(x, ca->cert, NID_subject_alt_name, san) && x509_ext(x, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
        x509_ext(x, ca->cert, NID_key_usage, "critical,digitalSignature") && x509_ext(x, ca->cert, NID_ext_key_usage, "serverAuth") &&
        x509_ext(x, ca->cert, NID_authority_key_identifier, "keyid") && X509_sign(x, ca->key, EVP_sha256()))
        return x;
    X509_free(x);
    return NULL;
}
static X509 *leaf_for(struct tls_ca *ca, const char *name)
{
    struct leaf *l;
    list_each(l, &ca->leaves, node)
        if (!strcmp(l->name, name)) {
            /* a process may live for longer than a certificate */
            if (X509_cmp_timeframe(NULL, X509_get0_notBefore(l->cert), X509_get0_notAfter(l->cert)) == 0)
                return l->cert;
            leaf_free(ca, l);
            break;
        }
    X509 *x = leaf_sign(ca, name);
    if (!x)
        return NULL;
    if (ca->nleaves == LEAVES_MAX)
        leaf_free(ca, container_of(ca->leaves.next, struct leaf, node));
    l = xcalloc(1, sizeof *l);
    l->name = xstrdup(name);
    l->cert = x;
    list_add_tail(&ca->leaves, &l->node);
    ca->nleaves++;
    return x;
}

/* ---- connections --------------------------------------------------------------------------------------------------- */

struct tls {
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
    bool broken, clean, finished;
    enum tls_fault fault;
    char *name; /* of the server, as a client */
    char why[256];
};

struct tls *tls_make(SSL_CTX *ctx, struct err *e)
{
    struct tls *t = xcalloc(1, sizeof *t);
    t->ssl = SSL_new(ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->ssl || !t->in || !t->out) {
        BIO_free(t->in), BIO_free(t->out);
        SSL_free(t->ssl);
        free(t);
        (void)err_set(e, E_INTERNAL, "libssl: no memory for a connection");
        return NULL;
    }
    BIO_set_mem_eof_return(t->in, -1);
    SSL_set_bio(t->ssl, t->in, t->out);
    (void)SSL_set_app_data(t->ssl, t);
    return t;
}
void tls_free(struct tls *t)
{
    if (!t)
        return;
    /* A connection that was just closed says nothing against its session, but libssl would forget that. */
    if (!t->broken && tls_ready(t))
        SSL_set_shutdown(t->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
    SSL_free(t->ssl);
    free(t->name);
    free(t);
}

/* An address has no place in the hello, and is looked for among the certificate's addresses. */
static bool expect_name(SSL *s, const char *name)
{
    if (x509_is_address(name))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s), name);
    SSL_set_hostflags(s, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(s, name) && SSL_set_tlsext_host_name(s, name);
}
struct tls *tls_client_new(struct tls_trust *trust, const char *name, struct err *e)
{
    struct tls *t = tls_make(trust->ctx, e);
    if (!t)
        return NULL;
    if (!expect_name(t->ssl, name)) {
        tls_free(t);
        (void)err_set(e, E_INTERNAL, "libssl: %s is not a host name", name);
        return NULL;
    }
    t->name = xstrdup(name);
    pthread_mutex_lock(&trust->mu);
    if (trust->last && !strcmp(trust->last_name, name))
        (void)SSL_set_session(t->ssl,
                              trust->last); /* without it the handshake is longer, that is all */
    pthread_mutex_unlock(&trust->mu);
    SSL_set_connect_state(t->ssl);
    return t;
}
static int session_new(SSL *s, SSL_SESSION *sess)
{
    struct tls_trust *trust = SSL_CTX_get_app_data(SSL_get_SSL_CTX(s));
    struct tls *t = SSL_get_app_data(s);
    pthread_mutex_lock(&trust->mu);
    SSL_SESSION_free(trust->last);
    free(trust->last_name);
    trust->last = sess;
    trust->last_name = xstrdup(t->name);
    pthread_mutex_unlock(&trust->mu);
    return 1; /* it is ours now */
}
void tls_serve(struct tls *t) { SSL_set_accept_state(t->ssl); }
bool tls_resumed(const struct tls *t) { return SSL_session_reused(t->ssl); }
struct tls *tls_server_new(struct tls_ca *ca, const char *name, struct err *e)
{
    X509 *leaf = leaf_for(ca, name);
    struct tls *t = leaf ? tls_make(server_ctx, e) : NULL;
    if (t && (!SSL_use_certificate(t->ssl, leaf) || !SSL_use_PrivateKey(t->ssl, ca->leaf_key))) {
        tls_free(t);
        t = NULL;
    }
    if (!t) {
        ERR_clear_error();
        (void)err_set(e, E_INTERNAL, "no certificate could be made for %s", name);
        return NULL;
    }
    SSL_set_accept_state(t->ssl);
    return t;
}

static enum tls_fault fault_of(long verify)
{
    switch (verify) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return TLS_EXPIRED;
    case X509_V_ERR_CERT_NOT_YET_VALID: return TLS_NOT_YET;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return TLS_OTHER_NAME;
    default: return TLS_UNTRUSTED;
    }
}
static int verified(int ok, X509_STORE_CTX *ctx)
{
    SSL *s = X509_STORE_CTX_get_ex_data(ctx, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *t = SSL_get_app_data(s);
    if (ok || t->fault)
        return ok;
    X509 *cert = X509_STORE_CTX_get_current_cert(ctx);
    struct x509_facts f;
    t->fault = fault_of(X509_STORE_CTX_get_error(ctx));
    if (cert && t->fault == TLS_OTHER_NAME) {
        x509_facts_of(cert, &f);
        (void)snprintf(t->why, sizeof t->why, "certificate: hostname mismatch, it is for %.180s",
                       *f.names ? f.names : f.subject);
    } else if (cert && (t->fault == TLS_EXPIRED || t->fault == TLS_NOT_YET)) {
        x509_facts_of(cert, &f);
        (void)snprintf(t->why, sizeof t->why, "certificate: it is valid from %s to %s", f.from,
                       f.to);
    } else {
        (void)snprintf(t->why, sizeof t->why, "certificate: %s",
                       X509_verify_cert_error_string(X509_STORE_CTX_get_error(ctx)));
    }
    return 0;
}

static void explain(struct tls *t)
{
    unsigned long code = ERR_peek_error();
    int reason = ERR_GET_REASON(code);
    if (t->fault)
        ; /* the certificate: said already */
    else if (code && ERR_GET_LIB(code) == ERR_LIB_SSL && (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST))
        t->fault = TLS_FOREIGN;
    else
        t->fault = TLS_BROKEN;
    if (!*t->why && code && ERR_reason_error_string(code))
        (void)snprintf(t->why, sizeof t->why, "%s", ERR_reason_error_string(code));
    else if (!*t->why)
        (void)snprintf(t->why, sizeof t->why, "the connection ended in the middle");
    ERR_clear_error();
}
enum tls_fault tls_fault(const struct tls *t) { return t->broken ? t->fault : TLS_FINE; }

void tls_feed(struct tls *t, const void *p, size_t n)
{
    if (BIO_write(t->in, p, (int)n) != (int)n)
        abort(); /* a memory BIO fails only without memory */
}
void tls_feed_end(struct tls *t) { BIO_set_mem_eof_return(t->in, 0); }

bool tls_take(struct tls *t, struct buf *out)
{
    char *p;
    long n = BIO_get_mem_data(t->out, &p);
    if (n <= 0)
        return false;
    buf_put(out, p, (size_t)n);
    (void)BIO_reset(t->out);
    return true;
}

ssize_t tls_read(struct tls *t, void *p, size_t cap)
{
    if (t->broken || t->clean)
        return -1;
    ERR_clear_error();
    if (!cap && tls_ready(t))
        return 0;
    int n = cap ? SSL_read(t->ssl, p, cap > 65536 ? 65536 : (int)cap) : SSL_do_handshake(t->ssl);
    if (n > 0)
        return cap ? n : 0;
    switch (SSL_get_error(t->ssl, n)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return 0;
    case SSL_ERROR_ZERO_RETURN: t->clean = true; return -1;
    default:
        t->broken = true;
        explain(t);
        return -1;
    }
}
bool tls_ready(const struct tls *t) { return SSL_is_init_finished(t->ssl); }

bool tls_write(struct tls *t, const void *p, size_t n)
{
    ERR_clear_error();
    while (n && !t->broken && !t->finished) {
        int k = SSL_write(t->ssl, p, n > 1 << 20 ? 1 << 20 : (int)n);
        if (k <= 0) {
            t->broken = true;
            explain(t);
            break;
        }
        p = (const char *)p + k, n -= (size_t)k;
    }
    return !n && !t->broken;
}
void tls_finish(struct tls *t)
{
    if (t->finished || t->broken || !tls_ready(t))
        return;
    t->finished = true;
    (void)SSL_shutdown(t->ssl); /* writes the notice; we do not wait for the answer */
    ERR_clear_error();
}
bool tls_clean(const struct tls *t) { return t->clean; }
const char *tls_error(const struct tls *t) { return t->broken ? t->why : NULL; }
