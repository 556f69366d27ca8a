/* Who may reach a server inside a sandbox: everybody, or those who bring its token. */
#include "api/preview/preview.h"
#include "base/enc.h"
#include "crypto/digest.h"

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

bool preview_is_header(struct api *a, struct str name)
{
    size_t n;
    const struct dialect *const *d = api_dialects(a, &n);
    for (size_t i = 0; i < n; i++)
        if (d[i]->preview_header && str_ieqz(name, d[i]->preview_header))
            return true;
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
