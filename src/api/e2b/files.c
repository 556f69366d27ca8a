/* GET /files: one file, at the pace of the slower side. A file of known size
 * is sent with its length and the connection is cut if it turns out shorter; a
 * file that says 0 may still have content (/proc) and is then sent in chunks. */
#include "api/e2b/envd.h"
#include "api/params.h"
#include <stdio.h>
#include <stdlib.h>

#define META_KEY_MAX   246
#define META_TOTAL_MAX 4096

void e2b_files_fail(struct api *a, struct http_stream *s, const char *id, const struct err *e, const char *user)
{
    int status = 500;
    if (!envd_alive(a, id)) {
        envd_gone(s, id);
        return;
    }
    if (envd_no_user(e)) {
        e2b_problem(s, 401, "error looking up user '%s': user: unknown user %s", user ? user : "", user ? user : "");
        return;
    }
    switch (e->code) {
    case E_INVALID: case E_CONFLICT: case E_TOO_LARGE: status = 400; break;
    case E_NOT_FOUND: status = 404; break;
    case E_QUOTA: status = strstr(e->msg, "no space") ? 507 : 429; break;
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
        if (k.n > META_KEY_MAX || total > META_TOTAL_MAX || !printable(v) || !printable(k) || memchr(k.p, '=', k.n)) {
            err_set(e, E_INVALID, k.n > META_KEY_MAX       ? "metadata: a key has more than 246 bytes"
                                  : total > META_TOTAL_MAX ? "metadata: more than 4096 bytes in all"
                                                           : "metadata: only printable ASCII is possible");
            kv_free(&m);
            return NULL;
        }
        int n = snprintf(key, sizeof key, E2B_XATTR "%.*s", (int)k.n, k.p);
        for (char *c = key; *c; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c + 32);
        kv_set(&m, (struct str){key, (size_t)n}, v);
    }
    char **ret = kv_to_env(&m);
    kv_free(&m);
    return ret;
}

struct out {
    struct req r;
    struct file_read *f;
    char id[22], user[65];
    uint64_t left;
    size_t owed;
    bool known; /* the length was promised */
};

static void out_fini(void *arg)
{
    struct out *st = arg;
    if (st->f)
        file_read_cancel(st->f);
}

static void out_drain(struct http_stream *s, void *arg)
{
    struct out *st = arg;
    (void)s;
    size_t n = st->owed;
    st->owed = 0;
    if (st->f && n)
        file_read_consumed(st->f, n);
}

static void out_fail(struct out *st, const struct err *e)
{
    e2b_files_fail(st->r.api, st->r.s, st->id, e, st->user);
    req_end(&st->r);
}

static void out_opened(void *arg, const struct file_entry *en)
{
    struct out *st = arg;
    if (en->type == 'd') {
        struct err e;
        err_set(&e, E_INVALID, "path '%.190s' is a directory", en->path);
        out_fail(st, &e);
        return;
    }
    (void)http_header(st->r.s, "Cache-Control", "no-store"); /* nothing is sent yet: it cannot be too late */
    if (en->type == 'f' && en->size > 0) {
        st->known = true;
        st->left = en->size;
        (void)http_reply_start_len(st->r.s, 200, "application/octet-stream", st->left); /* fails only when the client left */
    }
    if (http_is(st->r.s, "HEAD")) {
        if (!st->known)
            (void)http_reply_start(st->r.s, 200, "application/octet-stream"); /* as above */
        http_end(st->r.s);
        req_end(&st->r);
    }
}

static void out_data(void *arg, const unsigned char *p, size_t n)
{
    struct out *st = arg;
    size_t want = n;
    if (st->r.over)
        return;
    if (st->known && want > st->left)
        want = (size_t)st->left; /* it grew while we read: the promise stands */
    if (!http_started(st->r.s))
        (void)http_reply_start(st->r.s, 200, "application/octet-stream"); /* as above */
    (void)http_write(st->r.s, p, want); /* as above */
    st->left -= st->known ? want : 0;
    if (st->known && !st->left) {
        http_end(st->r.s);
        req_end(&st->r);
    } else if (http_writable(st->r.s)) {
        file_read_consumed(st->f, n);
    } else {
        st->owed += n;
    }
}

static void out_done(void *arg, const struct err *e, uint64_t sent)
{
    struct out *st = arg;
    (void)sent;
    st->f = NULL;
    if (st->r.over)
        return;
    if (!http_started(st->r.s) && e) {
        out_fail(st, e);
        return;
    }
    if (e || st->left)
        http_abort(st->r.s);
    else if (!http_started(st->r.s))
        http_reply(st->r.s, 200, "application/octet-stream", NULL, 0);
    else
        http_end(st->r.s);
    req_end(&st->r);
}

void e2b_files_get(struct api *a, struct http_stream *s, struct sandbox *sb)
{
    static const struct file_read_ops ops = {.opened = out_opened, .data = out_data, .done = out_done};
    struct err e = {0};
    auto_buf path_buf = {0}, user_buf = {0};
    const char *path = param_str(s, "path", &path_buf), *user;
    if (param_text(s, "username", 64, &user_buf, &user, &e) || !(path = envd_path(sb, path ? path : "", &e))) {
        e2b_problem(s, 400, "%s", e.msg);
        return;
    }
    struct out *st = req_new(a, s, sizeof *st, out_fini);
    memcpy(st->id, sb->id, sizeof st->id);
    (void)snprintf(st->user, sizeof st->user, "%s", user ? user : "");
    http_on_drain(s, out_drain, st);
    st->f = file_read_start(sb, path, user, 0, UINT64_MAX, &ops, st, &e);
    if (st->f)
        req_watch(&st->r);
    else
        out_fail(st, &e);
}
