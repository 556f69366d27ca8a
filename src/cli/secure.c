/* Connections to a daemon that speaks https: whom we trust, and what to do when
 * the server's certificate is not what it should be. There is no way to connect
 * without verifying it. */
#include "cli/client.h"
#include "tls/dial.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HANDSHAKE_MS 30000

/* One for the process, as HUTCH_CA is, and never freed: the pump of stream.c may outlive main. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct tls_trust *trust;

static struct tls_trust *trust_load(const char *ca, struct err *e)
{
    const char *env = getenv("SSL_CERT_FILE"), *files[2];
    int n = 0;
    tls_outlive_main(); /* the pump of stream.c may be in the middle of a write */
    const char *host = env && *env ? env : tls_trust_file();
    if (host)
        files[n++] = host;
    if (ca)
        files[n++] = ca;
    for (int i = 0; i < n; i++)
        if (access(files[i], R_OK)) {
            (void)err_set(e, E_INVALID, "%.120s cannot be read: %s", files[i], strerror(errno));
            return NULL;
        }
    struct tls_trust *t = tls_trust_new(files, n, e);
    if (t)
        tls_trust_resume(t); /* a verb makes many connections */
    return t;
}
static struct tls_trust *trust_of(const char *ca, struct err *e)
{
    pthread_mutex_lock(&mu);
    if (!trust)
        trust = trust_load(ca, e);
    struct tls_trust *t = trust;
    pthread_mutex_unlock(&mu);
    return t;
}

static const char *advice(enum tls_fault f)
{
    switch (f) {
    case TLS_UNTRUSTED:
        return "get the certificate of whoever signed it (of `hutch tls self-signed`: ca.pem) and name it with HUTCH_CA=FILE or --cacert FILE";
    case TLS_OTHER_NAME:
        return "use one of those names in HUTCH_URL, or give the server a certificate for this one (`hutch tls self-signed --name NAME`)";
    case TLS_EXPIRED:
        return "renew the certificate on the server (`hutch tls self-signed`, or whoever issued it); it is read again by itself";
    case TLS_NOT_YET: return "check the clocks of both machines";
    case TLS_FOREIGN:
        return "that port does not speak TLS: use http:// in HUTCH_URL, or set HUTCH_TLS_CERT and HUTCH_TLS_KEY there";
    case TLS_FINE:
    case TLS_BROKEN: break;
    }
    return "";
}

static struct transport *wrap(void *arg, int fd, const char *name, struct err *e)
{
    struct cli *x = arg;
    enum tls_fault fault = TLS_BROKEN;
    struct tls_trust *t = trust_of(x->ca, e);
    if (!t) {
        (void)close(fd);
        return NULL;
    }
    struct transport *tr = tls_dial(t, fd, name, HANDSHAKE_MS, &fault, e);
    if (!tr)
        (void)snprintf(x->hint, sizeof x->hint, "%s", advice(fault));
    return tr;
}

struct http_client *api_connect(struct cli *x, struct err *e)
{
    struct http_secure secure = {wrap, x};
    return http_client_open(x->url, &secure, e);
}
