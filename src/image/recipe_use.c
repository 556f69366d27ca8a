/* What a builder does with a parsed recipe: expand words, describe steps, and
 * compute the cache keys of recipe.h. */
#include "base/enc.h"
#include "crypto/digest.h"
#include "image/recipe.h"
#include <ctype.h>
#include <string.h>

void recipe_describe(const struct recipe_step *s, struct buf *out)
{
    size_t n = s->kind == RECIPE_RUN ? s->cmd.argc : s->nwords;
    char **v = s->kind == RECIPE_RUN ? s->cmd.argv : s->word;
    size_t from = out->n;
    buf_puts(out, recipe_kind_name(s->kind));
    for (size_t i = 0; i < n; i++) {
        buf_putc(out, s->kind == RECIPE_ENV && i % 2 ? '=' : ' ');
        buf_puts(out, v[i]);
    }
    for (size_t i = from; i < out->n; i++)
        if ((unsigned char)out->p[i] < ' ' || out->p[i] == 0x7f)
            out->p[i] = ' ';
}

/* ---- expansion -------------------------------------------------------------------------------------------------- */

typedef const char *lookup_fn(void *arg, const char *name, size_t n);

#define EXPAND_DEPTH_MAX 16

static size_t name_len(const char *p)
{
    size_t n = 0;
    if (!isalpha((unsigned char)*p) && *p != '_')
        return 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_')
        n++;
    return n;
}

static int bounded(struct buf *out, struct err *e)
{
    return out->n > RECIPE_LINE_MAX ? err_set(e, E_TOO_LARGE, "a value is longer than %d bytes", RECIPE_LINE_MAX) : 0;
}

static const char *brace_end(const char *p)
{
    for (int depth = 1; *p; p++) {
        if (*p == '\\' && p[1])
            p++;
        else if (*p == '$' && p[1] == '{')
            depth++, p++;
        else if (*p == '}' && !--depth)
            return p;
    }
    return NULL;
}

static int expand(const char *p, const char *end, lookup_fn *lookup, void *arg, int depth, struct buf *out, struct err *e);

/* ${NAME}, ${NAME:-word}, ${NAME:+word}; p is behind "${". */
static const char *braced(const char *p, const char *limit, lookup_fn *lookup, void *arg, int depth, struct buf *out, struct err *e)
{
    const char *end = brace_end(p);
    size_t n = name_len(p);
    const char *v = NULL, *op = p + n;
    if (!end || end >= limit || !n || (*op != '}' && (*op != ':' || (op[1] != '-' && op[1] != '+')))) {
        err_set(e, E_INVALID, "a ${...} is not of the form ${NAME}, ${NAME:-word} or ${NAME:+word}");
        return NULL;
    }
    if (depth >= EXPAND_DEPTH_MAX) {
        err_set(e, E_INVALID, "${...} nested too deep");
        return NULL;
    }
    v = lookup(arg, p, n);
    bool set = v && *v;
    if (*op == '}' || (op[1] == '-' && set)) {
        if (v)
            buf_puts(out, v);
    } else if (op[1] == '-' || set) {
        if (expand(op + 2, end, lookup, arg, depth + 1, out, e) < 0)
            return NULL;
    }
    return end + 1;
}

static int expand(const char *p, const char *end, lookup_fn *lookup, void *arg, int depth, struct buf *out, struct err *e)
{
    while (p < end) {
        size_t n;
        if (*p == '\\' && p + 1 < end) {
            buf_putc(out, p[1]);
            p += 2;
        } else if (*p == '$' && p + 1 < end && p[1] == '{') {
            if (!(p = braced(p + 2, end, lookup, arg, depth, out, e)))
                return -1;
        } else if (*p == '$' && (n = name_len(p + 1))) {
            const char *v = lookup(arg, p + 1, n);
            if (v)
                buf_puts(out, v);
            p += 1 + n;
        } else {
            buf_putc(out, *p++);
        }
        if (bounded(out, e) < 0)
            return -1;
    }
    return 0;
}

int recipe_expand(const char *word, lookup_fn *lookup, void *arg, struct buf *out, struct err *e)
{
    out->n = 0;
    buf_put(out, "", 0);
    return expand(word, word + strlen(word), lookup, arg, 0, out, e);
}

/* ---- cache keys ------------------------------------------------------------------------------------------------- */

static void put_u32(struct buf *b, size_t v)
{
    unsigned char n[4];
    put_le32(n, (uint32_t)v);
    buf_put(b, n, 4);
}

static void put_words(struct buf *b, char *const *v, size_t n)
{
    put_u32(b, n);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(v[i]);
        put_u32(b, len);
        buf_put(b, v[i], len);
    }
}

static void canonical(const struct recipe_step *s, struct buf *b)
{
    buf_putc(b, (char)s->kind);
    buf_putc(b, (char)s->cmd.shell);
    put_u32(b, (uint32_t)s->chmod);
    put_words(b, s->cmd.argv, s->cmd.argc);
    put_words(b, s->word, s->nwords);
    put_words(b, &s->chown, s->chown ? 1 : 0);
}

int recipe_keys(const struct recipe *r, const unsigned char base[RECIPE_KEY],
                int (*content)(void *arg, size_t step, unsigned char out[RECIPE_KEY], struct err *e), void *arg,
                unsigned char (*ret)[RECIPE_KEY], struct err *e)
{
    static const char magic[] = "hutch recipe 1";
    auto_buf b = {0};
    unsigned char key[RECIPE_KEY], files[RECIPE_KEY];
    buf_put(&b, magic, sizeof magic);
    buf_put(&b, base, RECIPE_KEY);
    sha256(b.p, b.n, key);
    for (size_t i = 0; i < r->nsteps; i++) {
        b.n = 0;
        buf_put(&b, key, sizeof key);
        canonical(&r->step[i], &b);
        if (r->step[i].kind == RECIPE_COPY) {
            if (content(arg, i, files, e) < 0)
                return -1;
            buf_put(&b, files, sizeof files);
        }
        sha256(b.p, b.n, key);
        memcpy(ret[i], key, sizeof key);
    }
    return 0;
}
