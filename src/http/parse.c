/* Two steps. While bytes arrive, lines are collected into one bounded buffer
 * and only their ends are looked at (CRLF, caps). When the empty line is there
 * the buffer no longer moves and is parsed in one pass, start line first, then
 * fields, then what the fields mean together (framing, Host). */
#include "http/parse.h"
#include <stdlib.h>

enum { TOK = 1, VAL = 2, TGT = 4, HST = 8 };
/* RFC 9110 5.6.2 tchar; 5.5 field-vchar with obs-text; any visible ASCII but '#' in a target (what RFC 3986 wants
 * encoded but browsers send raw is harmless here: nothing splits on it); RFC 3986 3.2.2 host characters and ':'. */
static const unsigned char cls[256] = {
    ['\t'] = VAL, [' '] = VAL, ['!'] = TOK | VAL | TGT | HST, ['"'] = VAL | TGT, ['#'] = TOK | VAL,
    ['$'] = TOK | VAL | TGT | HST, ['%'] = TOK | VAL | TGT | HST, ['&'] = TOK | VAL | TGT | HST, ['\''] = TOK | VAL | TGT | HST,
    ['('] = VAL | TGT | HST, [')'] = VAL | TGT | HST, ['*'] = TOK | VAL | TGT | HST, ['+'] = TOK | VAL | TGT | HST,
    [','] = VAL | TGT | HST, ['-'] = TOK | VAL | TGT | HST, ['.'] = TOK | VAL | TGT | HST, ['/'] = VAL | TGT,
    ['0' ... '9'] = TOK | VAL | TGT | HST, [':'] = VAL | TGT | HST, [';'] = VAL | TGT | HST, ['<'] = VAL | TGT,
    ['='] = VAL | TGT | HST, ['>'] = VAL | TGT, ['?'] = VAL | TGT, ['@'] = VAL | TGT, ['A' ... 'Z'] = TOK | VAL | TGT | HST,
    ['['] = VAL | TGT | HST, ['\\'] = VAL | TGT, [']'] = VAL | TGT | HST, ['^'] = TOK | VAL | TGT, ['_'] = TOK | VAL | TGT | HST,
    ['`'] = TOK | VAL | TGT, ['a' ... 'z'] = TOK | VAL | TGT | HST, ['{'] = VAL | TGT, ['|'] = TOK | VAL | TGT,
    ['}'] = VAL | TGT, ['~'] = TOK | VAL | TGT | HST, [0x80 ... 0xff] = VAL,
};
static bool all(struct str s, int bit)
{
    for (size_t i = 0; i < s.n; i++)
        if (!(cls[(unsigned char)s.p[i]] & bit))
            return false;
    return true;
}
bool http_token_ok(struct str s) { return s.n && all(s, TOK); }
bool http_value_ok(struct str s) { return all(s, VAL); }

void http_parser_init(struct http_parser *p, enum http_kind kind, unsigned flags)
{
    *p = (struct http_parser){.kind = kind, .flags = flags, .limits = HTTP_LIMITS_DEFAULT};
}
void http_parser_reset(struct http_parser *p)
{
    free(p->head.fields);
    if (p->raw.cap > 4096)
        buf_free(&p->raw);
    struct buf raw = p->raw;
    raw.n = 0;
    *p = (struct http_parser){.kind = p->kind, .flags = p->flags, .limits = p->limits, .raw = raw};
}
void http_parser_fini(struct http_parser *p)
{
    free(p->head.fields);
    buf_free(&p->raw);
    *p = (struct http_parser){0};
}

static int bad(struct http_parser *p, int status, const char *why)
{
    p->status = status;
    p->why = why;
    return -1;
}

/* "HTTP/1.0" or "HTTP/1.1" */
static int parse_version(struct http_parser *p, struct str s)
{
    if (s.n != 8 || memcmp(s.p, "HTTP/", 5) || s.p[6] != '.' || s.p[5] < '0' || s.p[5] > '9' || s.p[7] < '0' || s.p[7] > '9')
        return bad(p, 400, "malformed HTTP version");
    if (s.p[5] != '1' || s.p[7] > '1')
        return bad(p, 505, "only HTTP/1.0 and HTTP/1.1 are supported");
    p->head.minor = s.p[7] - '0';
    return 0;
}

static bool port_ok(struct str s)
{
    uint64_t v;
    return s.n && s.n <= 5 && str_u64(s, &v) && v <= 65535;
}
/* host or host:port; brackets only around an address literal */
static bool host_ok(struct str s, bool need_port)
{
    if (!all(s, HST))
        return false;
    struct str rest = s;
    if (s.n && s.p[0] == '[') {
        const char *end = memchr(s.p, ']', s.n);
        if (!end)
            return false;
        for (const char *c = s.p + 1; c < end; c++)
            if (*c == '[')
                return false;
        rest = (struct str){end + 1, (size_t)(s.p + s.n - end - 1)};
    } else {
        size_t i = 0;
        while (i < s.n && s.p[i] != ':' && s.p[i] != '[' && s.p[i] != ']')
            i++;
        if (need_port && !i)
            return false;
        rest = (struct str){s.p + i, s.n - i};
    }
    if (!rest.n)
        return !need_port;
    if (rest.p[0] != ':')
        return false;
    return (rest.n == 1 && !need_port) || port_ok((struct str){rest.p + 1, rest.n - 1});
}

static void split_query(struct http_head *h, struct str s)
{
    const char *q = memchr(s.p, '?', s.n);
    h->path = s;
    if (q) {
        h->path.n = (size_t)(q - s.p);
        h->query = (struct str){q + 1, s.n - h->path.n - 1};
    }
}

/* RFC 9112 3.2 */
static int parse_target(struct http_parser *p)
{
    struct http_head *h = &p->head;
    struct str t = h->target;
    if (!t.n || !all(t, TGT))
        return bad(p, 400, "malformed request target");
    if (str_eqz(h->method, "CONNECT")) {
        if (!(p->flags & HTTP_ALLOW_CONNECT))
            return bad(p, 400, "CONNECT is not supported");
        if (!host_ok(t, true))
            return bad(p, 400, "CONNECT wants host:port");
        h->form = HTTP_FORM_AUTHORITY;
        h->authority = t;
        return 0;
    }
    if (t.p[0] == '/') {
        h->form = HTTP_FORM_ORIGIN;
        split_query(h, t);
        return 0;
    }
    if (str_eqz(t, "*")) {
        if (!str_eqz(h->method, "OPTIONS"))
            return bad(p, 400, "the target * is for OPTIONS");
        h->form = HTTP_FORM_ASTERISK;
        h->path = t;
        return 0;
    }
    size_t scheme = str_ieqz((struct str){t.p, t.n < 7 ? t.n : 7}, "http://")    ? 7
                    : str_ieqz((struct str){t.p, t.n < 8 ? t.n : 8}, "https://") ? 8
                                                                                 : 0;
    if (!scheme)
        return bad(p, 400, "malformed request target");
    if (!(p->flags & HTTP_ALLOW_ABSOLUTE))
        return bad(p, 400, "absolute request targets are not supported");
    size_t i = scheme;
    while (i < t.n && t.p[i] != '/' && t.p[i] != '?')
        i++;
    h->form = HTTP_FORM_ABSOLUTE;
    h->authority = (struct str){t.p + scheme, i - scheme};
    if (!h->authority.n || h->authority.p[0] == ':' || !host_ok(h->authority, false)) /* host_ok also refuses userinfo */
        return bad(p, 400, "malformed authority in the request target");
    split_query(h, (struct str){t.p + i, t.n - i});
    if (!h->path.n)
        h->path = S("/");
    return 0;
}

static int parse_request_line(struct http_parser *p, struct str line)
{
    const char *sp = memchr(line.p, ' ', line.n);
    if (!sp)
        return bad(p, 400, "malformed request line");
    p->head.method = (struct str){line.p, (size_t)(sp - line.p)};
    if (p->head.method.n > 32 || !http_token_ok(p->head.method))
        return bad(p, 400, "malformed method");
    struct str rest = {sp + 1, line.n - p->head.method.n - 1};
    sp = memchr(rest.p, ' ', rest.n);
    if (!sp)
        return bad(p, 400, "malformed request line");
    p->head.target = (struct str){rest.p, (size_t)(sp - rest.p)};
    if (parse_version(p, (struct str){sp + 1, rest.n - p->head.target.n - 1}))
        return -1;
    return parse_target(p);
}

static int parse_status_line(struct http_parser *p, struct str line)
{
    if (line.n < 12 || line.p[8] != ' ')
        return bad(p, 400, "malformed status line");
    if (parse_version(p, (struct str){line.p, 8}))
        return -1;
    const char *d = line.p + 9;
    for (int i = 0; i < 3; i++)
        if (d[i] < '0' || d[i] > '9')
            return bad(p, 400, "malformed status code");
    p->head.status = (d[0] - '0') * 100 + (d[1] - '0') * 10 + (d[2] - '0');
    if (p->head.status < 100 || p->head.status > 599)
        return bad(p, 400, "status code out of range");
    /* RFC 9112 4 wants a space even without a reason; small servers forget it and nothing is ambiguous then. */
    if (line.n > 12 && line.p[12] != ' ')
        return bad(p, 400, "malformed status line");
    p->head.reason = line.n > 12 ? (struct str){line.p + 13, line.n - 13} : (struct str){line.p + 12, 0};
    return http_value_ok(p->head.reason) ? 0 : bad(p, 400, "control byte in the reason phrase");
}

static int parse_field(struct http_parser *p, struct str line, struct http_field *f)
{
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return bad(p, 400, "folded header line");
    const char *colon = memchr(line.p, ':', line.n);
    if (!colon)
        return bad(p, 400, "header line without a colon");
    f->name = (struct str){line.p, (size_t)(colon - line.p)};
    if (!http_token_ok(f->name)) /* a space before the colon ends up here */
        return bad(p, 400, "malformed header name");
    f->value = (struct str){colon + 1, line.n - f->name.n - 1};
    if (!http_value_ok(f->value))
        return bad(p, 400, "control byte in a header value");
    f->value = str_trim(f->value);
    return 0;
}

static bool list_has(struct str list, const char *token)
{
    while (list.n) {
        const char *comma = memchr(list.p, ',', list.n);
        size_t n = comma ? (size_t)(comma - list.p) : list.n;
        if (str_ieqz(str_trim((struct str){list.p, n}), token))
            return true;
        n += comma != NULL;
        list.p += n, list.n -= n;
    }
    return false;
}

/* RFC 9112 6.3, the strict reading */
static int settle_framing(struct http_parser *p, bool has_length, bool chunked)
{
    struct http_head *h = &p->head;
    if (chunked && has_length)
        return bad(p, 400, "Content-Length together with Transfer-Encoding");
    if (chunked && h->minor == 0)
        return bad(p, 400, "Transfer-Encoding in HTTP/1.0");
    if (p->kind == HTTP_REQUEST) {
        h->framing = chunked ? HTTP_BODY_CHUNKED : has_length && h->length ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
        return 0;
    }
    bool never = h->status < 200 || h->status == 204;
    if (never && (chunked || h->length))
        return bad(p, 400, "a body where the status forbids one");
    if (never || h->status == 304 || (p->flags & HTTP_NO_BODY))
        h->framing = HTTP_BODY_NONE;
    else
        h->framing = chunked ? HTTP_BODY_CHUNKED : !has_length ? HTTP_BODY_CLOSE : h->length ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
    return 0;
}

static int settle(struct http_parser *p)
{
    struct http_head *h = &p->head;
    bool has_length = false, chunked = false, host = false, close_it = false, keep = false;
    for (uint32_t i = 0; i < h->nfields; i++) {
        struct str name = h->fields[i].name, value = h->fields[i].value;
        switch (name.n) { /* the length sorts out most names before any comparison */
        case 4:
            if (p->kind != HTTP_REQUEST || !str_ieqz(name, "host"))
                break;
            if (host)
                return bad(p, 400, "repeated Host");
            if (!host_ok(value, false))
                return bad(p, 400, "malformed Host");
            host = true;
            h->host = value;
            break;
        case 6:
            if (p->kind != HTTP_REQUEST || !str_ieqz(name, "expect") || h->minor == 0)
                break;
            if (!str_ieqz(value, "100-continue"))
                return bad(p, 417, "unknown expectation");
            h->expect_continue = true;
            break;
        case 10:
            if (!str_ieqz(name, "connection"))
                break;
            close_it |= list_has(value, "close");
            keep |= list_has(value, "keep-alive");
            h->upgrade |= list_has(value, "upgrade");
            break;
        case 14:
            if (!str_ieqz(name, "content-length"))
                break;
            if (has_length)
                return bad(p, 400, "repeated Content-Length");
            if (!str_u64(value, &h->length) || h->length > INT64_MAX)
                return bad(p, 400, "malformed Content-Length");
            has_length = true;
            break;
        case 17:
            if (!str_ieqz(name, "transfer-encoding"))
                break;
            if (chunked)
                return bad(p, 400, "repeated Transfer-Encoding");
            if (!str_ieqz(value, "chunked"))
                return bad(p, 501, "transfer coding other than chunked");
            chunked = true;
            break;
        default:
            break;
        }
    }
    if (p->kind == HTTP_REQUEST && h->minor == 1 && !host)
        return bad(p, 400, "missing Host");
    if (h->authority.n)
        h->host = h->authority;
    h->keep_alive = !close_it && (h->minor == 1 || keep);
    return settle_framing(p, has_length, chunked);
}

static int parse_head(struct http_parser *p)
{
    struct http_head *h = &p->head;
    const char *at = p->raw.p, *end = p->raw.p + p->raw.n - 2; /* without the empty line */
    const char *nl = memchr(at, '\n', (size_t)(end - at));
    struct str line = {at, (size_t)(nl - at) - 1};
    if (p->kind == HTTP_REQUEST ? parse_request_line(p, line) : parse_status_line(p, line))
        return -1;
    if (p->nlines > 1)
        h->fields = xcalloc(p->nlines - 1, sizeof *h->fields); /* bounded by limits.headers */
    for (at = nl + 1; at < end; at = nl + 1) {
        nl = memchr(at, '\n', (size_t)(end - at));
        if (parse_field(p, (struct str){at, (size_t)(nl - at) - 1}, &h->fields[h->nfields]))
            return -1;
        h->nfields++;
    }
    return settle(p);
}

/* A line is complete: 1 if it ends the head, 0 if more follow, -1. */
static int line_done(struct http_parser *p)
{
    uint32_t len = (uint32_t)p->raw.n - p->line;
    if (len < 2 || p->raw.p[p->raw.n - 2] != '\r')
        return bad(p, 400, "bare LF");
    if (memchr(p->raw.p + p->line, '\r', len - 2))
        return bad(p, 400, "bare CR");
    if (len == 2) {
        if (p->nlines)
            return 1;
        if (p->kind == HTTP_RESPONSE || p->skipped)
            return bad(p, 400, "empty line instead of a start line");
        p->skipped = true; /* RFC 9112 2.2: at least one may precede a request line; one is enough */
        p->raw.n = 0;
        return 0;
    }
    if (++p->nlines > p->limits.headers + 1)
        return bad(p, 431, "too many headers");
    p->line = (uint32_t)p->raw.n;
    return 0;
}

enum http_parse http_parse_push(struct http_parser *p, const char *in, size_t n, size_t *used)
{
    *used = 0;
    if (p->status)
        return HTTP_PARSE_ERROR;
    while (*used < n) {
        const char *at = in + *used;
        size_t left = n - *used, take = left;
        /* Something that is not HTTP at all (TLS, say) is refused at its first byte. */
        if (!p->raw.n && *at != '\r' && *at != '\n' && !(cls[(unsigned char)*at] & TOK))
            return bad(p, 400, "not HTTP"), HTTP_PARSE_ERROR;
        const char *nl = memchr(at, '\n', left);
        if (nl)
            take = (size_t)(nl - at) + 1;
        if (p->raw.n - p->line + take > p->limits.line_bytes)
            return bad(p, !p->nlines ? 414 : 431, "line too long"), HTTP_PARSE_ERROR;
        if (p->raw.n + take > p->limits.head_bytes)
            return bad(p, 431, "head too large"), HTTP_PARSE_ERROR;
        buf_put(&p->raw, at, take);
        *used += take;
        int r = nl ? line_done(p) : 0;
        if (r < 0 || (r > 0 && parse_head(p)))
            return HTTP_PARSE_ERROR;
        if (r > 0)
            return HTTP_PARSE_DONE;
    }
    return HTTP_PARSE_MORE;
}

struct str http_head_get(const struct http_head *h, const char *name)
{
    for (uint32_t i = 0; i < h->nfields; i++)
        if (str_ieqz(h->fields[i].name, name))
            return h->fields[i].value;
    return (struct str){0};
}
size_t http_head_count(const struct http_head *h, const char *name)
{
    size_t n = 0;
    for (uint32_t i = 0; i < h->nfields; i++)
        n += str_ieqz(h->fields[i].name, name);
    return n;
}
bool http_head_has_token(const struct http_head *h, const char *name, const char *token)
{
    for (uint32_t i = 0; i < h->nfields; i++)
        if (str_ieqz(h->fields[i].name, name) && list_has(h->fields[i].value, token))
            return true;
    return false;
}

bool http_hop_by_hop(const struct http_head *h, struct str name)
{
    static const char *const fixed[] = {"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization",
                                        "te", "trailer", "transfer-encoding", "upgrade"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        if (str_ieqz(name, fixed[i]))
            return true;
    char z[64];
    if (name.n >= sizeof z)
        return false;
    memcpy(z, name.p, name.n);
    z[name.n] = 0;
    return http_head_has_token(h, "connection", z);
}

const char *http_reason(int status)
{
    switch (status) {
    case 100: return "Continue";
    case 101: return "Switching Protocols";
    case 200: return "OK";
    case 201: return "Created";
    case 202: return "Accepted";
    case 204: return "No Content";
    case 206: return "Partial Content";
    case 301: return "Moved Permanently";
    case 302: return "Found";
    case 303: return "See Other";
    case 304: return "Not Modified";
    case 307: return "Temporary Redirect";
    case 308: return "Permanent Redirect";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 402: return "Payment Required";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 406: return "Not Acceptable";
    case 408: return "Request Timeout";
    case 409: return "Conflict";
    case 410: return "Gone";
    case 411: return "Length Required";
    case 412: return "Precondition Failed";
    case 413: return "Content Too Large";
    case 414: return "URI Too Long";
    case 415: return "Unsupported Media Type";
    case 416: return "Range Not Satisfiable";
    case 417: return "Expectation Failed";
    case 422: return "Unprocessable Content";
    case 424: return "Failed Dependency";
    case 425: return "Too Early";
    case 426: return "Upgrade Required";
    case 428: return "Precondition Required";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 499: return "Client Closed Request";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 502: return "Bad Gateway";
    case 503: return "Service Unavailable";
    case 504: return "Gateway Timeout";
    case 505: return "HTTP Version Not Supported";
    case 507: return "Insufficient Storage";
    default: return "Unknown";
    }
}
