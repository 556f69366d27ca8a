/* Private to the policy files: the parsed form. Immutable once parsed. */
#pragma once
#include "gate/policy.h"

#define RULE_PORTS 16
#define RULE_WORDS 16 /* methods or paths of one rule */

enum { RP_HTTP = 1, RP_TLS = 2, RP_TCP = 4 /* anything, not looked into */, RP_UDP = 8, RP_WEB = RP_HTTP | RP_TLS, RP_ANY = RP_WEB | RP_TCP | RP_UDP };

struct port_range { uint16_t from, to; };
/* Ports, methods and paths: shared by rules and injections. No entries: everything. */
struct scope {
    struct port_range port[RULE_PORTS];
    char *method[RULE_WORDS], *path[RULE_WORDS];
    uint8_t nports, nmethods, npaths;
    bool
        websocket; /* where requests are looked at: what follows an upgrade, which is not, may pass too */
};
struct rule {
    char *domain; /* canonical pattern, or NULL: cidr */
    struct cidr cidr;
    uint8_t protocol; /* RP_* */
    bool final;
    struct scope scope;
    char *text; /* for the log: id, or the pattern with its ports */
};
struct inject {
    char *domain, *secret, *header, *format, *placeholder;
    struct scope scope;
};
struct policy {
    unsigned refs;
    enum policy_mode mode;
    struct rule *allow, *deny;
    size_t nallow, ndeny;
    struct inject *inject;
    size_t ninject;
    struct cidr *open_private;
    size_t nprivate;
    struct policy_limits limits; /* as written: 0 where absent */
};

bool scope_port(const struct scope *s, uint16_t port);
bool scope_l7(const struct scope *s);
bool scope_request(const struct scope *s, struct str method, struct str path); /* methods and paths */
const char *policy_protocol_name(uint8_t bits);
char *policy_rule_text(const struct rule *r); /* its pattern with its port, as where it has no id; the caller's */
