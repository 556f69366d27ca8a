#include "api/schema.h"
#include "api/params.h"
#include <stdlib.h>

void schema_put_ref(struct jw *w, const struct shape *sh)
{
    auto_buf ref = {0};
    buf_printf(&ref, "#/components/schemas/%s", sh->name);
    jw_obj(w);
    jw_kv_strn(w, "$ref", (struct str){ref.p, ref.n});
    jw_end(w);
}

static void put_words(struct jw *w, const char *words)
{
    struct str one;
    jw_kv_str(w, "type", "string");
    jw_kv_arr(w, "enum");
    for (size_t i = 0; field_word(words, i, &one); i++)
        jw_str(w, one);
    jw_end(w);
}

static void put_string(struct jw *w, const struct field *f, const char *format)
{
    jw_kv_str(w, "type", "string");
    if (format)
        jw_kv_str(w, "format", format);
    if (f->type == F_NAME)
        jw_kv_str(w, "pattern", "^[a-z0-9][a-z0-9-]{0,62}$");
    if (f->type == F_MODE)
        jw_kv_str(w, "pattern", "^[0-7]{1,5}$");
    if (f->type == F_STR || f->type == F_PATH)
        jw_kv_i64(w, "minLength", 1);
    if (f->max)
        jw_kv_i64(w, "maxLength", f->max);
}

static void put_range(struct jw *w, const struct field *f, const struct config *cfg)
{
    int64_t max = field_max(f, cfg);
    if (!f->min && !max)
        return; /* an answer: any number */
    if (f->type == F_CORES) {
        jw_kv_f64(w, "minimum", (double)f->min / 1000);
        jw_kv_f64(w, "maximum", (double)max / 1000);
        return;
    }
    jw_kv_i64(w, "minimum", f->min);
    if (max != INT64_MAX)
        jw_kv_i64(w, "maximum", max);
}

static void put_items(struct jw *w, const struct field *f)
{
    jw_kv_str(w, "type", "array");
    jw_key(w, "items");
    if (f->type == F_RULES) {
        jw_obj(w);
        jw_kv_arr(w, "anyOf");
        jw_raw(w, S("{\"type\":\"string\"}"));
        schema_put_ref(w, f->of);
        jw_end(w);
        jw_end(w);
    } else if (f->of)
        schema_put_ref(w, f->of);
    else if (f->type == F_PORTS)
        jw_raw(w, S("{\"type\":[\"integer\",\"string\"]}"));
    else
        jw_raw(w, S("{\"type\":\"string\"}"));
    if (f->max)
        jw_kv_i64(w, "maxItems", f->max);
}

static void put_map(struct jw *w, int64_t max)
{
    jw_kv_str(w, "type", "object");
    jw_kv_raw(w, "additionalProperties", S("{\"type\":\"string\"}"));
    if (max)
        jw_kv_i64(w, "maxProperties", max);
}

static void put_type(struct jw *w, const struct field *f, const struct config *cfg)
{
    switch (f->type) {
    case F_STR:
    case F_PATH:
    case F_TEXT:
    case F_NAME:
    case F_MODE: put_string(w, f, NULL); break;
    case F_BASE64: put_string(w, f, "byte"); break;
    case F_TIME: put_string(w, f, "date-time"); break;
    case F_BYTES: put_string(w, f, "binary"); break;
    case F_WORD:
    case F_CHOICE: put_words(w, f->words); break;
    case F_INT:
        jw_kv_str(w, "type", "integer");
        put_range(w, f, cfg);
        break;
    case F_CORES: case F_NUM:
        jw_kv_str(w, "type", "number");
        put_range(w, f, cfg);
        break;
    case F_BOOL: jw_kv_str(w, "type", "boolean"); break;
    case F_SIGNAL: jw_kv_raw(w, "type", S("[\"string\",\"integer\"]")); break;
    case F_ENV: put_map(w, PARAM_ENV_MAX); break;
    case F_META: put_map(w, PARAM_META_MAX); break;
    case F_MAP: put_map(w, 0); break;
    case F_OBJECT:
        jw_kv_str(w, "type", "object");
        jw_kv_bool(w, "additionalProperties", true);
        break;
    case F_ARGV:
        jw_kv_raw(
            w, "oneOf",
            S("[{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"minItems\":1},{\"type\":\"string\"}]"));
        break;
    case F_LIST:
    case F_STRS:
    case F_RULES:
    case F_PORTS: put_items(w, f); break;
    case F_OBJ:
    case F_JSON: break; /* a reference, or anything */
    default: abort();
    }
}

/* A reference that may be null, or that has words of its own beside it, is one of anyOf. */
static void put_of(struct jw *w, const struct field *f)
{
    if (!(f->flags & F_NULL)) {
        jw_kv_arr(w, "allOf");
    } else {
        jw_kv_arr(w, "anyOf");
        jw_raw(w, S("{\"type\":\"null\"}"));
    }
    schema_put_ref(w, f->of);
    jw_end(w);
}

void schema_put_field(struct jw *w, const struct field *f, const struct config *cfg)
{
    bool of = f->of && (f->type == F_OBJ || f->type == F_JSON);
    jw_obj(w);
    if (of) {
        put_of(w, f);
    } else if (f->flags & F_NULL) { /* OpenAPI 3.1: null is a type of its own */
        jw_kv_arr(w, "anyOf");
        jw_obj(w);
        put_type(w, f, cfg);
        jw_end(w);
        jw_raw(w, S("{\"type\":\"null\"}"));
        jw_end(w);
    } else {
        put_type(w, f, cfg);
    }
    if (f->def)
        jw_kv_raw(w, "default", str_of(f->def));
    if (f->help)
        jw_kv_str(w, "description", f->help);
    jw_end(w);
}

void schema_put(struct jw *w, const struct shape *sh, const struct config *cfg)
{
    bool any = false;
    jw_obj(w);
    jw_kv_str(w, "type", "object");
    if (sh->help)
        jw_kv_str(w, "description", sh->help);
    jw_kv_obj(w, "properties");
    for (size_t i = 0; i < sh->n; i++) {
        jw_key(w, sh->rows[i].name);
        schema_put_field(w, &sh->rows[i], cfg);
        any |= sh->rows[i].flags & F_REQUIRED;
    }
    jw_end(w);
    if (any) {
        jw_kv_arr(w, "required");
        for (size_t i = 0; i < sh->n; i++)
            if (sh->rows[i].flags & F_REQUIRED)
                jw_strz(w, sh->rows[i].name);
        jw_end(w);
    }
    if (sh->size)
        jw_kv_bool(w, "additionalProperties",
                   false); /* a request: the reader refuses what is not in the table */
    jw_end(w);
}

const char *schema_kind(const struct field *f)
{
    static const char *const kind[] = {
        [F_STR] = "string",
        [F_PATH] = "path",
        [F_TEXT] = "text",
        [F_BASE64] = "base64",
        [F_NAME] = "name",
        [F_INT] = "integer",
        [F_CORES] = "number",
        [F_BOOL] = "boolean",
        [F_WORD] = "one of",
        [F_CHOICE] = "one of",
        [F_MODE] = "octal text",
        [F_SIGNAL] = "name or number",
        [F_ENV] = "string map",
        [F_META] = "string map",
        [F_ARGV] = "array of strings, or string",
        [F_OBJ] = "object",
        [F_LIST] = "array",
        [F_JSON] = "any value",
        [F_TIME] = "time",
        [F_NUM] = "number",
        [F_MAP] = "string map",
        [F_OBJECT] = "object",
        [F_STRS] = "array of strings",
        [F_RULES] = "array of strings or",
        [F_PORTS] = "array of ports",
        [F_BYTES] = "bytes",
    };
    return kind[f->type];
}
