"""A host that gets outside only through an HTTP proxy: the gate goes through it too, and still decides by itself."""
import base64

from hutchtest import *
from outside import DNS, ENV, inside, logged, outside

FAR = "203.0.113.9"  # nobody is there: only the proxy can lead to it


class _Proxy:
    def __init__(self, user=""):
        self.user = user

    def __str__(self):
        return f"http://{self.user}{outside().ip(DNS)}:3128"


def begin(t):
    o = outside()
    o.reset()
    o.zone["far.test"] = [FAR]
    return o


def asked(o):
    return [h["data"].decode() for h in o.hits if h["port"] == 3128]


@tiers("vm", "container")
@own_daemon(**{**ENV, "https_proxy": _Proxy("me:p%40ss@"), "no_proxy": "near.example,.allowed.test,127.0.0.0/8", "HUTCH_POOL_VM": 0})
def through_the_hosts_proxy(t):
    o = begin(t)
    box = t.box(network={"allow": ["far.test", "allowed.test", f"{FAR}:7"]})
    r = inside(box, """
        R["http"] = http("far.test")[0]
        R["tls"] = tls("far.test", "far.test")[0]
        R["raw"] = tcp((O.far, 7), b"hello")
        R["connect"] = http("10.77.0.1", port=3128, raw=b"CONNECT far.test:80 HTTP/1.1\\r\\nHost: far.test:80\\r\\n\\r\\n")[0]
        R["direct"] = http("allowed.test")[0]
        R["denied"] = http(O.far, "other.test")[0]
        R["closed"] = http("169.254.169.254")[0]
        R["proxy itself"] = http(O.proxy, port=3128)[0]
    """, far=FAR, proxy=o.ip(DNS))
    equal((r["http"], r["tls"], r["raw"], r["direct"]), (200, 200, "hello", 200))
    equal((r["connect"], r["denied"], r["closed"], r["proxy itself"]), (200, 403, 403, 403))
    got = asked(o)
    equal({h.split()[1] for h in got}, {f"{FAR}:80", f"{FAR}:443", f"{FAR}:7"}, "by the address that was checked, and only what was allowed")
    for h in got:
        contains(h, "Proxy-Authorization: Basic " + base64.b64encode(b"me:p@ss").decode())
    o.proxy_says = 407
    equal(inside(box, "R['x'] = http('far.test')")["x"][0], 502)
    contains(logged(t, box, kind="fail", name="far.test")["reason"], "proxy answered 407")


@tiers("container")
@own_daemon(**{**ENV, "HUTCH_NETWORK_PROXY": _Proxy(), "HUTCH_NETWORK_PROXY_NAMES": 1, "HUTCH_POOL_VM": 0})
def by_name_if_the_operator_says_so(t):
    o = begin(t)
    box = t.box(network={"allow": ["far.test"]})
    equal(inside(box, "R['x'] = tls('far.test', 'far.test')[0]")["x"], 200)
    equal([h.split()[1] for h in asked(o)], ["far.test:443"])


@tiers("container")
@own_daemon(**{**ENV, "PIP_INDEX_URL": "http://far.test/simple", "PIP_PROXY": _Proxy(), "HUTCH_POOL_VM": 0})
def the_proxy_of_a_tool_is_for_its_preset(t):
    o = begin(t)
    box = t.box(network={"presets": ["pip"], "allow": ["allowed.test"]})
    equal(inside(box, "R['x'] = (http('far.test', path='/simple/')[0], http('allowed.test')[0])")["x"], [200, 200])
    equal([h.split()[1] for h in asked(o)], [f"{FAR}:80"], "the preset's host goes through it, nothing else does")
