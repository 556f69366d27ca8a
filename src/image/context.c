#include "image/context.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "crypto/digest.h"
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 512u

struct entry { char *path; bool link; unsigned char sum[CONTEXT_KEY]; };
struct context {
    struct entry *at;
    size_t n, cap;
    bool odd; /* `whole` is all that can be said */
    unsigned char whole[CONTEXT_KEY];
};

void context_free(struct context *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        free(c->at[i].path);
    free(c->at);
    free(c);
}

/* ---- headers ---------------------------------------------------------------------------------------------------- */

static int number(const unsigned char *p, size_t n, uint64_t *ret)
{
    uint64_t v = 0;
    size_t i = 0;
    if (p[0] == 0x80) { /* GNU binary */
        for (i = 1; i < n; i++) {
            if (v >> 55)
                return -1;
            v = v << 8 | p[i];
        }
        *ret = v;
        return 0;
    }
    while (i < n && p[i] == ' ')
        i++;
    for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
        if (v >> 60)
            return -1;
        v = v << 3 | (uint64_t)(p[i] - '0');
    }
    *ret = v;
    return i == n || p[i] == 0 || p[i] == ' ' ? 0 : -1;
}

static bool sum_fits(const unsigned char h[BLOCK])
{
    uint64_t said;
    unsigned sum = 8 * ' ';
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= 148 && i < 156 ? 0 : h[i];
    return !number(h + 148, 8, &said) && said == sum;
}

static bool all_zero(const unsigned char *p, size_t n)
{
    while (n && !*p)
        p++, n--;
    return !n;
}

static enum context_kind kind_of(unsigned char type)
{
    switch (type) {
    case '0': case 0: return CONTEXT_FILE;
    case '5': return CONTEXT_DIR;
    case '2': return CONTEXT_LINK;
    case 'L': return CONTEXT_LONG_NAME;
    case 'K': return CONTEXT_LONG_LINK;
    default: return 0;
    }
}

int context_header(const unsigned char h[512], struct context_header *ret)
{
    uint64_t mode;
    *ret = (struct context_header){0};
    if (all_zero(h, BLOCK)) {
        ret->kind = CONTEXT_END;
        return 0;
    }
    if (!sum_fits(h) || !(ret->kind = kind_of(h[156])) || number(h + 100, 8, &mode) || number(h + 124, 12, &ret->size) || mode > 07777)
        return -1;
    size_t n = 0;
    if (!memcmp(h + 257, "ustar\0", 6) && h[345]) { /* a prefix; in GNU's form other things lie there */
        n = strnlen((const char *)h + 345, 155);
        memcpy(ret->name, h + 345, n);
        ret->name[n++] = '/';
    }
    memcpy(ret->name + n, h, strnlen((const char *)h, 100));
    memcpy(ret->link, h + 157, strnlen((const char *)h + 157, 100));
    ret->mode = (uint32_t)mode;
    if (ret->kind == CONTEXT_DIR || ret->kind == CONTEXT_LINK)
        return ret->size ? -1 : 0; /* readers do not agree on what that means */
    return 0;
}

/* ---- the archive ------------------------------------------------------------------------------------------------ */

struct scan { int fd; off_t at; struct sha256 *all, *whole; };

static bool take(struct scan *s, void *out, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t k = pread(s->fd, (char *)out + got, n - got, s->at + (off_t)got);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        got += (size_t)k;
    }
    s->at += (off_t)n;
    sha256_add(s->whole, out, n);
    if (s->all)
        sha256_add(s->all, out, n);
    return true;
}

static void rest(struct scan *s)
{
    char chunk[65536];
    for (;;) {
        ssize_t k = pread(s->fd, chunk, sizeof chunk, s->at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return;
        s->at += k;
        sha256_add(s->whole, chunk, (size_t)k);
        if (s->all)
            sha256_add(s->all, chunk, (size_t)k);
    }
}

/* The data of a member, padded to whole blocks; its bytes go to h or, if they are few, to out. */
static bool data(struct scan *s, uint64_t size, struct sha256 *h, char *out)
{
    char chunk[65536];
    for (uint64_t left = size; left;) {
        size_t n = left < sizeof chunk ? (size_t)left : sizeof chunk;
        if (!take(s, chunk, n))
            return false;
        if (h)
            sha256_add(h, chunk, n);
        if (out)
            memcpy(out + (size - left), chunk, n);
        left -= n;
    }
    return !(size % BLOCK) || take(s, chunk, BLOCK - size % BLOCK);
}

static char *long_text(struct scan *s, uint64_t size)
{
    char *text = size && size <= CONTEXT_LINK_MAX ? xcalloc(size + 1, 1) : NULL;
    if (text && !data(s, size, NULL, text)) {
        free(text);
        return NULL;
    }
    return text;
}

/* "./a//b/" is a/b; NULL: it climbs out. */
static char *clean(const char *name)
{
    struct buf b = {0};
    buf_put(&b, "", 0);
    while (*name) {
        size_t n = strcspn(name, "/");
        if (n == 2 && !memcmp(name, "..", 2)) {
            buf_free(&b);
            return NULL;
        }
        if (n && !(n == 1 && *name == '.')) {
            if (b.n)
                buf_putc(&b, '/');
            buf_put(&b, name, n);
        }
        name += n + (name[n] == '/');
    }
    return buf_take(&b);
}

static bool add(struct context *c, struct scan *s, const struct context_header *m, const char *name, const char *link)
{
    char *path = clean(name);
    if (!path || c->n >= CONTEXT_NAMES_MAX) {
        free(path);
        return false;
    }
    if (c->n == c->cap)
        c->at = xrealloc(c->at, (c->cap = c->cap ? c->cap * 2 : 64) * sizeof *c->at);
    struct entry *e = &c->at[c->n++];
    *e = (struct entry){.path = path, .link = m->kind == CONTEXT_LINK};
    struct sha256 *h = sha256_new();
    unsigned char what[5] = {(unsigned char)m->kind, (unsigned char)m->mode, (unsigned char)(m->mode >> 8)};
    sha256_add(h, what, sizeof what);
    if (e->link)
        sha256_add(h, link, strlen(link));
    bool ok = m->kind != CONTEXT_FILE || data(s, m->size, h, NULL);
    sha256_end(h, e->sum);
    return ok;
}

static bool members(struct context *c, struct scan *s)
{
    auto_free char *name = NULL;
    auto_free char *link = NULL;
    unsigned char h[BLOCK];
    struct context_header m;
    while (take(s, h, sizeof h)) {
        if (context_header(h, &m))
            return false;
        if (m.kind == CONTEXT_END)
            return true;
        if (m.kind == CONTEXT_LONG_NAME || m.kind == CONTEXT_LONG_LINK) {
            char **to = m.kind == CONTEXT_LONG_NAME ? &name : &link;
            free(*to);
            if (!(*to = long_text(s, m.size)))
                return false;
            continue;
        }
        if (!add(c, s, &m, name ? name : m.name, link ? link : m.link))
            return false;
        free(take_ptr(&name)), free(take_ptr(&link));
    }
    return false; /* cut off */
}

static int by_path(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int d = strcmp(x->path, y->path);
    return d ? d : memcmp(x->sum, y->sum, sizeof x->sum);
}

struct context *context_scan(int fd, struct sha256 *all)
{
    struct context *c = xcalloc(1, sizeof *c);
    struct scan s = {.fd = fd, .all = all, .whole = sha256_new()};
    c->odd = !members(c, &s);
    rest(&s);
    sha256_end(s.whole, c->whole);
    if (c->n)
        qsort(c->at, c->n, sizeof *c->at, by_path);
    for (size_t i = 1; i < c->n; i++) /* the later one of two counts, and that is not told here */
        c->odd = c->odd || !strcmp(c->at[i - 1].path, c->at[i].path);
    return c;
}

/* ---- what a COPY names ------------------------------------------------------------------------------------------ */

enum fit { APART, WITHIN, ABOVE };

/* Component by component: is `path` the source, or below it, or a folder on the way to it? */
static enum fit fits(const char *src, const char *path)
{
    char want[256], have[256];
    for (;;) {
        size_t n = strcspn(src, "/"), k = strcspn(path, "/");
        if (!n)
            return WITHIN;
        if (!k)
            return ABOVE;
        if (n >= sizeof want || k >= sizeof have)
            return WITHIN; /* rather too much */
        memcpy(want, src, n), want[n] = 0;
        memcpy(have, path, k), have[k] = 0;
        if (fnmatch(want, have, FNM_NOESCAPE))
            return APART;
        src += n + (src[n] == '/');
        path += k + (path[k] == '/');
    }
}

static bool pick(const struct context *c, const char *src, struct sha256 *h)
{
    auto_free char *s = clean(src);
    if (!s)
        return false;
    for (size_t i = 0; i < c->n; i++) {
        const struct entry *e = &c->at[i];
        enum fit f = fits(s, e->path);
        if (f == ABOVE && e->link)
            return false; /* the files are somewhere else */
        if (f != WITHIN)
            continue;
        sha256_add(h, e->path, strlen(e->path) + 1);
        sha256_add(h, e->sum, sizeof e->sum);
    }
    return true;
}

void context_key(const struct context *c, char *const *src, size_t n, unsigned char out[CONTEXT_KEY])
{
    bool told = !c->odd;
    struct sha256 *h = sha256_new();
    for (size_t i = 0; told && i < n; i++)
        told = pick(c, src[i], h);
    sha256_end(h, out);
    if (!told)
        memcpy(out, c->whole, CONTEXT_KEY);
}
