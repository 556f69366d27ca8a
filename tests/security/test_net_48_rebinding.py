"""48: DNS rebinding, CNAME to private, zero TTL, several answers of which one is private."""
import socket

from hutchtest import *
from outside import A, gated, inside, logged


@tiers("vm", "container")
@gated
def answers_that_point_inside(t):
    o = t.outside
    box = t.box(network={"mode": "allow", "allow": ["private.test", "cname.test", "mixed.test", "flip.test", "allowed.test"]})
    turn = {"n": 0}

    def flip(name, qtype):
        if name != "flip.test" or qtype != A:
            return None
        turn["n"] += 1
        return [(A, 0, socket.inet_aton(o.ip() if turn["n"] == 1 else "169.254.169.254"))]
    o.answer = flip
    r = inside(box, """
        R["private"] = query("private.test")
        R["cname"] = query("cname.test")
        R["mixed"] = query("mixed.test")
        R["first"] = query("flip.test")
        R["second"] = query("flip.test")
        R["third"] = http("flip.test", wait=4)
        R["direct"] = http("169.254.169.254", "flip.test")
        R["other"] = http("10.0.0.1", "mixed.test")
        R["swap"] = http(O.other, "allowed.test")
    """, other=o.ip(20))
    equal(r["private"][1], [])
    equal(r["cname"][1], [])
    equal(r["mixed"], [0, [o.ip()]], "the public one stays, the private one goes")
    equal(r["first"], [0, [o.ip()]])
    lacks(r["second"][1], "169.254.169.254")
    equal(r["direct"][0], 403)
    equal(r["other"][0], 403)
    equal(r["swap"][0], 403, "an address that nobody resolved the name to")
    equal([h for h in o.hits if h["addr"] != o.ip()], [])
    logged(t, box, kind="dns", name="private.test", reason=lambda x: x)
    logged(t, box, kind="deny", addr="169.254.169.254")
    logged(t, box, kind="deny", addr=o.ip(20), name="allowed.test")
