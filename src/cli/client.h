/* Talking to hutchd: one short connection per exchange, JSON in and out, typed
 * errors into x->err and x->hint. On the local socket a missing daemon is
 * started first (daemon.c). */
#pragma once
#include "base/buf.h"
#include "cli/cli.h"
#include "http/client.h"
#include "json/read.h"
#include "json/write.h"

#define API_BODY_MAX (64u << 20)

/* Each "{}" is replaced by an argument, percent-encoded. Owned. */
char *url(const char *fmt, ...);
void url_arg(char **target, const char *key, const char *value); /* adds ?key=value or &key=value; NULL value: nothing */

static inline void cleanup_client(struct http_client **c) { http_client_close(*c); }
#define auto_client __attribute__((cleanup(cleanup_client))) struct http_client *

struct http_client *api_open(struct cli *x); /* NULL: x->err */
struct http_client *api_connect(
    struct cli *x,
    struct err *e); /* the same without starting a daemon; may set x->hint; secure.c */
/* The headers of a request; valid until the next call. content_type may be NULL. */
const char *const *api_headers(struct cli *x, const char *content_type);
void api_about(struct cli *x, const char *target); /* whom a hint names, until the next request */
int api_send(struct cli *x, struct http_client *c, const char *method, const char *target, const struct buf *json_body /* NULL: none */);
int api_send_fd(struct cli *x, struct http_client *c, const char *method, const char *target, const char *content_type, int fd, int64_t len); /* and check */
int api_check(struct cli *x, struct http_client *c); /* waits for the head; a refusal becomes x->err */
/* All in one; ret may be NULL; with no body in the answer *ret is NULL. */
int api_call(struct cli *x, const char *method, const char *target, const struct buf *json_body, struct json **ret);
/* The answer's bytes into a file, which is there whole or not at all; "-": standard output. */
int api_download(struct cli *x, const char *target, const char *dst,
                 int64_t max /* bytes, --max-size raises it; 0: any */);
/* Maps {"error":{…}} into x->err and x->hint; what is not that shape becomes the status. */
void api_problem(struct cli *x, int status, const char *body, size_t n);
void api_problem_json(struct cli *x, struct json *error);

/* Lenient readers for showing things: never fail. Strings live as long as the tree. */
const char *jget_str(struct json *o, const char *key, const char *def);
int64_t jget_i64(struct json *o, const char *key, int64_t def);
double jget_f64(struct json *o, const char *key, double def);
bool jget_bool(struct json *o, const char *key, bool def);
int64_t jget_time(struct json *o, const char *key); /* wall ns, 0 if absent */
void json_print(struct json *j); /* one line on stdout */

/* daemon.c */
bool daemon_answers(struct cli *x, struct json **ret_health); /* ret may be NULL */
int daemon_start(struct cli *x, bool quiet);                  /* until /healthz answers; 0 also if someone else was faster */
int daemon_doctor(struct cli *x, struct json **ret); /* what `hutchd --doctor` prints, without a running daemon */
char *daemon_find(struct cli *x);                             /* path of hutchd; owned; NULL with x->err */
int daemon_wait_gone(struct cli *x, int64_t pid, int64_t ns); /* until the socket is silent and, if pid > 0, the process has ended */
