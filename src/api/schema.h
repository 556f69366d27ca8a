/* JSON Schema (2020-12, as OpenAPI 3.1 uses it) of the tables of api/fields.h. */
#pragma once
#include "api/fields.h"
#include "json/write.h"

void schema_put(struct jw *w, const struct shape *sh, const struct config *cfg);        /* an object with its members */
void schema_put_field(struct jw *w, const struct field *f, const struct config *cfg);   /* one member */
void schema_put_ref(struct jw *w, const struct shape *sh);                              /* {"$ref":…} */
const char *schema_kind(const struct field *f);                                         /* its type in a word, for people */
