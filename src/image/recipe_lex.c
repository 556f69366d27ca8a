/* See recipe_lex.h. The rules are those of Docker's builder for the default
 * escape character; where that is lenient (an unknown JSON escape turns an exec
 * form silently into a shell form) this is not. */
#include "image/recipe_lex.h"
#include "base/str.h"
#include "image/recipe.h"
#include <stdlib.h>
#include <string.h>

static bool blank(char c) { return c == ' ' || c == '\t'; }

/* ---- lines ------------------------------------------------------------------------------------------------------ */

/* One physical line without its end; false at the end of the text. */
static bool physical(struct lex *l, const char **ret, size_t *ret_n)
{
    if (l->p >= l->end)
        return false;
    const char *nl = memchr(l->p, '\n', (size_t)(l->end - l->p)), *stop = nl ? nl : l->end;
    *ret = l->p;
    *ret_n = (size_t)(stop - l->p);
    if (*ret_n && stop[-1] == '\r')
        --*ret_n;
    l->p = nl ? nl + 1 : l->end;
    l->line++;
    return true;
}

int lex_line(struct lex *l, struct buf *out, int *line, struct err *e)
{
    const char *p;
    size_t n;
    bool more = false, any = false;
    out->n = 0;
    buf_put(out, "", 0);
    while (physical(l, &p, &n)) {
        size_t lead = 0;
        while (lead < n && blank(p[lead]))
            lead++;
        if (lead == n || p[lead] == '#') /* also between continued lines */
            continue;
        if (!any) {
            p += lead, n -= lead; /* leading blanks only matter inside */
            *line = l->line;
            any = true;
        }
        size_t cut = n;
        while (cut && blank(p[cut - 1]))
            cut--;
        more = cut && p[cut - 1] == '\\' && (cut == 1 || p[cut - 2] != '\\'); /* an escaped one does not continue */
        buf_put(out, p, more ? cut - 1 : n);
        if (out->n > RECIPE_LINE_MAX)
            return err_set(e, E_TOO_LARGE, "line %d: instruction is longer than %d bytes", *line, RECIPE_LINE_MAX);
        if (!more)
            break;
    }
    if (!any)
        return 0;
    if (more)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID,
                       "line %d: the recipe ends in a continued line", *line);
    while (out->n && blank(out->p[out->n - 1]))
        out->p[--out->n] = 0;
    return 1;
}

/* ---- words ------------------------------------------------------------------------------------------------------ */

static void literal(struct buf *out, char c)
{
    if (c == '\\' || c == '$')
        buf_putc(out, '\\');
    buf_putc(out, c);
}

/* Copies up to a blank (stop_at_blank) or the end, resolving quotes. `$` stays
 * active outside single quotes; `\x` is x, except that inside double quotes it
 * is only special before `"`, `$` and `\`. Blanks inside ${...} belong to it. */
static int quoted(const char **at, bool stop_at_blank, struct buf *out, int line, struct err *e)
{
    const char *p = *at;
    char quote = 0;
    int brace = 0;
    for (; *p; p++) {
        if (!quote && !brace && stop_at_blank && blank(*p))
            break;
        if (quote == '\'') {
            if (*p == '\'')
                quote = 0;
            else
                literal(out, *p);
        } else if (*p == '\\' && p[1] && (!quote || strchr("\"$\\", p[1]))) {
            literal(out, *++p);
        } else if (*p == '\\') {
            literal(out, *p);
        } else if (*p == quote && quote) {
            quote = 0;
        } else if (!quote && (*p == '"' || *p == '\'')) {
            quote = *p;
        } else {
            if (*p == '$' && p[1] == '{')
                brace++;
            else if (*p == '}' && brace)
                brace--;
            buf_putc(out, *p);
        }
    }
    *at = p;
    if (quote)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: a quote is not closed", line);
    if (brace)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: ${ is not closed", line);
    return 0;
}

int lex_word(const char **p, struct buf *out, int line, struct err *e)
{
    out->n = 0;
    buf_put(out, "", 0);
    while (blank(**p))
        ++*p;
    if (!**p)
        return 0;
    if (quoted(p, true, out, line, e) < 0)
        return -1;
    while (blank(**p))
        ++*p;
    return 1;
}

int lex_rest(const char *p, struct buf *out, int line, struct err *e)
{
    out->n = 0;
    buf_put(out, "", 0);
    return quoted(&p, false, out, line, e);
}

int lex_add(struct lex_words *w, const char *s, size_t n, int line, struct err *e)
{
    if (w->n == RECIPE_WORDS_MAX)
        return err_set(e, E_TOO_LARGE, "line %d: more than %d words", line, RECIPE_WORDS_MAX);
    if (!(w->n & (w->n + 1))) /* grow at 0, 1, 3, 7, ... */
        w->v = xrealloc(w->v, (2 * w->n + 2) * sizeof *w->v);
    w->v[w->n++] = xstrndup(s, n);
    w->v[w->n] = NULL; /* an argv ends so; the growth above leaves room */
    return 0;
}

void lex_free(struct lex_words *w)
{
    for (size_t i = 0; i < w->n; i++)
        free(w->v[i]);
    free(w->v);
    *w = (struct lex_words){0};
}

/* ---- JSON arrays of strings (RFC 8259, strings only) ------------------------------------------------------------ */

static bool hex4(const char *p, unsigned *ret)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        unsigned d = c >= '0' && c <= '9' ? (unsigned)(c - '0') : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10) : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10) : 16;
        if (d > 15)
            return false; /* also at the NUL */
        v = v << 4 | d;
    }
    *ret = v;
    return true;
}

static void put_utf8(struct buf *b, unsigned c)
{
    if (c < 0x80) {
        buf_putc(b, (char)c);
    } else if (c < 0x800) {
        buf_putc(b, (char)(0xc0 | c >> 6)), buf_putc(b, (char)(0x80 | (c & 63)));
    } else if (c < 0x10000) {
        buf_putc(b, (char)(0xe0 | c >> 12)), buf_putc(b, (char)(0x80 | (c >> 6 & 63))), buf_putc(b, (char)(0x80 | (c & 63)));
    } else {
        buf_putc(b, (char)(0xf0 | c >> 18)), buf_putc(b, (char)(0x80 | (c >> 12 & 63)));
        buf_putc(b, (char)(0x80 | (c >> 6 & 63))), buf_putc(b, (char)(0x80 | (c & 63)));
    }
}

static bool json_escape(const char **p, struct buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *hit = **p ? strchr(from, **p) : NULL;
    unsigned c, lo;
    if (hit) {
        buf_putc(out, to[hit - from]);
        ++*p;
        return true;
    }
    if (**p != 'u' || !hex4(*p + 1, &c) || !c)
        return false;
    *p += 5;
    if (c >= 0xd800 && c < 0xdc00) {
        if ((*p)[0] != '\\' || (*p)[1] != 'u' || !hex4(*p + 2, &lo) || lo < 0xdc00 || lo > 0xdfff)
            return false;
        c = 0x10000 + ((c - 0xd800) << 10) + (lo - 0xdc00);
        *p += 6;
    } else if (c >= 0xdc00 && c < 0xe000) {
        return false;
    }
    put_utf8(out, c);
    return true;
}

static bool json_string(const char **p, struct buf *out)
{
    out->n = 0;
    buf_put(out, "", 0);
    if (*(*p)++ != '"')
        return false;
    while (**p != '"') {
        if ((unsigned char)**p < ' ')
            return false;
        if (**p != '\\') {
            buf_putc(out, *(*p)++);
            continue;
        }
        ++*p;
        if (!json_escape(p, out))
            return false;
    }
    ++*p;
    return true;
}

/* A line that starts with `["` and ends with `]` is meant as this form, and an
 * error if it is not valid; `[ "$a" = b ]` with a blank is a shell's test unless
 * it parses. */
static bool meant_as_json(const char *p)
{
    size_t n = strlen(p);
    if (*p != '[' || p[n - 1] != ']')
        return false;
    for (p++; blank(*p); p++)
        ;
    return *p == '"' || *p == ']';
}

int lex_json(const char *p, struct lex_words *out, int line, struct err *e)
{
    auto_buf s = {0};
    bool test = blank(p[0] ? p[1] : 0);
    if (!meant_as_json(p))
        return 0;
    for (p++;;) {
        while (blank(*p))
            p++;
        if (*p == ']' && !out->n)
            break;
        if (!json_string(&p, &s))
            goto bad;
        if (lex_add(out, s.p, s.n, line, e) < 0)
            return -1;
        while (blank(*p))
            p++;
        if (*p == ']')
            break;
        if (*p++ != ',')
            goto bad;
    }
    if (p[1])
        goto bad;
    if (!out->n)
        return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: the JSON form is empty", line);
    return 1;
bad:
    if (test) {
        lex_free(out);
        return 0;
    }
    return err_why(e, REASON_BAD_RECIPE, E_INVALID, "line %d: not a JSON array of strings", line);
}
