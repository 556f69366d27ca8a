/* API keys. The plain key is in one reply and nowhere else. An admin makes any; a
 * key whose scope says `keys` makes keys of its own tenant that may no more than
 * it may itself. */
#include "api/native/native.h"
#include "api/params.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "core/host/auth.h"

#define LIST_MAX 10000

struct wish {
    const char *name, *tenant, *role;
    struct json *scope;
    uint64_t expires_s;
};
static const struct field key_rows[] = {
    FIELD("name", F_STR, struct wish, name, .flags = F_REQUIRED, .max = 64, .help = "A name."),
    FIELD(
        "tenant", F_STR, struct wish, tenant, .max = TENANT_NAME_MAX,
        .help =
            "Whose things it sees and makes. Default: of a member or viewer the key's name, else none."),
    FIELD("role", F_WORD, struct wish, role, .words = ROLE_WORDS, .def = "\"member\"",
          .help = "What it may. See rights.md."),
    FIELD("scope", F_JSON, struct wish, scope, .of = &scope_shape,
          .help = "What its role may not exceed. Default: nothing is taken away."),
    FIELD("expires_s", F_INT, struct wish, expires_s, .min = 1, .max = INT32_MAX,
          .help = "It stops working after so many seconds. Default: never."),
};
const struct shape key_body = SHAPE_OF("KeyCreate", struct wish, key_rows);

/* ---- what a caller may give ---- */
static int forbid_more(const char *what, struct err *e)
{
    return err_why(e, REASON_SCOPE, E_FORBIDDEN,
                   "%s: a key makes no key that may more than itself; this needs role admin", what);
}

static bool makes_keys(const struct caller *who)
{
    return who->role == ROLE_ADMIN || (who->role == ROLE_MEMBER && who->scope && who->scope->keys);
}

static int need_maker(const struct caller *who, struct err *e)
{
    return makes_keys(who) ? 0
                           : caller_forbid(who, "admin, or a member key whose scope has keys", e);
}

/* Of a key that is not admin's: its own tenant, at most its role, all its limits, no longer than itself. */
static int within(const struct caller *who, const struct wish *g, struct key_spec *sp,
                  struct err *e)
{
    if (strcmp(sp->tenant ? sp->tenant : "", who->tenant) != 0)
        return forbid_more("tenant", e);
    if (sp->role > who->role || sp->role == ROLE_METRICS) /* the numbers are the whole host's */
        return forbid_more("role", e);
    if (scope_limits(who->scope) && g->scope)
        return err_why(e, REASON_SCOPE, E_FORBIDDEN,
                       "scope: the keys that this key makes have its own scope; leave it out");
    int64_t end = who->key->expires_ns;
    if (end && (!sp->expires_ns || sp->expires_ns > end))
        sp->expires_ns = end;
    return 0;
}

static int inherit_scope(const struct caller *who, struct scope *ret, struct err *e)
{
    auto_buf text = {0};
    struct jw w;
    jw_init(&w, &text);
    scope_put(&w, who->scope);
    int rc = scope_parse_text(text.p, ret, e);
    ret->keys = false;
    return rc;
}

static int read_spec(const struct caller *who, const struct wish *g, struct key_spec *sp,
                     struct err *e)
{
    *sp = (struct key_spec){
        .name = g->name, .tenant = g->tenant, .role = g->role ? role_parse(g->role) : ROLE_MEMBER};
    bool needs_tenant = sp->role == ROLE_MEMBER || sp->role == ROLE_VIEWER;
    if (!sp->tenant && who->role != ROLE_ADMIN)
        sp->tenant = who->tenant;
    else if (!sp->tenant && needs_tenant)
        sp->tenant = g->name;
    if (g->expires_s)
        sp->expires_ns = clock_wall() + (int64_t)g->expires_s * NS_PER_S;
    if (need_maker(who, e) || (who->role != ROLE_ADMIN && within(who, g, sp, e)))
        return -1;
    if (who->role != ROLE_ADMIN && scope_limits(who->scope))
        return inherit_scope(who, &sp->scope, e);
    return scope_parse(g->scope, &sp->scope, e) ? err_wrap(e, "scope") : 0;
}

/* ---- rendering ---- */
static void put_rights(struct jw *w, const struct key *k)
{
    jw_kv_str(w, "id", k->id);
    jw_kv_str(w, "name", k->name);
    jw_kv_str(w, "tenant", *k->tenant ? k->tenant : NULL);
    jw_kv_str(w, "role", role_name(k->role));
    jw_key(w, "scope");
    scope_put(w, &k->scope);
    put_time(w, "expires_at", k->expires_ns);
}

/* ---- calls ---- */
static void on_create_body(struct http_stream *s, void *a, const char *p, size_t n)
{
    struct err e;
    struct wish g = {0};
    struct key_spec sp;
    char plain[AUTH_PLAIN];
    struct key *k;
    struct caller who = api_caller(a, s);
    auto_json j = native_body(a, p, n, &key_body, &g, &e);
    if (!j || read_spec(&who, &g, &sp, &e) || auth_create(api_core(a), &sp, plain, &k, &e)) {
        problem_about(s, &e, ABOUT_KEY);
        return;
    }
    struct jw *w = reply_begin(s);
    jw_obj(w);
    put_rights(w, k);
    jw_kv_str(w, "key", plain);
    jw_end(w);
    (void)http_header(s, "Cache-Control", "no-store");
    reply_send(s, 201);
}
void keys_create(struct http_stream *s, void *a) { api_body(a, s, on_create_body); }

void keys_list(struct http_stream *s, void *a)
{
    auto_free struct key **k = xcalloc(LIST_MAX, sizeof(struct key *));
    struct caller who = api_caller(a, s);
    size_t n = auth_list(api_core(a), k, LIST_MAX);
    struct jw *w = reply_begin(s);
    jw_obj(w);
    jw_kv_arr(w, "keys");
    for (size_t i = 0; i < n && i < LIST_MAX; i++) {
        if (!caller_sees(&who, k[i]->tenant))
            continue;
        jw_obj(w);
        put_rights(w, k[i]);
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
    struct caller who = api_caller(a, s);
    struct str id = http_param(s, "id");
    struct key *k = id.p && strlen(id.p) == id.n ? auth_key_for(api_core(a), &who, id.p, &e)
                                                 : (err_set(&e, E_NOT_FOUND, "no such key"), NULL);
    if (k && who.key != k && need_maker(&who, &e)) /* a key may always revoke itself */
        k = NULL;
    if (k && who.key != k && who.role != ROLE_ADMIN && k->role > who.role) {
        forbid_more("role", &e);
        k = NULL;
    }
    if (!k) {
        problem_about(s, &e, ABOUT_KEY);
        return;
    }
    auth_revoke(api_core(a), k);
    reply_none(s);
}
