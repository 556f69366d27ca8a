/* Records: the body of requests, replies and events. A record is a sequence
 * of fields { tag(u8) length(u32 le) bytes }. Numbers are 8 bytes le; text is
 * raw bytes; a repeated tag is a list; a field may hold a record. Unknown tags
 * are skipped, so both sides may grow. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

void rec_put(struct buf *b, uint8_t tag, const void *p, size_t n);
void rec_put_str(struct buf *b, uint8_t tag, const char *z); /* nothing if z is NULL */
void rec_put_u64(struct buf *b, uint8_t tag, uint64_t v);
size_t rec_open(struct buf *b, uint8_t tag);    /* start a nested record; returns a mark */
void rec_close(struct buf *b, size_t mark);

struct rec { const unsigned char *p; size_t n; };
struct field { uint8_t tag; struct str v; };
bool rec_next(struct rec *r, struct field *ret); /* false at the end or at malformed bytes (then r->p is NULL) */
bool rec_ok(struct rec r);                       /* whole record is well-formed */
bool rec_get(struct rec r, uint8_t tag, struct str *ret);          /* first of that tag */
bool rec_u64(struct rec r, uint8_t tag, uint64_t *ret);
uint64_t rec_u64_or(struct rec r, uint8_t tag, uint64_t otherwise);
char *rec_dup(struct rec r, uint8_t tag);                          /* NUL-terminated copy; NULL if absent or has a NUL inside */
bool field_u64(struct field f, uint64_t *ret);
static inline struct rec field_rec(struct field f) { return (struct rec){(const unsigned char *)f.v.p, f.v.n}; }
