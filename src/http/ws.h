/* WebSocket (RFC 6455), no extensions. First the frame codec, which does no
 * I/O; then the server side of an upgraded stream. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include "http/stream.h"

enum ws_op { WS_CONT = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10 };
enum { WS_NORMAL = 1000, WS_GOING_AWAY = 1001, WS_PROTOCOL = 1002, WS_UNSUPPORTED = 1003, WS_NO_STATUS = 1005, WS_ABNORMAL = 1006,
       WS_BAD_DATA = 1007, WS_POLICY = 1008, WS_TOO_BIG = 1009, WS_INTERNAL = 1011 };

/* Decoder. Control frames may arrive between the fragments of a message. Client frames must be masked, server frames
 * must not be. Text is checked for UTF-8 when the message is complete. */
struct ws_dec {
    bool want_mask;
    size_t max_message;
    unsigned char head[14];
    unsigned nhead, need;      /* bytes of the frame head so far, wanted */
    bool in_payload, fin;
    int op, msg_op;            /* of this frame; of the message being assembled, 0: none */
    uint64_t left;             /* payload bytes still to come */
    unsigned mask_at;
    unsigned char mask[4], ctl[125];
    unsigned nctl;
    struct buf msg;
    int close_code;            /* after WS_DEC_ERROR: what to send */
    const char *why;
};
enum ws_dec_state { WS_DEC_MORE, WS_DEC_EVENT, WS_DEC_ERROR };
struct ws_event { enum ws_op op; struct str data; int code; /* of a close frame, WS_NO_STATUS if none */ };
void ws_dec_init(struct ws_dec *d, bool want_mask, size_t max_message);
void ws_dec_fini(struct ws_dec *d);
/* On EVENT, ev->data is valid until the next push. Call again until MORE. */
enum ws_dec_state ws_dec_push(struct ws_dec *d, const char *in, size_t n, size_t *used, struct ws_event *ev);
void ws_frame(struct buf *out, enum ws_op op, const void *p, size_t n, bool mask); /* appends one whole frame */
void ws_accept_key(struct str key, char out[29]); /* Sec-WebSocket-Accept */

/* Server side. on_close comes exactly once, whoever ended it (WS_ABNORMAL: the connection broke). Back-pressure as for
 * any stream: http_writable, http_on_drain, http_body_pause/resume. The stream is valid until on_close returns. */
#define WS_MESSAGE_MAX (16u << 20)
typedef void ws_on_msg(struct http_stream *s, void *arg, bool text, const char *p, size_t n);
typedef void ws_on_close(struct http_stream *s, void *arg, int code, struct str reason);
bool http_is_ws(const struct http_stream *s); /* a proper upgrade request? */
/* -1: not a proper upgrade; a 400 or 426 was sent. protocol: subprotocol to confirm, NULL for none. */
int http_ws_accept(struct http_stream *s, const char *protocol, ws_on_msg *on_msg, ws_on_close *on_close, void *arg);
int ws_send_text(struct http_stream *s, const void *p, size_t n);
int ws_send_binary(struct http_stream *s, const void *p, size_t n);
int ws_ping(struct http_stream *s);
void ws_keepalive(struct http_stream *s, int seconds); /* ping that often; two unanswered: closed as abnormal */
void ws_close(struct http_stream *s, int code, const char *reason);
