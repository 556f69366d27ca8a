/* Body framing, no I/O: length, chunked, until close. Refused: chunk sizes that
 * overflow or carry junk, chunk data without CRLF, bare CR or LF, extensions
 * and trailers over their caps. Trailers are checked and dropped. */
#pragma once
#include "base/str.h"
#include "http/parse.h"

#define HTTP_CHUNK_EXT_MAX 1024u     /* bytes of extensions per body line */
#define HTTP_TRAILER_MAX   (8u * 1024) /* bytes of trailers per body */

struct http_body {
    enum http_framing framing;
    int state;
    bool done;
    uint64_t left;      /* of the length, or of this chunk */
    uint32_t digits;    /* of a chunk size */
    uint32_t ext;       /* bytes of extension so far, this line */
    uint32_t trailer;   /* bytes of trailers so far */
    uint32_t col;       /* position in a trailer line */
    bool colon;
    const char *why;
};
enum http_body_state { HTTP_BODY_MORE, HTTP_BODY_DATA, HTTP_BODY_DONE, HTTP_BODY_ERROR };

void http_body_init(struct http_body *b, enum http_framing framing, uint64_t length);
/* One step: *used bytes were taken; on DATA, *data points into `in`. Call again until MORE (all taken) or an end. */
enum http_body_state http_body_push(struct http_body *b, const char *in, size_t n, size_t *used, struct str *data);
bool http_body_eof(struct http_body *b); /* the peer closed: true if that ends the body properly */

#define HTTP_CHUNK_HEAD_MAX 20
size_t http_chunk_head(char out[HTTP_CHUNK_HEAD_MAX], size_t n); /* "1a\r\n"; the data and "\r\n" follow; the last is "0\r\n\r\n" */
