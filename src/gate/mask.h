/* Hides secrets in what comes back from a server: every occurrence becomes as
 * many asterisks, so lengths stay true; where two overlap, both are hidden.
 * Works across pieces: only bytes that could begin a secret are held back. */
#pragma once
#include "base/buf.h"
#include "base/str.h"

#define MASK_MAX 64 /* every secret of a policy, plain and as a query spells it */
struct mask {
    struct str what[MASK_MAX]; /* copies, owned; zeroed hides nothing */
    int n;
    struct buf tail;
    size_t hidden; /* the first bytes of the tail end a secret that began before them */
};
void mask_add(struct mask *m, const char *p, size_t n); /* shorter than MASK_MIN: not hidden, it would be everywhere */
#define MASK_MIN 4u
void mask_clear(struct mask *m);
void mask_all(const struct mask *m, char *p, size_t n); /* in place, complete text */
/* Bytes in, bytes that can be passed on appended to out. end: nothing more comes, all is passed on. */
void mask_push(struct mask *m, const char *p, size_t n, bool end, struct buf *out);
