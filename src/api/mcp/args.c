#include "api/mcp/args.h"
#include "base/suggest.h"
#include <stdio.h>
#include <string.h>

static int check(struct json *schema, struct json *value, const char *name, struct err *e);

static struct str text(struct json *obj, const char *key)
{
    struct str s = {0};
    if (json_str(obj, key, &s, false, NULL))
        s.p = NULL, s.n = 0;
    return s;
}

static bool is_type(struct json *v, struct str type)
{
    enum json_type t = json_kind(v);
    int64_t whole;
    if (str_eqz(type, "string"))
        return t == JSON_STR;
    if (str_eqz(type, "boolean"))
        return t == JSON_BOOL;
    if (str_eqz(type, "object"))
        return t == JSON_OBJ;
    if (str_eqz(type, "array"))
        return t == JSON_ARR;
    if (str_eqz(type, "integer"))
        return t == JSON_INT ||
               (t == JSON_FLOAT && !json_to_i64(v, INT64_MIN, INT64_MAX, &whole, NULL));
    return str_eqz(type, "number") && (t == JSON_INT || t == JSON_FLOAT);
}

static int check_enum(struct json *schema, struct json *v, const char *name, struct err *e)
{
    struct json *list = json_get(schema, "enum");
    struct str got, one;
    char words[160] = "";
    if (!list || json_to_str(v, &got, NULL))
        return 0;
    for (size_t i = 0; i < json_len(list); i++) {
        if (json_to_str(json_at(list, i), &one, NULL))
            continue;
        if (str_eq(one, got))
            return 0;
        size_t n = strlen(words);
        (void)snprintf(words + n, sizeof words - n, "%s%s", n ? ", " : "", one.p);
    }
    return err_set(e, E_INVALID, "%s: '%.40s' is not one of %s", name, got.p, words);
}

static int check_range(struct json *schema, struct json *v, const char *name, struct err *e)
{
    double n, min, max;
    if (json_to_f64(v, -1e300, 1e300, &n, NULL))
        return 0;
    if (!json_f64(schema, "minimum", -1e300, 1e300, n, &min, NULL) && n < min)
        return err_set(e, E_INVALID, "%s: %g is below the minimum, %g", name, n, min);
    if (!json_f64(schema, "maximum", -1e300, 1e300, n, &max, NULL) && n > max)
        return err_set(e, E_INVALID, "%s: %g is above the maximum, %g", name, n, max);
    return 0;
}

static int check_items(struct json *schema, struct json *v, const char *name, struct err *e)
{
    struct json *of = json_get(schema, "items");
    int64_t min;
    if (json_kind(v) != JSON_ARR)
        return 0;
    if (!json_i64(schema, "minItems", 0, INT64_MAX, 0, &min, NULL) && (int64_t)json_len(v) < min)
        return err_set(e, E_INVALID, "%s: at least %lld needed", name, (long long)min);
    for (size_t i = 0; of && i < json_len(v); i++) {
        char at[96];
        (void)snprintf(at, sizeof at, "%s[%zu]", name, i);
        if (check(of, json_at(v, i), at, e))
            return -1;
    }
    return 0;
}

static void member_name(const char *of, const char *key, char out[96])
{
    (void)snprintf(out, 96, "%s%s%.60s", of, *of ? "." : "", key);
}

static const char *nth_name(const void *arg, int i)
{
    struct json *known = (struct json *)(uintptr_t)arg;
    void *it = json_first(known);
    while (it && i--)
        it = json_next(known, it);
    return it ? json_iter_key(it).p : NULL;
}

static int unknown(struct json *known, const char *of, const char *key, struct err *e)
{
    char at[96];
    const char *like = suggest(key, nth_name, known);
    member_name(of, key, at);
    return like ? err_set(e, E_INVALID, "%s: unknown argument; did you mean '%s'?", at, like)
                : err_set(e, E_INVALID, "%s: unknown argument", at);
}

static int check_members(struct json *schema, struct json *v, const char *name, struct err *e)
{
    struct json *known = json_get(schema, "properties"), *need = json_get(schema, "required");
    struct json *other = json_get(schema, "additionalProperties");
    char at[96];
    struct str key;
    if (json_kind(v) != JSON_OBJ)
        return 0;
    for (void *it = json_first(v); it; it = json_next(v, it)) {
        const char *k = json_iter_key(it).p;
        struct json *of = json_get(known, k);
        member_name(name, k, at);
        if (!of && json_kind(other) == JSON_OBJ)
            of = other;
        if (!of && json_kind(other) == JSON_BOOL)
            return unknown(known, name, k, e);
        if (of && json_kind(json_iter_value(v, it)) == JSON_NIL) {
            if (other != of)
                continue; /* null: as if it were not there */
        }
        if (of && check(of, json_iter_value(v, it), at, e))
            return -1;
    }
    for (size_t i = 0; i < json_len(need); i++) {
        if (json_to_str(json_at(need, i), &key, NULL) || json_get(v, key.p))
            continue;
        member_name(name, key.p, at);
        return err_set(e, E_INVALID, "%s: missing", at);
    }
    return 0;
}

static int check(struct json *schema, struct json *v, const char *name, struct err *e)
{
    struct str type = text(schema, "type");
    if (type.p && !is_type(v, type))
        return err_set(e, E_INVALID, "%s: must be %s %s", *name ? name : "arguments",
                       strchr("aio", *type.p) ? "an" : "a", type.p);
    return check_enum(schema, v, name, e) || check_range(schema, v, name, e) ||
                   check_items(schema, v, name, e) || check_members(schema, v, name, e)
               ? -1
               : 0;
}

int args_check(struct json *schema, struct json *args, struct err *e)
{
    if (args)
        return check(schema, args, "", e);
    auto_json none = json_parse_obj("{}", 2, e);
    return none ? check(schema, none, "", e) : -1;
}

/* ---- members ---- */
static struct json *row(struct json *schema, const char *key)
{
    return json_get(json_get(schema, "properties"), key);
}

struct str args_str(struct json *schema, struct json *args, const char *key)
{
    struct str s = text(args, key);
    return s.p ? s : text(row(schema, key), "default");
}

double args_num(struct json *schema, struct json *args, const char *key, double otherwise)
{
    double v = otherwise;
    (void)json_f64(row(schema, key), "default", -1e300, 1e300, otherwise, &v, NULL);
    (void)json_f64(args, key, -1e300, 1e300, v, &v, NULL); /* checked before */
    return v;
}

bool args_bool(struct json *schema, struct json *args, const char *key)
{
    bool v = false;
    (void)json_bool(row(schema, key), "default", false, &v, NULL);
    (void)json_bool(args, key, v, &v, NULL); /* checked before */
    return v;
}
