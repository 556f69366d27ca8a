"""Datagrams: closed unless a rule names them, carried by flow, bounded, and written down either way."""
from hutchtest import *
from outside import egress, gated, inside, logged

TIERS = tiers("vm", "container")


@TIERS
@gated
def only_what_a_rule_names_is_carried(t):
    o = t.outside
    o.zone["time.test"] = [o.ip()]
    box = t.box(network={"mode": "open", "allow": [{"cidr": o.ip(20), "ports": [7777], "protocol": "udp"}, {"domain": "time.test", "ports": [7777], "protocol": "udp"},
                                                   {"cidr": o.net6, "ports": ["7000-7999"], "protocol": "udp"}]})
    r = inside(box, """
        R["unasked"] = udp((O.web, 7777))
        R["by cidr"] = udp((O.other, 7777), b"one")
        R["question"] = query("time.test")
        R["by name"] = udp((O.web, 7777), b"two")
        R["big"] = udp((O.web, 7777), b"x" * 4000)
        R["six"] = udp((O.six, 7777), b"three")
        R["quic"] = udp((O.web, 443), b"quic")
        R["port"] = udp((O.other, 7778))
        R["meta"] = udp(("169.254.169.254", 7777))
        R["host"] = udp((O.host, 7777))
        R["nobody"] = udp((O.six, 7001))
        # one socket, two far ends: each answer comes from the one that was asked
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
        s.sendto(b"a", (O.web, 7777)); s.sendto(b"b", (O.other, 7777))
        R["two"] = sorted((a[0], a[1], d.decode()) for d, a in (s.recvfrom(99), s.recvfrom(99)))
    """, web=o.ip(), other=o.ip(20), six=o.ip6(), host=o.ip(1))
    refused = ("EHOSTUNREACH", "EACCES", "EPERM", "ECONNREFUSED")
    for k in ("unasked", "quic", "port", "meta", "host"):
        contains(refused, r[k], f"{k} is refused at once")
    equal((r["by cidr"], r["by name"], r["six"]), ("one", "two", "three"))
    equal(r["big"], "x" * 4000, "a datagram larger than a frame, both ways")
    equal(r["nobody"], "ECONNREFUSED", "that nobody listens there is told as it is")
    equal(r["two"], sorted([[o.ip(), 7777, "a"], [o.ip(20), 7777, "b"]]))
    equal([h for h in o.hits if h["port"] == 443], [], "QUIC did not leave")
    logged(t, box, kind="deny", type="udp", addr=o.ip(), port=7777, rule="mode open")
    logged(t, box, kind="deny", type="udp", addr=o.ip(), port=443, verdict="deny", name="time.test")
    logged(t, box, kind="deny", type="udp", addr="169.254.169.254", rule="closed")
    logged(t, box, kind="open", type="udp", addr=o.ip(), name="time.test", rule="allow time.test port 7777")
    logged(t, box, kind="open", type="udp", addr=o.ip6(), verdict="allow")


@TIERS
@gated
def a_flow_has_an_end_a_limit_and_a_place_in_the_log(t):
    o = t.outside
    box = t.box(network={"allow": [{"cidr": o.ip(), "ports": [7777], "protocol": "udp"}], "limits": {"connections": 3}})
    r = inside(box, """
        R["answers"] = [udp((O.web, 7777), b"n%d" % i) for i in range(5)]
        for i in range(300):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b"x", ("192.0.2.9", 1000 + i))
    """, web=o.ip())
    equal(r["answers"][:3], ["n0", "n1", "n2"])
    for a in r["answers"][3:]:
        contains(("EHOSTUNREACH", "EPERM"), a, "over the limit of the policy")
    logged(t, box, kind="deny", type="udp", rule="limit")
    denied = [x for x in egress(t, box, verdict="deny") if x["addr"] == "192.0.2.9"]
    true(10 < len(denied) < 150, f"a flood leaves a part of its lines, not {len(denied)}")
    got = t.c.put(f"{box.p}/network", {"mode": "none"})
    equal(got["cut"], 3)
    logged(t, box, kind="cut", type="udp", addr=o.ip(), **{"in": lambda n: n == 2, "out": lambda n: n == 2})
    contains(("EHOSTUNREACH", "EPERM"), inside(box, "R['x'] = udp((O.web, 7777))", web=o.ip())["x"])
    t.c.put(f"{box.p}/network", {"allow": [{"cidr": o.ip(), "protocol": "udp"}], "limits": {"bytes": 3000}})
    r = inside(box, "R['x'] = [udp((O.web, 7777), b'y' * 1000) for i in range(3)]", web=o.ip())["x"]
    equal(r[0], "y" * 1000)
    lacks(r[2], "y", "the bytes are used up")
    logged(t, box, kind="cut", type="udp", reason=lambda s: "byte limit" in (s or ""))


@TIERS
@gated
def bad_rules_say_what_is_missing(t):
    e = refuses("invalid", t.box, network={"allow": [{"domain": "allowed.test", "protocol": "udp"}]})
    contains(str(e), "ports")
