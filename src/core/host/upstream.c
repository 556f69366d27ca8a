#include "core/host/upstream.h"
#include "base/enc.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define HOST_MAX 256

/* "user:password" as in an address, its escapes undone, as a header says it. */
static char *basic(struct str user)
{
    struct buf plain = {0}, out = {0};
    for (size_t i = 0; i < user.n; i++) {
        unsigned char c = (unsigned char)user.p[i];
        if (c == '%' && i + 2 < user.n && hex_decode(user.p + i + 1, 2, &c))
            i += 2;
        buf_put(&plain, &c, 1);
    }
    buf_puts(&out, "Basic ");
    base64_encode(plain.p, plain.n, &out);
    buf_free(&plain);
    return buf_take(&out);
}
static int look_up(const char *host, const char *port, char ret[64], struct err *e)
{
    struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *got = NULL;
    char text[INET6_ADDRSTRLEN];
    int rc = getaddrinfo(host, port, &want, &got);
    if (rc)
        return err_set(e, E_UNAVAILABLE, "%.100s: %s", host, gai_strerror(rc));
    rc = getnameinfo(got->ai_addr, got->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
    (void)snprintf(ret, 64, got->ai_family == AF_INET6 ? "[%s]:%s" : "%s:%s", rc ? "" : text, port);
    freeaddrinfo(got);
    return rc ? err_set(e, E_UNAVAILABLE, "%.100s: %s", host, gai_strerror(rc)) : 0;
}

int upstream_parse(const char *url, struct upstream *ret, struct err *e)
{
    *ret = (struct upstream){0};
    if (!*url)
        return 0;
    const char *at = !strncmp(url, "http://", 7) ? url + 7 : strstr(url, "://") ? NULL : url;
    if (!at)
        return err_set(e, E_UNSUPPORTED,
                       "a proxy's URL starts with http:// (it still carries TLS), not '%.20s…'",
                       url);
    size_t n = strcspn(at, "/?#");
    const char *host = memrchr(at, '@', n);
    struct str user = {at, host ? (size_t)(host - at) : 0};
    host = host ? host + 1 : at;
    n -= (size_t)(host - at);
    const char *colon = memrchr(host, ':', n);
    bool v6 = n && *host == '[';
    if (v6 && (!memchr(host, ']', n) || (colon && colon < (const char *)memchr(host, ']', n))))
        colon = NULL;
    size_t hn = colon ? (size_t)(colon - host) : n;
    char name[HOST_MAX], port[8] = "80";
    uint64_t p;
    if (colon) {
        struct str digits = {colon + 1, n - hn - 1};
        if (!str_u64(digits, &p) || !p || p > 65535)
            return err_set(e, E_INVALID, "a proxy needs a port from 1 to 65535");
        (void)snprintf(port, sizeof port, "%u", (unsigned)p);
    }
    if (hn <= (v6 ? 2u : 0u) || hn >= sizeof name)
        return err_set(e, E_INVALID, "a proxy needs a host: http://proxy.example.org:3128");
    (void)snprintf(name, sizeof name, "%.*s", (int)(hn - (v6 ? 2 : 0)), host + v6);
    if (look_up(name, port, ret->addr, e))
        return -1;
    if (user.n)
        ret->auth = basic(user);
    return 0;
}
void upstream_free(struct upstream *u)
{
    if (u->auth)
        explicit_bzero(u->auth, strlen(u->auth));
    free(u->auth);
    *u = (struct upstream){0};
}
