/* Who may reach a server inside a sandbox: everybody, or those who bring its token. */
#include "api/preview/preview.h"
#include "base/enc.h"
#include "core/host/auth.h"
#include "core/volume/volume.h"
#include "crypto/digest.h"
#include <stdio.h>

#define PAGE 128

static bool same(struct str got, const char *want)
{
    size_t n = want ? strlen(want) : 0;
    return n && got.p && got.n == n && mem_eq_ct(got.p, want, n);
}

/* In the header of any dialect: which one the client speaks is not known here. */
static bool brings(struct api *a, struct http_stream *s, const char *want)
{
    size_t n;
    const struct dialect *const *d = api_dialects(a, &n);
    for (size_t i = 0; i < n; i++)
        if (d[i]->preview_header && same(http_req_header(s, d[i]->preview_header), want))
            return true;
    return false;
}

static bool takes_preview_token(struct api *a, struct str name)
{
    size_t n;
    const struct dialect *const *d = api_dialects(a, &n);
    for (size_t i = 0; i < n; i++)
        if (d[i]->preview_header && str_ieqz(name, d[i]->preview_header))
            return true;
    return false;
}

/* ---- credentials that stay on our side ---- */
static bool opens_sandbox(const struct sandbox *sb, struct str token)
{
    char derived[PREVIEW_DERIVED];
    preview_derived_token(sb, derived);
    return same(token, sb->token) || same(token, sb->kept.preview_token) || same(token, derived);
}

static bool opens_some_sandbox(struct core *c, struct str token)
{
    struct sandbox *page[PAGE];
    struct sandbox_filter f = {0};
    char cursor[24];
    for (bool more = true; more;) {
        size_t n = sandbox_list(c, &f, page, PAGE, &more, NULL);
        if (!n || n == SIZE_MAX)
            return false;
        for (size_t i = 0; i < n; i++)
            if (opens_sandbox(page[i], token))
                return true;
        (void)snprintf(cursor, sizeof cursor, "%lld", (long long)page[n - 1]->created_ns);
        f.cursor = cursor;
    }
    return false;
}

static bool opens_some_volume(struct core *c, struct str token)
{
    struct volume *all[PAGE];
    size_t n = volume_list(c, &caller_daemon, all, PAGE);
    for (size_t i = 0; i < n && i < PAGE; i++)
        if (same(token, all[i]->token))
            return true;
    return false;
}

/* "Bearer KEY" and "KEY" alike: what stands last. */
static struct str last_word(struct str v)
{
    const char *space = v.n ? memrchr(v.p, ' ', v.n) : NULL;
    return space ? (struct str){space + 1, v.n - (size_t)(space + 1 - v.p)} : v;
}

bool preview_keeps(struct api *a, const struct http_field *f)
{
    struct core *c = api_core(a);
    struct str word = last_word(f->value);
    if (str_ieqz(f->name, "X-API-Key") || takes_preview_token(a, f->name))
        return true;
    bool credential = str_ieqz(f->name, "Authorization") || str_ieqz(f->name, "X-Access-Token");
    if (credential || str_starts(word, core_config(c)->key_prefix))
        return auth_find(c, word) ||
               (credential && (opens_some_sandbox(c, word) || opens_some_volume(c, word)));
    return false;
}

void preview_derived_token(const struct sandbox *sb, char out[PREVIEW_DERIVED])
{
    unsigned char mac[SHA256_BYTES];
    *out = 0;
    if (!*sb->token)
        return; /* it would be everybody's */
    hmac_sha256(sb->token, strlen(sb->token), "traffic", 7, mac);
    hex_encode(mac, (PREVIEW_DERIVED - 1) / 2, out);
}

bool preview_has_derived(struct api *a, struct http_stream *s, const struct sandbox *sb)
{
    char want[PREVIEW_DERIVED];
    preview_derived_token(sb, want);
    return brings(a, s, want);
}

struct may preview_may_guest(struct api *a, struct http_stream *s, const struct sandbox *sb)
{
    const char *want = sb->kept.preview_token;
    if (!want || brings(a, s, want) || preview_has_derived(a, s, sb))
        return (struct may){0};
    return (struct may){.status = 403, .say = "the token of its previews is missing or wrong"};
}
