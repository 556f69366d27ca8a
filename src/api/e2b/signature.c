#include "api/e2b/signature.h"
#include "base/buf.h"
#include "base/enc.h"
#include "crypto/digest.h"

void e2b_signature(struct str path, const char *op, struct str user, const char *token, struct str expiration, char out[E2B_SIGNATURE_MAX])
{
    unsigned char sum[SHA256_BYTES];
    auto_buf s = {0}, b64 = {0};
    buf_put(&s, path.p, path.n);
    buf_printf(&s, ":%s:", op);
    buf_put(&s, user.p, user.n);
    buf_printf(&s, ":%s", token);
    if (expiration.p) {
        buf_putc(&s, ':');
        buf_put(&s, expiration.p, expiration.n);
    }
    sha256(s.p, s.n, sum);
    buf_puts(&b64, "v1_");
    base64_encode(sum, sizeof sum, &b64);
    while (b64.n && b64.p[b64.n - 1] == '=')
        b64.n--;
    memcpy(out, b64.p, b64.n);
    out[b64.n] = 0;
}

bool e2b_signature_matches(const struct signed_url *u, const char *token)
{
    char want[E2B_SIGNATURE_MAX];
    if (!*token)
        return false; /* anybody could have made it */
    e2b_signature(u->path, u->op, u->user, token, u->expiration, want);
    return u->signature.n == strlen(want) && mem_eq_ct(u->signature.p, want, u->signature.n);
}

bool e2b_signature_expired(const struct signed_url *u, int64_t now_s)
{
    int64_t at;
    return u->expiration.p && (!str_i64(u->expiration, &at) || at < now_s);
}
