/* Questions to the host's resolvers. Each question has a socket (and so a port)
 * of its own, connected to the server, and a random id. UDP, then TCP if the
 * answer was cut; a silent server is given up for the next. */
#pragma once
#include "base/err.h"
#include "gate/dnsmsg.h"
#include "loop/loop.h"

#define RESOLVERS_MAX 4

struct resolver_addr { struct ip ip; uint16_t port; };
bool resolver_addr_parse(struct str s, struct resolver_addr *ret); /* "192.0.2.1", "192.0.2.1:53", "[2001:db8::1]:53" */
size_t resolv_conf_parse(const char *text, struct resolver_addr *out, size_t cap); /* "nameserver" lines */

struct resolver;
struct resolver *resolver_new(struct loop *l);
void resolver_free(struct resolver *r); /* lookups must be over or cancelled */
void resolver_servers(struct resolver *r, const struct resolver_addr *a, size_t n);

struct lookup;
/* a is valid inside the call only; NULL: no answer, why says it. Never called before resolver_ask returns. */
typedef void lookup_done(void *arg, struct dns_answer *a, const char *why);
struct lookup *resolver_ask(struct resolver *r, const struct dname *name, uint16_t type, bool dnssec, lookup_done *done, void *arg);
void lookup_cancel(struct lookup *l); /* no call; NULL is fine */
