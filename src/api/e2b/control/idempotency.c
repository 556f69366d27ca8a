/* Idempotency-Key of a create: asked twice with one key, there is one sandbox.
 * The key is an option of the sandbox it made, so it outlives the daemon and
 * holds for as long as that sandbox exists. Its forks do not have it. Every
 * tenant has keys of its own. */
#include "api/e2b/control/sandboxes.h"
#include "api/e2b/e2b.h"
#include "api/gate.h"
#include "crypto/digest.h"
#include <stdio.h>

#define OPT_KEY  "e2b.create_key_once"
#define OPT_BODY "e2b.create_body_once"
#define KEY_MAX  255
#define PAGE     128

static bool key_ok(struct str k)
{
    for (size_t i = 0; i < k.n; i++)
        if (!((k.p[i] >= 'a' && k.p[i] <= 'z') || (k.p[i] >= '0' && k.p[i] <= '9') ||
              k.p[i] == '-'))
            return false;
    return k.n && k.n <= KEY_MAX;
}

static struct sandbox *made_with(struct core *c, const char *tenant, struct str key)
{
    struct sandbox *page[PAGE];
    struct sandbox_filter f = {.states = 1u << SB_CREATING | 1u << SB_RUNNING | 1u << SB_PAUSING |
                                         1u << SB_PAUSED};
    char cursor[24];
    for (bool more = true; more;) {
        size_t n = sandbox_list(c, &f, page, PAGE, &more, NULL);
        if (!n || n == SIZE_MAX)
            break;
        for (size_t i = 0; i < n; i++) {
            const char *has = kv_get(&page[i]->kept.dialect, OPT_KEY);
            if (has && str_eqz(key, has) && !strcmp(sandbox_tenant(page[i]), tenant))
                return page[i];
        }
        (void)snprintf(cursor, sizeof cursor, "%lld", (long long)page[n - 1]->created_ns);
        f.cursor = cursor;
    }
    return NULL;
}

/* The same call with the same body. */
static void request_hash(struct http_stream *s, const char *body, size_t n, char out[SHA256_HEX])
{
    struct str path = http_path(s);
    struct sha256 *h = sha256_new();
    sha256_add(h, path.p, path.n);
    sha256_add(h, "\n", 1);
    sha256_add(h, body, n);
    sha256_end_hex(h, out);
}

bool e2b_idempotent(struct http_stream *s, struct api *a, const char *body, size_t n,
                    struct kv *opt)
{
    struct str key = http_req_header(s, "Idempotency-Key");
    char hash[SHA256_HEX];
    if (!key.p)
        return false;
    if (!key_ok(key)) {
        e2b_problem(s, 400,
                    "Idempotency-Key must have 1 to %d lower-case letters, digits or hyphens",
                    KEY_MAX);
        return true;
    }
    request_hash(s, body, n, hash);
    struct sandbox *sb = made_with(api_core(a), api_caller(a, s).tenant, key);
    if (!sb) {
        kv_set(opt, S(OPT_KEY), key);
        kv_set(opt, S(OPT_BODY), str_of(hash));
        return false;
    }
    const char *first = kv_get(&sb->kept.dialect, OPT_BODY);
    if (!first || strcmp(first, hash)) {
        e2b_problem_code(s, 422, "idempotency_request_mismatch",
                         "this Idempotency-Key was used with another request; use a new key");
    } else if (sb->state == SB_CREATING) {
        (void)http_header(s, "Retry-After", "1"); /* nothing is sent yet */
        (void)http_header(s, "Should-Retry", "true");
        e2b_problem_code(s, 409, "idempotency_in_progress",
                         "the first request with this Idempotency-Key is still at work; ask again");
    } else {
        e2b_reply_sandbox(s, a, 201, sb);
    }
    return true;
}

bool e2b_has_key(const struct sandbox *sb) { return kv_get(&sb->kept.dialect, OPT_KEY) != NULL; }
