"""46: IPv6 when only IPv4 is listed; v4-mapped, NAT64, 6to4; octal, hex, decimal and trailing-dot hosts."""
from hutchtest import *
from outside import gated, inside, logged


@tiers("vm", "container")
@gated
def other_spellings(t):
    o = t.outside
    box = t.box(network={"mode": "allow", "allow": ["allowed.test"], "deny": [o.ip(20)]})
    r = inside(box, """
        query("allowed.test")
        for a in ("::ffff:" + O.other, "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::a9fe:a9fe", "2001:db8::1", "::ffff:169.254.169.254"):
            R[a] = http(a, "allowed.test", wait=4)
        # the Host is a name or it is not: no spelling of a closed address gets through
        for h in ("0251.0376.0251.0376", "0xa9fea9fe", "2852039166", "169.254.43518", "169.254.169.254.", "127.1", "0x7f.1", "ALLOWED.test.evil", "[::ffff:169.254.169.254]"):
            R["host " + h] = http(O.web, h)
        for n in ("0251.0376.0251.0376", "0xa9fea9fe", "2852039166"):
            R["dns " + n] = query(n)
        R["dot"] = http(O.web, "allowed.test.")
        R["case"] = http(O.web, "AlLoWeD.TeSt")
    """, web=o.ip(), other=o.ip(20), deadline=90)
    for k, v in r.items():
        if k.startswith("dns"):
            equal(v, [3, []], k)
        elif k in ("dot", "case"):
            equal(v[0], 200, f"{k}: the same name")
        elif k.startswith("host"):
            true(v[0] in (0, 400, 403), f"{k}: {v}")
        else:
            true(v[0] in (0, 403), f"{k}: {v}")
    equal([h for h in o.hits if h["addr"] != o.ip()], [], "nobody but the allowed address saw anything")
    logged(t, box, kind="deny", addr=lambda a: a and "169.254.169.254" in a or a == "64:ff9b::a9fe:a9fe")
    logged(t, box, kind="dns", name="2852039166", verdict="deny")
