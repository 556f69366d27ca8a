/* Connect-RPC, JSON codec, as far as E2B's SDKs speak it: unary calls, server
 * streams, and one client stream (input of a process).
 *
 *   unary:   the body is the message; an error is its status and
 *            {"code":"not_found","message":"…"} (code is a string here).
 *   stream:  always 200; envelopes of flags(1) length(4, big-endian) payload;
 *            flags 0 a message, 2 the end: {} or {"error":{…}}.
 *
 * When the sandbox dies under a stream the connection is cut without an end:
 * the client then asks /health and reports the death. */
#pragma once
#include "api/e2b/envd/envd.h"
#include "loop/loop.h"

enum rpc_code {
    RPC_CANCELED,
    RPC_UNKNOWN,
    RPC_INVALID_ARGUMENT,
    RPC_DEADLINE_EXCEEDED,
    RPC_NOT_FOUND,
    RPC_ALREADY_EXISTS,
    RPC_PERMISSION_DENIED,
    RPC_RESOURCE_EXHAUSTED,
    RPC_FAILED_PRECONDITION,
    RPC_UNIMPLEMENTED,
    RPC_INTERNAL,
    RPC_UNAVAILABLE,
    RPC_UNAUTHENTICATED,
    RPC_CODE_MAX
};
const char *rpc_code_name(enum rpc_code c);
int rpc_code_http(enum rpc_code c);
enum rpc_code rpc_code_of(const struct err *e);

/* One request as a method sees it; valid during the call only, sb for this turn. */
struct rpc_in {
    struct api *api;
    struct http_stream *s;
    struct sandbox *sb;
    struct json *msg;
    const char *user;    /* NULL: the default one */
    uint64_t timeout_ms; /* 0: none */
    uint64_t keepalive_s;
    bool stream;
};
void rpc_refuse(const struct rpc_in *in, enum rpc_code c, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- a unary call that waits for the core: state structs start with it ---- */
struct rpc_call {
    struct req r;
    char id[22];
    char user[65];
};
void *rpc_call_new(const struct rpc_in *in, size_t size, void (*fini)(void *state));
void rpc_reply(struct rpc_call *c, struct buf *json); /* takes the bytes */
void rpc_reply_empty(struct rpc_call *c);
void rpc_fail(struct rpc_call *c, enum rpc_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void rpc_fail_err(struct rpc_call *c,
                  const struct err *e); /* 502 if the sandbox is gone, else by rpc_code_of */
/* After a core call that was held for: failed means its callback will not come. */
void rpc_settle(struct rpc_call *c, int failed, const struct err *e);

/* ---- a server stream: likewise ---- */
struct rpc_stream {
    struct rpc_call c;
    struct timer quiet, deadline;
    int64_t quiet_ns;
    void (*keepalive)(struct jw *w); /* writes the message */
    void (*expired)(void *state);    /* the deadline of this stream */
    bool begun;
    struct buf out;
    struct jw w;
};
/* keepalive must be set by the caller before the first rpc_send. fini must call rpc_stream_fini. */
void *rpc_stream_new(const struct rpc_in *in, size_t size, void (*fini)(void *state));
void rpc_stream_fini(struct rpc_stream *st);
void rpc_deadline(struct rpc_stream *st, uint64_t ms, void (*expired)(void *state)); /* 0: none */
struct jw *rpc_msg(struct rpc_stream *st); /* opens {; rpc_send closes and sends it */
void rpc_send(struct rpc_stream *st);
void rpc_finish(struct rpc_stream *st); /* end envelope {} */
void rpc_finish_error(struct rpc_stream *st, enum rpc_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void rpc_finish_err(struct rpc_stream *st,
                    const struct err *e); /* cuts the connection if the sandbox is gone */
void rpc_cut(struct rpc_stream *st);

/* Envelopes, no I/O. */
void rpc_envelope(struct buf *out, unsigned char flags, const void *p, size_t n);
/* The one message of a stream request; -1 + e if it is anything else. */
int rpc_open_envelope(const char *p, size_t n, struct str *ret, struct err *e);
/* The first message of a row of them: 1 and how much it took; 0: more is needed; -1 + e: not one of ours, or longer than max. */
int rpc_next_envelope(const char *p, size_t n, size_t max, struct str *ret, size_t *ret_used,
                      struct err *e);
/* "Basic base64(name:)" -> name, at most 64 bytes; false if it is something else. */
bool rpc_basic_user(struct str header, char out[65]);

/* A string member, "" if absent; -1 + e if it is of another type. */
int rpc_text(struct json *obj, const char *key, const char **ret, struct err *e);

typedef void rpc_method(const struct rpc_in *in);
/* process.c, process_stream.c, process_pour.c */
rpc_method rpc_process_start, rpc_process_connect, rpc_process_list, rpc_process_input,
    rpc_process_close_stdin, rpc_process_signal, rpc_process_update, rpc_process_pour;
/* filesystem.c, filesystem_watch.c */
rpc_method rpc_fs_stat, rpc_fs_make_dir, rpc_fs_move, rpc_fs_list_dir, rpc_fs_remove,
    rpc_fs_watch_dir, rpc_fs_create_watcher, rpc_fs_get_watcher_events, rpc_fs_remove_watcher;
