/* Small blocking client for the command line: one connection, one exchange at
 * a time, the same parser as the server. addr: "unix:/path", "/path",
 * "http://host:port", "https://host:port" or "host:port" (names are resolved). */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "http/parse.h"
#include "loop/transport.h"
#include <sys/types.h>

struct http_client;
/* How a connection becomes a secure one: wrap takes fd, also when it fails; `name` is what the certificate must be for. */
struct http_secure {
    struct transport *(*wrap)(void *arg, int fd, const char *name, struct err *e);
    void *arg;
};
struct http_client *http_client_open(const char *addr,
                                     const struct http_secure *secure /* NULL: no https */,
                                     struct err *e);
void http_client_close(struct http_client *c); /* NULL is fine */
void http_client_timeout(struct http_client *c, int64_t ns); /* longest silence tolerated, 0: none (default) */

/* headers: "Name: value" strings, NULL-terminated, may be NULL. Host is added. */
int http_client_send(struct http_client *c, const char *method, const char *target, const char *const *headers,
                     const void *body, size_t n, struct err *e);
/* Chunked body from a callback: bytes put into p (up to cap), 0 at the end, -1 with e set. */
typedef ssize_t http_client_source(void *arg, char *p, size_t cap, struct err *e);
int http_client_send_stream(struct http_client *c, const char *method, const char *target, const char *const *headers,
                            http_client_source *src, void *arg, struct err *e);
int http_client_send_fd(struct http_client *c, const char *method, const char *target, const char *const *headers,
                        int fd, int64_t len /* -1: unknown, chunked */, struct err *e);

const struct http_head *http_client_head(struct http_client *c, struct err *e); /* waits for the response head; 1xx but 101 are skipped */
ssize_t http_client_read(struct http_client *c, void *p, size_t cap, struct err *e); /* body; 0 at the proper end, -1 if broken */
int http_client_body(struct http_client *c, size_t max, struct buf *out, struct err *e); /* the rest of it */
/* Send, head, whole body: returns the status. */
int http_client_call(struct http_client *c, const char *method, const char *target, const char *const *headers,
                     const void *body, size_t n, struct buf *out, struct err *e);

/* For callers with their own poll: the fd, and whether bytes are already buffered (then poll would lie). */
int http_client_fd(const struct http_client *c);
bool http_client_pending(const struct http_client *c);
/* When poll said readable: is there something for us (bytes, the end, a fault), or was it only between the transports? */
bool http_client_arrived(struct http_client *c);

/* WebSocket. Pings are answered inside. */
int http_client_ws(struct http_client *c, const char *target, const char *const *headers, struct err *e);
/* Next message: 1 and its op (WS_TEXT, WS_BINARY, WS_CLOSE) with data valid until the next call; 0 if block is false and
 * no whole message is there yet; -1 broken. On WS_CLOSE, *ret_code is the code. */
int http_client_ws_recv(struct http_client *c, bool block, int *ret_op, struct str *ret_data, int *ret_code, struct err *e);
int http_client_ws_send(struct http_client *c, int op, const void *p, size_t n, struct err *e);
