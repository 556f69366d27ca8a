/* Escaping, styles, tables and numbers for people. */
#include "cli/out.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* -- escaping -- */

/* One code point; 0 bytes taken means broken. */
static size_t utf8_take(const unsigned char *p, size_t n, uint32_t *cp)
{
    size_t need = p[0] < 0x80 ? 1 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    if (!need || need > n)
        return 0;
    uint32_t v = need == 1 ? p[0] : p[0] & (0xffu >> (need + 1));
    for (size_t i = 1; i < need; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (p[i] & 0x3f);
    }
    if ((need == 3 && (v < 0x800 || (v >= 0xd800 && v < 0xe000))) || (need == 4 && (v < 0x10000 || v > 0x10ffff)))
        return 0;
    *cp = v;
    return need;
}

static bool hidden(uint32_t c) /* reorders or hides text without being a control byte */
{
    return (c >= 0x80 && c < 0xa0) || c == 0x061c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xe0000 && c < 0xe1000);
}

void esc_put(struct buf *out, struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n;) {
        uint32_t c = 0;
        size_t k = utf8_take(p + i, s.n - i, &c);
        if (!k || c < 0x20 || c == 0x7f) {
            if (k && (c == '\n' || c == '\t' || c == '\r'))
                buf_puts(out, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
            else
                buf_printf(out, "\\x%02x", p[i]);
            i++;
            continue;
        }
        if (hidden(c))
            buf_printf(out, "\\u{%x}", c);
        else
            buf_put(out, p + i, k);
        i += k;
    }
}

void esc_text(struct str s, char *out, size_t cap)
{
    auto_buf b = {0};
    esc_put(&b, s);
    (void)snprintf(out, cap, "%s", b.n ? b.p : "");
}

size_t text_width(const char *s)
{
    size_t w = 0;
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        uint32_t c = 0;
        size_t k = utf8_take(p, strlen((const char *)p), &c);
        bool wide = (c >= 0x1100 && c < 0x1160) || (c >= 0x2e80 && c < 0xa4d0) || (c >= 0xac00 && c < 0xd7a4) || (c >= 0xf900 && c < 0xfb00) ||
                    (c >= 0xfe30 && c < 0xfe70) || (c >= 0xff00 && c < 0xff61) || (c >= 0x1f300 && c < 0x1fb00) || (c >= 0x20000 && c < 0x40000);
        bool zero = (c >= 0x300 && c < 0x370) || (c >= 0x20d0 && c < 0x2100) || (c >= 0xfe00 && c < 0xfe10);
        w += zero ? 0 : wide ? 2 : 1;
        p += k ? k : 1;
    }
    return w;
}

/* -- styles -- */

bool out_colour(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(f)) && !(no && *no) && !(term && !strcmp(term, "dumb"));
}

const char *style_on(enum style s)
{
    static const char *const on[] = {"", "\033[32m", "\033[33m", "\033[31m", "\033[2m", "\033[1m"};
    return on[s];
}

enum style state_style(const char *s)
{
    if (!strcmp(s, "running"))
        return ST_GOOD;
    if (!strcmp(s, "failed"))
        return ST_BAD;
    if (!strcmp(s, "gone"))
        return ST_DIM;
    return ST_WARN;
}

/* -- tables -- */

struct cell { char *text; enum style style; };
struct table {
    const char *const *heads;
    size_t ncols, ncells, cap, columns /* 0: any */;
    struct cell *cell;
};

struct table *table_new(const char *const *heads)
{
    struct table *t = xcalloc(1, sizeof *t);
    t->heads = heads;
    while (heads[t->ncols])
        t->ncols++;
    return t;
}

void table_cell(struct table *t, enum style st, const char *text)
{
    auto_buf b = {0};
    esc_put(&b, str_of(text && *text ? text : "-"));
    if (t->ncells == t->cap)
        t->cell = xrealloc(t->cell, (t->cap = t->cap ? t->cap * 2 : 64) * sizeof *t->cell);
    t->cell[t->ncells++] = (struct cell){buf_take(&b), st};
}

void table_cellf(struct table *t, enum style st, const char *fmt, ...)
{
    auto_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    table_cell(t, st, b.p);
}

static void pad(struct buf *out, size_t n)
{
    while (n--)
        buf_putc(out, ' ');
}

void table_fit(struct table *t, size_t columns) { t->columns = columns; }

/* The widest columns give way, an ID never: it is there to be copied. */
static void shrink(const struct table *t, size_t *width)
{
    enum { LEAST = 8 };
    size_t total = 0;
    for (size_t c = 0; c < t->ncols; c++)
        total += width[c] + (c ? 2 : 0);
    while (t->columns && total > t->columns) {
        size_t widest = t->ncols;
        for (size_t c = 0; c < t->ncols; c++) {
            size_t head = strlen(t->heads[c]), least = head > LEAST ? head : LEAST;
            if (width[c] > least && strcmp(t->heads[c], "ID") != 0 &&
                (widest == t->ncols || width[c] > width[widest]))
                widest = c;
        }
        if (widest == t->ncols)
            return;
        width[widest]--, total--;
    }
}

/* text, or its beginning and "…" in at most width columns. */
static void cut(const char *text, size_t width, struct buf *out)
{
    if (text_width(text) <= width) {
        buf_puts(out, text);
        return;
    }
    size_t n = 0, last = 0;
    char head[8];
    for (size_t w = 0; text[n]; n = last) {
        uint32_t cp = 0;
        last = n + utf8_take((const unsigned char *)text + n, strlen(text + n), &cp);
        if (last == n)
            last++;
        (void)snprintf(head, sizeof head, "%.*s", (int)(last - n), text + n);
        w += text_width(head);
        if (w + 1 > width)
            break;
    }
    buf_put(out, text, n);
    buf_puts(out, "…");
}

static void put_cell(struct buf *out, const char *text, enum style st, bool right, bool lastcol, size_t width, bool colour)
{
    auto_buf room = {0};
    cut(text, width, &room);
    text = room.n ? room.p : "";
    size_t gap = width - text_width(text);
    if (right)
        pad(out, gap);
    if (colour && st != ST_PLAIN)
        buf_printf(out, "%s%s%s", style_on(st), text, STYLE_OFF);
    else
        buf_puts(out, text);
    if (!lastcol)
        pad(out, (right ? 0 : gap) + 2);
}

void table_render(const struct table *t, bool colour, struct buf *out)
{
    auto_free size_t *width = xcalloc(t->ncols + 1, sizeof *width);
    for (size_t c = 0; c < t->ncols; c++)
        width[c] = strlen(t->heads[c]) - (t->heads[c][0] == '>');
    for (size_t i = 0; i < t->ncells; i++) {
        size_t w = text_width(t->cell[i].text);
        if (w > width[i % t->ncols])
            width[i % t->ncols] = w;
    }
    shrink(t, width);
    for (size_t c = 0; c < t->ncols; c++) {
        bool right = t->heads[c][0] == '>';
        put_cell(out, t->heads[c] + right, ST_BOLD, right, c + 1 == t->ncols, width[c], colour);
    }
    buf_putc(out, '\n');
    for (size_t i = 0; i < t->ncells; i++) {
        size_t c = i % t->ncols;
        put_cell(out, t->cell[i].text, t->cell[i].style, t->heads[c][0] == '>', c + 1 == t->ncols, width[c], colour);
        if (c + 1 == t->ncols)
            buf_putc(out, '\n');
    }
}

void table_free(struct table *t)
{
    for (size_t i = 0; i < t->ncells; i++)
        free(t->cell[i].text);
    free(t->cell);
    free(t);
}

void table_print(struct table *t)
{
    auto_buf b = {0};
    struct winsize w = {0};
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40)
        table_fit(t, w.ws_col);
    table_render(t, out_colour(stdout), &b);
    (void)fwrite(b.p, 1, b.n, stdout); /* main checks stdout once, at the end */
    table_free(t);
}

/* -- numbers -- */

void dur_format(int64_t ns, char out[24])
{
    int64_t s = ns / NS_PER_S;
    if (ns < 0)
        (void)snprintf(out, 24, "-");
    else if (s < 60)
        (void)snprintf(out, 24, "%llds", (long long)s);
    else if (s < 3600)
        (void)snprintf(out, 24, s % 60 ? "%lldm%02llds" : "%lldm", (long long)(s / 60), (long long)(s % 60));
    else if (s < 86400)
        (void)snprintf(out, 24, s / 60 % 60 ? "%lldh%02lldm" : "%lldh", (long long)(s / 3600), (long long)(s / 60 % 60));
    else
        (void)snprintf(out, 24, s / 3600 % 24 ? "%lldd%lldh" : "%lldd", (long long)(s / 86400), (long long)(s / 3600 % 24));
}

void ms_format(double ms, char out[24])
{
    if (ms < 0)
        (void)snprintf(out, 24, "-");
    else if (ms < 9.95)
        (void)snprintf(out, 24, "%.1f ms", ms);
    else if (ms < 999.5)
        (void)snprintf(out, 24, "%.0f ms", ms);
    else if (ms < 59950)
        (void)snprintf(out, 24, "%.1f s", ms / 1000);
    else
        dur_format(ms < 1e15 ? (int64_t)(ms * 1e6) : INT64_MAX, out);
}

bool dur_parse(const char *s, int64_t *ret_s)
{
    int64_t total = 0, below = INT64_MAX; /* units must shrink: "1h30m", not "30m1h" */
    if (!*s)
        return false;
    while (*s) {
        int64_t v = 0, unit;
        const char *digits = s;
        for (; *s >= '0' && *s <= '9'; s++)
            if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *s - '0', &v))
                return false;
        if (s == digits)
            return false;
        switch (*s) {
        case 'd': unit = 86400; break;
        case 'h': unit = 3600; break;
        case 'm': unit = 60; break;
        case 's': unit = 1; break;
        case 0:
            if (below != INT64_MAX)
                return false; /* "1h30": thirty what? */
            unit = 1;
            break;
        default: return false;
        }
        if (unit >= below || __builtin_mul_overflow(v, unit, &v) || __builtin_add_overflow(total, v, &total))
            return false;
        below = unit;
        s += *s != 0;
    }
    *ret_s = total;
    return true;
}

void bytes_format(int64_t n, char out[24])
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (n < 0) {
        (void)snprintf(out, 24, "-");
        return;
    }
    if (n < 1024) {
        (void)snprintf(out, 24, "%lld B", (long long)n);
        return;
    }
    double v = (double)n / 1024;
    int u = 0;
    while (v >= 1023.95 && u < 5)
        v /= 1024, u++;
    (void)snprintf(out, 24, v < 9.95 ? "%.1f %s" : "%.0f %s", v, unit[u]);
}

bool time_parse(struct str t, int64_t *ret)
{
    char z[40];
    if (!t.p || t.n >= sizeof z)
        return false;
    memcpy(z, t.p, t.n);
    z[t.n] = 0;
    struct tm tm = {0};
    int used = 0;
    if (sscanf(z, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &used) != 6)
        return false;
    int64_t frac = 0, scale = NS_PER_S;
    const char *p = z + used;
    if (*p == '.')
        for (p++; *p >= '0' && *p <= '9'; p++)
            if (scale > 1)
                scale /= 10, frac += (*p - '0') * scale;
    if (strcmp(p, "Z") != 0)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *ret = (int64_t)timegm(&tm) * NS_PER_S + frac;
    return true;
}
