/* Which sandbox and port a request is for. Headers are believed only on hosts
 * that cannot be a user's page: localhost, an address, sandbox.*, and the names
 * the operator gave this daemon; elsewhere the leftmost label of Host says it. */
#include "api/e2b/access.h"
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/req.h"
#include "core/pause.h"
#include <stdio.h>

#define WAKE_S    300 /* what one that traffic woke lives at least */

/* ---- names ---- */
static struct str without_port(struct str a)
{
    if (a.n && *a.p == '[') {
        const char *end = memchr(a.p, ']', a.n);
        return end ? (struct str){a.p, (size_t)(end - a.p) + 1} : a;
    }
    const char *colon = a.n ? memchr(a.p, ':', a.n) : NULL;
    return colon ? (struct str){a.p, (size_t)(colon - a.p)} : a;
}

bool e2b_host_trusted(struct str authority)
{
    struct str h = without_port(authority);
    return gate_host_literal(h) || str_ieqz(h, "localhost") || (h.n > 8 && str_ieqz((struct str){h.p, 8}, "sandbox."));
}

static bool id_text_ok(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9')))
            return false;
    return true;
}

enum e2b_host e2b_host_parse(struct str authority, struct e2b_target *ret)
{
    struct str h = without_port(authority);
    const char *dot = h.n ? memchr(h.p, '.', h.n) : NULL;
    struct str label = {h.p, dot ? (size_t)(dot - h.p) : 0};
    const char *dash = label.n ? memchr(label.p, '-', label.n) : NULL;
    uint64_t port;
    *ret = (struct e2b_target){0};
    if (!dash || !str_u64((struct str){label.p, (size_t)(dash - label.p)}, &port))
        return E2B_HOST_PLAIN;
    struct str id = {dash + 1, label.n - (size_t)(dash + 1 - label.p)};
    const char *more = id.n ? memchr(id.p, '-', id.n) : NULL; /* what stands behind a second dash is ignored */
    if (more)
        id.n = (size_t)(more - id.p);
    if (!port || port > 65535)
        return E2B_HOST_BAD_PORT;
    if (!id.n || id.n >= sizeof ret->id)
        return E2B_HOST_BAD_ID;
    for (size_t i = 0; i < id.n; i++)
        ret->id[i] = id.p[i] >= 'A' && id.p[i] <= 'Z' ? (char)(id.p[i] + 32) : id.p[i];
    ret->port = (unsigned)port;
    return id_text_ok(ret->id) ? E2B_HOST_TARGET : E2B_HOST_BAD_ID;
}

/* ---- doors: the ports that we serve ourselves, then those of the guest ---- */
const struct e2b_door e2b_doors[] = {
    {E2B_PORT_ENVD, "envd", e2b_may_envd, e2b_envd},
    {E2B_PORT_INTERPRETER, "interpreter", e2b_may_interpreter, e2b_interpreter},
    {0, "guest", e2b_may_guest, e2b_ingress},
};
const size_t e2b_ndoors = sizeof e2b_doors / sizeof *e2b_doors;

static const struct e2b_door *door_of(unsigned port)
{
    for (size_t i = 0; i + 1 < e2b_ndoors; i++)
        if (e2b_doors[i].port == port)
            return &e2b_doors[i];
    return &e2b_doors[e2b_ndoors - 1];
}

static struct sandbox *target(struct api *a, const struct e2b_target *t)
{
    struct sandbox *sb = id_ok(str_of(t->id)) ? sandbox_find(api_core(a), t->id, NULL) : NULL;
    return sb && !strcmp(sb->id, t->id) ? sb : NULL; /* by id only: a name is not in this dialect */
}

static void absent(struct http_stream *s, const struct sandbox *sb, const char *id)
{
    if (sb && (sb->state == SB_PAUSING || sb->state == SB_CREATING))
        e2b_no_traffic(s, 409, id, 0, "The sandbox is still transitioning. Try again in a moment.");
    else
        e2b_no_traffic(s, 502, id, 0, "The sandbox was not found");
}

bool e2b_reachable(struct http_stream *s, struct sandbox *sb)
{
    struct err e;
    if (sandbox_agent(sb, &e))
        return true;
    absent(s, sb, sb->id);
    return false;
}

static void refuse(struct http_stream *s, const struct sandbox *sb, const struct e2b_may *may)
{
    if (may->status == 403)
        e2b_no_traffic(s, may->status, sb->id, 0, may->say);
    else
        e2b_problem(s, may->status, "%s", may->say);
}

/* ---- waking ---- */
struct waking { struct req r; struct e2b_target t; bool asleep; };

static void deliver(struct api *a, struct http_stream *s, const struct e2b_target *t, bool may_wait);

static void on_awake(void *arg, struct sandbox *sb, const struct err *e)
{
    struct waking *w = arg;
    (void)e; /* what does not run is answered like any other that does not */
    if (!req_back(&w->r))
        return;
    if (sb && w->asleep && sb->timeout_s < WAKE_S)
        (void)e2b_extend(sb, WAKE_S, NULL); /* cannot fail: it runs */
    struct http_stream *s = http_ref(w->r.s);
    struct e2b_target t = w->t;
    struct api *a = w->r.api;
    req_end(&w->r);
    deliver(a, s, &t, false);
    http_unref(s);
}

/* Between two states: it is over in a moment. Asleep, and asked to wake for traffic: it wakes, unless that meant a reboot. */
static bool must_wait(struct http_stream *s, const struct sandbox *sb)
{
    if (http_is(s, "OPTIONS"))
        return false;
    return sandbox_busy(sb) || (sb->state == SB_PAUSED && sb->life.auto_resume && sb->life.memory);
}

static void wait_awake(struct api *a, struct http_stream *s, struct sandbox *sb, const struct e2b_target *t)
{
    struct waking *w = req_new(a, s, sizeof *w, NULL);
    w->t = *t;
    w->asleep = sb->state == SB_PAUSED;
    req_watch(&w->r);
    req_hold(&w->r);
    sandbox_wake(sb, on_awake, w);
}

/* Do not reorder: who may not is told so before anything happens to the sandbox, waking and its idle clock included. Of our own ports a
 * page of another site reads only what it brought the credential for, and that there is no such sandbox. */
static void deliver(struct api *a, struct http_stream *s, const struct e2b_target *t, bool may_wait)
{
    const struct e2b_door *d = door_of(t->port);
    struct sandbox *sb = target(a, t);
    bool wait = sb && may_wait && must_wait(s, sb);
    if (d->port && http_is(s, "OPTIONS")) {
        e2b_preflight(s);
        return;
    }
    if (!sb || (sb->state != SB_RUNNING && !wait)) {
        if (d->port)
            e2b_cors_open(s);
        absent(s, sb, t->id);
        return;
    }
    struct e2b_may may = d->may(a, s, sb);
    if (may.status) {
        refuse(s, sb, &may);
        return;
    }
    if (wait && !may.anyone) {
        wait_awake(a, s, sb, t);
        return;
    }
    if (d->port && !may.anyone)
        e2b_cors_open(s);
    if (sb->state == SB_RUNNING)
        d->serve(a, s, sb, t->port);
    else
        absent(s, sb, t->id);
}

/* ---- the request ---- */
static bool by_headers(struct http_stream *s, struct e2b_target *t)
{
    struct str id = http_req_header(s, "E2b-Sandbox-Id"), port = http_req_header(s, "E2b-Sandbox-Port");
    uint64_t n;
    if (!id.p || !port.p) {
        e2b_problem(s, 400, "missing header");
        return false;
    }
    if (!str_u64(port, &n) || !n || n > 65535) {
        e2b_problem(s, 400, "Invalid sandbox port");
        return false;
    }
    (void)snprintf(t->id, sizeof t->id, "%.*s", (int)(id.n < sizeof t->id ? id.n : 0), id.p);
    if (!id_text_ok(t->id)) {
        e2b_problem(s, 400, "Invalid sandbox ID");
        return false;
    }
    t->port = (unsigned)n;
    return true;
}

/* A browser asks before it sends our headers, and cannot send them along with the question. */
static bool asks_first(struct http_stream *s)
{
    struct str ask = http_req_header(s, "Access-Control-Request-Headers");
    return http_is(s, "OPTIONS") && ask.n && memmem(ask.p, ask.n, "e2b-sandbox-id", 14) && e2b_cors(s);
}

/* A signed URL of /files without a sandbox in its name (spec 1.5): whose token signed it says whose it is. True: answered. */
static bool signed_files(struct api *a, struct http_stream *s)
{
    struct e2b_target t = {.port = E2B_PORT_ENVD};
    if (str_eqz(http_path(s), "/files") && http_is(s, "OPTIONS")) {
        e2b_preflight(s);
        return true;
    }
    if (!e2b_is_files(s))
        return false;
    const struct sandbox *sb = e2b_signer(a, s);
    auto_buf signature = {0};
    if (sb) {
        (void)snprintf(t.id, sizeof t.id, "%s", sb->id);
        deliver(a, s, &t, false);
    } else {
        e2b_problem(s, 401, http_query_get(s, "signature", &signature) ? "invalid signature" : "missing signature query parameter");
    }
    return true;
}

bool e2b_sandbox_traffic(struct api *a, struct http_stream *s)
{
    struct str host = http_head(s)->host;
    bool marked = http_req_header(s, "E2b-Sandbox-Id").p || http_req_header(s, "E2b-Sandbox-Port").p;
    bool ours = e2b_host_trusted(host) || gate_host_ok(core_config(api_core(a)), host);
    struct e2b_target t;
    if (ours) {
        if (!marked)
            return asks_first(s) || signed_files(a, s);
        if (!by_headers(s, &t))
            return true;
    } else {
        switch (e2b_host_parse(host, &t)) {
        case E2B_HOST_TARGET:
            break;
        case E2B_HOST_BAD_ID:
            e2b_problem(s, 400, "Invalid sandbox ID");
            return true;
        case E2B_HOST_BAD_PORT:
            e2b_problem(s, 400, "Invalid sandbox port");
            return true;
        default:
            if (marked)
                e2b_problem(s, 400, "Invalid host");
            return marked; /* else the gate says what it thinks of the name */
        }
    }
    deliver(a, s, &t, true);
    return true;
}
