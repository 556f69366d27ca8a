/* Output of programs as text for a model: without terminal control, valid, and no longer than a
 * budget. Pure. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

/* Without escape sequences and other controls; a line that was overwritten with \r keeps its last
 * state; invalid UTF-8 becomes U+FFFD. Appends. */
void text_clean(struct str raw, struct buf *out);

/* What a program wrote: the beginning and the end of it, and how much there was. */
#define PANE_HEAD (16u << 10)
#define PANE_TAIL (64u << 10)
struct pane {
    struct buf head, tail;
    uint64_t total;
};
void pane_add(struct pane *p, const void *bytes, size_t n);
void pane_clear(struct pane *p);
void pane_free(struct pane *p);
struct str pane_last_line(const struct pane *p); /* raw; n == 0: none */
/* Cleaned and at most `budget` bytes (the note comes on top): the first quarter and the last three
 * quarters. True: something is left out; `where` (may be "") says in the note where all of it is. */
bool pane_render(const struct pane *p, size_t budget, const char *where, struct buf *out);

void text_thousands(uint64_t n, struct buf *out); /* 41,220 */
size_t text_lines(struct str s);                  /* a last one without newline counts */
/* "src/ ** / *.py" without the blanks: * and ? stay in one segment, ** crosses them, [a-z] as usual. A
 * pattern without a slash is matched against the last segment. */
bool text_glob(const char *pattern, const char *path);
/* Unified diff of two texts with three lines of context, "" if they are equal. */
void text_diff(struct str path, struct str from, struct str to, struct buf *out);
/* By its name, then by its first bytes; never NULL. */
const char *text_mime(const char *path, struct str begin);
