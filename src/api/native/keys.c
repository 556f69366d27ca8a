/* API keys. The plain key is in one reply and nowhere else. */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "core/host/auth.h"

#define LIST_MAX 10000

struct naming {
    const char *name;
};
static const struct field key_rows[] = {
    FIELD("name", F_STR, struct naming, name, .flags = F_REQUIRED, .max = 64,
          .help = "A name; it is also the tenant of what the key creates."),
};
const struct shape key_body = SHAPE_OF("KeyCreate", struct naming, key_rows);

static void on_create_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct naming g = {0};
    char plain[AUTH_PLAIN];
    struct key *k;
    auto_json j = native_body(a, p, n, &key_body, &g, &e);
    if (!j || auth_create(api_core(a), g.name, plain, &k, &e)) {
        problem_about(s, &e, ABOUT_KEY);
        return;
    }
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_str(w, "id", k->id);
    jw_kv_str(w, "name", k->name);
    jw_kv_str(w, "key", plain);
    jw_end(w);
    (void)http_header(s, "Cache-Control", "no-store");
    reply_send(s, 201);
}
void keys_create(struct http_stream *s, void *a) { api_body(a, s, on_create_body); }

void keys_list(struct http_stream *s, void *a)
{
    auto_free struct key **k = xcalloc(LIST_MAX, sizeof(struct key *));
    size_t n = auth_list(api_core(a), k, LIST_MAX);
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "keys");
    for (size_t i = 0; i < n && i < LIST_MAX; i++) {
        jw_obj(w);
        jw_kv_str(w, "id", k[i]->id);
        jw_kv_str(w, "name", k[i]->name);
        jw_kv_str(w, "prefix", k[i]->prefix);
        put_time(w, "created_at", k[i]->created_ns);
        put_time(w, "last_used_at", k[i]->last_used_ns);
        jw_end(w);
    }
    jw_end(w);
    jw_end(w);
    reply_send(s, 200);
}

void keys_delete(struct http_stream *s, void *a)
{
    struct err e;
    struct str id = http_param(s, "id");
    int bad = !id_ok(id);
    if (bad)
        err_set(&e, E_NOT_FOUND, "no key has this id");
    else
        bad = auth_revoke(api_core(a), id.p, &e);
    if (bad)
        problem_about(s, &e, ABOUT_KEY);
    else
        reply_none(s);
}
