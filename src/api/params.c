#include "api/params.h"
#include "http/uri.h"
#include <stdlib.h>

/* ---- grammars ---- */
bool env_key_ok(struct str k)
{
    for (size_t i = 0; i < k.n; i++) {
        char c = k.p[i];
        bool alpha = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
        if (!alpha && !(i && c >= '0' && c <= '9'))
            return false;
    }
    return k.n > 0;
}

int mode_parse(struct str t, uint32_t *ret)
{
    uint32_t v = 0;
    if (!t.n || t.n > 5)
        return -1;
    for (size_t i = 0; i < t.n; i++) {
        if (t.p[i] < '0' || t.p[i] > '7')
            return -1;
        v = v * 8 + (uint32_t)(t.p[i] - '0');
    }
    if (v > 07777)
        return -1;
    *ret = v;
    return 0;
}

static bool plain(struct str t) /* no control bytes: it ends up in listings */
{
    for (size_t i = 0; i < t.n; i++)
        if ((unsigned char)t.p[i] < 0x20 || t.p[i] == 0x7f)
            return false;
    return true;
}

bool who_ok(const char *who)
{
    uint64_t pid;
    struct str w = str_of(who);
    if (str_starts(w, "tag:"))
        return w.n > 4 && w.n <= 4 + 128 && plain(w);
    return str_u64(w, &pid) && pid > 0 && pid <= UINT32_MAX;
}

static int env_check(struct str k, struct str v, struct err *e)
{
    int shown = (int)(k.n > 64 ? 64 : k.n);
    if (!env_key_ok(k))
        return err_set(e, E_INVALID, "env: '%.*s' is not a variable name (letters, digits and _, not starting with a digit)", shown, k.p ? k.p : "");
    if (!str_utf8(v))
        return err_set(e, E_INVALID, "env.%.*s: the value must be UTF-8 without NUL", shown, k.p);
    if (k.n + v.n + 2 > PARAM_ARG_MAX)
        return err_set(e, E_TOO_LARGE, "env.%.*s: name and value are over the limit of %d bytes", shown, k.p, PARAM_ARG_MAX);
    return 0;
}

static int meta_check(struct str k, struct str v, struct err *e)
{
    int shown = (int)(k.n > 64 ? 64 : k.n);
    if (!k.n || k.n > 256 || !str_utf8(k))
        return err_set(e, E_INVALID, "metadata: a key has 1 to 256 bytes of UTF-8");
    if (!str_utf8(v))
        return err_set(e, E_INVALID, "metadata.%.*s: the value must be UTF-8 without NUL", shown, k.p);
    if (v.n > PARAM_META_VALUE_MAX)
        return err_set(e, E_TOO_LARGE, "metadata.%.*s: the value is over the limit of %d bytes", shown, k.p, PARAM_META_VALUE_MAX);
    return 0;
}

/* ---- the query ---- */
const char *param_str(struct http_stream *s, const char *key, struct buf *b)
{
    b->n = 0;
    if (!http_query_get(s, key, b))
        return NULL;
    buf_reserve(b, 0);
    b->p[b->n] = 0;
    return b->p;
}

int param_text(struct http_stream *s, const char *key, size_t max, struct buf *b, const char **ret, struct err *e)
{
    const char *t = param_str(s, key, b);
    *ret = NULL;
    if (!t || !*t)
        return 0;
    if (b->n > max)
        return err_set(e, E_INVALID, "%s: at most %zu bytes", key, max);
    if (!plain(str_of(t)))
        return err_set(e, E_INVALID, "%s: control characters are not allowed", key);
    *ret = t;
    return 0;
}

int param_u64(struct http_stream *s, const char *key, uint64_t min, uint64_t max, uint64_t def, uint64_t *ret, struct err *e)
{
    auto_buf b = {0};
    const char *t = param_str(s, key, &b);
    uint64_t v;
    if (!t || !*t) {
        *ret = def;
        return 0;
    }
    if (!str_u64(str_of(t), &v))
        return err_set(e, E_INVALID, "%s: not a number", key);
    if (v < min || v > max)
        return err_set(e, E_INVALID, "%s: must be %llu … %llu", key, (unsigned long long)min, (unsigned long long)max);
    *ret = v;
    return 0;
}

int param_bool(struct http_stream *s, const char *key, bool def, bool *ret, struct err *e)
{
    auto_buf b = {0};
    const char *t = param_str(s, key, &b);
    if (!t)
        *ret = def;
    else if (!strcmp(t, "1") || !strcmp(t, "true"))
        *ret = true;
    else if (!strcmp(t, "0") || !strcmp(t, "false"))
        *ret = false;
    else
        return err_set(e, E_INVALID, "%s: must be 1 or 0", key);
    return 0;
}

/* KEY of family.KEY and of family[KEY], which is how OpenAPI clients write an object */
static bool family_key(struct str name, const char *family, struct str *ret)
{
    size_t n = strlen(family);
    if (!str_starts(name, family) || name.n < n + 2 || (name.p[n] != '.' && name.p[n] != '['))
        return false;
    bool bracket = name.p[n] == '[';
    *ret = (struct str){name.p + n + 1, name.n - n - 1 - bracket};
    return !bracket || name.p[name.n - 1] == ']';
}

int param_map(struct http_stream *s, const char *family, bool env, struct kv *ret, struct err *e)
{
    struct str rest = http_query(s), k, v;
    while (query_next(&rest, &k, &v)) {
        auto_buf key = {0}, value = {0};
        if (!uri_decode(k, true, &key) || !uri_decode(v, true, &value))
            return err_set(e, E_INVALID, "the query has a broken %%-escape");
        struct str name = {key.p ? key.p : "", key.n}, text = {value.p ? value.p : "", value.n};
        if (!family_key(name, family, &name))
            continue;
        if (env ? env_check(name, text, e) : meta_check(name, text, e))
            return -1;
        if (ret->n >= (env ? PARAM_ENV_MAX : PARAM_META_MAX))
            return err_set(e, E_TOO_LARGE, "%s: at most %d entries", family, env ? PARAM_ENV_MAX : PARAM_META_MAX);
        kv_set(ret, name, text);
    }
    return 0;
}

/* ---- members of a body ---- */
static int string_map(struct json *obj, const char *key, size_t max, int (*check)(struct str, struct str, struct err *), struct kv *ret,
                      struct err *e)
{
    struct json *m = NULL;
    if (json_obj(obj, key, &m, false, e))
        return -1;
    if (!m)
        return 0;
    if (json_len(m) > max)
        return err_set(e, E_TOO_LARGE, "%s: at most %zu entries", key, max);
    for (void *it = json_first(m); it; it = json_next(m, it)) {
        struct str v;
        if (json_to_str(json_iter_value(m, it), &v, e) || check(json_iter_key(it), v, e))
            return -1;
        kv_set(ret, json_iter_key(it), v);
    }
    return 0;
}

int body_env(struct json *obj, const char *key, struct kv *ret, struct err *e) { return string_map(obj, key, PARAM_ENV_MAX, env_check, ret, e); }
int body_meta(struct json *obj, const char *key, struct kv *ret, struct err *e) { return string_map(obj, key, PARAM_META_MAX, meta_check, ret, e); }
