"""51: CONNECT to an address or port 25, proxy chaining, upgrade smuggling, request smuggling through the injecting proxy."""
from hutchtest import *
from outside import gated, inside, logged


@tiers("vm", "container")
@gated
def through_the_proxy_port(t):
    o = t.outside
    box = t.box(network={"mode": "allow", "allow": ["allowed.test"]})
    r = inside(box, """
        def proxy(raw):
            return http("10.77.0.1", port=3128, raw=raw.replace("\\n", "\\r\\n").encode())
        R["get"] = proxy("GET http://allowed.test/ HTTP/1.1\\nHost: allowed.test\\nConnection: close\\n\\n")[0]
        R["other"] = proxy("GET http://other.test/ HTTP/1.1\\nHost: other.test\\nConnection: close\\n\\n")
        R["swap"] = proxy("GET http://other.test/ HTTP/1.1\\nHost: allowed.test\\nConnection: close\\n\\n")
        def tunnel(to, then):
            try:
                s = socket.create_connection(("10.77.0.1", 3128), timeout=10)
                s.sendall(("CONNECT %s HTTP/1.1\\r\\nHost: %s\\r\\n\\r\\n" % (to, to)).encode())
                first = s.recv(4096)
                if b" 200 " not in first: return (int(first.split()[1]), "")
                s.sendall(then)
                return answer(s)
            except (TimeoutError, socket.timeout): return (0, "TIMEOUT")
            except OSError as e: return (0, name_of(e))
        R["connect addr"] = tunnel(O.other + ":80", b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n")
        R["connect tls"] = tunnel(O.other + ":443", b"\\x16\\x03\\x01\\x00\\x05junk!")
        R["connect 25"] = proxy("CONNECT allowed.test:25 HTTP/1.1\\nHost: allowed.test\\n\\n")
        R["connect meta"] = proxy("CONNECT 169.254.169.254:80 HTTP/1.1\\nHost: x\\n\\n")
        R["connect self"] = proxy("CONNECT 10.77.0.1:3128 HTTP/1.1\\nHost: x\\n\\n")
        R["chain"] = proxy("GET http://10.77.0.1:3128/ HTTP/1.1\\nHost: 10.77.0.1:3128\\nConnection: close\\n\\n")
    """, other=o.ip(20))
    equal(r["get"], 200)
    for k, v in r.items():
        if k != "get":
            true(v[0] in (0, 400, 403), f"{k}: {v}")
    equal([h for h in o.hits if h["addr"] == o.ip(20) or h["port"] == 25], [])
    logged(t, box, kind="deny", name="other.test")
    logged(t, box, kind="deny", name="allowed.test", port=25)


@tiers("vm", "container")
@gated
def smuggling(t):
    o = t.outside
    t.c.put("/v1/secrets/smug", {"value": "hidden-in-transit"})
    t.cleanup_later(lambda: t.c.delete("/v1/secrets/smug"))
    box = t.box(network={"mode": "allow", "allow": ["allowed.test", "api.allowed.test"],
                         "inject": [{"domain": "api.allowed.test", "secret": "smug", "header": "x-key"}]})
    r = inside(box, """
        H = "Host: allowed.test\\r\\n"
        evil = "GET /smuggled HTTP/1.1\\r\\nHost: shared.test\\r\\n\\r\\n"
        bad = {
            "cl and te": "POST / HTTP/1.1\\r\\n" + H + "Content-Length: 6\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil,
            "te twice": "POST / HTTP/1.1\\r\\n" + H + "Transfer-Encoding: chunked\\r\\nTransfer-Encoding: identity\\r\\n\\r\\n0\\r\\n\\r\\n" + evil,
            "te odd": "POST / HTTP/1.1\\r\\n" + H + "Transfer-Encoding: xchunked\\r\\n\\r\\n0\\r\\n\\r\\n" + evil,
            "cl twice": "POST / HTTP/1.1\\r\\n" + H + "Content-Length: 0\\r\\nContent-Length: 50\\r\\n\\r\\n" + evil,
            "bare lf": "GET / HTTP/1.1\\nHost: allowed.test\\n\\n" + evil,
            "space": "GET / HTTP/1.1\\r\\nHost : allowed.test\\r\\n\\r\\n" + evil,
            "fold": "GET / HTTP/1.1\\r\\n" + H + "X: a\\r\\n b\\r\\n\\r\\n" + evil,
            "upgrade": "GET / HTTP/1.1\\r\\n" + H + "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n" + evil,
            "h2": "PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n",
        }
        for k, v in bad.items():
            R[k] = http(O.web, raw=v.encode("latin-1"), wait=5)
    """, web=o.ip(), deadline=100)
    for k, v in r.items():
        if k != "upgrade":
            true(v[0] in (0, 400, 403, 501, 505), f"{k}: {v}")
    equal([h["data"] for h in o.hits if b"/smuggled" in h["data"].split(b"\r\n")[0]], [], "no second request")
    equal([h for h in o.hits if b"hidden-in-transit" in h["data"]], [])
    logged(t, box, kind=lambda k: k in ("deny", "fail"), name=lambda n: True)


@tiers("vm", "container")
@gated
def upgrade_around_rules(t):
    """What follows an upgrade is not looked at: it may not lead around rules about requests."""
    o = t.outside
    box = t.box(network={"mode": "allow", "allow": [{"domain": "allowed.test", "methods": ["GET"], "paths": ["/h2c", "/ws"]}]})
    r = inside(box, """
        def up(path, to):
            s = socket.create_connection((O.web, 80), timeout=10)
            s.sendall(("GET %s HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: Upgrade, HTTP2-Settings\\r\\nUpgrade: %s\\r\\nHTTP2-Settings: AAMAAABk\\r\\n\\r\\n" % (path, to)).encode())
            first = s.recv(4096)
            s.sendall(b"DELETE /admin HTTP/1.1\\r\\nHost: allowed.test\\r\\n\\r\\n")
            return int(first.split()[1])
        R["h2c"], R["tcp"], R["websocket"] = up("/h2c", "h2c"), up("/h2c", "tcp"), up("/ws", "websocket")
    """, web=o.ip())
    equal(r, {"h2c": 200, "tcp": 200, "websocket": 403})
    equal([h["data"] for h in o.hits if b"/admin" in h["data"]], [])
    logged(t, box, kind="deny", name="allowed.test", reason=lambda x: "WebSocket" in (x or ""))
