/* Private to gate/: one TCP connection of a sandbox.
 *
 *   accept ─▶ decide ─┬─ allow ─────────────────────────────▶ dial ─▶ relay (bytes, unseen)
 *                     ├─ look ─▶ first bytes ─▶ name ─▶ decide ─┬─▶ dial ─▶ relay
 *                     │                                         ├─▶ http (plain, each request decided)
 *                     │                                         └─▶ http over TLS opened with the sandbox's CA
 *                     └─ deny ─▶ first bytes ─▶ an answer that can be read, or a reset
 * On the proxy port the first request decides (http_proxy.c), then the same.
 *
 * A connection ends through conn_end, once; it is freed at the end of the turn. */
#pragma once
#include "gate/addrs.h"
#include "gate/dial.h"
#include "gate/gate_int.h"
#include "gate/hello.h"

struct http_proxy;

enum conn_state { CONN_LOOK, CONN_DENY, CONN_NAME, CONN_DIAL, CONN_RELAY, CONN_HTTP, CONN_LINGER };

struct flow { uint64_t bytes; struct gpipe *pipe; size_t held /* bytes in the pipe */; bool eof, shut; };

struct conn {
    struct list node, starve;
    struct box *box;
    struct gate *g;
    uint64_t id;
    enum conn_state state;
    bool proxy;        /* came to the explicit proxy */
    bool opened;       /* has an "open" record, so it gets a "close" */
    bool dead, fallback /* silence is fine: go on without a name */;
    int fd, up;        /* client, upstream; owned unless http has them */
    struct io io, uio;
    struct timer timer;
    struct ip dst;
    uint16_t port;
    char want[NAME_MAX_LEN + 1]; /* CONNECT: the host that was asked for, if it was a name */
    char name[NAME_MAX_LEN + 1]; /* what it is logged and allowed as */
    enum policy_proto proto;
    bool intercept;
    struct buf first;  /* what the client said so far */
    struct flow out, in; /* from the sandbox, to the sandbox */
    struct dial dial;
    struct addr_lookup *lookup;
    struct http_proxy *http;
    int64_t began;
    char rule[112], reason[200];
};

/* conn.c */
struct policy_ask conn_ask(const struct conn *c); /* what is known so far; borrows */
void conn_end(struct conn *c, enum gate_kind kind /* CLOSE, CUT */, const char *reason);
void conn_deny(struct conn *c, const char *rule, const char *reason);    /* record, then a readable answer */
void conn_fail(struct conn *c, const char *reason);                      /* allowed, but the far end could not be had */
void conn_open(struct conn *c);                                          /* the "open" record */
void conn_fed(struct list *starve_node);                                 /* gate.c: tokens may be there again */
void conn_starve(struct conn *c);
void conn_tunnel(struct conn *c);     /* http_request.c: CONNECT was granted, dst and want are set; look at what comes */
const char *conn_proto_name(const struct conn *c);

/* relay.c: c->fd and c->up are connected, c->first goes out before anything else */
void relay_start(struct conn *c);
void relay_feed(struct conn *c);
void relay_drop(struct conn *c);

/* http_proxy.c */
void http_start(struct conn *c); /* c->first holds the beginning; c->intercept: TLS with c->name; c->proxy: requests name their host */
void http_review(struct conn *c, uint64_t *cut);
void http_feed(struct conn *c);
void http_drop(struct conn *c);

/* deny.c */
void deny_http(struct buf *out, int status, const char *code, const char *rule, const char *reason, bool head);
extern const char deny_alert[7]; /* TLS: fatal, access denied */
