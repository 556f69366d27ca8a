/* Strict JSON in: no duplicate keys, depth at most 32, valid UTF-8, no \u0000,
 * nothing after the value. The caller bounds the size before it calls. Errors
 * carry the path: "limits.cpu: not an integer", "mounts[2].path: missing".
 *
 * A struct json is a view into one tree; json_free(root) frees the tree and
 * every view taken from it. Strings handed out live as long as the root, hold
 * no NUL and are NUL-terminated. Getters take obj == NULL as "absent", so
 * optional sections chain. An explicit null counts as absent. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define JSON_DEPTH_MAX 32

struct json;
enum json_type { JSON_NONE /* NULL view */, JSON_NIL, JSON_BOOL, JSON_INT, JSON_FLOAT, JSON_STR, JSON_ARR, JSON_OBJ };

struct json *json_parse(const char *p, size_t n, struct err *e);
struct json *json_parse_obj(const char *p, size_t n, struct err *e); /* the root must be an object */
void json_free(struct json *root); /* NULL is fine; only for roots */
static inline void cleanup_json(struct json **j) { json_free(*j); }
#define auto_json __attribute__((cleanup(cleanup_json))) struct json *

enum json_type json_kind(const struct json *j);
const char *json_path(struct json *j, char *out, size_t cap); /* "limits.cpu"; "body" for the root */

struct json *json_get(struct json *obj, const char *key);     /* NULL if absent, null, or obj is no object */
bool json_has(struct json *obj, const char *key);             /* present, even as null */
size_t json_len(const struct json *j);                        /* array or object size, else 0 */
struct json *json_at(struct json *arr, size_t i);             /* NULL past the end */
/* for (void *it = json_first(o); it; it = json_next(o, it)) { json_iter_key(it); json_iter_value(o, it); } in text order */
void *json_first(struct json *obj);
void *json_next(struct json *obj, void *it);
struct str json_iter_key(void *it);
struct json *json_iter_value(struct json *obj, void *it);     /* also for null: kind JSON_NIL */

/* Fields of an object: 0, or -1 with a path. Absent: -1 if required, else *ret keeps what it had. */
int json_str(struct json *obj, const char *key, struct str *ret, bool required, struct err *e);
int json_obj(struct json *obj, const char *key, struct json **ret, bool required, struct err *e);
int json_arr(struct json *obj, const char *key, struct json **ret, bool required, struct err *e);
/* Absent: *ret = def. An integral real (300.0) is an integer. */
int json_i64(struct json *obj, const char *key, int64_t min, int64_t max, int64_t def, int64_t *ret, struct err *e);
int json_f64(struct json *obj, const char *key, double min, double max, double def, double *ret, struct err *e);
int json_bool(struct json *obj, const char *key, bool def, bool *ret, struct err *e);

/* The value itself (array elements, iteration); -1 with its path when of another type. */
int json_to_str(struct json *j, struct str *ret, struct err *e);
int json_to_i64(struct json *j, int64_t min, int64_t max, int64_t *ret, struct err *e);
int json_to_f64(struct json *j, double min, double max, double *ret, struct err *e);
int json_to_bool(struct json *j, bool *ret, struct err *e);

int json_only(struct json *obj, struct err *e, ... /* const char *key, …, NULL */) __attribute__((sentinel)); /* refuses other keys, naming the first */
int json_need(struct json *obj, struct err *e, ... /* const char *key, …, NULL */) __attribute__((sentinel)); /* all present, not null */
int json_fail(struct json *j, struct err *e, const char *why); /* E_INVALID "path: why" */

struct buf;
void json_dump(struct json *j, struct buf *out); /* compact text of the value, keys in text order (pass-through of metadata) */
