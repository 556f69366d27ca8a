/* HTTP/1.1 heads, both directions, strict; a push parser without I/O.
 *
 * Refused, each with a status for a server to send: Content-Length with
 * Transfer-Encoding; repeated or non-digit lengths; any coding but exactly
 * "chunked"; chunked in HTTP/1.0; bare CR or LF; obs-fold; space before the
 * colon; control bytes; missing or repeated Host; targets of a form that was
 * not allowed. There is no lenient mode. One empty line before a request line
 * is skipped (RFC 9112 2.2).
 *
 * Memory: one buffer, bounded by limits.head_bytes. The strings of a struct
 * http_head point into it and live until http_parser_reset/_fini. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define HTTP_HEADERS_MAX 100

struct http_limits { uint32_t head_bytes, line_bytes, headers; };
#define HTTP_LIMITS_DEFAULT ((struct http_limits){64 * 1024, 16 * 1024, HTTP_HEADERS_MAX})

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };
enum http_form { HTTP_FORM_ORIGIN, HTTP_FORM_ABSOLUTE, HTTP_FORM_AUTHORITY, HTTP_FORM_ASTERISK };
enum http_framing { HTTP_BODY_NONE, HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED, HTTP_BODY_CLOSE /* responses: until the peer closes */ };

struct http_field { struct str name, value; };

struct http_head {
    struct str method;      /* request */
    struct str target;      /* as sent, undecoded */
    enum http_form form;
    struct str path, query; /* origin and absolute form: undecoded; query without '?', p == NULL if there was none */
    struct str authority;   /* absolute and authority form: host[:port] */
    struct str host;        /* the Host field; absolute form: the authority (RFC 9112 3.2.2) */
    int status;             /* response */
    struct str reason;
    int minor;              /* HTTP/1.<minor>: 0 or 1 */
    enum http_framing framing;
    uint64_t length;        /* HTTP_BODY_LENGTH */
    bool keep_alive, upgrade /* Connection names upgrade */, expect_continue;
    uint32_t nfields;
    struct http_field *fields; /* in order of arrival, values trimmed */
};

enum { HTTP_ALLOW_ABSOLUTE = 1, HTTP_ALLOW_CONNECT = 2, HTTP_NO_BODY = 4 /* response to HEAD: framing is NONE */ };

struct http_parser {
    enum http_kind kind;
    unsigned flags;
    struct http_limits limits;
    struct buf raw;     /* the head so far */
    uint32_t line;      /* where the unfinished line starts */
    uint32_t nlines;    /* finished lines, the start line included */
    bool skipped;       /* one empty line before the start line */
    struct http_head head;
    int status;         /* after HTTP_PARSE_ERROR: 400, 414, 417, 431, 501, 505 */
    const char *why;
};

void http_parser_init(struct http_parser *p, enum http_kind kind, unsigned flags);
void http_parser_reset(struct http_parser *p); /* for the next head; keeps small memory */
void http_parser_fini(struct http_parser *p);

enum http_parse { HTTP_PARSE_MORE, HTTP_PARSE_DONE, HTTP_PARSE_ERROR };
/* Takes bytes up to the end of the head; *used says how many. After DONE, p->head is complete. */
enum http_parse http_parse_push(struct http_parser *p, const char *in, size_t n, size_t *used);
static inline bool http_parse_begun(const struct http_parser *p) { return p->raw.n > 0 || p->skipped; }

struct str http_head_get(const struct http_head *h, const char *name);   /* first; p == NULL if absent */
size_t http_head_count(const struct http_head *h, const char *name);
bool http_head_has_token(const struct http_head *h, const char *name, const char *token); /* in a comma list, any case */

bool http_token_ok(struct str s);       /* RFC 9110 5.6.2, not empty */
bool http_value_ok(struct str s);       /* field value: no controls but tab */
const char *http_reason(int status);    /* "Not Found"; "Unknown" else */
/* RFC 9110 7.6.1: Connection, Keep-Alive, Proxy-*, TE, Trailer, Transfer-Encoding, Upgrade and what Connection names. */
bool http_hop_by_hop(const struct http_head *h, struct str name);
