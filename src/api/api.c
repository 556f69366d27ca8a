#include "api/api.h"
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/native/native.h"
#include "api/params.h"
#include "api/req.h"
#include "core/pause.h"
#include "core/sandbox.h"
#include "core/volume.h"
#include <stdlib.h>

struct api {
    struct core *core;
    struct jobs *jobs;
    struct router *router;
    struct route *native; /* the routing half of native_routes */
    struct e2b *e2b;
    void (*shutdown_fn)(void *arg, bool keep);
    void *shutdown_arg;
};

struct api *api_new(struct core *c, struct jobs *jobs)
{
    struct api *a = xcalloc(1, sizeof *a);
    a->core = c;
    a->jobs = jobs;
    a->native = xcalloc(native_nroutes, sizeof *a->native);
    for (size_t i = 0; i < native_nroutes; i++) {
        const struct api_route *r = &native_routes[i];
        a->native[i] = (struct route){r->method, r->pattern, r->fn, r->flags};
    }
    a->router = router_new(a->native, native_nroutes);
    router_add(a->router, e2b_routes, e2b_nroutes);
    a->e2b = e2b_new(a);
    return a;
}

void api_free(struct api *a)
{
    if (!a)
        return;
    e2b_free(a->e2b);
    router_free(a->router);
    free(a->native);
    free(a);
}

void api_add(struct api *a, const struct route *table, size_t n) { router_add(a->router, table, n); }

static void put_route(struct buf *out, const char *method, const char *pattern, unsigned flags)
{
    buf_printf(out, "route %s %s %s\n", method, pattern, flags & ROUTE_OPEN ? "open" : flags & ROUTE_SOCKET ? "socket" : "key");
}

void api_doors(struct buf *out)
{
    for (size_t i = 0; i < native_nroutes; i++)
        put_route(out, native_routes[i].method, native_routes[i].pattern, native_routes[i].flags);
    for (size_t i = 0; i < e2b_nroutes; i++)
        put_route(out, e2b_routes[i].method, e2b_routes[i].pattern, e2b_routes[i].flags);
    put_route(out, "*", "/files", ROUTE_OPEN); /* signed; in no table, because it is traffic of a sandbox */
    for (size_t i = 0; i < e2b_ndoors; i++)
        if (e2b_doors[i].port)
            buf_printf(out, "port %u %s\n", e2b_doors[i].port, e2b_doors[i].name);
}

void api_on_shutdown(struct api *a, void (*fn)(void *arg, bool keep), void *arg)
{
    a->shutdown_fn = fn;
    a->shutdown_arg = arg;
}

struct core *api_core(struct api *a) { return a->core; }
struct jobs *api_jobs(struct api *a) { return a->jobs; }
struct e2b *api_e2b(struct api *a) { return a->e2b; }
void api_shutdown(struct api *a, bool keep)
{
    if (a->shutdown_fn)
        a->shutdown_fn(a->shutdown_arg, keep);
}

/* Requests of the E2B dialect: any page may send them (E2B's SDK runs in browsers), but none without a key of ours. */
static void e2b_handler(struct api *a, struct http_stream *s)
{
    struct err e;
    struct route_match m;
    struct str host = http_head(s)->host;
    if (!gate_host_ok(core_config(a->core), host)) {
        e2b_problem(s, 403, "'%.*s' is not a name of this server", (int)(host.n > 100 ? 100 : host.n), host.p ? host.p : "");
        return;
    }
    if (e2b_cors(s))
        return;
    router_match(a->router, s, &m);
    unsigned flags = m.route ? m.route->flags : 0;
    if (!(flags & ROUTE_OPEN) && gate_caller(a->core, s, &e)) {
        e2b_fail(s, &e);
        return;
    }
    if (m.route)
        m.route->fn(s, a);
    else
        e2b_problem(s, m.status, m.status == 405 ? "this path does not take that method" : m.status == 400 ? "the path is malformed" : "there is nothing at this path");
}

/* A call for a sandbox that is between two states, or asleep: it is handled when that is over. */
struct waking { struct req r; http_handler *fn; };

static void on_awake(void *arg, struct sandbox *sb, const struct err *e)
{
    struct waking *w = arg;
    if (!req_back(&w->r))
        return;
    if (!sb) {
        req_fail(&w->r, e, ABOUT_STATE);
        return;
    }
    struct http_stream *s = http_ref(w->r.s);
    http_handler *fn = w->fn;
    struct api *a = w->r.api;
    req_end(&w->r);
    fn(s, a);
    http_unref(s);
}

static void call_awake(struct api *a, struct http_stream *s, http_handler *fn)
{
    struct str id = http_param(s, "id");
    struct sandbox *sb = name_ok(id) ? sandbox_find(a->core, id.p, NULL) : NULL;
    if (!sb || !(sb->state == SB_PAUSING || sb->state == SB_PAUSED || sandbox_busy(sb))) {
        fn(s, a);
        return;
    }
    struct waking *w = req_new(a, s, sizeof *w, NULL);
    w->fn = fn;
    req_watch(&w->r);
    req_hold(&w->r);
    sandbox_wake(sb, on_awake, w);
}

static void no_route(struct http_stream *s, const struct route_match *m)
{
    struct err e;
    struct str path = http_path(s);
    if (m->status == 405) {
        problem_method(s, m->allow);
        return;
    }
    if (m->status == 400)
        err_set(&e, E_INVALID, "the path has a broken escape or a segment that is not allowed");
    else
        err_set(&e, E_NOT_FOUND, "there is nothing at %.*s", (int)(path.n > 120 ? 120 : path.n), path.p ? path.p : "");
    problem_about(s, &e, ABOUT_ROUTE);
}

/* Do not reorder: a request that fails an earlier check learns nothing about the later ones. */
void api_handler(struct http_stream *s, void *arg)
{
    struct api *a = arg;
    struct err e;
    enum about about;
    struct route_match m;
    if (e2b_sandbox_traffic(a, s))
        return;
    (void)http_header(s, "X-Content-Type-Options", "nosniff"); /* nothing is sent yet: it cannot be too late */
    if (e2b_path(http_path(s))) {
        e2b_handler(a, s);
        return;
    }
    if (gate_site(core_config(a->core), s, &about, &e)) {
        problem_about(s, &e, about);
        return;
    }
    router_match(a->router, s, &m);
    unsigned flags = m.route ? m.route->flags : 0;
    if (!(flags & ROUTE_OPEN) && gate_caller(a->core, s, &e)) {
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    if (!m.route) {
        no_route(s, &m);
        return;
    }
    if ((flags & ROUTE_SOCKET) && !http_is_unix(s)) {
        err_set(&e, E_DENIED, "this is only possible on the daemon's own socket");
        problem_about(s, &e, ABOUT_SOCKET);
        return;
    }
    if (flags & ROUTE_WAKE)
        call_awake(a, s, m.route->fn);
    else
        m.route->fn(s, a);
}

struct sandbox *api_sandbox(struct api *a, struct http_stream *s)
{
    struct err e;
    struct str id = http_param(s, "id");
    struct sandbox *sb = NULL;
    if (name_ok(id)) /* every id is a name by grammar */
        sb = sandbox_find(a->core, id.p, &e);
    else
        err_set(&e, E_NOT_FOUND, "no sandbox has such an id or name");
    if (!sb)
        problem_about(s, &e, ABOUT_SANDBOX);
    return sb;
}

struct volume *api_volume(struct api *a, struct http_stream *s)
{
    struct err e;
    struct str id = http_param(s, "volume");
    struct volume *v = NULL;
    if (id.p && strlen(id.p) == id.n && (id_ok(id) || volume_name_ok(id.p)))
        v = volume_find(a->core, id.p, &e);
    else
        err_set(&e, E_NOT_FOUND, "no volume has such an id or name");
    if (!v)
        problem_about(s, &e, ABOUT_VOLUME);
    return v;
}

/* The types a form can send across origins without asking first are not JSON, whatever the bytes look like. */
static bool is_json(struct str type)
{
    const char *semi = type.n ? memchr(type.p, ';', type.n) : NULL;
    return str_ieqz(str_trim((struct str){type.p, semi ? (size_t)(semi - type.p) : type.n}), "application/json");
}

void api_body(struct api *a, struct http_stream *s, void (*fn)(struct http_stream *, void *, const char *, size_t))
{
    uint64_t n = http_body_length(s);
    struct str type = http_req_header(s, "Content-Type");
    if (type.p && http_has_body(s) && !is_json(type)) {
        struct err e;
        err_set(&e, E_INVALID, "the body must be sent as application/json (curl: --json instead of -d)");
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    if (n != UINT64_MAX && n > PARAM_BODY_MAX) {
        struct err e;
        err_set(&e, E_TOO_LARGE, "the body has %llu bytes, the limit is %u", (unsigned long long)n, PARAM_BODY_MAX);
        problem_about(s, &e, ABOUT_REQUEST);
        return;
    }
    http_body_collect(s, PARAM_BODY_MAX, fn, a);
}
