#include "json/valid.h"
#include "base/buf.h"
#include "base/map.h"
#include <stdlib.h>

struct at {
    const char *p, *end;
    const char *why;
    bool once; /* keys of an object must differ */
};

static void space(struct at *a)
{
    while (a->p < a->end && (*a->p == ' ' || *a->p == '\t' || *a->p == '\n' || *a->p == '\r'))
        a->p++;
}
static bool is(const struct at *a, char c) { return a->p < a->end && *a->p == c; }
static bool digit(const struct at *a) { return a->p < a->end && *a->p >= '0' && *a->p <= '9'; }
static bool hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static bool bad(struct at *a, const char *why)
{
    if (!a->why)
        a->why = why;
    return false;
}

static bool word(struct at *a, struct str w)
{
    if ((size_t)(a->end - a->p) < w.n || memcmp(a->p, w.p, w.n))
        return bad(a, "not a value");
    a->p += w.n;
    return true;
}

static bool digits(struct at *a)
{
    if (!digit(a))
        return bad(a, "not a number");
    while (digit(a))
        a->p++;
    return true;
}

static bool number(struct at *a)
{
    a->p += is(a, '-');
    if (is(a, '0'))
        a->p++;
    else if (!digits(a))
        return false;
    if (is(a, '.')) {
        a->p++;
        if (!digits(a))
            return false;
    }
    if (is(a, 'e') || is(a, 'E')) {
        a->p++;
        a->p += is(a, '+') || is(a, '-');
        return digits(a);
    }
    return true;
}

static bool escape(struct at *a)
{
    a->p++;
    if (a->p == a->end)
        return bad(a, "unfinished escape");
    char c = *a->p++;
    if (c != 'u')
        return memchr("\"\\/bfnrt", c, 8) ? true : bad(a, "unknown escape");
    for (int i = 0; i < 4; i++, a->p++)
        if (a->p == a->end || !hex(*a->p))
            return bad(a, "bad \\u escape");
    return true;
}

static bool string(struct at *a)
{
    for (a->p++; a->p < a->end && *a->p != '"';) {
        if (*a->p == '\\') {
            if (!escape(a))
                return false;
        } else if ((unsigned char)*a->p++ < 0x20) {
            return bad(a, "control character in a string");
        }
    }
    if (a->p == a->end)
        return bad(a, "unfinished string");
    a->p++;
    return true;
}

static bool value(struct at *a, int depth);

static unsigned hex4(const char *p)
{
    unsigned v = 0;
    for (int i = 0; i < 4; i++)
        v = v << 4 | (unsigned)(p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10);
    return v;
}
/* A code point, and half of a pair too: only keys that are the same become the same. */
static void put_point(struct buf *out, unsigned v)
{
    static const char lead[] = {0, 0, (char)0xc0, (char)0xe0, (char)0xf0};
    int n = v < 0x80 ? 1 : v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    buf_putc(out, (char)(n == 1 ? v : (unsigned char)lead[n] | v >> 6 * (n - 1)));
    for (int i = n - 2; i >= 0; i--)
        buf_putc(out, (char)(0x80 | (v >> 6 * i & 0x3f)));
}
/* What a checked string stands for; NUL as C0 80, so that it can be a key of a map. */
static void unescape(struct str text, struct buf *out)
{
    for (const char *p = text.p, *end = p + text.n; p < end; p++) {
        if (*p != '\\') {
            buf_putc(out, *p);
            continue;
        }
        static const char letter[] = "bfnrt", means[] = "\b\f\n\r\t";
        const char *at = strchr(letter, *++p);
        if (*p != 'u') {
            buf_putc(out, at ? means[at - letter] : *p);
            continue;
        }
        unsigned v = hex4(p + 1);
        p += 4;
        if (v >> 10 == 0xd800 >> 10 && end - p > 6 && p[1] == '\\' && p[2] == 'u' &&
            hex4(p + 3) >> 10 == 0xdc00 >> 10) {
            v = 0x10000 + ((v & 0x3ff) << 10 | (hex4(p + 3) & 0x3ff));
            p += 6;
        }
        if (v)
            put_point(out, v);
        else
            buf_puts(out, "\xc0\x80");
    }
    buf_put(out, "", 0);
}
static bool first_time(struct at *a, struct map *keys, struct str text)
{
    if (!a->once)
        return true;
    auto_buf key = {0};
    unescape(text, &key);
    if (map_get(keys, key.p))
        return bad(a, "a key that was there before");
    map_set(keys, key.p, a);
    return true;
}

static bool members(struct at *a, struct map *keys, int depth)
{
    for (;; a->p++) {
        space(a);
        if (!is(a, '"'))
            return bad(a, "not a key");
        const char *key = a->p + 1;
        if (!string(a) || !first_time(a, keys, (struct str){key, (size_t)(a->p - 1 - key)}))
            return false;
        space(a);
        if (!is(a, ':'))
            return bad(a, "no colon after a key");
        a->p++;
        if (!value(a, depth))
            return false;
        if (is(a, '}'))
            return a->p++, true;
        if (!is(a, ','))
            return bad(a, "unfinished object");
    }
}
static bool object(struct at *a, int depth)
{
    struct map keys = {0};
    a->p++;
    space(a);
    if (is(a, '}'))
        return a->p++, true;
    bool ok = members(a, &keys, depth);
    map_free(&keys);
    return ok;
}

static bool array(struct at *a, int depth)
{
    a->p++;
    space(a);
    if (is(a, ']'))
        return a->p++, true;
    for (;; a->p++) {
        if (!value(a, depth))
            return false;
        if (is(a, ']'))
            return a->p++, true;
        if (!is(a, ','))
            return bad(a, "unfinished array");
    }
}

/* with the space on both sides of it */
static bool value(struct at *a, int depth)
{
    bool ok;
    space(a);
    if (a->p == a->end)
        return bad(a, "no value");
    if (depth == JSON_VALID_DEPTH)
        return bad(a, "nested too deep");
    switch (*a->p) {
    case '{':
        ok = object(a, depth + 1);
        break;
    case '[':
        ok = array(a, depth + 1);
        break;
    case '"':
        ok = string(a);
        break;
    case 't':
        ok = word(a, S("true"));
        break;
    case 'f':
        ok = word(a, S("false"));
        break;
    case 'n':
        ok = word(a, S("null"));
        break;
    default:
        ok = number(a);
    }
    space(a);
    return ok;
}

/* without the space behind it */
static size_t length(const char *from, const char *to)
{
    while (to > from && (to[-1] == ' ' || to[-1] == '\t' || to[-1] == '\n' || to[-1] == '\r'))
        to--;
    return (size_t)(to - from);
}

size_t json_extent(struct str t)
{
    struct at a = {.p = t.p, .end = t.p + t.n};
    return value(&a, 0) ? length(t.p, a.p) : 0;
}

bool json_member(struct str t, struct str name, struct str *ret)
{
    struct at a = {.p = t.p, .end = t.p + t.n};
    space(&a);
    if (!is(&a, '{'))
        return false;
    do {
        a.p++;
        space(&a);
        const char *key = a.p + 1;
        if (!is(&a, '"') || !string(&a))
            return false;
        struct str found = {key, (size_t)(a.p - 1 - key)};
        space(&a);
        if (!is(&a, ':'))
            return false;
        a.p++;
        space(&a);
        const char *from = a.p;
        if (!value(&a, 0))
            return false;
        if (str_eq(found, name)) {
            *ret = (struct str){from, length(from, a.p)};
            return true;
        }
    } while (is(&a, ','));
    return false;
}

int json_valid(struct str t, struct err *e)
{
    struct at a = {.p = t.p, .end = t.p + t.n, .once = true};
    if (!str_utf8(t))
        return err_set(e, E_INVALID, "not UTF-8");
    if (value(&a, 0) && a.p < a.end)
        (void)bad(&a, "more than one value");
    return a.why ? err_set(e, E_INVALID, "byte %zu: %s", (size_t)(a.p - t.p), a.why) : 0;
}
