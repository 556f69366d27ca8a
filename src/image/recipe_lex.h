/* Lines and words of recipe files; used by recipe.c only. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>

/* The next instruction, continuations joined, comments and blank lines gone,
 * into `out` (NUL-terminated). 1, 0 at the end, -1. *line: where it starts. */
struct lex { const char *p, *end; int line; };
int lex_line(struct lex *l, struct buf *out, int *line, struct err *e);

/* One word in the escaped form of recipe.h, quotes resolved, into `out`;
 * advances *p past it and the blanks behind. 1, 0 at the end of the line, -1. */
int lex_word(const char **p, struct buf *out, int line, struct err *e);
/* The rest of the line as one word (ENV name rest). */
int lex_rest(const char *p, struct buf *out, int line, struct err *e);

/* ["a", "b"]: strings only, no blanks needed. 1: it is such an array, words
 * added; 0: it is something else (shell form), nothing added; -1: too many. */
struct lex_words { char **v; size_t n; };
int lex_json(const char *p, struct lex_words *out, int line, struct err *e);
int lex_add(struct lex_words *w, const char *s, size_t n, int line, struct err *e);
void lex_free(struct lex_words *w);
