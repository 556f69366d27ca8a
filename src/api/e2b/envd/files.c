/* GET /files: one file; what its upload says of metadata; how file errors are told. */
#include "api/e2b/envd/envd.h"
#include "api/gzip.h"
#include "api/params.h"
#include "api/transfer.h"
#include "base/list.h"
#include <stdio.h>
#include <stdlib.h>

#define META_KEY_MAX   246
#define META_TOTAL_MAX 4096

void e2b_files_fail(struct api *a, struct http_stream *s, const char *id, const struct err *e,
                    const char *user)
{
    int status = 500;
    if (!envd_alive(a, id)) {
        envd_gone(s, id);
        return;
    }
    if (envd_no_user(e)) {
        e2b_problem(s, 401, "error looking up user '%s': user: unknown user %s", user ? user : "",
                    user ? user : "");
        return;
    }
    switch (e->code) {
    case E_INVALID:
    case E_CONFLICT:
    case E_TOO_LARGE: status = 400; break;
    case E_NOT_FOUND: status = 404; break;
    case E_QUOTA:
        status = strcasestr(e->msg, "no space") ? 507 : 429;
        break; /* a full disk, or a file whose attributes fill their block */
    case E_DENIED: status = 403; break;
    default: break;
    }
    e2b_problem(s, status, "%s", e->msg);
}

static bool printable(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < 0x20 || s.p[i] > 0x7e)
            return false;
    return true;
}

char **e2b_files_metadata(const struct http_head *h, struct err *e)
{
    static const char prefix[] = "X-Metadata-";
    size_t skip = sizeof prefix - 1, total = 0;
    struct kv m = {0};
    for (uint32_t i = 0; i < h->nfields; i++) {
        struct str k = h->fields[i].name, v = h->fields[i].value;
        char key[sizeof E2B_XATTR + META_KEY_MAX];
        if (k.n <= skip || !str_ieqz((struct str){k.p, skip}, prefix))
            continue;
        k.p += skip, k.n -= skip;
        total += sizeof E2B_XATTR - 1 + k.n + v.n;
        if (k.n > META_KEY_MAX || total > META_TOTAL_MAX || !printable(v) || !printable(k) ||
            memchr(k.p, '=', k.n)) {
            err_set(e, E_INVALID,
                    k.n > META_KEY_MAX       ? "metadata: a key has more than 246 bytes"
                    : total > META_TOTAL_MAX ? "metadata: more than 4096 bytes in all"
                                             : "metadata: only printable ASCII is possible");
            kv_free(&m);
            return NULL;
        }
        int n = snprintf(key, sizeof key, E2B_XATTR "%.*s", (int)k.n, k.p);
        for (char *c = key; *c; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c + 32);
        if (!kv_get(&m, key)) /* the first one counts */
            kv_set(&m, (struct str){key, (size_t)n}, v);
    }
    char **ret = kv_to_env(&m);
    kv_free(&m);
    return ret;
}

struct out {
    struct sending s;
    char id[22], user[65];
};

static void out_fail(struct sending *s, const struct err *e)
{
    struct out *st = container_of(s, struct out, s);
    e2b_files_fail(s->r.api, s->r.s, st->id, e, st->user);
    req_end(&s->r);
}

void e2b_files_get(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    struct err e = {0};
    auto_buf path_buf = {0}, user_buf = {0};
    const char *path = param_str(s, "path", &path_buf), *user;
    if (param_text(s, "username", 64, &user_buf, &user, &e) ||
        !(path = envd_path(sb, path ? path : "", &e))) {
        e2b_problem(s, 400, "%s", e.msg);
        return;
    }
    struct out *st = sending_new(a, s, sizeof *st, out_fail);
    memcpy(st->id, sb->id, sizeof st->id);
    (void)snprintf(st->user, sizeof st->user, "%s", user ? user : "");
    st->s.pack = http_is(s, "GET") && gzip_asked(s) ? gzip_new() : NULL;
    if (sending_start(&st->s, sandbox_agent(sb, &e), path, user, &e))
        out_fail(&st->s, &e);
}
