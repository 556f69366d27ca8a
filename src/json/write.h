/* JSON out, streaming into a struct buf; stable bytes, no spaces. Commas and
 * colons are the writer's business. Invalid UTF-8 becomes U+FFFD. Misuse
 * (unbalanced ends, more than 64 levels) is a programming error and aborts. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define JW_DEPTH_MAX 64
struct jw {
    struct buf *out;
    bool ascii; /* escape everything beyond ASCII; set after jw_init */
    bool comma; /* the next value or key needs a comma */
    int depth;
    char kind[JW_DEPTH_MAX]; /* '{' or '[' per open level */
};

void jw_init(struct jw *w, struct buf *out);
void jw_obj(struct jw *w);
void jw_arr(struct jw *w);
void jw_end(struct jw *w); /* closes the innermost object or array */
void jw_key(struct jw *w, const char *key);
void jw_key_str(struct jw *w, struct str key);
void jw_str(struct jw *w, struct str s);
void jw_strz(struct jw *w, const char *s); /* NULL: null */
void jw_i64(struct jw *w, int64_t v);
void jw_u64(struct jw *w, uint64_t v);
void jw_f64(struct jw *w, double v); /* shortest that reads back equal; inf and nan: null */
void jw_bool(struct jw *w, bool v);
void jw_null(struct jw *w);
void jw_raw(struct jw *w, struct str json); /* one value, already JSON */
struct json;
void jw_json(struct jw *w, struct json *j); /* one that was read, up to 32 levels of its own; NULL: null */
void jw_base64(struct jw *w, const void *p, size_t n); /* as a string */

void jw_kv_str(struct jw *w, const char *key, const char *v); /* NULL: null */
void jw_kv_strn(struct jw *w, const char *key, struct str v);
void jw_kv_i64(struct jw *w, const char *key, int64_t v);
void jw_kv_u64(struct jw *w, const char *key, uint64_t v);
void jw_kv_f64(struct jw *w, const char *key, double v);
void jw_kv_bool(struct jw *w, const char *key, bool v);
void jw_kv_null(struct jw *w, const char *key);
void jw_kv_obj(struct jw *w, const char *key); /* opens */
void jw_kv_arr(struct jw *w, const char *key); /* opens */
void jw_kv_raw(struct jw *w, const char *key, struct str json);
