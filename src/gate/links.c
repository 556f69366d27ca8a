#include "gate/links.h"
#include "base/buf.h"
#include <string.h>
#include <strings.h>

enum { TEXT, OPEN, MARKUP, COMMENT, BOGUS, TAG, BEFORE_NAME, NAME, AFTER_NAME, BEFORE_VALUE, QUOTED, UNQUOTED, RAW, RAW_END, STOP };

static bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }
static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

/* A name that is too long is cut, and then is none that matters. */
static void put(char *name, size_t *n, char c)
{
    if (*n + 1 < LINK_NAME)
        name[(*n)++] = lower(c);
    name[*n] = 0;
}

static void value_end(struct links *l)
{
    if (!strcmp(l->attr, "rel") && strcasecmp(l->value, "internal")) /* old indexes say that of their own files */
        l->has_rel = true;
    if (!strcmp(l->attr, "href") && !l->has_href) { /* the first counts */
        l->has_href = true;
        memcpy(l->href, l->value, l->nvalue + 1);
        if (l->long_value)
            l->href[0] = 0;
    }
}

static void value_begin(struct links *l)
{
    l->nvalue = 0, l->long_value = false, l->value[0] = 0;
}

static void value_put(struct links *l, char c)
{
    if (l->nvalue + 1 < LINK_MAX)
        l->value[l->nvalue++] = c;
    else
        l->long_value = true;
    l->value[l->nvalue] = 0;
}

static void name_begin(struct links *l)
{
    l->nattr = 0, l->attr[0] = 0;
    value_begin(l);
    l->state = NAME;
}

static void tag_end(struct links *l, void (*fn)(void *arg, const char *href), void *arg)
{
    static const char *const raw[] = {"script", "style", "title", "textarea", "xmp", "iframe", "noembed", "noframes"};
    /* what is in these is read by other rules, or by other readers differently: no link of the page counts from there on */
    static const char *const strange[] = {"noscript", "template", "svg", "math", "plaintext"};
    l->state = TEXT;
    if (l->end)
        return;
    if (!strcmp(l->tag, "a") && l->has_href && !l->has_rel && *l->href)
        fn(arg, l->href);
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++)
        if (!strcmp(l->tag, raw[i])) {
            memcpy(l->raw, l->tag, sizeof l->raw);
            l->state = RAW;
        }
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++)
        if (!strcmp(l->tag, strange[i]))
            l->state = STOP;
}

/* What may follow a tag's or an attribute's name; true: the tag is over. */
static bool boundary(struct links *l, char c, int otherwise)
{
    if (c == '>')
        return true;
    l->state = blank(c) || c == '/' ? BEFORE_NAME : otherwise;
    return false;
}

static void begin_tag(struct links *l, bool end)
{
    l->ntag = 0, l->tag[0] = 0, l->href[0] = 0;
    l->end = end, l->has_href = l->has_rel = false;
    l->state = TAG;
}

static void in_open(struct links *l, char c)
{
    if (letter(c)) {
        begin_tag(l, l->end);
        put(l->tag, &l->ntag, c);
    } else if (c == '/' && !l->end) {
        l->end = true;
    } else if (c == '!' && !l->end) {
        l->state = MARKUP, l->nraw = 0;
    } else if (c == '?' || l->end) {
        l->state = c == '>' ? TEXT : BOGUS;
    } else if (c != '<') {
        l->state = TEXT;
    }
}

/* The content of such an element ends with its own end tag and nothing else. */
static void in_raw(struct links *l, char c)
{
    size_t n = strlen(l->raw);
    if (c == '<') {
        l->state = RAW_END, l->nraw = 0;
    } else if (l->state == RAW_END) {
        if (l->nraw == 0 && c == '/')
            l->nraw = 1;
        else if (l->nraw == 0 && c == '!' && !strcmp(l->raw, "script"))
            l->state = STOP; /* a comment there may hold end tags that are none */
        else if (l->nraw && l->nraw <= n && lower(c) == l->raw[l->nraw - 1])
            l->nraw++;
        else if (l->nraw == n + 1 && (blank(c) || c == '/' || c == '>'))
            l->state = c == '>' ? TEXT : BEFORE_NAME, l->end = true;
        else
            l->state = RAW;
    }
}

static bool in_tag(struct links *l, char c)
{
    switch (l->state) {
    case TAG:
        if (!blank(c) && c != '/' && c != '>')
            put(l->tag, &l->ntag, c);
        else
            return boundary(l, c, BEFORE_NAME);
        return false;
    case BEFORE_NAME:
        if (blank(c) || c == '/')
            return false;
        if (c == '>')
            return true;
        name_begin(l);
        put(l->attr, &l->nattr, c); /* a '=' here too */
        return false;
    case NAME:
        if (c == '=')
            l->state = BEFORE_VALUE;
        else if (blank(c))
            l->state = AFTER_NAME;
        else if (c == '/' || c == '>') {
            value_end(l);
            return boundary(l, c, BEFORE_NAME);
        } else
            put(l->attr, &l->nattr, c);
        return false;
    case AFTER_NAME:
        if (blank(c))
            return false;
        if (c == '=') {
            l->state = BEFORE_VALUE;
            return false;
        }
        value_end(l);
        if (c == '>' || c == '/')
            return boundary(l, c, BEFORE_NAME);
        name_begin(l);
        put(l->attr, &l->nattr, c);
        return false;
    case BEFORE_VALUE:
        if (blank(c))
            return false;
        if (c == '"' || c == '\'') {
            l->quote = c, l->state = QUOTED;
        } else if (c == '>') {
            value_end(l);
            return true;
        } else {
            l->state = UNQUOTED;
            value_put(l, c);
        }
        return false;
    case QUOTED:
        if (c == l->quote) {
            value_end(l);
            l->state = BEFORE_NAME;
        } else
            value_put(l, c);
        return false;
    default: /* UNQUOTED */
        if (!blank(c) && c != '>') {
            value_put(l, c);
            return false;
        }
        value_end(l);
        return boundary(l, c, BEFORE_NAME);
    }
}

void links_feed(struct links *l, const char *p, size_t n, void (*fn)(void *arg, const char *href), void *arg)
{
    for (const char *at = p; at < p + n; at++) {
        char c = *at;
        switch (l->state) {
        case TEXT:
            if (c == '<')
                l->state = OPEN, l->end = false;
            break;
        case OPEN: in_open(l, c); break;
        case MARKUP:
            if (c == '-' && l->nraw++ == 1)
                l->state = COMMENT, l->nraw = 0, memcpy(l->last, "\0--", sizeof l->last); /* "<!-->" is one */
            else if (c != '-')
                l->state = c == '>' ? TEXT : BOGUS;
            break;
        case COMMENT:
            if (c == '>' && (!memcmp(l->last + 1, "--", 2) || (l->nraw >= 3 && !memcmp(l->last, "--!", 3)))) /* "<!--!>" is not */
                l->state = TEXT;
            l->nraw += l->nraw < 3;
            l->last[0] = l->last[1], l->last[1] = l->last[2], l->last[2] = c;
            break;
        case STOP: break;
        case BOGUS:
            if (c == '>')
                l->state = TEXT;
            break;
        case RAW:
        case RAW_END: in_raw(l, c); break;
        default:
            if (in_tag(l, c))
                tag_end(l, fn, arg);
        }
    }
}

bool links_file(const char *href, const char *project)
{
    static const char *const kinds[] = {".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz"};
    size_t n = strcspn(href, "?#"), k = strlen(project), from = n, scheme = strcspn(href, ":/?#");
    const char *rest = href + scheme + (href[scheme] == ':');
    if (!strncmp(rest, "//", 2) && !memchr(rest + 2, '/', n - (size_t)(rest + 2 - href)))
        return false; /* a host, whatever it is called */
    while (from && href[from - 1] != '/')
        from--;
    const char *name = href + from;
    n -= from;
    if (n < k + 2 || strncasecmp(name, project, k) || name[k] != '-')
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t m = strlen(kinds[i]);
        if (n > m && !strncasecmp(name + n - m, kinds[i], m))
            return true;
    }
    return false;
}

char *links_resolve(const char *base, const char *href)
{
    while (blank(*href))
        href++;
    if (!strncasecmp(href, "http://", 7))
        return xasprintf("http://%s", href + 7);
    if (!strncasecmp(href, "https://", 8))
        return xasprintf("https://%s", href + 8);
    if (href[0] == '/' && href[1] == '/')
        return xasprintf("%s%s", strncmp(base, "https:", 6) ? "http:" : "https:", href);
    size_t scheme = strcspn(href, ":/?#");
    return href[scheme] == ':' ? NULL : xstrdup(base);
}
