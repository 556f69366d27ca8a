/* What a handler sees: one request and its reply. All on the loop thread.
 *
 * A handler runs when the head is complete and ends, now or any time later, in
 * exactly one outcome: http_reply; http_reply_start … http_end; a body sink
 * (collect or stream) and then a reply; http_ws_accept (ws.h); http_tunnel; or
 * http_abort.
 *
 * Lifetime: a stream is valid inside callbacks it makes. Whoever keeps the
 * pointer beyond the handler's return must either set http_on_cancel, or hold a
 * reference (http_ref), or keep http_id and look it up with http_find. After
 * the outcome or a cancel, calls on a referenced stream do nothing and return
 * -1. No function here calls back into the caller before it returns, and
 * nothing is freed before the end of the turn.
 *
 * Back-pressure: bytes written are queued. http_writable turns false at 256
 * KiB; stop then, on_drain says when to go on (below 64 KiB). A writer that
 * ignores this loses the stream at 64 MiB. Towards the peer, reading stops
 * while a body is paused or undecided. */
#pragma once
#include "base/buf.h"
#include "base/str.h"
#include "http/parse.h"
#include "loop/loop.h"
#include "loop/sock.h"
#include <stdint.h>

struct http_stream;
struct http_server;
typedef void http_handler(struct http_stream *s, void *arg);

/* -- the request -- */
struct str http_method(const struct http_stream *s);
bool http_is(const struct http_stream *s, const char *method);
const struct http_head *http_head(const struct http_stream *s);
struct str http_req_header(const struct http_stream *s, const char *name);     /* p == NULL if absent */
struct str http_path(const struct http_stream *s);                             /* undecoded */
struct str http_query(const struct http_stream *s);                            /* undecoded, p == NULL if none */
bool http_query_get(const struct http_stream *s, const char *key, struct buf *out); /* decoded, appended */
int http_nsegments(const struct http_stream *s);
struct str http_segment(const struct http_stream *s, int i);                   /* decoded; p == NULL past the end */
struct str http_param(const struct http_stream *s, const char *name);          /* capture of the router; NUL-terminated */
const struct sock_peer *http_peer(const struct http_stream *s);
bool http_is_unix(const struct http_stream *s);
uint64_t http_body_length(const struct http_stream *s);                        /* UINT64_MAX: chunked */
bool http_has_body(const struct http_stream *s);
struct loop *http_loop(const struct http_stream *s);
struct http_server *http_server_of(const struct http_stream *s);
const char *http_request_id(const struct http_stream *s);                      /* "r" + 20, made on first use; sent as X-Request-Id */

/* -- identity and lifetime -- */
uint64_t http_id(const struct http_stream *s);
struct http_stream *http_find(struct http_server *srv, uint64_t id);           /* NULL once ended or cancelled */
struct http_stream *http_ref(struct http_stream *s);
void http_unref(struct http_stream *s);                                        /* NULL is fine */
bool http_alive(const struct http_stream *s);                                  /* a reply can still be sent */
void http_on_cancel(struct http_stream *s, void (*fn)(struct http_stream *s, void *arg), void *arg); /* client left or deadline; once; NULL unsets */
void http_set_data(struct http_stream *s, void *data);                         /* a slot for middleware (the caller's identity) */
void *http_data(const struct http_stream *s);
void http_on_free(struct http_stream *s, void (*fn)(void *data));              /* called with the data when the stream is buried */

/* -- the reply -- */
/* Extra response header, before the head is sent. -1 on a bad name or value (CR, LF, controls), too late, or for what is
 * written here: Content-Length, Transfer-Encoding, Connection, Date, Content-Type. */
int http_header(struct http_stream *s, const char *name, const char *value);
int http_headerf(struct http_stream *s, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void http_reply(struct http_stream *s, int status, const char *content_type /* NULL: none */, const void *p, size_t n);
void http_reply_buf(struct http_stream *s, int status, const char *content_type, struct buf *b); /* takes the bytes of b */
int http_reply_start(struct http_stream *s, int status, const char *content_type); /* chunked; until close for HTTP/1.0 */
int http_reply_start_len(struct http_stream *s, int status, const char *content_type, uint64_t len);
int http_write(struct http_stream *s, const void *p, size_t n);
bool http_writable(struct http_stream *s);
size_t http_pending(const struct http_stream *s);                              /* queued, not yet taken by the kernel */
void http_on_drain(struct http_stream *s, void (*fn)(struct http_stream *s, void *arg), void *arg);
void http_end(struct http_stream *s);                                          /* proper end; short of the promised length: abort */
void http_abort(struct http_stream *s);                                        /* what was queued is sent if it can be at once, then the connection is cut mid-message */
bool http_started(const struct http_stream *s);                                /* the reply head is out */
int http_status(const struct http_stream *s);                                  /* of the reply, 0 before */
uint64_t http_sent(const struct http_stream *s);                               /* body bytes accepted by http_write/http_reply */

/* -- the request body -- */
/* Whole body, at most max bytes (413 over it, sent here). data is valid during fn, NUL-terminated. If the client leaves first, only cancel is called. */
void http_body_collect(struct http_stream *s, size_t max, void (*fn)(struct http_stream *s, void *arg, const char *data, size_t n), void *arg);
/* Piece by piece; on_end once at the end. A broken body or a client that left is a cancel. */
void http_body_stream(struct http_stream *s, void (*on_data)(struct http_stream *s, void *arg, const char *p, size_t n),
                      void (*on_end)(struct http_stream *s, void *arg), void *arg);
void http_body_pause(struct http_stream *s);  /* counted: as many resumes as pauses */
void http_body_resume(struct http_stream *s);

/* -- raw bytes both ways, after CONNECT (status 200) or Upgrade (status 101, with http_header("Upgrade", …) first) --
 * http_write sends, http_end half-closes, http_body_pause/resume hold the peer back. on_eof: the peer will send no more;
 * the tunnel lives until http_end as well. Anything rude is a cancel. */
int http_tunnel(struct http_stream *s, int status, void (*on_data)(struct http_stream *s, void *arg, const char *p, size_t n),
                void (*on_eof)(struct http_stream *s, void *arg), void *arg);

/* -- server-sent events -- */
int sse_start(struct http_stream *s, int keepalive_s /* 0: no comment lines */);
int sse_event(struct http_stream *s, const char *event /* NULL: unnamed */, struct str data /* split at newlines */);
int sse_event_id(struct http_stream *s, const char *id, const char *event, struct str data);
