#include "json/valid.h"

struct at { const char *p, *end; const char *why; };

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

static bool object(struct at *a, int depth)
{
    a->p++;
    space(a);
    if (is(a, '}'))
        return a->p++, true;
    for (;; a->p++) {
        space(a);
        if (!is(a, '"'))
            return bad(a, "not a key");
        if (!string(a))
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
    struct at a = {t.p, t.p + t.n, NULL};
    return value(&a, 0) ? length(t.p, a.p) : 0;
}

bool json_member(struct str t, struct str name, struct str *ret)
{
    struct at a = {t.p, t.p + t.n, NULL};
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
    struct at a = {t.p, t.p + t.n, NULL};
    if (!str_utf8(t))
        return err_set(e, E_INVALID, "not UTF-8");
    if (value(&a, 0) && a.p < a.end)
        (void)bad(&a, "more than one value");
    return a.why ? err_set(e, E_INVALID, "byte %zu: %s", (size_t)(a.p - t.p), a.why) : 0;
}
