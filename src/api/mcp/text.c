#include "api/mcp/text.h"
#include "api/utf8.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- cleaning ---- */
/* The end of an escape sequence that begins at p (an ESC); at least p + 1. ECMA-48 5.4, and the
 * strings that BEL or ST ends. */
static const char *escape_end(const char *p, const char *end)
{
    if (++p == end)
        return p;
    if (*p == '[') {
        for (p++; p < end && (*p < 0x40 || *p > 0x7e); p++)
            if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
                return p; /* not a sequence after all */
        return p < end ? p + 1 : p;
    }
    if (*p == ']' || *p == 'P' || *p == '^' || *p == '_') {
        for (p++; p < end && *p != '\n'; p++) {
            if (*p == '\a')
                return p + 1;
            if (*p == 0x1b && p + 1 < end && p[1] == '\\')
                return p + 2;
        }
        return p;
    }
    while (p < end && *p >= 0x20 && *p <= 0x2f)
        p++;
    return p < end && *p >= 0x30 && *p <= 0x7e ? p + 1 : p;
}

static size_t sequence(const char *p, const char *end) /* bytes of a whole character; 0: none */
{
    unsigned char c = (unsigned char)*p;
    size_t n = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    return (size_t)(end - p) >= n && str_utf8((struct str){p, n}) ? n : 0;
}

void text_clean(struct str raw, struct buf *out)
{
    size_t line = out->n; /* where the current line begins */
    bool back = false;    /* a \r came: the next character overwrites the line */
    const char *p = raw.p, *end = p + raw.n;
    while (p < end) {
        if (*p == 0x1b) {
            p = escape_end(p, end);
            continue;
        }
        if (*p == '\r') {
            back = true, p++;
            continue;
        }
        if (*p == '\n') {
            buf_putc(out, '\n');
            line = out->n, back = false, p++;
            continue;
        }
        if (back)
            out->n = line, back = false;
        if (*p == '\b') {
            if (out->n > line)
                out->n = line + utf8_whole(out->p + line, out->n - line - 1);
            p++;
            continue;
        }
        if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f) {
            p++;
            continue;
        }
        size_t n = sequence(p, end);
        if (n)
            buf_put(out, p, n);
        else
            buf_puts(out, "\xef\xbf\xbd");
        p += n ? n : 1;
    }
}

/* ---- panes ---- */
void pane_add(struct pane *p, const void *bytes, size_t n)
{
    const char *b = bytes;
    size_t room = PANE_HEAD - p->head.n, first = n < room ? n : room;
    p->total += n;
    buf_put(&p->head, b, first);
    b += first, n -= first;
    if (n > PANE_TAIL)
        b += n - PANE_TAIL, n = PANE_TAIL;
    buf_put(&p->tail, b, n);
    if (p->tail.n > 2 * PANE_TAIL) /* rarely: dropping from the front moves the rest */
        buf_drop(&p->tail, p->tail.n - PANE_TAIL);
}

void pane_clear(struct pane *p) { p->head.n = p->tail.n = 0, p->total = 0; }
void pane_free(struct pane *p)
{
    buf_free(&p->head);
    buf_free(&p->tail);
    p->total = 0;
}

struct str pane_last_line(const struct pane *p)
{
    const struct buf *b = p->tail.n ? &p->tail : &p->head;
    size_t end = b->n;
    while (end && (b->p[end - 1] == '\n' || b->p[end - 1] == '\r'))
        end--;
    size_t begin = end;
    while (begin && b->p[begin - 1] != '\n' && b->p[begin - 1] != '\r')
        begin--;
    return (struct str){b->p ? b->p + begin : "", end - begin};
}

void text_thousands(uint64_t n, struct buf *out)
{
    char d[24];
    int len = snprintf(d, sizeof d, "%llu", (unsigned long long)n);
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0)
            buf_putc(out, ',');
        buf_putc(out, d[i]);
    }
}

static void put_gap(struct buf *out, uint64_t left_out, const char *where)
{
    if (out->n && out->p[out->n - 1] != '\n')
        buf_putc(out, '\n');
    buf_puts(out, "… ");
    text_thousands(left_out, out);
    buf_puts(out, " bytes omitted");
    if (*where)
        buf_printf(out, "; full: %s", where);
    buf_putc(out, '\n');
}

/* At most n bytes of the front, cut at the end of a line if one is near, never inside a character. */
static size_t front(struct str s, size_t n)
{
    if (s.n <= n)
        return s.n;
    for (size_t i = n; i > n - n / 4; i--)
        if (s.p[i - 1] == '\n')
            return i;
    return utf8_whole(s.p, n);
}

static size_t back(struct str s, size_t n)
{
    if (s.n <= n)
        return 0;
    size_t at = s.n - n;
    for (size_t i = at; i < at + n / 4; i++)
        if (s.p[i] == '\n')
            return i + 1;
    while (at < s.n && ((unsigned char)s.p[at] & 0xc0) == 0x80)
        at++;
    return at;
}

bool pane_render(const struct pane *p, size_t budget, const char *where, struct buf *out)
{
    auto_buf raw = {0}, a = {0}, b = {0};
    bool whole = p->total == p->head.n + p->tail.n;
    buf_put(&raw, p->head.p, p->head.n);
    if (whole)
        buf_put(&raw, p->tail.p, p->tail.n);
    text_clean((struct str){raw.p, raw.n}, &a);
    if (whole && a.n <= budget) {
        buf_put(out, a.p, a.n);
        return false;
    }
    if (!whole)
        text_clean((struct str){p->tail.p, p->tail.n}, &b);
    struct str first = {a.p, a.n}, last = whole ? first : (struct str){b.p, b.n};
    size_t head = front(first, budget / 4), from = back(last, budget - budget / 4);
    if (whole && from < head)
        from = head;
    uint64_t shown = head + (last.n - from);
    buf_put(out, first.p, head);
    put_gap(out, p->total > shown ? p->total - shown : 0, where);
    buf_put(out, last.p + from, last.n - from);
    return true;
}

/* ---- names ---- */
/* What a client may make us compare: stars try every place, and those of many stars multiply. */
#define GLOB_STEPS 100000

/* Where a bracket's members begin; NULL: it is none, or has no end. The first member may be ']'. */
static const char *bracket(const char *p)
{
    const char *in = *p == '[' ? p + 1 + (p[1] == '!' || p[1] == '^') : NULL;
    return in && *in && strchr(in + 1, ']') ? in : NULL;
}

static bool glob_at(const char *p, const char *s, unsigned *left)
{
    for (; *p && *left; p++, s++, --*left) {
        if (p[0] == '*' && p[1] == '*') {
            const char *rest = p + 2 + (p[2] == '/');
            for (const char *q = s;; q++) {
                if ((q == s || q[-1] == '/' || !p[2]) && glob_at(rest, q, left))
                    return true;
                if (!*q || !*left)
                    return false;
            }
        }
        if (*p == '*') {
            for (const char *q = s;; q++) {
                if (glob_at(p + 1, q, left))
                    return true;
                if (!*q || *q == '/' || !*left)
                    return false;
            }
        }
        if (!*s)
            return false;
        const char *q = bracket(p);
        if (q) {
            bool other = q != p + 1, hit = false;
            do {
                if (q[1] == '-' && q[2] != ']') {
                    hit |= *s >= q[0] && *s <= q[2];
                    q += 3;
                } else {
                    hit |= *s == *q++;
                }
            } while (*q != ']' && *q);
            if (hit == other || *s == '/')
                return false;
            p = q;
        } else if (*p == '?' ? *s == '/' : *p != *s) {
            return false;
        }
    }
    return !*p && !*s;
}

bool text_glob(const char *pattern, const char *path)
{
    const char *last = strrchr(path, '/');
    unsigned left = GLOB_STEPS;
    if (!strchr(pattern, '/') && strncmp(pattern, "**", 2) != 0)
        return glob_at(pattern, last ? last + 1 : path, &left);
    return glob_at(pattern, path, &left);
}

static const char *magic(struct str b)
{
    static const struct {
        const char *bytes;
        size_t n, at;
        const char *mime;
    } all[] = {
        {"\x89PNG\r\n\x1a\n", 8, 0, "image/png"},
        {"\xff\xd8\xff", 3, 0, "image/jpeg"},
        {"GIF8", 4, 0, "image/gif"},
        {"WEBP", 4, 8, "image/webp"},
        {"%PDF-", 5, 0, "application/pdf"},
        {"PK\x03\x04", 4, 0, "application/zip"},
        {"\x1f\x8b", 2, 0, "application/gzip"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (b.n >= all[i].at + all[i].n && !memcmp(b.p + all[i].at, all[i].bytes, all[i].n))
            return all[i].mime;
    return NULL;
}

const char *text_mime(const char *path, struct str begin)
{
    static const char *const by_name[][2] = {
        {"md", "text/markdown"},      {"html", "text/html"},        {"htm", "text/html"},
        {"css", "text/css"},          {"csv", "text/csv"},          {"json", "application/json"},
        {"xml", "application/xml"},   {"js", "text/javascript"},    {"mjs", "text/javascript"},
        {"py", "text/x-python"},      {"svg", "image/svg+xml"},     {"png", "image/png"},
        {"jpg", "image/jpeg"},        {"jpeg", "image/jpeg"},       {"gif", "image/gif"},
        {"webp", "image/webp"},       {"pdf", "application/pdf"},   {"zip", "application/zip"},
        {"gz", "application/gzip"},   {"tar", "application/x-tar"}, {"c", "text/x-c"},
        {"sh", "text/x-shellscript"}, {"yaml", "application/yaml"}, {"yml", "application/yaml"},
    };
    const char *known = magic(begin), *slash = strrchr(path, '/');
    const char *dot = strrchr(slash ? slash : path, '.');
    bool text = str_utf8((struct str){begin.p, utf8_whole(begin.p, begin.n)});
    if (known)
        return known;
    for (size_t i = 0; dot && i < sizeof by_name / sizeof *by_name; i++)
        if (!strcasecmp(dot + 1, by_name[i][0]) &&
            (!begin.n || text == !strncmp(by_name[i][1], "text/", 5) ||
             (text && strncmp(by_name[i][1], "image/", 6) != 0) || strstr(by_name[i][1], "svg")))
            return by_name[i][1];
    return text ? "text/plain" : "application/octet-stream";
}

/* ---- lines and their difference ---- */
size_t text_lines(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == '\n';
    return n + (s.n && s.p[s.n - 1] != '\n');
}

struct lines {
    struct str *at;
    size_t n;
};
static struct lines split(struct str s)
{
    struct lines l = {xcalloc(text_lines(s) + 1, sizeof(struct str)), 0};
    for (size_t i = 0; i < s.n;) {
        const char *nl = memchr(s.p + i, '\n', s.n - i);
        size_t end = nl ? (size_t)(nl - s.p) + 1 : s.n;
        l.at[l.n++] = (struct str){s.p + i, end - i};
        i = end;
    }
    return l;
}

#define CONTEXT   3
#define STEPS_MAX 400 /* inserted and removed lines; beyond, the middle is one block */

/* Myers' greedy algorithm over the middle that differs: marks removed lines of a and added ones of
 * b. False: too different. */
static bool mark(const struct lines *a, const struct lines *b, size_t skip, size_t an, size_t bn,
                 bool *gone, bool *come)
{
    int n = (int)an, m = (int)bn, found = -1;
    int *trace = xcalloc((STEPS_MAX + 1) * (2 * STEPS_MAX + 3), sizeof *trace);
    int wide = 2 * STEPS_MAX + 3, mid = STEPS_MAX + 1;
    int v[2 * STEPS_MAX + 3] = {0};
    for (int d = 0; d <= STEPS_MAX && found < 0; d++) {
        memcpy(trace + d * wide, v, sizeof v);
        for (int k = -d; k <= d && found < 0; k += 2) {
            bool down = k == -d || (k != d && v[mid + k - 1] < v[mid + k + 1]);
            int x = down ? v[mid + k + 1] : v[mid + k - 1] + 1, y = x - k;
            while (x < n && y < m && y >= 0 &&
                   str_eq(a->at[skip + (size_t)x], b->at[skip + (size_t)y]))
                x++, y++;
            v[mid + k] = x;
            if (x >= n && y >= m)
                found = d;
        }
    }
    for (int d = found, x = n, y = m; d > 0; d--) {
        const int *o = trace + d * wide;
        int k = x - y;
        bool down = k == -d || (k != d && o[mid + k - 1] < o[mid + k + 1]);
        int from = down ? k + 1 : k - 1, px = o[mid + from], py = px - from;
        if (down)
            come[skip + (size_t)py] = true;
        else
            gone[skip + (size_t)px] = true;
        x = px, y = py;
    }
    free(trace);
    return found >= 0;
}

static void put_line(struct buf *out, char sign, struct str line)
{
    buf_putc(out, sign);
    buf_put(out, line.p, line.n);
    if (!line.n || line.p[line.n - 1] != '\n')
        buf_puts(out, "\n\\ No newline at end of file\n");
}

static void put_hunks(struct buf *out, const struct lines *a, const struct lines *b,
                      const bool *gone, const bool *come)
{
    size_t i = 0, j = 0;
    while (i < a->n || j < b->n) {
        if ((i >= a->n || !gone[i]) && (j >= b->n || !come[j])) {
            i++, j++;
            continue;
        }
        size_t back_by = i < CONTEXT ? i : CONTEXT, ai = i - back_by, bi = j - back_by;
        size_t x = i, y = j, same = 0;
        while ((x < a->n || y < b->n) && same <= 2 * CONTEXT) {
            bool d = x < a->n && gone[x], c = y < b->n && come[y];
            same = d || c ? 0 : same + 1;
            x += d || !c, y += c || !d;
        }
        size_t extra = same > CONTEXT ? same - CONTEXT : 0;
        x -= extra, y -= extra;
        buf_printf(out, "@@ -%zu,%zu +%zu,%zu @@\n", x > ai ? ai + 1 : ai, x - ai,
                   y > bi ? bi + 1 : bi, y - bi);
        for (size_t p = ai, q = bi; p < x || q < y;) {
            if (p < x && gone[p])
                put_line(out, '-', a->at[p++]);
            else if (q < y && come[q])
                put_line(out, '+', b->at[q++]);
            else
                put_line(out, ' ', a->at[p++]), q++;
        }
        i = x, j = y;
    }
}

void text_diff(struct str path, struct str from, struct str to, struct buf *out)
{
    if (str_eq(from, to))
        return;
    struct lines a = split(from), b = split(to);
    size_t skip = 0, tail = 0;
    while (skip < a.n && skip < b.n && str_eq(a.at[skip], b.at[skip]))
        skip++;
    while (tail < a.n - skip && tail < b.n - skip &&
           str_eq(a.at[a.n - 1 - tail], b.at[b.n - 1 - tail]))
        tail++;
    bool *gone = xcalloc(a.n + 1, 1), *come = xcalloc(b.n + 1, 1);
    if (!mark(&a, &b, skip, a.n - skip - tail, b.n - skip - tail, gone, come)) {
        memset(gone + skip, true, a.n - skip - tail);
        memset(come + skip, true, b.n - skip - tail);
    }
    buf_printf(out, "--- a%s%.*s\n+++ b%s%.*s\n", path.n && *path.p == '/' ? "" : "/", (int)path.n,
               path.p, path.n && *path.p == '/' ? "" : "/", (int)path.n, path.p);
    put_hunks(out, &a, &b, gone, come);
    free(gone), free(come), free(a.at), free(b.at);
}
