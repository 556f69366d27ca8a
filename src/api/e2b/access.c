#include "api/e2b/access.h"
#include "api/e2b/signature.h"
#include "api/gate.h"
#include "api/preview/preview.h"
#include "base/clock.h"
#include "core/host/auth.h"
#include "crypto/digest.h"
#include <stdio.h>

#define SEARCH_PAGE 128
#define ANYONE      ((struct may){.anyone = true})

static bool same(struct str got, const char *want)
{
    size_t n = want ? strlen(want) : 0;
    return n && got.p && got.n == n && mem_eq_ct(got.p, want, n);
}

static struct may refuse(int status, const char *say) { return say ? (struct may){.status = status, .say = say} : (struct may){0}; }

static bool is_health(struct http_stream *s) { return str_eqz(http_path(s), "/health") && (http_is(s, "GET") || http_is(s, "HEAD")); }

/* ---- the access token, or an API key. What was sent decides alone. ---- */
/* FOREIGN: a key that does not see the sandbox; NO_RIGHT: one that may only look. */
enum proof { PROVEN, NONE, WRONG_TOKEN, WRONG_KEY, FOREIGN, NO_RIGHT };

/* The peer of the unix socket counts for nothing here: a proxy in front, which passes on what anybody sends to a preview, may be root. */
static enum proof proof(struct api *a, struct http_stream *s, const struct sandbox *sb)
{
    struct str token = http_req_header(s, "X-Access-Token"), key = gate_key(s);
    if (token.p)
        return same(token, sb->token) ? PROVEN : WRONG_TOKEN;
    if (!key.n)
        return NONE;
    struct caller who = auth_caller(auth_check(api_core(a), key, NULL));
    return who.role == ROLE_NONE                       ? WRONG_KEY
           : !caller_sees(&who, sandbox_tenant(sb))    ? FOREIGN
           : !caller_changes(&who, sandbox_tenant(sb)) ? NO_RIGHT
                                                       : PROVEN;
}

/* ---- port 49983 ---- */
struct url_bufs { struct buf path, user, signature, expiration; };
static void url_fini(struct url_bufs *b)
{
    buf_free(&b->path), buf_free(&b->user), buf_free(&b->signature), buf_free(&b->expiration);
}
#define auto_url __attribute__((cleanup(url_fini))) struct url_bufs

static struct str query_text(struct http_stream *s, const char *key, struct buf *b)
{
    if (!http_query_get(s, key, b))
        return (struct str){0};
    return (struct str){b->n ? b->p : "", b->n};
}

static struct signed_url url_read(struct http_stream *s, struct url_bufs *b)
{
    struct signed_url u = {.op = http_is(s, "POST") ? "write" : "read"};
    u.path = query_text(s, "path", &b->path);
    u.user = query_text(s, "username", &b->user);
    u.signature = query_text(s, "signature", &b->signature);
    u.expiration = query_text(s, "signature_expiration", &b->expiration);
    return u;
}

bool e2b_is_files(struct http_stream *s)
{
    return str_eqz(http_path(s), "/files") && (http_is(s, "GET") || http_is(s, "HEAD") || http_is(s, "POST"));
}

/* Do not reorder: an expired URL must first prove that it was ours. The words are E2B's. */
static const char *signature_refusal(struct http_stream *s, const struct sandbox *sb)
{
    auto_url b = {0};
    struct signed_url u = url_read(s, &b);
    if (!u.signature.p)
        return "missing signature query parameter";
    if (!e2b_signature_matches(&u, sb->token))
        return "invalid signature";
    return e2b_signature_expired(&u, clock_wall() / NS_PER_S) ? "signature is already expired" : NULL;
}

/* A known key that has no business here. */
static struct may by_key(enum proof p)
{
    return p == FOREIGN
               ? (struct may){.status = 404}
               : (struct may){
                     .status = 403,
                     .forbidden = true,
                     .say =
                         "this runs things in the sandbox: it needs a key with role member or admin"};
}

struct may e2b_may_envd(struct api *a, struct http_stream *s, const struct sandbox *sb)
{
    enum proof p = proof(a, s, sb);
    if (p == PROVEN)
        return refuse(0, NULL);
    if (p == FOREIGN || p == NO_RIGHT)
        return by_key(p);
    if (is_health(s))
        return ANYONE;
    if (p == NONE && e2b_is_files(s))
        return refuse(401, signature_refusal(s, sb));
    return refuse(
        401,
        p == WRONG_KEY
            ? "the API key is unknown, was revoked or has expired"
            : "unauthorized access, please provide a valid access token or method signing if supported");
}

struct sandbox *e2b_signer(struct api *a, struct http_stream *s)
{
    struct sandbox *page[SEARCH_PAGE];
    struct sandbox_filter f = {.states = 1u << SB_RUNNING};
    char cursor[24];
    bool more = true;
    auto_url b = {0};
    struct signed_url u = url_read(s, &b);
    while (u.signature.p && more) {
        size_t n = sandbox_list(api_core(a), &f, page, SEARCH_PAGE, &more, NULL);
        if (!n || n == SIZE_MAX)
            break;
        for (size_t i = 0; i < n; i++)
            if (page[i]->state == SB_RUNNING && e2b_signature_matches(&u, page[i]->token))
                return page[i];
        (void)snprintf(cursor, sizeof cursor, "%lld", (long long)page[n - 1]->created_ns);
        f.cursor = cursor;
    }
    return NULL;
}

/* ---- port 49999 ---- */
static const char *interpreter_refusal(enum proof p)
{
    switch (p) {
    case PROVEN: return NULL;
    case WRONG_TOKEN: return "X-Access-Token is not this sandbox's: it is envdAccessToken in the answer to its create or connect";
    case WRONG_KEY: return "the API key is unknown, was revoked or has expired";
    default: return "this runs code in the sandbox and needs its access token: send envdAccessToken of its create or connect as X-Access-Token, or an API key as X-API-Key";
    }
}

/* E2B's SDKs send the access token with /execute only; with calls about contexts, which run no code, the traffic token. */
struct may e2b_may_interpreter(struct api *a, struct http_stream *s, const struct sandbox *sb)
{
    struct may traffic = preview_may_guest(a, s, sb);
    if (traffic.status)
        return traffic;
    enum proof p = proof(a, s, sb);
    if (p == NONE && str_eqz(http_segment(s, 0), "contexts") && preview_has_derived(a, s, sb))
        p = PROVEN;
    if (p == FOREIGN || p == NO_RIGHT)
        return by_key(p);
    if (p != PROVEN && is_health(s))
        return ANYONE;
    return refuse(401, interpreter_refusal(p));
}
