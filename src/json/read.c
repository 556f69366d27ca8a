/* Views over a jansson tree. A view knows its parent and key, so an error can
 * spell the path; views are made on demand, in blocks owned by the root. */
#include "json/read.h"
#include "base/buf.h"
#include "json/write.h"
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

struct json {
    json_t *v;
    struct json *parent;
    const char *key; /* in the parent object; NULL: element idx of an array */
    size_t idx;
    struct tree *tree;
};
struct block { struct block *next; size_t n; struct json view[31]; };
struct tree {
    struct json root; /* first: json_free gets its address */
    struct block *blocks;
};

static struct json *view(struct json *parent, json_t *v, const char *key, size_t idx)
{
    struct tree *t = parent->tree;
    if (!t->blocks || t->blocks->n == sizeof t->blocks->view / sizeof *t->blocks->view) {
        struct block *b = xmalloc(sizeof *b);
        b->next = t->blocks, b->n = 0;
        t->blocks = b;
    }
    struct json *j = &t->blocks->view[t->blocks->n++];
    *j = (struct json){v, parent, key, idx, t};
    return j;
}

/* jansson's own limit is 2048 levels of recursion; ours is looked up before it starts. */
static bool depth_ok(const char *p, size_t n)
{
    int depth = 0;
    bool in_str = false;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (in_str) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_str = false;
        } else if (c == '"') {
            in_str = true;
        } else if (c == '{' || c == '[') {
            if (++depth > JSON_DEPTH_MAX)
                return false;
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return true;
}

struct json *json_parse(const char *p, size_t n, struct err *e)
{
    if (!depth_ok(p, n)) {
        err_set(e, E_INVALID, "JSON nested deeper than %d levels", JSON_DEPTH_MAX);
        return NULL;
    }
    json_error_t je;
    json_t *v = json_loadb(p ? p : "", n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!v) {
        err_set(e, E_INVALID, "not valid JSON: line %d column %d: %.120s", je.line, je.column, je.text);
        return NULL;
    }
    struct tree *t = xcalloc(1, sizeof *t);
    t->root = (struct json){.v = v, .tree = t};
    return &t->root;
}
struct json *json_parse_obj(const char *p, size_t n, struct err *e)
{
    struct json *j = json_parse(p, n, e);
    if (j && !json_is_object(j->v)) {
        err_set(e, E_INVALID, "body: not a JSON object");
        json_free(j);
        return NULL;
    }
    return j;
}
void json_free(struct json *root)
{
    if (!root)
        return;
    struct tree *t = root->tree;
    for (struct block *b = t->blocks, *next; b; b = next)
        next = b->next, free(b);
    json_decref(t->root.v);
    free(t);
}

enum json_type json_kind(const struct json *j)
{
    if (!j)
        return JSON_NONE;
    switch (json_typeof(j->v)) {
    case JSON_OBJECT: return JSON_OBJ;
    case JSON_ARRAY: return JSON_ARR;
    case JSON_STRING: return JSON_STR;
    case JSON_INTEGER: return JSON_INT;
    case JSON_REAL: return JSON_FLOAT;
    case JSON_TRUE:
    case JSON_FALSE: return JSON_BOOL;
    default: return JSON_NIL;
    }
}

static void put_path(const struct json *j, const char *key, struct buf *b)
{
    if (j && j->parent) {
        put_path(j->parent, NULL, b);
        if (!j->key)
            buf_printf(b, "[%zu]", j->idx);
        else
            buf_printf(b, "%s%.64s", b->n ? "." : "", j->key);
    }
    if (key)
        buf_printf(b, "%s%.64s", b->n ? "." : "", key);
    else if (!b->n && j && !j->parent)
        return;
}
static int fail_at(const struct json *j, const char *key, struct err *e, const char *why)
{
    auto_buf b = {0};
    put_path(j, key, &b);
    return err_set(e, E_INVALID, "%.150s: %s", b.n ? b.p : "body", why);
}
int json_fail(struct json *j, struct err *e, const char *why) { return fail_at(j, NULL, e, why); }
const char *json_path(struct json *j, char *out, size_t cap)
{
    auto_buf b = {0};
    put_path(j, NULL, &b);
    snprintf(out, cap, "%s", b.n ? b.p : "body");
    return out;
}

struct json *json_get(struct json *obj, const char *key)
{
    if (!obj)
        return NULL;
    void *it = json_object_iter_at(obj->v, key); /* NULL for non-objects; its key lives as long as the tree */
    return it && !json_is_null(json_object_iter_value(it)) ? json_iter_value(obj, it) : NULL;
}
bool json_has(struct json *obj, const char *key) { return obj && json_object_get(obj->v, key); }
size_t json_len(const struct json *j)
{
    if (!j)
        return 0;
    return json_is_array(j->v) ? json_array_size(j->v) : json_object_size(j->v);
}
struct json *json_at(struct json *arr, size_t i)
{
    json_t *v = arr ? json_array_get(arr->v, i) : NULL;
    return v ? view(arr, v, NULL, i) : NULL;
}
void *json_first(struct json *obj) { return obj ? json_object_iter(obj->v) : NULL; }
void *json_next(struct json *obj, void *it) { return json_object_iter_next(obj->v, it); }
struct str json_iter_key(void *it) { return str_of(json_object_iter_key(it)); }
struct json *json_iter_value(struct json *obj, void *it)
{
    return view(obj, json_object_iter_value(it), json_object_iter_key(it), 0);
}

/* ---- values ---- */
int json_to_str(struct json *j, struct str *ret, struct err *e)
{
    if (json_kind(j) != JSON_STR)
        return fail_at(j, NULL, e, "not a string");
    *ret = (struct str){json_string_value(j->v), json_string_length(j->v)};
    return 0;
}
int json_to_i64(struct json *j, int64_t min, int64_t max, int64_t *ret, struct err *e)
{
    int64_t v;
    if (json_kind(j) == JSON_INT) {
        v = json_integer_value(j->v);
    } else if (json_kind(j) == JSON_FLOAT) {
        double d = json_real_value(j->v);
        if (d != floor(d) || fabs(d) > 9007199254740992.0)
            return fail_at(j, NULL, e, "not an integer");
        v = (int64_t)d;
    } else {
        return fail_at(j, NULL, e, "not an integer");
    }
    if (v < min || v > max) {
        char why[96];
        snprintf(why, sizeof why, "must be between %lld and %lld", (long long)min, (long long)max);
        return fail_at(j, NULL, e, why);
    }
    *ret = v;
    return 0;
}
int json_to_f64(struct json *j, double min, double max, double *ret, struct err *e)
{
    if (json_kind(j) != JSON_INT && json_kind(j) != JSON_FLOAT)
        return fail_at(j, NULL, e, "not a number");
    double v = json_number_value(j->v);
    if (!(v >= min && v <= max)) {
        char why[96];
        snprintf(why, sizeof why, "must be between %g and %g", min, max);
        return fail_at(j, NULL, e, why);
    }
    *ret = v;
    return 0;
}
int json_to_bool(struct json *j, bool *ret, struct err *e)
{
    if (json_kind(j) != JSON_BOOL)
        return fail_at(j, NULL, e, "not true or false");
    *ret = json_is_true(j->v);
    return 0;
}

/* ---- fields ---- */
/* 1: present in ret; 0: absent and that is fine; -1. */
static int field(struct json *obj, const char *key, bool required, struct json **ret, struct err *e)
{
    if (obj && !json_is_object(obj->v))
        return fail_at(obj, NULL, e, "not an object");
    struct json *j = json_get(obj, key);
    if (!j)
        return required ? fail_at(obj, key, e, "missing") : 0;
    *ret = j;
    return 1;
}
int json_str(struct json *obj, const char *key, struct str *ret, bool required, struct err *e)
{
    struct json *j = NULL;
    int r = field(obj, key, required, &j, e);
    return r > 0 ? json_to_str(j, ret, e) : r;
}
int json_obj(struct json *obj, const char *key, struct json **ret, bool required, struct err *e)
{
    struct json *j = NULL;
    int r = field(obj, key, required, &j, e);
    if (r <= 0)
        return r;
    if (!json_is_object(j->v))
        return fail_at(j, NULL, e, "not an object");
    *ret = j;
    return 0;
}
int json_arr(struct json *obj, const char *key, struct json **ret, bool required, struct err *e)
{
    struct json *j = NULL;
    int r = field(obj, key, required, &j, e);
    if (r <= 0)
        return r;
    if (!json_is_array(j->v))
        return fail_at(j, NULL, e, "not an array");
    *ret = j;
    return 0;
}
int json_i64(struct json *obj, const char *key, int64_t min, int64_t max, int64_t def, int64_t *ret, struct err *e)
{
    struct json *j = NULL;
    int r = field(obj, key, false, &j, e);
    if (!r)
        *ret = def;
    return r > 0 ? json_to_i64(j, min, max, ret, e) : r;
}
int json_f64(struct json *obj, const char *key, double min, double max, double def, double *ret, struct err *e)
{
    struct json *j = NULL;
    int r = field(obj, key, false, &j, e);
    if (!r)
        *ret = def;
    return r > 0 ? json_to_f64(j, min, max, ret, e) : r;
}
int json_bool(struct json *obj, const char *key, bool def, bool *ret, struct err *e)
{
    struct json *j = NULL;
    int r = field(obj, key, false, &j, e);
    if (!r)
        *ret = def;
    return r > 0 ? json_to_bool(j, ret, e) : r;
}

int json_only(struct json *obj, struct err *e, ...)
{
    for (void *it = json_first(obj); it; it = json_next(obj, it)) {
        const char *key = json_object_iter_key(it), *known;
        va_list ap;
        va_start(ap, e);
        while ((known = va_arg(ap, const char *)) && strcmp(known, key))
            ;
        va_end(ap);
        if (!known)
            return fail_at(obj, key, e, "unknown field");
    }
    return 0;
}
int json_need(struct json *obj, struct err *e, ...)
{
    va_list ap;
    const char *key;
    int r = 0;
    va_start(ap, e);
    while (!r && (key = va_arg(ap, const char *)))
        if (!json_get(obj, key))
            r = fail_at(obj, key, e, "missing");
    va_end(ap);
    return r;
}

static void dump(struct jw *w, json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        jw_obj(w);
        for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it)) {
            jw_key(w, json_object_iter_key(it));
            dump(w, json_object_iter_value(it));
        }
        jw_end(w);
        break;
    case JSON_ARRAY:
        jw_arr(w);
        for (size_t i = 0; i < json_array_size(v); i++)
            dump(w, json_array_get(v, i));
        jw_end(w);
        break;
    case JSON_STRING: jw_str(w, (struct str){json_string_value(v), json_string_length(v)}); break;
    case JSON_INTEGER: jw_i64(w, json_integer_value(v)); break;
    case JSON_REAL: jw_f64(w, json_real_value(v)); break;
    case JSON_TRUE: jw_bool(w, true); break;
    case JSON_FALSE: jw_bool(w, false); break;
    default: jw_null(w);
    }
}
void jw_json(struct jw *w, struct json *j)
{
    if (j)
        dump(w, j->v);
    else
        jw_null(w);
}
void json_dump(struct json *j, struct buf *out)
{
    struct jw w;
    jw_init(&w, out);
    jw_json(&w, j);
}
