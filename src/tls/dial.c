#include "tls/dial.h"
#include "tls/transport.h"
#include <errno.h>
#include <poll.h>
#include <unistd.h>

static int wait_for(struct transport *t, short what, int timeout_ms, const char *name,
                    struct err *e)
{
    struct pollfd p = {t->fd, what, 0};
    int r;
    do
        r = poll(&p, 1, timeout_ms);
    while (r < 0 && errno == EINTR);
    if (!r)
        return err_set(e, E_TIMEOUT, "%.100s does not answer to a TLS handshake", name);
    return r < 0 ? err_sys(e, errno, "poll") : 0;
}
static int refused(struct transport *t, const char *name, struct err *e)
{
    const char *why = tls_error(tls_of(t));
    return err_set(e, E_UNAVAILABLE, "no secure connection to %.80s: %s", name,
                   why ? why : "it closed the connection");
}

static int greet(struct transport *t, const char *name, int timeout_ms, struct err *e)
{
    for (;;) {
        tls_step(t);
        int f = tls_flush(t); /* also the alert that tells the server why */
        if (tls_error(tls_of(t)) || f < 0)
            return refused(t, name, e);
        if (tls_ready(tls_of(t)))
            return 0; /* the last of it may still go out, with the first bytes */
        if (wait_for(t, (short)(f ? POLLIN | POLLOUT : POLLIN), timeout_ms, name, e))
            return -1;
        ssize_t r = tls_fill(t);
        if (!r || (r < 0 && errno != EAGAIN))
            return refused(t, name, e);
    }
}

struct transport *tls_dial(struct tls_trust *trust, int fd, const char *name, int timeout_ms,
                           enum tls_fault *ret_fault, struct err *e)
{
    struct tls *tls = tls_client_new(trust, name, e);
    *ret_fault = TLS_BROKEN;
    if (!tls) {
        (void)close(fd);
        return NULL;
    }
    struct transport *t = tls_transport(fd, tls);
    if (!greet(t, name, timeout_ms, e))
        return t;
    if (tls_fault(tls))
        *ret_fault = tls_fault(tls);
    transport_close(t);
    return NULL;
}
