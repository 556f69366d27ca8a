/* Which sandbox and port a request is for. Headers are believed only on hosts
 * that cannot be a user's page: localhost, an address, sandbox.*, and the names
 * the operator gave this daemon; elsewhere the leftmost label of Host says it. */
#include "api/e2b/control.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "api/req.h"
#include "core/pause.h"
#include "crypto/digest.h"
#include <stdio.h>

#define ENVD_PORT 49983
#define INTERPRETER_PORT 49999
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

/* ---- the sandbox behind it ---- */
struct sandbox *e2b_running(struct api *a, struct http_stream *s, const char *id)
{
    struct sandbox *sb = id_ok(str_of(id)) ? sandbox_find(api_core(a), id, NULL) : NULL;
    struct err e;
    if (sb && sb->state == SB_RUNNING && sandbox_agent(sb, &e))
        return sb;
    if (sb && (sb->state == SB_PAUSING || sb->state == SB_CREATING))
        e2b_no_traffic(s, 409, id, 0, "The sandbox is still transitioning. Try again in a moment.");
    else
        e2b_no_traffic(s, 502, id, 0, "The sandbox was not found");
    return NULL;
}

bool e2b_traffic_allowed(struct http_stream *s, const struct sandbox *sb)
{
    const char *want = kv_get(&sb->options, "e2b.traffic_token");
    struct str got = http_req_header(s, "E2b-Traffic-Access-Token");
    if (!want || (got.p && got.n == strlen(want) && mem_eq_ct(got.p, want, got.n)))
        return true;
    e2b_no_traffic(s, 403, sb->id, 0, "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is missing or wrong");
    return false;
}

/* ---- waking ---- */
static void deliver(struct api *a, struct http_stream *s, const struct e2b_target *t)
{
    if (t->port == ENVD_PORT)
        e2b_envd(a, s, t->id);
    else if (t->port == INTERPRETER_PORT)
        e2b_interpreter(a, s, t->id);
    else
        e2b_ingress(a, s, t->id, t->port);
}

struct waking { struct req r; struct e2b_target t; bool asleep; };

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
    deliver(a, s, &t);
    http_unref(s);
}

/* Between two states: it is over in a moment. Asleep, and asked to wake for traffic: it wakes, unless that meant a reboot. */
static bool must_wait(struct api *a, struct http_stream *s, const struct e2b_target *t)
{
    const struct sandbox *sb = id_ok(str_of(t->id)) ? sandbox_find(api_core(a), t->id, NULL) : NULL;
    if (!sb || strcmp(sb->id, t->id) || http_is(s, "OPTIONS"))
        return false;
    return sandbox_busy(sb) || (sb->state == SB_PAUSED && sb->life.auto_resume && sb->life.memory);
}

static void wait_awake(struct api *a, struct http_stream *s, const struct e2b_target *t)
{
    struct sandbox *sb = sandbox_find(api_core(a), t->id, NULL);
    struct waking *w = req_new(a, s, sizeof *w, NULL);
    w->t = *t;
    w->asleep = sb->state == SB_PAUSED;
    req_watch(&w->r);
    req_hold(&w->r);
    sandbox_wake(sb, on_awake, w);
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

bool e2b_sandbox_traffic(struct api *a, struct http_stream *s)
{
    struct str host = http_head(s)->host;
    bool marked = http_req_header(s, "E2b-Sandbox-Id").p || http_req_header(s, "E2b-Sandbox-Port").p;
    bool ours = e2b_host_trusted(host) || gate_host_ok(core_config(api_core(a)), host);
    struct e2b_target t;
    if (ours) {
        if (!marked)
            return asks_first(s) || (str_eqz(http_path(s), "/files") && e2b_signed_files(a, s));
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
    if (must_wait(a, s, &t))
        wait_awake(a, s, &t);
    else
        deliver(a, s, &t);
    return true;
}
