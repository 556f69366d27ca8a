/* API keys. The plain key is in one reply and nowhere else. */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/auth.h"

#define LIST_MAX 10000

static void on_create_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    const char *name;
    char plain[45];
    struct key *k;
    auto_json j = body_parse(p, n, "KeyCreate", &e);
    if (!j || body_text(j, "name", 64, &name, true, &e) || auth_create(api_core(a), name, plain, &k, &e)) {
        problem_about(s, &e, ABOUT_KEY);
        return;
    }
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_str(&w, "id", k->id);
    jw_kv_str(&w, "name", k->name);
    jw_kv_str(&w, "key", plain);
    jw_end(&w);
    (void)http_header(s, "Cache-Control", "no-store");
    reply_json(s, 201, &b);
}
void keys_create(struct http_stream *s, void *a) { api_body(a, s, on_create_body); }

void keys_list(struct http_stream *s, void *a)
{
    auto_free struct key **k = xcalloc(LIST_MAX, sizeof(struct key *));
    size_t n = auth_list(api_core(a), k, LIST_MAX);
    struct buf b = {0};
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w);
    jw_kv_arr(&w, "keys");
    for (size_t i = 0; i < n && i < LIST_MAX; i++) {
        jw_obj(&w);
        jw_kv_str(&w, "id", k[i]->id);
        jw_kv_str(&w, "name", k[i]->name);
        jw_kv_str(&w, "prefix", k[i]->prefix);
        put_time(&w, "created_at", k[i]->created_ns);
        put_time(&w, "last_used_at", k[i]->last_used_ns);
        jw_end(&w);
    }
    jw_end(&w);
    jw_end(&w);
    reply_json(s, 200, &b);
}

void keys_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct str id = http_param(s, "id");
    int bad = !id_ok(id);
    if (bad)
        err_set(&e, E_NOT_FOUND, "no key has such an id");
    else
        bad = auth_revoke(api_core(a), id.p, &e);
    if (bad)
        problem_about(s, &e, ABOUT_KEY);
    else
        reply_none(s);
}
