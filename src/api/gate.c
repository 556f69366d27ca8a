#include "api/gate.h"
#include "core/host/auth.h"
#include "core/core.h"
#include <unistd.h>

/* ---- names ---- */
struct str gate_host_part(struct str a)
{
    const char *end = a.n ? memchr(a.p, *a.p == '[' ? ']' : ':', a.n) : NULL;
    struct str host = a;
    if (end)
        host.n = (size_t)(end - a.p) + (*end == ']');
    else if (a.n && *a.p == '[')
        return (struct str){0};
    struct str port = {a.p + host.n, a.n - host.n};
    uint64_t n;
    if (!host.n || (port.n && (*port.p != ':' || (port.n > 1 && (!str_u64((struct str){port.p + 1, port.n - 1}, &n) || n > 65535)))))
        return (struct str){0};
    return host;
}

static bool same_name(struct str host, struct str name)
{
    if (!name.n || host.n != name.n)
        return false;
    for (size_t i = 0; i < host.n; i++) {
        char a = host.p[i], b = name.p[i];
        a = a >= 'A' && a <= 'Z' ? (char)(a + 32) : a, b = b >= 'A' && b <= 'Z' ? (char)(b + 32) : b;
        if (a != b)
            return false;
    }
    return true;
}

bool gate_host_literal(struct str h)
{
    if (h.n && *h.p == '[')
        return true;
    unsigned dots = 0;
    for (size_t i = 0; i < h.n; i++) {
        if (h.p[i] != '.' && (h.p[i] < '0' || h.p[i] > '9'))
            return false;
        dots += h.p[i] == '.';
    }
    return dots == 3;
}

static bool listens_everywhere(struct str listen) { return !listen.n || str_eqz(listen, "0.0.0.0") || str_eqz(listen, "[::]"); }

static struct str listen_host(const struct config *cfg)
{
    struct str l = str_of(cfg->listen);
    return l.n && *l.p == ':' ? (struct str){l.p, 0} : gate_host_part(l);
}

/* What clients call the control API that know only a domain: api.DOMAIN. */
static bool is_api(struct str host, struct str domain)
{
    return domain.n && host.n == domain.n + 4 && same_name((struct str){host.p, 4}, S("api.")) &&
           same_name((struct str){host.p + 4, domain.n}, domain);
}
static bool is_ours(const struct config *cfg, struct str host)
{
    struct str domain = gate_host_part(str_of(cfg->domain)); /* it may have a port */
    if (same_name(host, S("localhost")) || str_eqz(host, "127.0.0.1") || str_eqz(host, "[::1]"))
        return true;
    if (same_name(host, listen_host(cfg)) || same_name(host, domain))
        return true;
    if (is_api(host, S("localhost")) || is_api(host, domain))
        return true;
    for (const char *p = cfg->hosts; *p;) {
        size_t n = strcspn(p, ",");
        if (same_name(host, str_trim((struct str){p, n})))
            return true;
        p += n + (p[n] == ',');
    }
    return false;
}

bool gate_host_ok(const struct config *cfg, struct str authority)
{
    struct str host = gate_host_part(authority);
    return host.p && (is_ours(cfg, host) || (listens_everywhere(listen_host(cfg)) && gate_host_literal(host)));
}

bool gate_origin_ok(const struct config *cfg, struct str origin, struct str host)
{
    size_t skip = str_starts(origin, "http://") ? 7 : str_starts(origin, "https://") ? 8 : 0;
    if (!skip)
        return false; /* "null" and other schemes */
    struct str authority = {origin.p + skip, origin.n - skip}, name = gate_host_part(authority);
    if (!name.p)
        return false;
    if (is_ours(cfg, name))
        return true;
    /* By address: only the very same one, or a neighbour's page could call. */
    return str_eq(authority, host) && gate_host_ok(cfg, host);
}

/* ---- the checks ---- */
int gate_host(const struct config *cfg, struct http_stream *s, struct err *e)
{
    struct str host = http_head(s)->host;
    if (gate_host_ok(cfg, host))
        return 0;
    return err_set(e, E_DENIED, "this server is not called '%.*s'",
                   (int)(host.n > 100 ? 100 : host.n), host.p ? host.p : "");
}

int gate_site(const struct config *cfg, struct http_stream *s, enum about *about, struct err *e)
{
    struct str host = http_head(s)->host, origin = http_req_header(s, "Origin");
    *about = ABOUT_HOST;
    if (gate_host(cfg, s, e))
        return -1;
    *about = ABOUT_ORIGIN;
    if (origin.p && (http_head_count(http_head(s), "Origin") > 1 || !gate_origin_ok(cfg, origin, host)))
        return err_set(e, E_DENIED, "pages from '%.*s' may not call this server", (int)(origin.n > 100 ? 100 : origin.n), origin.p);
    bool reads = http_is(s, "GET") || http_is(s, "HEAD") || http_is(s, "OPTIONS");
    if (!reads && str_ieqz(http_req_header(s, "Sec-Fetch-Site"), "cross-site"))
        return err_set(e, E_DENIED, "pages from other sites may not change anything here");
    return 0;
}

struct str gate_key(struct http_stream *s)
{
    struct str a = http_req_header(s, "Authorization");
    if (a.n > 7 && str_ieqz((struct str){a.p, 7}, "Bearer "))
        return str_trim((struct str){a.p + 7, a.n - 7});
    return http_req_header(s, "X-API-Key");
}

static bool is_trusted(struct core *c, struct http_stream *s)
{
    const struct sock_peer *peer = http_peer(s);
    return peer->is_unix &&
           (peer->uid == 0 || peer->uid == geteuid() || peer->uid == core_config(c)->uid);
}

int gate_caller(struct core *c, struct http_stream *s, struct caller *ret, struct err *e)
{
    struct str key = gate_key(s);
    if (!key.n && is_trusted(c, s)) {
        *ret = caller_daemon;
        return 0;
    }
    if (!key.p || !key.n)
        return err_set(e, E_UNAUTHENTICATED, "this needs an API key");
    const struct key *k = auth_check(c, key, e);
    if (!k)
        return -1;
    *ret = auth_caller(k);
    return 0;
}
