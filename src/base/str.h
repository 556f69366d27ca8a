/* Text that is not NUL-terminated, and the strict parsers every outer surface
 * uses for names, ids and numbers. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str { const char *p; size_t n; };
#define S(lit) ((struct str){(lit), sizeof(lit) - 1})
static inline struct str str_of(const char *s) { return (struct str){s, s ? strlen(s) : 0}; }
bool str_eq(struct str a, struct str b);
bool str_eqz(struct str a, const char *b);
bool str_ieqz(struct str a, const char *b); /* ASCII case-insensitive */
bool str_starts(struct str a, const char *prefix);
struct str str_trim(struct str a);          /* spaces and tabs */
bool str_u64(struct str a, uint64_t *ret);  /* decimal digits only, no sign, no overflow */
bool str_i64(struct str a, int64_t *ret);
bool str_utf8(struct str a);                /* valid UTF-8, no NUL */
bool name_ok(struct str a);                 /* ^[a-z0-9][a-z0-9-]{0,62}$ */
bool id_ok(struct str a);                   /* ^[a-z][a-z0-9]{20}$: ours only, see id_make */
void id_make(char kind, char out[22]);      /* kind + 20 random of [a-z0-9], NUL */
