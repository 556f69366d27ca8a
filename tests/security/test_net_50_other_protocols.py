"""50: QUIC, raw UDP, ICMP, SCTP, GRE, fragments, spoofed source, ARP and NDP spoofing, DHCP, routes."""
from attack import PRELUDE
from hutchtest import *
from outside import gated, inside, logged


@tiers("vm", "container")
@gated
def only_tcp_and_dns(t):
    o = t.outside
    box = t.box(network={"mode": "open"})
    r = inside(box, """
        R["quic"] = udp((O.web, 443), b"\\xc0\\x00\\x00\\x00\\x01" + bytes(1195))
        R["udp"] = udp((O.web, 7777), b"out")
        R["udp6"] = udp(("2001:db8::1", 443))
        R["ntp"] = udp(("1.1.1.1", 123), b"\\x1b" + bytes(47))
        def raw(proto, data, dst=O.web):
            try:
                s = socket.socket(socket.AF_INET, socket.SOCK_RAW, proto)
                s.settimeout(1)
                s.sendto(data, (dst, 0))
                while True:
                    d = s.recv(2000)
                    if proto != 1 or d[20] == 0: return "answered"
            except (TimeoutError, socket.timeout): return "TIMEOUT"
            except OSError as e: return name_of(e)
        R["icmp"] = raw(1, b"\\x08\\x00\\xf7\\xff" + bytes(4))
        R["gre"] = raw(47, bytes(20))
        R["sctp"] = raw(132, bytes(20))
        R["esp"] = raw(50, bytes(20))
        # a spoofed source, and a fragment: written by hand
        def ip(src, proto, payload, frag=0):
            h = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 1, frag, 64, proto, 0, socket.inet_aton(src), socket.inet_aton(O.web))
            return h + payload
        def hand(pkt):
            try:
                s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
                s.sendto(pkt, (O.web, 0)); return "sent"
            except OSError as e: return name_of(e)
        u = struct.pack(">HHHH", 1234, 7777, 12, 0) + b"frag"
        R["spoof"] = hand(ip("1.2.3.4", 17, u))
        R["frag"] = hand(ip("10.77.0.2", 17, u, 0x2000))
        for name in os.listdir("/sys/class/net") if os.path.isdir("/sys/class/net") else ["lo"]:
            try:
                s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind((name, 0))
                me = bytes.fromhex("026875746368")
                s.send(b"\\xff" * 6 + me + b"\\x08\\x06" + struct.pack(">HHBBH6s4s6s4s", 1, 0x800, 6, 4, 2, me, socket.inet_aton("10.77.0.1"), me, socket.inet_aton("10.77.0.1")))
                s.send(b"\\xff" * 6 + me + b"\\x08\\x00" + ip("0.0.0.0", 17, struct.pack(">HHHH", 68, 67, 12, 0) + b"dhcp"))
                s.send(b"\\x33\\x33\\0\\0\\0\\1" + me + b"\\x86\\xdd" + bytes(60))
                R["frames " + name] = "sent"
            except OSError as e: R["frames " + name] = name_of(e)
        R["after"] = http("allowed.test")[0]
    """, user="root", web=o.ip())
    for k in ("quic", "udp", "udp6", "ntp", "icmp", "gre", "sctp", "esp"):
        contains(("EPERM", "TIMEOUT", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EACCES", "EPROTONOSUPPORT"), r[k], k)
    for k in ("quic", "udp", "udp6", "ntp"):
        true(r[k] != "TIMEOUT", f"{k} is refused at once, not left to time out")
    equal(r["after"], 200, "spoofing harmed nobody, itself included")
    equal([h for h in o.hits if h["port"] != 80], [], "nothing but the web server saw anything")
    for port in (443, 7777, 123):
        logged(t, box, kind="deny", type="udp", port=port, rule="mode open")
    neighbour = t.box(network={"mode": "open"})
    equal(inside(neighbour, "R['x'] = http('allowed.test')[0]")["x"], 200)
