/* The writer keeps no text of its own: one flag says whether a comma is due,
 * one byte per level which bracket closes it. Strings are copied in runs; only
 * what must be escaped or repaired is looked at twice. */
#include "json/write.h"
#include "base/enc.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

void jw_init(struct jw *w, struct buf *out)
{
    w->out = out;
    w->ascii = w->comma = false;
    w->depth = 0;
}

static void sep(struct jw *w)
{
    if (w->comma)
        buf_putc(w->out, ',');
    w->comma = true;
}
static void open_level(struct jw *w, char kind)
{
    if (w->depth == JW_DEPTH_MAX)
        abort();
    sep(w);
    w->kind[w->depth++] = kind;
    buf_putc(w->out, kind);
    w->comma = false;
}
void jw_obj(struct jw *w) { open_level(w, '{'); }
void jw_arr(struct jw *w) { open_level(w, '['); }
void jw_end(struct jw *w)
{
    if (!w->depth)
        abort();
    buf_putc(w->out, w->kind[--w->depth] == '{' ? '}' : ']');
    w->comma = true;
}

/* One code point from p (n > 0): its length, or 0 when the bytes are no UTF-8 (RFC 3629 4). */
static size_t utf8_next(const unsigned char *p, size_t n, uint32_t *cp)
{
    unsigned c = p[0];
    size_t len = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 0;
    if (!len || n < len)
        return 0;
    uint32_t v = c & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3fu);
    }
    if ((len == 3 && v < 0x800) || (len == 4 && v < 0x10000) || v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return 0;
    *cp = v;
    return len;
}

static void put_escape(struct buf *b, unsigned c)
{
    switch (c) {
    case '"': buf_put(b, "\\\"", 2); break;
    case '\\': buf_put(b, "\\\\", 2); break;
    case '\n': buf_put(b, "\\n", 2); break;
    case '\r': buf_put(b, "\\r", 2); break;
    case '\t': buf_put(b, "\\t", 2); break;
    default: buf_printf(b, "\\u%04x", c);
    }
}

static void put_string(struct jw *w, struct str s)
{
    struct buf *b = w->out;
    const unsigned char *p = (const unsigned char *)s.p;
    size_t i = 0, plain = 0; /* plain..i is copied as it is */
    buf_reserve(b, s.n + 2);
    buf_putc(b, '"');
    while (i < s.n) {
        unsigned c = p[i];
        if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
            i++;
            continue;
        }
        uint32_t cp = c;
        size_t len = c < 0x80 ? 1 : utf8_next(p + i, s.n - i, &cp);
        if (len > 1 && !w->ascii) {
            i += len;
            continue;
        }
        if (i > plain)
            buf_put(b, p + plain, i - plain);
        if (!len) /* one replacement per bad byte */
            buf_puts(b, w->ascii ? "\\ufffd" : "\xef\xbf\xbd");
        else if (c < 0x80)
            put_escape(b, c);
        else if (cp >= 0x10000)
            buf_printf(b, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + ((cp - 0x10000) & 0x3ff));
        else
            buf_printf(b, "\\u%04x", cp);
        i += len ? len : 1;
        plain = i;
    }
    if (i > plain)
        buf_put(b, p + plain, i - plain);
    buf_putc(b, '"');
}

void jw_key_str(struct jw *w, struct str key)
{
    if (!w->depth || w->kind[w->depth - 1] != '{')
        abort();
    sep(w);
    put_string(w, key);
    buf_putc(w->out, ':');
    w->comma = false;
}
void jw_key(struct jw *w, const char *key) { jw_key_str(w, str_of(key)); }

void jw_str(struct jw *w, struct str s)
{
    sep(w);
    put_string(w, s);
}
void jw_strz(struct jw *w, const char *s)
{
    if (s)
        jw_str(w, str_of(s));
    else
        jw_null(w);
}
void jw_u64(struct jw *w, uint64_t v)
{
    char t[24];
    size_t i = sizeof t;
    do
        t[--i] = (char)('0' + v % 10);
    while (v /= 10);
    sep(w);
    buf_put(w->out, t + i, sizeof t - i);
}
void jw_i64(struct jw *w, int64_t v)
{
    if (v >= 0) {
        jw_u64(w, (uint64_t)v);
        return;
    }
    sep(w);
    buf_putc(w->out, '-');
    w->comma = false;
    jw_u64(w, 0 - (uint64_t)v);
}
void jw_f64(struct jw *w, double v)
{
    if (!isfinite(v)) {
        jw_null(w);
        return;
    }
    char t[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(t, sizeof t, "%.*g", digits, v);
        if (strtod(t, NULL) == v)
            break;
    }
    for (char *c = t; *c; c++) /* whatever the locale thinks */
        if (*c == ',')
            *c = '.';
    if (!strpbrk(t, ".e"))
        strcat(t, ".0"); /* stays a real when read back */
    sep(w);
    buf_puts(w->out, t);
}
void jw_bool(struct jw *w, bool v)
{
    sep(w);
    buf_puts(w->out, v ? "true" : "false");
}
void jw_null(struct jw *w)
{
    sep(w);
    buf_puts(w->out, "null");
}
void jw_raw(struct jw *w, struct str json)
{
    sep(w);
    buf_put(w->out, json.p, json.n);
}
void jw_base64(struct jw *w, const void *p, size_t n)
{
    sep(w);
    buf_putc(w->out, '"');
    base64_encode(p, n, w->out);
    buf_putc(w->out, '"');
}

void jw_kv_str(struct jw *w, const char *key, const char *v) { jw_key(w, key), jw_strz(w, v); }
void jw_kv_strn(struct jw *w, const char *key, struct str v) { jw_key(w, key), jw_str(w, v); }
void jw_kv_i64(struct jw *w, const char *key, int64_t v) { jw_key(w, key), jw_i64(w, v); }
void jw_kv_u64(struct jw *w, const char *key, uint64_t v) { jw_key(w, key), jw_u64(w, v); }
void jw_kv_f64(struct jw *w, const char *key, double v) { jw_key(w, key), jw_f64(w, v); }
void jw_kv_bool(struct jw *w, const char *key, bool v) { jw_key(w, key), jw_bool(w, v); }
void jw_kv_null(struct jw *w, const char *key) { jw_key(w, key), jw_null(w); }
void jw_kv_obj(struct jw *w, const char *key) { jw_key(w, key), jw_obj(w); }
void jw_kv_arr(struct jw *w, const char *key) { jw_key(w, key), jw_arr(w); }
void jw_kv_raw(struct jw *w, const char *key, struct str json) { jw_key(w, key), jw_raw(w, json); }
