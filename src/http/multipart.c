/* RFC 2046 5.1.1 as form-data uses it:
 *
 *   [preamble] "--" boundary CRLF
 *   *( part-head CRLF CRLF data CRLF "--" boundary CRLF )
 *   the last one ends in "--" boundary "--" instead; what follows is ignored
 *
 * The delimiter of a part is CRLF "--" boundary. A possible start of it at the
 * end of the input is held back (at most its length) until more is known. */
#include "http/multipart.h"
#include "http/parse.h"
#include <stdlib.h>
#include <string.h>

#define BOUNDARY_MAX 70 /* RFC 2046 */
#define HEAD_MAX     8192
#define PARTS_MAX    1000

enum state { PREAMBLE, AFTER_DELIM, HEAD, DATA, EPILOGUE, FAILED };
struct multipart {
    enum state state;
    struct multipart_cb cb;
    void *arg;
    char delim[BOUNDARY_MAX + 5]; /* CRLF "--" boundary */
    size_t ndelim;
    struct buf hold; /* bytes not yet understood: at most a head or a delimiter */
    int parts;
};

/* The value of a parameter: name=token or name="quoted". out is decoded; false if absent or malformed. */
static bool param(struct str s, const char *name, struct buf *out)
{
    const char *at = s.p, *end = s.p + s.n;
    size_t len = strlen(name);
    while (at < end && *at != ';')
        at++;
    while (at < end) {
        at++; /* ';' */
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        const char *key = at;
        while (at < end && *at != '=' && *at != ';')
            at++;
        bool hit = str_ieqz((struct str){key, (size_t)(at - key)}, name) && (size_t)(at - key) == len;
        if (at == end || *at == ';')
            continue;
        at++; /* '=' */
        out->n = 0;
        if (at < end && *at == '"') {
            for (at++; at < end && *at != '"'; at++) {
                /* Browsers escape '"' as %22 and leave backslashes alone; curl writes \" and \\. Only these two count. */
                if (*at == '\\' && at + 1 < end && (at[1] == '"' || at[1] == '\\'))
                    at++;
                buf_putc(out, *at);
            }
            if (at == end)
                return false;
            at++;
        } else {
            const char *v = at;
            while (at < end && *at != ';' && *at != ' ' && *at != '\t')
                at++;
            buf_put(out, v, (size_t)(at - v));
        }
        if (hit) {
            buf_reserve(out, 0);
            out->p[out->n] = 0;
            return true;
        }
        while (at < end && *at != ';')
            at++;
    }
    return false;
}

static bool boundary_ok(struct str b) /* RFC 2046 bchars */
{
    if (!b.n || b.n > BOUNDARY_MAX || b.p[b.n - 1] == ' ')
        return false;
    for (size_t i = 0; i < b.n; i++) {
        char c = b.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("'()+_,-./:=? ", c))))
            return false;
    }
    return true;
}

struct multipart *multipart_new(struct str content_type, const struct multipart_cb *cb, void *arg, struct err *e)
{
    auto_buf b = {0};
    size_t n = sizeof "multipart/form-data" - 1;
    if (content_type.n < n || !str_ieqz((struct str){content_type.p, n}, "multipart/form-data")) {
        err_set(e, E_INVALID, "the body must be multipart/form-data");
        return NULL;
    }
    if (!param(content_type, "boundary", &b) || !boundary_ok((struct str){b.p, b.n})) {
        err_set(e, E_INVALID, "multipart/form-data without a valid boundary");
        return NULL;
    }
    struct multipart *m = xcalloc(1, sizeof *m);
    m->cb = *cb;
    m->arg = arg;
    memcpy(m->delim, "\r\n--", 4);
    memcpy(m->delim + 4, b.p, b.n);
    m->ndelim = b.n + 4;
    buf_put(&m->hold, "\r\n", 2); /* so that the first delimiter may stand at the very start */
    return m;
}
void multipart_free(struct multipart *m)
{
    if (!m)
        return;
    buf_free(&m->hold);
    free(m);
}

static int fail(struct multipart *m, struct err *e, const char *why)
{
    m->state = FAILED;
    return err_set(e, E_INVALID, "multipart body: %s", why);
}

static int begin_part(struct multipart *m, struct str head, struct err *e)
{
    auto_buf name = {0}, filename = {0};
    struct str type = {0};
    bool has_name = false, has_file = false;
    while (head.n) {
        const char *nl = memmem(head.p, head.n, "\r\n", 2);
        struct str line = {head.p, nl ? (size_t)(nl - head.p) : head.n};
        size_t step = line.n + (nl ? 2 : 0);
        head.p += step, head.n -= step;
        const char *colon = memchr(line.p, ':', line.n);
        if (!colon || !http_value_ok(line))
            return fail(m, e, "malformed part header");
        struct str key = {line.p, (size_t)(colon - line.p)}, value = str_trim((struct str){colon + 1, line.n - key.n - 1});
        if (!http_token_ok(key))
            return fail(m, e, "malformed part header");
        if (str_ieqz(key, "content-disposition")) {
            if (value.n < 9 || !str_ieqz((struct str){value.p, 9}, "form-data"))
                return fail(m, e, "a part is not form-data");
            has_name = param(value, "name", &name);
            has_file = param(value, "filename", &filename);
        } else if (str_ieqz(key, "content-type")) {
            type = value;
        }
    }
    if (!has_name)
        return fail(m, e, "a part has no name");
    if (++m->parts > PARTS_MAX)
        return fail(m, e, "too many parts");
    m->state = DATA;
    struct str file = has_file ? (struct str){filename.p, filename.n} : (struct str){0};
    if (m->cb.on_part && m->cb.on_part(m->arg, (struct str){name.p, name.n}, file, type)) {
        m->state = FAILED;
        return -1;
    }
    return 0;
}

/* How many bytes at the end of p could begin the delimiter. */
static size_t tail_match(const struct multipart *m, const char *p, size_t n)
{
    size_t k = n < m->ndelim - 1 ? n : m->ndelim - 1;
    for (; k; k--)
        if (!memcmp(p + n - k, m->delim, k))
            return k;
    return 0;
}

static int data(struct multipart *m, const char *p, size_t n)
{
    if (m->state != DATA || !n || !m->cb.on_data)
        return 0;
    return m->cb.on_data(m->arg, p, n) ? -1 : 0;
}

/* One step over p: how many bytes were used up; 0 when more are needed. */
static ssize_t step(struct multipart *m, const char *p, size_t n, struct err *e)
{
    switch (m->state) {
    case PREAMBLE:
    case DATA: {
        const char *d = memmem(p, n, m->delim, m->ndelim);
        size_t plain = d ? (size_t)(d - p) : n - tail_match(m, p, n);
        if (data(m, p, plain))
            return m->state = FAILED, -1;
        if (!d)
            return (ssize_t)plain;
        if (m->state == DATA && m->cb.on_part_end && m->cb.on_part_end(m->arg))
            return m->state = FAILED, -1;
        m->state = AFTER_DELIM;
        return (ssize_t)(plain + m->ndelim);
    }
    case AFTER_DELIM:
        if (n < 2)
            return 0;
        if (p[0] == '-' && p[1] == '-')
            m->state = EPILOGUE;
        else if (p[0] == '\r' && p[1] == '\n')
            m->state = HEAD;
        else
            return fail(m, e, "junk after a boundary");
        return 2;
    case HEAD: {
        const char *end = memmem(p, n, "\r\n\r\n", 4);
        if (!end) {
            if (n > HEAD_MAX)
                return fail(m, e, "part header too large");
            return 0;
        }
        size_t len = (size_t)(end - p);
        if (len > HEAD_MAX)
            return fail(m, e, "part header too large");
        return begin_part(m, (struct str){p, len}, e) ? -1 : (ssize_t)(len + 4);
    }
    case EPILOGUE:
        return (ssize_t)n;
    default:
        return fail(m, e, "unusable after an error");
    }
}

int multipart_push(struct multipart *m, const char *p, size_t n, struct err *e)
{
    /* What is held back is small, so joining it with the new bytes is a cheap way to see both. It is done in slices so
     * that a large push is not copied as a whole. */
    while (n || m->hold.n) {
        size_t slice = n < 16384 ? n : 16384;
        bool joined = m->hold.n > 0;
        if (joined) {
            buf_put(&m->hold, p, slice);
            p += slice, n -= slice;
        }
        const char *at = joined ? m->hold.p : p;
        size_t left = joined ? m->hold.n : n, used = 0;
        while (used < left) {
            ssize_t r = step(m, at + used, left - used, e);
            if (r < 0)
                return -1;
            if (!r)
                break;
            used += (size_t)r;
        }
        if (joined) {
            buf_drop(&m->hold, used);
            if (!n)
                return 0;
            continue;
        }
        buf_put(&m->hold, p + used, left - used);
        return 0;
    }
    return 0;
}

int multipart_end(struct multipart *m, struct err *e)
{
    return m->state == EPILOGUE ? 0 : fail(m, e, "ends before its last boundary");
}
