#include "api/api.h"
#include "api/cors.h"
#include "api/gate.h"
#include "api/params.h"
#include "api/req.h"
#include "base/cleanup.h"
#include "core/host/auth.h"
#include "core/life/pause.h"
#include "core/sandbox/sandbox.h"
#include "core/volume/volume.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct spoken {
    const struct dialect *d;
    struct route *routes; /* the routing half of its table */
    struct router *router;
    void *state;
};

struct api {
    struct core *core;
    struct jobs *jobs;
    const struct dialect *const *table;
    struct spoken *spoken; /* in the order of the table */
    size_t n;
    void (*shutdown_fn)(void *arg, bool keep);
    void *shutdown_arg;
};

/* ---- life ---- */
static void spoken_init(struct spoken *x, const struct dialect *d)
{
    x->d = d;
    x->routes = xcalloc(d->nroutes + 1, sizeof *x->routes);
    for (size_t i = 0; i < d->nroutes; i++) {
        const struct api_route *r = &d->routes[i];
        x->routes[i] = (struct route){r->method, r->pattern, r->fn, r->flags};
    }
    x->router = router_new(x->routes, d->nroutes);
}

struct api *api_new_with(struct core *c, struct jobs *jobs, const struct dialect *const *table,
                         size_t n)
{
    struct api *a = xcalloc(1, sizeof *a);
    a->core = c;
    a->jobs = jobs;
    a->table = table;
    a->n = n;
    a->spoken = xcalloc(n, sizeof *a->spoken);
    for (size_t i = 0; i < n; i++)
        spoken_init(&a->spoken[i], table[i]);
    for (size_t i = 0; i < n; i++)
        if (table[i]->start)
            a->spoken[i].state = table[i]->start(a);
    return a;
}

struct api *api_new(struct core *c, struct jobs *jobs)
{
    return api_new_with(c, jobs, dialects, ndialects);
}

void api_free(struct api *a)
{
    if (!a)
        return;
    for (size_t i = a->n; i--;)
        if (a->table[i]->stop)
            a->table[i]->stop(a->spoken[i].state);
    for (size_t i = 0; i < a->n; i++) {
        router_free(a->spoken[i].router);
        free(a->spoken[i].routes);
    }
    free(a->spoken);
    free(a);
}

void api_on_shutdown(struct api *a, void (*fn)(void *arg, bool keep), void *arg)
{
    a->shutdown_fn = fn;
    a->shutdown_arg = arg;
}

void api_shutdown(struct api *a, bool keep)
{
    if (a->shutdown_fn)
        a->shutdown_fn(a->shutdown_arg, keep);
}

struct core *api_core(struct api *a) { return a->core; }
struct jobs *api_jobs(struct api *a) { return a->jobs; }

/* ---- dialects ---- */
static struct spoken *spoken_of(struct api *a, const struct dialect *d)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->spoken[i].d == d)
            return &a->spoken[i];
    return NULL;
}

const struct dialect *const *api_dialects(struct api *a, size_t *n)
{
    *n = a->n;
    return a->table;
}

void *api_state(struct api *a, const struct dialect *d)
{
    struct spoken *x = spoken_of(a, d);
    return x ? x->state : NULL;
}

void api_fail(struct http_stream *s, const struct err *e, enum about about)
{
    api_dialect(s)->fail(s, e, about);
}

const char *api_key_prefix(void)
{
    for (size_t i = 0; i < ndialects; i++)
        if (dialects[i]->key_prefix)
            return dialects[i]->key_prefix;
    return "key_";
}

const char *api_preview_header(struct api *a)
{
    for (size_t i = 0; i < a->n; i++)
        if (a->table[i]->preview_header)
            return a->table[i]->preview_header;
    return NULL;
}

static void put_route(struct buf *out, const struct api_route *r)
{
    buf_printf(out, "route %s %s %s\n", r->method, r->pattern,
               r->flags & ROUTE_OPEN     ? "open"
               : r->flags & ROUTE_SOCKET ? "socket"
                                         : "key");
}

void api_doors(struct buf *out)
{
    for (size_t i = 0; i < ndialects; i++) {
        const struct dialect *d = dialects[i];
        for (size_t k = 0; k < d->nroutes; k++)
            put_route(out, &d->routes[k]);
        for (size_t k = 0; k < d->ndoors; k++)
            if (d->doors[k].port)
                buf_printf(out, "port %u %s\n", d->doors[k].port, d->doors[k].name);
    }
}

/* ---- waiting for a sandbox that is between two states, or asleep ---- */
struct waking {
    struct req r;
    api_awake *fn;
    _Alignas(max_align_t) char ctx[];
};

static void on_awake(void *arg, struct sandbox *sb, const struct err *e)
{
    struct waking *w = arg;
    if (!req_back(&w->r))
        return;
    struct http_stream *s = http_ref(w->r.s);
    req_end(&w->r); /* its memory is good until the end of the turn */
    w->fn(w->r.api, s, sb, e, w->ctx);
    http_unref(s);
}

void api_wake(struct api *a, struct http_stream *s, struct sandbox *sb, api_awake *fn,
              const void *ctx, size_t n)
{
    struct waking *w = req_new(a, s, sizeof *w + n, NULL);
    w->fn = fn;
    memcpy(w->ctx, ctx, n);
    req_watch(&w->r);
    req_hold(&w->r);
    sandbox_wake(sb, on_awake, w);
}

static void call_now(struct api *a, struct http_stream *s, struct sandbox *sb, const struct err *e,
                     const void *ctx)
{
    http_handler *const *fn = ctx;
    if (sb)
        (*fn)(s, a);
    else
        api_fail(s, e, ABOUT_STATE);
}

static void call_awake(struct api *a, struct http_stream *s, http_handler *fn)
{
    struct caller who = api_caller(a, s);
    struct str id = http_param(s, "id");
    struct sandbox *sb = name_ok(id) ? sandbox_find_for(a->core, &who, id.p, NULL) : NULL;
    if (sb && !caller_changes(&who, sandbox_tenant(sb)))
        sb = NULL; /* who only looks wakes nobody: the handler says that it sleeps */
    if (!sb || !(sb->state == SB_PAUSING || sb->state == SB_PAUSED || sandbox_busy(sb)))
        fn(s, a);
    else
        api_wake(a, s, sb, call_now, &fn, sizeof fn);
}

/* ---- a request ---- */
static struct spoken *claimed(struct api *a, struct http_stream *s)
{
    size_t i = 0;
    while (i + 1 < a->n && a->table[i]->claims && !a->table[i]->claims(a, s))
        i++;
    return &a->spoken[i];
}

/* Host and, unless any page may call, Origin. True: answered. */
static bool site_answers(struct api *a, const struct dialect *d, struct http_stream *s)
{
    struct err e;
    enum about about = ABOUT_HOST;
    bool cors = d->flags & DIALECT_CORS;
    if (cors ? gate_host(core_config(a->core), s, &e)
             : gate_site(core_config(a->core), s, &about, &e)) {
        api_fail(s, &e, about);
        return true;
    }
    if (!cors || !http_req_header(s, "Origin").p)
        return false;
    if (cors_asks(s)) {
        cors_preflight(s);
        return true;
    }
    cors_open(s);
    return false;
}

static void no_route(struct http_stream *s, const struct route_match *m)
{
    struct err e;
    struct str path = http_path(s), method = http_method(s);
    if (m->status == 405) {
        (void)http_header(s, "Allow", m->allow); /* RFC 9110 15.5.6 */
        err_set(&e, E_INVALID, "%.*s is not a method of this path; allowed: %s",
                (int)(method.n > 32 ? 32 : method.n), method.p, m->allow);
        api_fail(s, &e, ABOUT_METHOD);
        return;
    }
    if (m->status == 400)
        err_set(&e, E_INVALID, "the path has an invalid escape or segment");
    else
        err_set(&e, E_NOT_FOUND, "path %.*s does not exist", (int)(path.n > 120 ? 120 : path.n),
                path.p ? path.p : "");
    api_fail(s, &e, ABOUT_ROUTE);
}

/* What the route wants of who calls, before any thing is looked up. */
static int admit(struct api *a, struct http_stream *s, const struct route *r, struct err *e)
{
    struct caller who = api_caller(a, s);
    unsigned flags = r->flags;
    bool reads = http_is(s, "GET") || http_is(s, "HEAD");
    api_set_changes(s, !reads || (flags & ROUTE_CHANGES));
    if (flags & ROUTE_SCRAPE)
        return caller_all(&who) || who.role == ROLE_METRICS
                   ? 0
                   : caller_forbid(&who, "metrics, operator or admin", e);
    if (who.role < ROLE_VIEWER)
        return caller_forbid(&who, "viewer or more", e);
    if ((flags & ROUTE_ADMIN) && who.role != ROLE_ADMIN)
        return caller_forbid(&who, "admin", e);
    if ((flags & ROUTE_HOST) && !caller_all(&who))
        return caller_forbid(&who, "operator or admin", e);
    return !api_changes(s) || caller_makes(&who) ? 0 : caller_forbid(&who, "member or admin", e);
}

/* Do not reorder: a request that fails an earlier check learns nothing about the later ones. */
void api_handler(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct err e;
    struct route_match m;
    const struct spoken *x = claimed(a, s);
    const struct dialect *d = x->d;
    api_speak(s, d);
    if (d->serve && d->serve(a, s))
        return;
    (void)http_header(s, "X-Content-Type-Options",
                      "nosniff"); /* nothing is sent yet: it cannot be too late */
    if (site_answers(a, d, s))
        return;
    router_match(x->router, s, &m);
    unsigned flags = m.route ? m.route->flags : 0;
    bool keyed = !(flags & ROUTE_OPEN) && !(d->flags & DIALECT_OWN_AUTH);
    struct caller who;
    if (keyed && gate_caller(a->core, s, &who, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    if (!m.route) {
        no_route(s, &m);
        return;
    }
    if (keyed && admit(a, s, m.route, &e)) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    if ((flags & ROUTE_SOCKET) && !http_is_unix(s)) {
        err_set(&e, E_DENIED, "this is only possible on the daemon's unix socket");
        api_fail(s, &e, ABOUT_SOCKET);
        return;
    }
    if (flags & ROUTE_WAKE)
        call_awake(a, s, m.route->fn);
    else
        m.route->fn(s, a);
}

/* ---- for handlers ---- */
void api_preview_url(struct api *a, const struct sandbox *sb, unsigned port, char *out, size_t cap)
{
    const struct config *cfg = core_config(a->core);
    const char *colon = strrchr(cfg->listen, ':');
    const char *domain = *cfg->domain ? cfg->domain : "localhost";
    bool has_port = strchr(domain, ':') != NULL;
    (void)snprintf(out, cap, "%s://%u-%s.%s%s/", *cfg->tls_cert ? "https" : "http", port, sb->id,
                   domain, has_port || !colon ? "" : colon);
}

/* The types a form can send across origins without asking first are not JSON, whatever the bytes
 * look like. */
static bool is_json(struct str type)
{
    const char *semi = type.n ? memchr(type.p, ';', type.n) : NULL;
    return str_ieqz(str_trim((struct str){type.p, semi ? (size_t)(semi - type.p) : type.n}),
                    "application/json");
}

static void body_there(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    if (api_still(a, s, &e))
        api_fail(s, &e, ABOUT_REQUEST);
    else
        (*api_body_then(s))(s, a, p, n);
}

void api_body(struct api *a, struct http_stream *s, api_body_fn *fn)
{
    struct err e;
    uint64_t n = http_body_length(s);
    struct str type = http_req_header(s, "Content-Type");
    if ((api_dialect(s)->flags & DIALECT_STRICT_TYPE) && type.p && http_has_body(s) &&
        !is_json(type)) {
        err_set(&e, E_INVALID,
                "the body must be sent as application/json (curl: --json instead of -d)");
        api_fail(s, &e, ABOUT_REQUEST);
    } else if (n != UINT64_MAX && n > PARAM_BODY_MAX) {
        err_set(&e, E_TOO_LARGE, "the body is %llu bytes, the limit is %u", (unsigned long long)n,
                PARAM_BODY_MAX);
        api_fail(s, &e, ABOUT_REQUEST);
    } else {
        *api_body_then(s) = fn;
        http_body_collect(s, PARAM_BODY_MAX, body_there, a);
    }
}
