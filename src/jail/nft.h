/* The rules of a sandbox's network namespace, as one nfnetlink batch that is
 * built once and replayed for every sandbox: no program is run, no text parsed.
 * What they say, in the order the kernel walks them:
 *
 *   container (everything leaves through the output hook)
 *     raw    loopback to loopback is not tracked: it costs nothing and counts for no limit
 *     nat    to a local address: as it is; port 53 -> DNS; the proxy's address -> PROXY; any other TCP -> TCP
 *     output new flows beyond RATE a second are dropped; established, what now goes to a local address, and datagrams that are
 *            marked for the gate: pass; the rest is refused with "administratively prohibited"
 *     input  a connection to our ports passes if it was led there by the rules above; any other is reset
 *   vm (everything arrives from the tap)
 *     nat        port 53 -> DNS; the proxy's address -> PROXY; any other TCP -> TCP
 *     prerouting as output above; of the rest only neighbour discovery passes
 *     output     only answers: QEMU itself may send nothing
 *   datagrams (a second batch, when the gate takes the box on; before, or on a kernel without it, they are refused by the above)
 *     mark       UDP that goes to none of our addresses, not to port 53 and not to many is marked; so in a container's output,
 *                in a VM's prerouting
 *     lead       what is marked is given to the gate's UDP socket as it is, so that its destination can be read there (TPROXY);
 *                if there is none, it is refused
 *
 * Default of every filter chain is drop, and there is no link to anywhere: if all of this vanished, nothing would leave. */
#pragma once
#include "base/netlink.h"

void nft_rules_box(struct nl *ret);
void nft_rules_vm(struct nl *ret);
void nft_rules_box_udp(struct nl *ret);
void nft_rules_vm_udp(struct nl *ret);
