/* Private to the http files of gate/: an HTTP/1 connection that is looked into.
 * Every request is decided on its own and written anew from what was understood;
 * so is every response head. */
#pragma once
#include "gate/chan.h"
#include "gate/conn.h"
#include "gate/mask.h"
#include "http/body.h"
#include "http/parse.h"

#define HTTP_INJECT_MAX  POLICY_INJECT_MAX
#define HTTP_EXCHANGE_NS (600 * NS_PER_S) /* silence within an exchange */

enum http_state {
    H_REQUEST,  /* reading a request head */
    H_NAME,     /* looking up its host */
    H_DIAL,     /* connecting to it */
    H_EXCHANGE, /* request and response on their way */
    H_TUNNEL,   /* after 101: bytes */
    H_CLOSING,  /* our answer is written, waiting for the client to read it */
};

enum http_step { STEP_WAIT, STEP_ON, STEP_END };

struct http_target { char name[NAME_MAX_LEN + 1]; struct ip ip; bool has_ip; uint16_t port; }; /* name "" with has_ip: a literal */

struct http_proxy {
    struct conn *c;
    enum http_state state;
    struct chan cli, up;
    struct http_parser req, res;
    struct http_body req_body, res_body;
    struct http_target to;      /* of this request */
    struct http_target at;      /* what `up` is connected to */
    bool connect;               /* CONNECT under way */
    bool websocket;             /* the request asks to become one */
    bool by_request;            /* and is allowed for its method or path */
    bool req_done, res_begun, res_done, keep, up_keep, up_used /* carried a request before */, retried, is_head, client10;
    struct buf head;            /* the request as it goes out */
    struct mask mask;           /* secrets that its host may know */
    char method[33], path[513], secret[129], rule[112];
    int status;
    int64_t began;
    uint64_t req_bytes, res_bytes;
    uint64_t seen_rx, seen_tx;  /* of cli, already counted */
    struct dial dial;
    struct addr_lookup *lookup;
    struct timer timer;
    bool kicked;
};

/* http_head.c: pure, but for the secrets of the gate */
bool http_target_of(const struct http_proxy *h, struct http_target *ret, const char **why); /* whom the request addresses */
/* The upstream head into h->head, with secrets put in. 0, or -1 with *why (and rule) for a refusal. */
int http_rewrite(struct http_proxy *h, const struct policy_ask *q, const char **why);
/* Why h->res, which is complete, cannot be passed on: a secret could be in it that cannot be seen. NULL: it can. */
const char *http_response_unseen(const struct http_proxy *h);
void http_response_head(struct http_proxy *h, struct buf *out); /* h->res is complete; framing for the client decided */
bool http_budget_ok(struct http_proxy *h);                     /* after bytes moved: the budget of its secrets is not used up */
void http_spend(struct http_proxy *h, uint64_t bytes);

/* http_proxy.c */
void http_kick(struct http_proxy *h); /* have the machine look again, soon */
void http_record(struct http_proxy *h, enum gate_kind kind, bool allowed, const char *rule, const char *reason);
void http_count(struct http_proxy *h);                    /* the client's bytes so far into its connection */
void http_hang_up(struct http_proxy *h);                  /* upstream */
void http_finish(struct http_proxy *h);                   /* no more requests: over when the client has read what it is owed */
void http_over(struct http_proxy *h, const char *reason); /* now; the connection ends */
/* With an answer that says why, then http_finish: */
void http_deny(struct http_proxy *h, const char *rule, const char *reason);
void http_malformed(struct http_proxy *h, int status, const char *why); /* no request, or not one that can be understood in one way only */
void http_fail(struct http_proxy *h, const char *why);                  /* upstream's fault; if half an answer is out, http_over */

/* http_request.c */
void http_decide(struct http_proxy *h); /* h->req is complete */
struct policy_ask http_ask(const struct http_proxy *h);
void http_dial(struct http_proxy *h); /* to h->to; then http_exchange */

/* http_exchange.c */
void http_exchange(struct http_proxy *h); /* sends the head that http_rewrite made */
enum http_step http_exchange_step(struct http_proxy *h);
enum http_step http_tunnel_step(struct http_proxy *h);
