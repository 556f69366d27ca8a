/* Framing bytes go one at a time through a small state machine (step); data is
 * handed out in whole runs that point into the input, so a body costs no copy
 * here. After an error the decoder stays in it. */
#include "http/body.h"
#include <string.h>

/* chunked-body = *( size [ ";" ext ] CRLF data CRLF ) "0" [ ";" ext ] CRLF *( field-line CRLF ) CRLF   (RFC 9112 7.1) */
enum { SIZE, EXT, SIZE_LF, DATA, DATA_CR, DATA_LF, TRAILER, TRAILER_LF };

void http_body_init(struct http_body *b, enum http_framing framing, uint64_t length)
{
    *b = (struct http_body){.framing = framing, .left = framing == HTTP_BODY_LENGTH ? length : 0};
    b->done = framing == HTTP_BODY_NONE || (framing == HTTP_BODY_LENGTH && !length);
}

static enum http_body_state bad(struct http_body *b, const char *why)
{
    b->why = why;
    return HTTP_BODY_ERROR;
}

static int hexval(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}
static bool ctl(char c) { return ((unsigned char)c < 0x20 && c != '\t') || c == 0x7f; }

/* One framing byte; the data bytes themselves are handled in push. */
static const char *step(struct http_body *b, char c)
{
    switch (b->state) {
    case SIZE: {
        int v = hexval(c);
        if (v >= 0) {
            if (b->digits == 16 || b->left > (UINT64_MAX >> 5)) /* keeps it within int64 */
                return "chunk size too large";
            b->left = b->left << 4 | (unsigned)v;
            b->digits++;
            return NULL;
        }
        if (!b->digits)
            return "chunk size missing";
        if (c == '\r')
            b->state = SIZE_LF;
        else if (c == ';')
            b->state = EXT, b->ext = 0;
        else
            return "junk in a chunk size";
        return NULL;
    }
    case EXT:
        if (c == '\r') {
            b->state = SIZE_LF;
            return NULL;
        }
        if (ctl(c))
            return "control byte in a chunk extension";
        return ++b->ext > HTTP_CHUNK_EXT_MAX ? "chunk extension too long" : NULL;
    case SIZE_LF:
        if (c != '\n')
            return "bare CR in a chunk size";
        b->state = b->left ? DATA : TRAILER;
        b->digits = 0;
        b->col = 0;
        return NULL;
    case DATA_CR:
        if (c != '\r')
            return "chunk data without CRLF";
        b->state = DATA_LF;
        return NULL;
    case DATA_LF:
        if (c != '\n')
            return "chunk data without CRLF";
        b->state = SIZE;
        return NULL;
    case TRAILER:
        if (++b->trailer > HTTP_TRAILER_MAX)
            return "trailers too large";
        if (c == '\r') {
            if (b->col && !b->colon)
                return "trailer line without a colon";
            b->state = TRAILER_LF;
            return NULL;
        }
        if (ctl(c))
            return "control byte in a trailer";
        if (!b->col)
            b->colon = false;
        if (!b->colon) { /* still in the name: a token, not empty, then at once the colon */
            if (c == ':') {
                if (!b->col)
                    return "trailer without a name";
                b->colon = true;
            } else if (!http_token_ok((struct str){&c, 1})) {
                return "malformed trailer name";
            }
        }
        b->col++;
        return NULL;
    default: /* TRAILER_LF */
        if (c != '\n')
            return "bare CR in a trailer";
        if (!b->col)
            b->done = true;
        b->state = TRAILER;
        b->col = 0;
        return NULL;
    }
}

enum http_body_state http_body_push(struct http_body *b, const char *in, size_t n, size_t *used, struct str *data)
{
    *used = 0;
    if (b->why)
        return HTTP_BODY_ERROR;
    if (b->done)
        return HTTP_BODY_DONE;
    if (b->framing == HTTP_BODY_CHUNKED) {
        while (b->state != DATA) {
            if (*used == n)
                return HTTP_BODY_MORE;
            const char *why = step(b, in[(*used)++]);
            if (why)
                return bad(b, why);
            if (b->done)
                return HTTP_BODY_DONE;
        }
    }
    size_t have = n - *used;
    if (!have)
        return HTTP_BODY_MORE;
    if (b->framing != HTTP_BODY_CLOSE && have > b->left)
        have = (size_t)b->left;
    *data = (struct str){in + *used, have};
    *used += have;
    if (b->framing != HTTP_BODY_CLOSE && !(b->left -= have)) {
        if (b->framing == HTTP_BODY_LENGTH)
            b->done = true; /* the next push says so */
        else
            b->state = DATA_CR;
    }
    return HTTP_BODY_DATA;
}

bool http_body_eof(struct http_body *b)
{
    if (b->framing == HTTP_BODY_CLOSE && !b->why)
        b->done = true;
    return b->done;
}

size_t http_chunk_head(char out[HTTP_CHUNK_HEAD_MAX], size_t n)
{
    static const char hex[] = "0123456789abcdef";
    char t[16];
    size_t i = sizeof t, len;
    do
        t[--i] = hex[n & 15];
    while (n >>= 4);
    len = sizeof t - i;
    memcpy(out, t + i, len);
    out[len] = '\r', out[len + 1] = '\n';
    return len + 2;
}
