/* RFC 3986 2.1 percent-encoding, and the two ways it is used: path segments
 * (split first, '+' is itself) and queries ('+' is a space, as forms send it).
 * A decoded NUL is refused everywhere: what follows ends up in C strings. */
#include "http/uri.h"

static int hexval(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool uri_decode(struct str in, bool plus_is_space, struct buf *out)
{
    buf_reserve(out, in.n); /* decoding never grows */
    out->p[out->n] = 0;     /* also of nothing */
    for (size_t i = 0; i < in.n; i++) {
        char c = in.p[i];
        if (c == '%') {
            int hi = i + 2 < in.n ? hexval(in.p[i + 1]) : -1, lo = i + 2 < in.n ? hexval(in.p[i + 2]) : -1;
            if (hi < 0 || lo < 0 || (!hi && !lo))
                return false;
            c = (char)(hi << 4 | lo);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        } else if (!c) {
            return false;
        }
        buf_putc(out, c);
    }
    return true;
}

void uri_encode(struct str in, bool keep_slash, struct buf *out)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < in.n; i++) {
        unsigned char c = (unsigned char)in.p[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' ||
                     c == '~' || (keep_slash && c == '/');
        if (plain) {
            buf_putc(out, (char)c);
        } else {
            char t[3] = {'%', hex[c >> 4], hex[c & 15]};
            buf_put(out, t, 3);
        }
    }
}

int uri_split(struct str path, struct buf *store, struct str seg[HTTP_SEGMENTS_MAX])
{
    int n = 0;
    if (!path.n || path.p[0] != '/')
        return 0;
    path.p++, path.n--;
    /* Room for everything first, so that the segments can point into the store: each decodes to at most its length
     * and is followed by a NUL. */
    buf_reserve(store, path.n + HTTP_SEGMENTS_MAX + 1);
    for (;;) {
        const char *slash = memchr(path.p, '/', path.n);
        size_t len = slash ? (size_t)(slash - path.p) : path.n;
        if (n == HTTP_SEGMENTS_MAX)
            return -1;
        size_t at = store->n;
        if (!uri_decode((struct str){path.p, len}, false, store))
            return -1;
        seg[n++] = (struct str){store->p + at, store->n - at};
        buf_putc(store, 0);
        if (!slash)
            return n;
        path.p += len + 1, path.n -= len + 1;
    }
}

bool query_next(struct str *rest, struct str *key, struct str *value)
{
    while (rest->n) {
        const char *amp = memchr(rest->p, '&', rest->n);
        struct str pair = {rest->p, amp ? (size_t)(amp - rest->p) : rest->n};
        size_t step = pair.n + (amp != NULL);
        rest->p += step, rest->n -= step;
        if (!pair.n)
            continue;
        const char *eq = memchr(pair.p, '=', pair.n);
        *key = (struct str){pair.p, eq ? (size_t)(eq - pair.p) : pair.n};
        *value = eq ? (struct str){eq + 1, pair.n - key->n - 1} : (struct str){pair.p + pair.n, 0};
        return true;
    }
    return false;
}

bool query_get(struct str query, const char *key, struct buf *out)
{
    struct str k, v;
    auto_buf name = {0};
    while (query_next(&query, &k, &v)) {
        bool hit = str_eqz(k, key);
        if (!hit && memchr(k.p, '%', k.n)) {
            name.n = 0;
            hit = uri_decode(k, true, &name) && str_eqz((struct str){name.p, name.n}, key);
        }
        if (!hit)
            continue;
        size_t at = out->n;
        if (uri_decode(v, true, out)) {
            buf_reserve(out, 0);
            out->p[out->n] = 0;
            return true;
        }
        out->n = at;
        return false;
    }
    return false;
}
