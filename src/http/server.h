/* Listeners and connections. One handler gets every request; a router makes a
 * good one. Lives on one loop. */
#pragma once
#include "base/err.h"
#include "http/stream.h"
#include "loop/transport.h"

struct http_config {
    http_handler *handler;
    void *arg;
    int max_conns;              /* 0: 10000; beyond it a 503 and close */
    struct http_limits limits;  /* zero: HTTP_LIMITS_DEFAULT */
    unsigned parse_flags;       /* HTTP_ALLOW_ABSOLUTE, HTTP_ALLOW_CONNECT */
    const char *server_name;    /* Server field; NULL: none */
    int64_t head_ns;            /* 0: 20 s from the first byte (or accept) to the end of the head */
    int64_t idle_ns;            /* 0: 75 s between requests */
    int64_t body_ns;            /* 0: 60 s without a body byte while one is wanted */
    int64_t write_ns;           /* 0: 60 s without the peer taking a byte */
    void (*on_done)(struct http_stream *s, void *arg); /* access log: after the last byte was queued or the stream was cancelled */
};

struct http_server *http_server_new(struct loop *l, const struct http_config *c);
int http_listen_fd(struct http_server *srv, int fd); /* takes a listening fd (sock_listen_*); up to 8 */
int http_listen_tcp(struct http_server *srv, const char *addr, struct err *e); /* returns the port */
int http_listen_unix(struct http_server *srv, const char *path, mode_t mode, struct err *e);
/* The same, but accepted sockets go to `front` first (a TLS handshake); it gives them back by http_adopt_over, or closes them. */
typedef void http_front(void *arg, int fd);
int http_listen_front(struct http_server *srv, int fd, http_front *front, void *arg);
void http_adopt(struct http_server *srv, int fd);    /* a connected socket, as if accepted */
void http_adopt_over(struct http_server *srv, struct transport *t); /* takes t */
int http_server_conns(const struct http_server *srv);

/* Graceful: no new connections, idle ones close, requests in flight finish with Connection: close; done() when none is
 * left or after grace_ns, when the rest is cancelled. */
void http_server_stop(struct http_server *srv, int64_t grace_ns, void (*done)(void *arg), void *arg);
void http_server_free(struct http_server *srv); /* cancels what is left; not inside a callback of the server */
