/* Which sandbox and port a request is for, who may, and on to what is behind that
 * port:
 *   preview_claims: the leftmost label of Host says it, on hosts that are not ours
 *   preview_deliver: door -> may it? -> wake the sandbox -> deliver again -> serve */
#include "api/cors.h"
#include "api/gate.h"
#include "api/preview/preview.h"
#include "api/req.h"
#include "core/life/pause.h"
#include <stdio.h>

#define WAKE_S 300 /* what one that traffic woke lives at least */

/* ---- names ---- */
bool preview_id_ok(const char *s)
{
    if (!*s)
        return false;
    for (; *s; s++)
        if (!((*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9')))
            return false;
    return true;
}

enum preview_host preview_host_parse(struct str authority, struct preview_target *ret)
{
    struct str h = gate_host_part(authority);
    const char *dot = h.n ? memchr(h.p, '.', h.n) : NULL;
    struct str label = {h.p, dot ? (size_t)(dot - h.p) : 0};
    const char *dash = label.n ? memchr(label.p, '-', label.n) : NULL;
    uint64_t port;
    *ret = (struct preview_target){0};
    if (!dash || !str_u64((struct str){label.p, (size_t)(dash - label.p)}, &port))
        return PREVIEW_HOST_PLAIN;
    struct str id = {dash + 1, label.n - (size_t)(dash + 1 - label.p)};
    const char *more =
        id.n ? memchr(id.p, '-', id.n) : NULL; /* what stands behind a second dash is ignored */
    if (more)
        id.n = (size_t)(more - id.p);
    if (!port || port > 65535)
        return PREVIEW_HOST_BAD_PORT;
    if (!id.n || id.n >= sizeof ret->id)
        return PREVIEW_HOST_BAD_ID;
    for (size_t i = 0; i < id.n; i++)
        ret->id[i] = id.p[i] >= 'A' && id.p[i] <= 'Z' ? (char)(id.p[i] + 32) : id.p[i];
    ret->port = (unsigned)port;
    return preview_id_ok(ret->id) ? PREVIEW_HOST_TARGET : PREVIEW_HOST_BAD_ID;
}

/* ---- doors: the ports that a dialect serves itself, then those of the guest ---- */
static const struct door doors[] = {{0, "guest", preview_may_guest, preview_ingress}};

struct entry {
    const struct dialect *of;
    const struct door *door;
};

static struct entry entry_of(struct api *a, unsigned port)
{
    size_t n;
    const struct dialect *const *d = api_dialects(a, &n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < d[i]->ndoors; k++)
            if (d[i]->doors[k].port == port)
                return (struct entry){d[i], &d[i]->doors[k]};
    return (struct entry){&preview_dialect, doors};
}

static struct sandbox *target(struct api *a, const struct preview_target *t)
{
    struct sandbox *sb = id_ok(str_of(t->id)) ? sandbox_find(api_core(a), t->id, NULL) : NULL;
    return sb && !strcmp(sb->id, t->id) ? sb : NULL; /* by id only: a name is not in an address */
}

static void absent(struct http_stream *s, const struct sandbox *sb, const char *id)
{
    if (sb && (sb->state == SB_PAUSING || sb->state == SB_CREATING))
        preview_refuse(s, 409, id, 0, "The sandbox is still transitioning. Try again in a moment.");
    else
        preview_refuse(s, 502, id, 0, "The sandbox was not found");
}

bool preview_reachable(struct http_stream *s, struct sandbox *sb)
{
    struct err e;
    if (sandbox_agent(sb, &e))
        return true;
    absent(s, sb, sb->id);
    return false;
}

static void refuse(struct api *a, struct http_stream *s, const struct dialect *of,
                   const struct sandbox *sb, const struct may *may)
{
    struct err e;
    if (may->forbidden) {
        err_why(&e, REASON_ROLE, E_FORBIDDEN, "%s", may->say);
        of->fail(s, &e, ABOUT_REQUEST);
        return;
    }
    if (may->status == 403) {
        preview_no_token(a, s, sb->id);
        return;
    }
    err_set(&e, E_UNAUTHENTICATED, "%s", may->say);
    of->fail(s, &e, ABOUT_REQUEST);
}

/* ---- waking ---- */
struct asleep {
    struct preview_target t;
    bool paused;
};

static void on_awake(struct api *a, struct http_stream *s, struct sandbox *sb, const struct err *e,
                     const void *ctx)
{
    const struct asleep *w = ctx;
    (void)e; /* what does not run is answered like any other that does not */
    if (sb && w->paused && sb->timeout_s < WAKE_S)
        (void)sandbox_keep_alive(sb, WAKE_S, NULL); /* cannot fail: it runs */
    preview_deliver(a, s, &w->t, false);
}

/* Between two states: it is over in a moment. Asleep, and asked to wake for traffic: it wakes,
 * unless that meant a reboot. */
static bool must_wait(struct http_stream *s, const struct sandbox *sb)
{
    if (http_is(s, "OPTIONS"))
        return false;
    return sandbox_busy(sb) || (sb->state == SB_PAUSED && sb->life.auto_resume && sb->life.memory);
}

/* Do not reorder: who may not is told so before anything happens to the sandbox, waking and its
 * idle clock included. Of our own ports a page of another site reads only what it brought the
 * credential for, and that there is no such sandbox. */
void preview_deliver(struct api *a, struct http_stream *s, const struct preview_target *t,
                     bool may_wait)
{
    struct entry to = entry_of(a, t->port);
    const struct door *d = to.door;
    struct sandbox *sb = target(a, t);
    bool wait = sb && may_wait && must_wait(s, sb);
    if (d->port && http_is(s, "OPTIONS")) {
        cors_preflight(s);
        return;
    }
    if (!sb || (sb->state != SB_RUNNING && !wait)) {
        if (d->port)
            cors_open(s);
        absent(s, sb, t->id);
        return;
    }
    struct may may = d->may(a, s, sb);
    if (may.status == 404) { /* as if there were none */
        if (d->port)
            cors_open(s);
        absent(s, NULL, t->id);
        return;
    }
    if (may.status) {
        refuse(a, s, to.of, sb, &may);
        return;
    }
    if (wait && !may.anyone) {
        struct asleep w = {*t, sb->state == SB_PAUSED};
        api_wake(a, s, sb, on_awake, &w, sizeof w);
        return;
    }
    if (d->port && !may.anyone)
        cors_open(s);
    if (sb->state == SB_RUNNING) {
        api_speak(s, to.of);
        d->serve(a, s, sb, t->port);
    } else {
        absent(s, sb, t->id);
    }
}

/* ---- the dialect ---- */
static bool preview_claims(struct api *a, struct http_stream *s)
{
    struct preview_target t;
    struct str host = http_head(s)->host;
    return !gate_host_ok(core_config(api_core(a)), host) &&
           preview_host_parse(host, &t) != PREVIEW_HOST_PLAIN;
}

static bool preview_serve(struct api *a, struct http_stream *s)
{
    struct preview_target t;
    switch (preview_host_parse(http_head(s)->host, &t)) {
    case PREVIEW_HOST_TARGET: preview_deliver(a, s, &t, true); break;
    case PREVIEW_HOST_BAD_PORT: preview_problem(s, 400, "Invalid sandbox port"); break;
    default: preview_problem(s, 400, "Invalid sandbox ID"); break;
    }
    return true;
}

static void preview_fail(struct http_stream *s, const struct err *e, enum about about)
{
    (void)about;
    preview_problem(s, err_http(e->code), e->code == E_INTERNAL ? "internal error" : e->msg);
}

const struct dialect preview_dialect = {
    .name = "preview",
    .flags = DIALECT_OWN_AUTH,
    .claims = preview_claims,
    .serve = preview_serve,
    .doors = doors,
    .ndoors = 1,
    .fail = preview_fail,
};
