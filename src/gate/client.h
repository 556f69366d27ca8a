/* hutchd's end of the control protocol (gate/ctl.h). Belongs to the loop thread.
 *
 * The client connects, and connects again whenever the connection ends; each
 * time it is up, on_up runs and the caller adds every box, secret and group
 * again. Requests made while it is down fail with E_UNAVAILABLE. Every request
 * answers exactly once, never before the call returns. Descriptors handed in
 * stay the caller's. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include "gate/ctl.h"
#include "loop/loop.h"
#include <stdbool.h>
#include <stdint.h>

struct gate_client;

/* A record of the log, as it happens; strings are borrowed, NUL-terminated, "" if absent. */
struct gate_record {
    const char *box, *sandbox;
    enum gate_kind kind;
    uint64_t seq;        /* of the sandbox's log, 1 is the first */
    int64_t time_ns;     /* wall clock */
    uint64_t conn;       /* joins open, http and close; 0 none */
    const char *name, *type /* DNS record type, or protocol of a connection */, *addr, *method, *path, *rule, *reason, *secret;
    unsigned port, status;
    uint64_t in, out;    /* bytes to and from the sandbox */
    uint64_t ms;
    bool allowed;
    uint64_t lost;       /* records dropped on the way before this one */
};

struct gate_client_ops {
    void (*on_up)(void *arg);
    void (*on_down)(void *arg, const char *why);
    void (*on_record)(void *arg, const struct gate_record *r);
};
struct gate_client *gate_client_new(struct loop *l, const char *path, const struct gate_client_ops *ops, void *arg);
void gate_client_free(struct gate_client *c); /* requests that are under way answer E_CANCELED first */
bool gate_client_up(const struct gate_client *c);
const char *gate_kind_name(enum gate_kind k); /* "dns" */

struct gate_ceiling { const char *name; struct str policy; };
struct gate_box {
    const char *box;      /* id_ok */
    const char *sandbox;  /* id_ok */
    const char *group[2]; /* whose limits it shares: the host's, its tenant's; NULL: none */
    struct str policy;    /* JSON, gate/policy.h */
    const struct gate_ceiling *ceiling;
    int nceilings;
    struct str ca_cert, ca_key;  /* PEM (crypto/x509.h), n == 0: none, nothing is intercepted */
    const enum gate_sock *sock;  /* nsocks roles, and fds in the same order; 0 keeps those of an earlier gate_add */
    const int *fds;
    int nsocks;
};

typedef void gate_done(void *arg, const struct err *e /* NULL: done */, uint64_t cut /* connections that the change ended */);
void gate_add(struct gate_client *c, const struct gate_box *b, gate_done *done, void *arg);
void gate_policy(struct gate_client *c, const struct gate_box *b /* sandbox, group, sockets are not looked at */, gate_done *done, void *arg);
void gate_remove(struct gate_client *c, const char *box, gate_done *done, void *arg);

struct gate_limits { uint64_t connections, bytes_per_second, bytes_per_day; }; /* 0: none */
void gate_group(struct gate_client *c, const char *group, const struct gate_limits *l, gate_done *done, void *arg);

struct gate_budget { uint64_t calls_max, bytes_max, calls, bytes; };
void gate_secret(struct gate_client *c, const char *id, struct str value, const struct gate_budget *b, gate_done *done, void *arg);
void gate_secret_drop(struct gate_client *c, const char *id, gate_done *done, void *arg);

struct gate_stat { const char *box; uint64_t conns, total, denied, in, out, dns, dns_denied, seq; const char *hash; };
typedef void gate_stats_done(void *arg, const struct err *e, const struct gate_stat *s, size_t n);
void gate_stats(struct gate_client *c, const char *box /* NULL: all */, gate_stats_done *done, void *arg);

struct gate_secret_stat { const char *id; uint64_t calls, bytes; };
typedef void gate_secret_stats_done(void *arg, const struct err *e, const struct gate_secret_stat *s, size_t n);
void gate_secret_stats(struct gate_client *c, const char *id /* NULL: all */, gate_secret_stats_done *done, void *arg);

typedef void gate_list_done(void *arg, const struct err *e, const char *const *box, size_t n);
void gate_list(struct gate_client *c, gate_list_done *done, void *arg);

/* resolvers: "192.0.2.1" or "192.0.2.1:5353"; none: those of the host's resolv.conf at hutch-egress' start. */
struct gate_via { const char *hosts, *addr, *auth /* or NULL */; bool by_name; }; /* gate/via.h */
struct gate_config { const char *const *resolvers; int nresolvers; const struct gate_via *via; const char *const *direct; size_t nvia, ndirect; uint64_t log_bytes; unsigned log_files, log_days, log_sandboxes, udp_idle_s /* 0: a minute */; };
void gate_config(struct gate_client *c, const struct gate_config *cfg, gate_done *done, void *arg);
