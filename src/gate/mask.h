/* Hides secrets in what comes back from a server: every occurrence becomes as
 * many asterisks, so lengths stay true. Works across pieces: only bytes that
 * could begin a secret are held back. */
#pragma once
#include "base/buf.h"
#include "base/str.h"

#define MASK_MAX 4
struct mask { struct str what[MASK_MAX]; int n; struct buf tail; }; /* what: copies, owned; zeroed hides nothing */
void mask_add(struct mask *m, const char *p, size_t n); /* shorter than 4 bytes: not hidden, it would be everywhere */
void mask_clear(struct mask *m);
void mask_all(const struct mask *m, char *p, size_t n); /* in place, complete text */
/* Bytes in, bytes that can be passed on appended to out. end: nothing more comes, all is passed on. */
void mask_push(struct mask *m, const char *p, size_t n, bool end, struct buf *out);
