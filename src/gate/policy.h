/* Network policy: its JSON form, and what it answers. Pure, no I/O; the same
 * code runs in hutchd (to validate and to explain) and in hutch-egress.
 *
 *   {"mode": "none" | "allow" | "open",
 *    "allow": [RULE…], "deny": [RULE…], "inject": [INJECT…], "limits": {…}, "private": ["CIDR"…]}
 *
 * RULE is a string or an object:
 *   "example.org"  "*.example.org"  "example.org:8443"  "192.0.2.0/24"  "192.0.2.7:5432"  "[2001:db8::1]:443"  "*"
 *   {"domain": "example.org" | "*.example.org" | "*"}  or  {"cidr": "192.0.2.0/24"},  and of these what is wanted:
 *     "ports": [443, "8000-8999"]   default: 80 and 443 for an allowed domain; every port for a CIDR and in deny
 *     "protocol": "web" | "http" | "tls" | "tcp" | "udp" | "any"
 *         web (default of an allowed domain): HTTP or TLS as seen on the wire, the name in it is checked; http, tls: one of
 *         them; tcp: not looked into, so an address shared by two names is shared; any (default of a CIDR and in deny): of a
 *         CIDR datagrams too, of an allowed domain as tcp; udp: datagrams, of a domain only with ports and only to addresses
 *         the resolver gave out for it. Port 53 is always the resolver's.
 *     "methods": ["GET"], "paths": ["/v1/"]   HTTP only, allow only; over TLS this needs interception (policy_intercepts).
 *         "/v1" matches /v1 and what is below it, "/v1/" what is below it, "/v1*" any path that begins so, "=/v1" that path
 *         alone; a star and then "/info" any that ends so. A request whose path could be read in two ways (dot segments, "//", encoded slashes or dots)
 *         matches no rule with paths.
 *     "websocket": true             with methods or paths: a request may become a WebSocket, whose bytes nobody looks at.
 *         Without them a rule does not look at requests and needs no such word. No other protocol is ever changed to.
 *     "final": true                 deny only: not overruled by any allow
 *     "id": "word"                  shown in the log instead of the rule's own text
 * "*.example.org" means one label or more before it, not example.org itself.
 *
 * INJECT: {"domain": "api.example.org", "ports": [443], "methods": […], "paths": […], "secret": "ID",
 *          "header": "authorization", "format": "Bearer {secret}"}            set a header, the guest's own copy is dropped
 *      or {"domain": …, "secret": "ID", "placeholder": "text of 8 characters or more"}   replaced in header values and the query
 *   "websocket": true: the secret may go out with a request that becomes a WebSocket; else such a request is refused.
 *   ID names a secret given to hutch-egress by GATE_SECRET. Injection does not allow anything: the host needs an allow rule
 *   (or mode open) as well. "domain" may be "*.suffix". Only over TLS: a secret is never sent in clear.
 *
 * limits: {"connections": N, "bytes_per_second": N, "bytes": N, "dns_per_second": N}; 0 or absent: the default.
 *
 * Order, first that applies:  1 closed addresses (ip_closed, the host's own) unless an operator's ceiling lists them under
 * "private"  2 a final deny  3 an allow rule  4 a deny rule  5 the mode: open allows (datagrams: only as a ceiling; they need a
 * rule), allow and none deny. Mode none ignores "allow". A ceiling is a policy of the operator (host, tenant) that must allow the same thing too; limits are the smallest.
 * "private" is refused in anything but a ceiling, and opens nothing by itself: a rule must still allow it.
 *
 * Names: gate/name.h. A denied domain is a convenience, not a wall: in mode open its address stays reachable by number. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"
#include "gate/ip.h"
#include "gate/name.h"

#define POLICY_TEXT_MAX   65536u
#define POLICY_RULES_MAX  512u
#define POLICY_INJECT_MAX 32u
#define POLICY_COUNT_MAX  1000000         /* of connections, of DNS questions in a second */
#define POLICY_BYTES_MAX  (INT64_MAX / 4) /* of bytes, in a second or in all */
#define POLICY_CEILINGS   4

struct json;
struct policy;
enum policy_mode { POLICY_NONE, POLICY_ALLOW, POLICY_OPEN };
enum { POLICY_CEILING = 1 /* "private" is allowed, "inject" is not */ };

struct policy *policy_parse(const char *json, size_t n, unsigned flags, struct err *e); /* NULL with a path in e; an empty text is {} */
struct policy *policy_from_json(struct json *obj, unsigned flags, struct err *e);       /* obj stays the caller's; NULL obj is {} */
struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p); /* NULL is fine */
enum policy_mode policy_mode(const struct policy *p);
const char *policy_mode_name(enum policy_mode m);
void policy_write(const struct policy *p, struct buf *out); /* canonical JSON, every default written out; parses back to the same */
bool policy_intercepts(const struct policy *p);             /* some rule needs the sandbox's CA: inject, or methods/paths for TLS */
bool policy_denies(const struct policy *p);                 /* it has deny rules */
bool policy_uses_secret(const struct policy *p, struct str id);
size_t policy_secrets(const struct policy *p, struct str *out, size_t cap); /* distinct ids, borrowed; returns how many there are */

struct policy_limits { uint64_t connections, bytes_per_second, bytes, dns_per_second; }; /* bytes, bytes_per_second: 0 is no limit */
#define POLICY_DEFAULT_CONNECTIONS 1024u
#define POLICY_DEFAULT_DNS         100u

/* ---- decisions ------------------------------------------------------------------------------------------------ */

/* What is in force for one sandbox: its own policy under the operator's ceilings. All borrowed. */
struct policy_set {
    const struct policy *own;
    const struct policy *ceiling[POLICY_CEILINGS];
    const char *ceiling_name[POLICY_CEILINGS]; /* "host", "tenant acme": for the reason */
    int nceilings;
    const char *(*is_host)(void *arg, const struct ip *); /* why an address is the host's own, else NULL; may be NULL */
    void *arg;
};

enum policy_proto { PROTO_TCP, PROTO_HTTP, PROTO_TLS, PROTO_UDP };
struct policy_ask {
    struct str name;         /* canonical; n == 0: not known */
    const struct ip *addr;   /* NULL: not known */
    uint16_t port;
    enum policy_proto proto; /* PROTO_TCP: the bytes were not looked at, or are neither HTTP nor TLS; a request inside TLS: PROTO_TLS */
    bool looked;             /* the name is not going to be known better: never ANSWER_LOOK */
    struct str method, path; /* HTTP request; method.n == 0: none yet */
    bool websocket;          /* it asks to become a WebSocket */
};
enum policy_answer {
    ANSWER_DENY,
    ANSWER_ALLOW,
    ANSWER_LOOK, /* depends on the name inside (Host, SNI) or on the request: look, then ask again with it */
};
struct policy_verdict {
    enum policy_answer answer;
    bool by_name;     /* the answer rests on the name: it holds only if the address is one of that name's */
    bool intercept;   /* TLS: allowed, but only as HTTP that is seen: open it with the sandbox's CA */
    bool by_request;  /* allowed for its method or path */
    char rule[112];   /* "allow *.example.org", "deny 192.0.2.0/24", "mode none", "closed", "ceiling host: mode none" */
    char reason[200]; /* a denial in one sentence that a person or a model can act on; "" when allowed */
};

/* May this name be asked for at all? (Any port of any rule.) */
void policy_dns(const struct policy_set *s, struct str name, struct policy_verdict *ret);
/* May a record of this address be given to the sandbox? Reason, or NULL if yes. */
const char *policy_addr_closed(const struct policy_set *s, const struct ip *a);
/* A connection or an HTTP request. */
void policy_decide(const struct policy_set *s, const struct policy_ask *q, struct policy_verdict *ret);
struct policy_limits policy_limits(const struct policy_set *s);

/* Injections for a request that was allowed. */
struct policy_inject {
    struct str secret, header /* lower case; n == 0: placeholder */, format, placeholder;
    bool by_request /* for its method or path */, websocket;
};
size_t policy_injects(const struct policy *p, const struct policy_ask *q, struct policy_inject *out, size_t cap);
bool policy_injects_host(const struct policy *p, struct str name, uint16_t port); /* some inject rule may apply there */
/* Secrets that this host may have been sent, with this request or another; distinct ids, borrowed. Returns how many went into out. */
size_t policy_secrets_of_host(const struct policy *p, struct str name, uint16_t port, struct str *out, size_t cap);
