/* The shapes of bodies and replies, as data: what a request may contain is
 * checked against the same rows the OpenAPI document is made of.
 *
 * members = { name ["!"] ":" type ["?"] } separated by spaces; "!" required,
 * "?" may be null. type: s string, i integer, n number, b boolean, t date-time,
 * m string map, o any object, v any value, x string of base64, e string or integer,
 * a command (array of strings, or string), =one|two one of these strings, [type] array, or the Name of another schema. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "json/read.h"
#include "json/write.h"
#include <stdbool.h>

struct schema { const char *name, *members; };
extern const struct schema schemas[];
extern const size_t nschemas;
const struct schema *schema_find(struct str name);
int schema_only(struct json *obj, const char *name, struct err *e); /* refuses members the schema does not list, naming the first */

struct schema_member { struct str name, type; bool required, null; };
bool schema_next(const char **members, struct schema_member *ret); /* iterate a member list */
void schema_put_type(struct jw *w, struct str type, bool null);    /* the JSON Schema of a type */
void schema_put(struct jw *w, const struct schema *s);
