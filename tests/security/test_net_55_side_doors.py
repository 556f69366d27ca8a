"""55: out by way of another sandbox's preview, by events, logs and names of ours; template builds without a network stay so."""
import json

from hutchtest import *
from outside import gated, inside, logged


@tiers("vm", "container")
@gated
def previews_and_our_own_api(t):
    o = t.outside
    other = t.box(network={"mode": "open"})
    other.background(["python3", "-m", "http.server", "8099"])
    box = t.box(network={"mode": "open"})
    r = inside(box, """
        for a in ("127.0.0.1", "10.77.0.1", "10.77.0.2", O.host):
            R["api " + a] = http(a, port=O.port, path="/healthz", wait=4)
            R["preview " + a] = http(a, "8099-%s.localhost" % O.id, port=O.port, wait=4)
        R["name"] = http("8099-%s.localhost" % O.id, port=O.port, wait=4)
    """, id=other.id, port=t.d.port, host=o.ip(1))
    equal({k: v for k, v in r.items() if v[0] == 200}, {}, "the daemon was reached from inside")
    equal(o.hits, [])


@tiers("vm", "container")
@gated
def what_a_closed_sandbox_says_stays_text(t):
    """Its log and events hold what it tried; nobody is called because of them, and it cannot forge lines."""
    o = t.outside
    box = t.box()
    r = inside(box, r'''
        R["a"] = query('x"}\n{"seq":1,"verdict":"allow.test')
        R["b"] = http(O.web, 'a"\r\nX: y', path='/"},{"kind":"open"')
        R["c"] = query("\x1b[2J.test")
    ''', web=o.ip())
    denied = logged(t, box, kind="deny", addr=o.ip(), port=80)
    equal(denied["verdict"], "deny")
    page = t.c.get(f"{box.p}/egress", verify=1)
    equal(page["verified"], len(page["records"]), "none changed or removed")
    equal([x for x in page["records"] if x.get("verdict") == "allow" and x["kind"] != "policy"], [])
    lacks(json.dumps(page), "\x1b")
    equal(o.asked, [])
    equal(o.hits, [])
