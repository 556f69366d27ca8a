/* Secrets as E2B has them: values go in and never come out. They are what rules
 * of a network name as ${e2b.secrets.NAME}. */
#include "api/e2b/control/routes.h"
#include "api/e2b/e2b.h"
#include "api/render.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/network/secret.h"
#include <stdio.h>
#include <stdlib.h>

static void put_secret(struct jw *w, const struct secret *k)
{
    jw_obj(w);
    jw_kv_str(w, "secretID", k->id);
    jw_kv_str(w, "name", k->label);
    jw_kv_u64(w, "currentVersion", k->version);
    jw_kv_obj(w, "metadata");
    for (size_t i = 0; i < k->metadata.n; i++)
        jw_kv_str(w, k->metadata.at[i].k, k->metadata.at[i].v);
    jw_end(w);
    put_time(w, "createdAt", k->created_ns);
    put_time(w, "updatedAt", k->updated_ns);
    jw_end(w);
}

static void reply_secret(struct http_stream *s, int status, const struct secret *k)
{
    struct jw *w = reply_begin(s);
    put_secret(w, k);
    reply_send(s, status);
}

/* Of {secret}, an id or a name; NULL: the 404 is out. */
static struct secret *find(struct api *a, struct http_stream *s)
{
    struct str t = http_param(s, "secret");
    bool text = t.p && strlen(t.p) == t.n;
    struct err e = {0};
    struct secret *k = text ? api_secret(a, s, t.p, &e) : NULL;
    if (k)
        return k;
    if (e.code == E_FORBIDDEN || e.code == E_CONFLICT) {
        api_fail(s, &e, ABOUT_SECRET);
        return NULL;
    }
    e2b_problem(s, 404, "Secret '%.*s' not found", (int)(t.n > 64 ? 64 : t.n), t.p ? t.p : "");
    return NULL;
}

/* ---- list: by name, in pages ---- */
#define TOKEN_MARK "after-" /* a name alone could not be told from nonsense */

static bool is_name(const char *full)
{
    char name[FULL_NAME];
    (void)snprintf(name, sizeof name, "%.*s", (int)full_name_len(full), full);
    return secret_name_ok(name);
}

void e2b_secrets(struct http_stream *s, void *a)
{
    struct err e;
    uint64_t limit;
    auto_buf token = {0};
    const char *after;
    size_t mark = sizeof TOKEN_MARK - 1;
    if (param_u64(s, "limit", 1, 100, 100, &limit, &e) ||
        param_text(s, "nextToken", FULL_NAME + mark, &token, &after, &e) ||
        (after && (strncmp(after, TOKEN_MARK, mark) || !is_name(after + mark)) &&
         err_set(&e, E_INVALID, "Invalid next token"))) {
        api_fail(s, &e, ABOUT_REQUEST);
        return;
    }
    after = after ? after + mark : NULL;
    auto_free struct secret **k = xcalloc(SECRETS_MAX, sizeof(struct secret *));
    struct caller who = api_caller(a, s);
    size_t n = secret_list(api_core(a), &who, k, SECRETS_MAX), i = 0;
    struct jw *w = reply_begin(s);
    jw_arr(w);
    while (after && i < n && strcmp(k[i]->name, after) <= 0)
        i++;
    for (; i < n && limit; i++, limit--)
        put_secret(w, k[i]);
    jw_end(w);
    if (i && i < n)
        (void)http_headerf(s, "X-Next-Token", TOKEN_MARK "%s",
                           k[i - 1]->name); /* nothing is sent yet */
    reply_send(s, 200);
}

/* ---- values ---- */
struct storing {
    struct req r;
    int status;
    char id[22];
};

static void on_stored(void *arg, const struct err *e)
{
    struct storing *st = arg;
    struct err gone;
    if (!req_back(&st->r))
        return;
    const struct secret *k = secret_find_for(api_core(st->r.api), &caller_daemon, st->id, NULL);
    if (e || !k) {
        if (!e)
            err_set(&gone, E_GONE, "the secret was deleted meanwhile");
        req_fail(&st->r, e ? e : &gone, ABOUT_REQUEST);
        return;
    }
    reply_secret(st->r.s, st->status, k);
    req_end(&st->r);
}

/* have: the one whose value this is to be; NULL: a new one. */
static void store(struct http_stream *s, struct api *a, const char *p, size_t n,
                  const struct secret *have)
{
    struct err e;
    struct str name = {0}, value = {0};
    struct kv metadata = {0};
    auto_json j = json_parse_obj(p, n, &e);
    int bad = !j || (!have && json_str(j, "name", &name, true, &e)) ||
              json_str(j, "value", &value, true, &e) || body_meta(j, "metadata", &metadata, &e);
    struct caller who = api_caller(a, s);
    if (!bad && !have && secret_of_tenant(api_core(a), who.tenant, name.p))
        bad = err_set(&e, E_CONFLICT, "a secret named '%.63s' exists already", name.p);
    struct storing *st = req_new(a, s, sizeof *st, NULL);
    if (!bad) {
        struct secret_spec sp = {.name = have ? have->label : name.p,
                                 .tenant = have ? have->tenant : who.tenant,
                                 .value = value,
                                 .metadata = !have || json_has(j, "metadata") ? &metadata : NULL,
                                 .calls_max = have ? have->calls_max : 0,
                                 .bytes_max = have ? have->bytes_max : 0};
        st->status = have ? 200 : 201;
        req_hold(&st->r);
        bad = secret_put(api_core(a), &sp, on_stored, st, &e);
        if (bad)
            (void)req_back(&st->r); /* the callback will not fire */
        else
            memcpy(st->id, secret_of_tenant(api_core(a), sp.tenant, sp.name)->id, sizeof st->id);
    }
    kv_free(&metadata);
    if (bad)
        req_fail(&st->r, &e, ABOUT_REQUEST);
}

static void on_new(struct http_stream *s, void *a, const char *p, size_t n)
{
    store(s, a, p, n, NULL);
}
static void on_update(struct http_stream *s, void *a, const char *p, size_t n)
{
    const struct secret *k = find(a, s);
    if (k)
        store(s, a, p, n, k);
}
void e2b_secret_new(struct http_stream *s, void *a) { api_body(a, s, on_new); }
void e2b_secret_update(struct http_stream *s, void *a) { api_body(a, s, on_update); }

void e2b_secret_get(struct http_stream *s, void *a)
{
    const struct secret *k = find(a, s);
    if (k)
        reply_secret(s, 200, k);
}

void e2b_secret_delete(struct http_stream *s, void *a)
{
    struct secret *k = find(a, s);
    if (!k)
        return;
    secret_delete(api_core(a), k);
    reply_none(s);
}
