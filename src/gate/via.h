/* Proxies of the host: what it can reach only through one is reached through it
 * by the gate as well, by CONNECT. Whether a connection is allowed was decided
 * before, by name and address as always; the proxy is asked for that address,
 * so that it is not its resolver that decides where a name leads (by_name: for
 * proxies that take names only). Pure. */
#pragma once
#include "base/buf.h"
#include "gate/ip.h"
#include <stdbool.h>

#define VIA_MAX        64
#define VIA_ANSWER_MAX 8192 /* bytes of a proxy's answer */

struct via { char *hosts /* "*", "example.org", "*.example.org", an address or range */, *auth /* Proxy-Authorization, or NULL */; struct ip ip; uint16_t port; bool by_name; };
struct vias { struct via at[VIA_MAX]; size_t n; char *direct[VIA_MAX]; size_t ndirect; };
void vias_free(struct vias *v);
bool vias_add(struct vias *v, struct str hosts, struct str addr /* "192.0.2.1:3128" */, struct str auth, bool by_name);
bool vias_direct(struct vias *v, struct str word); /* of no_proxy: "example.org" and what is below, an address or range, "*" */
const struct via *via_for(const struct vias *v, struct str name /* n == 0: not known */, const struct ip *ip); /* the first that fits; NULL: straight */
void via_copy(struct via *to, const struct via *from);
void via_free(struct via *v);

void via_ask(const struct via *v, const struct ip *ip, struct str name, uint16_t port, struct buf *out);
int via_answer(const char *p, size_t n, size_t *ret_head); /* its status once the head is whole; 0: more is needed, -1: not an answer */
