/* Private to http/: the connection behind a stream.
 *
 * A connection is a queue of bytes out, at most IN_CAP + one read of bytes in,
 * and at most one request in flight. Everything that happens to it happens in
 * conn_advance, which runs after a socket event or, when a handler called in
 * from elsewhere, at the end of the loop turn (conn_kick). So no API function
 * calls back before it returns, and callbacks never nest. */
#pragma once
#include "base/buf.h"
#include "base/list.h"
#include "http/body.h"
#include "http/server.h"
#include "loop/loop.h"
#include "loop/transport.h"

#define OUT_HIGH   (256u << 10) /* http_writable turns false */
#define OUT_LOW    (64u << 10)  /* on_drain */
#define OUT_MAX    (64u << 20)  /* a writer that ignores the above is cut off */
#define OUT_TURN   (256u << 10) /* bytes sent per turn and connection, so that a fast reader does not starve the rest */
#define IN_CAP     (16u << 10)  /* reading stops when so much waits unparsed */
#define READ_SIZE  TRANSPORT_READ
#define DROP_MAX   (64u << 10)  /* an unread body this small is skipped to keep the connection */
#define LINGER_NS  (2 * 1000000000LL)

enum conn_state {
    CONN_HEAD,    /* between requests or inside a head */
    CONN_REQUEST, /* c->s has a complete head */
    CONN_CLOSING, /* flush, then close or linger */
    CONN_LINGER,  /* our side is shut; what the peer still sends is dropped, so that it can read our reply before a reset */
};

struct http_conn {
    struct list node;
    struct http_server *srv;
    struct transport *t;
    struct io io;
    struct timer timer;
    int64_t timer_at;            /* 0: not armed */
    int64_t since, in_at, out_at; /* start of the state; last byte in; last byte out */
    enum conn_state state;
    bool dead, busy, kicked, eof, cut /* http_abort */, linger, blocked /* the kernel took less than offered */, served /* a request before */, shut, shutting /* the peer must read before our end can be told */;
    struct buf in;
    struct buf out;
    size_t out_off;
    struct http_stream *s;
    struct sock_peer peer;
};

enum body_mode { BODY_UNDECIDED, BODY_COLLECT, BODY_STREAM, BODY_TUNNEL, BODY_DROP };
enum reply_mode { REPLY_NONE, REPLY_CHUNKED, REPLY_LENGTH, REPLY_CLOSE, REPLY_RAW, REPLY_DONE };
struct http_capture { const char *name; struct str value; };
#define HTTP_CAPTURES_MAX 8

struct http_stream {
    unsigned refs;
    uint64_t id;
    struct http_server *srv;
    struct loop *loop;
    struct http_conn *conn; /* NULL once ended or cancelled */
    struct http_parser parser;
    struct sock_peer peer; /* a copy: a referenced stream outlives the connection */
    /* path, lazily */
    int nseg; /* -1: not split yet, -2: malformed */
    struct str *seg;
    struct buf seg_store, cap_store;
    struct http_capture cap[HTTP_CAPTURES_MAX];
    int ncap;
    char request_id[22];
    /* body */
    struct http_body body;
    enum body_mode mode;
    int paused;
    bool body_told, keep;
    struct buf collect;
    size_t collect_max;
    void (*on_whole)(struct http_stream *, void *, const char *, size_t);
    void (*on_data)(struct http_stream *, void *, const char *, size_t);
    void (*on_end)(struct http_stream *, void *);
    void *body_arg;
    /* reply */
    enum reply_mode reply;
    bool no_body;   /* HEAD, 204, 304: the bytes are counted, not sent */
    bool full;      /* the writer was told to wait */
    bool hang_up;   /* raw streams: close at the end instead of waiting for the peer */
    int status;
    uint64_t left, sent;
    struct buf extra; /* header lines of the handler */
    void (*cancel_fn)(struct http_stream *, void *);
    void *cancel_arg;
    void (*drain_fn)(struct http_stream *, void *);
    void *drain_arg;
    void (*gone_fn)(struct http_stream *); /* internal: ws and sse let go, on every path */
    void *gone_data;
    void *data;
    void (*free_fn)(void *);
};

struct http_slot { struct http_stream *s; uint32_t gen; uint32_t next_free; };
struct http_listener {
    struct http_server *srv;
    struct io io;
    int fd;
    http_front *front;
    void *front_arg; /* NULL: none */
};
#define HTTP_LISTENERS_MAX 8
struct http_server {
    struct loop *loop;
    struct http_config cfg;
    struct list conns;
    int nconns;
    struct http_listener listener[HTTP_LISTENERS_MAX];
    int nlisteners;
    struct timer accept_timer; /* out of fds: accepting pauses */
    struct http_slot *slot;
    uint32_t nslots, free_slot; /* free_slot: index + 1, 0 none */
    bool stopping;
    struct timer stop_timer;
    void (*stop_fn)(void *);
    void *stop_arg;
    int64_t date_at; /* second the date line was made for */
    char date[40];
    char *scratch; /* READ_SIZE, shared: a read is consumed before the next */
};

/* conn.c */
void conn_new(struct http_server *srv, struct transport *t,
              bool read_now /* bytes may have arrived that the socket does not show */);
void conn_kick(struct http_conn *c);
void conn_kill(struct http_conn *c); /* cancels the stream */
void conn_put(struct http_conn *c, const void *p, size_t n);
static inline size_t conn_pending(const struct http_conn *c) { return c->out.n - c->out_off; }

/* stream.c */
struct http_stream *stream_new(struct http_conn *c);
void stream_begin(struct http_stream *s);                /* the head is complete */
void stream_detach(struct http_stream *s, bool cancel);  /* from its connection; drops the connection's reference */
void stream_problem(struct http_stream *s, int status, const char *message);
bool stream_drainable(const struct http_stream *s);      /* the rest of the body may be skipped to keep the connection */

/* server.c */
const char *server_date(struct http_server *srv);
void server_conn_gone(struct http_server *srv);
uint64_t server_slot_take(struct http_server *srv, struct http_stream *s);
void server_slot_drop(struct http_server *srv, uint64_t id);
