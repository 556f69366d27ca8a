/* Growable byte buffer. Small growth aborts when memory is gone; whoever lets
 * a peer decide the size must bound it first (buf_reserve_max). */
#pragma once
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct buf { char *p; size_t n, cap; }; /* zero-initialised is empty; p is NUL-terminated after any put */

void buf_free(struct buf *b);
static inline void cleanup_buf(struct buf *b) { buf_free(b); }
#define auto_buf __attribute__((cleanup(cleanup_buf))) struct buf
void buf_reserve(struct buf *b, size_t more); /* room for `more` bytes and a NUL */
void buf_put(struct buf *b, const void *p, size_t n);
void buf_puts(struct buf *b, const char *s);
void buf_putc(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
void buf_drop(struct buf *b, size_t n); /* remove n bytes from the front */
char *buf_take(struct buf *b);          /* the bytes, NUL-terminated, now the caller's; b is empty */
void *xmalloc(size_t n);
void *xcalloc(size_t n, size_t size);
void *xrealloc(void *p, size_t n);
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
