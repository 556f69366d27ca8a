"""49: SNI spoof, no SNI, ECH, SNI other than Host, absolute-form URI, two Host headers."""
from hutchtest import *
from outside import gated, inside, logged


@tiers("vm", "container")
@gated
def name_on_the_wire(t):
    o = t.outside
    # shared.test and allowed.test live at one address; only the latter is allowed
    box = t.box(network={"mode": "allow", "allow": ["allowed.test"]})
    r = inside(box, """
        R["good"] = tls(O.web, "allowed.test")[0]
        R["sni other"] = tls(O.web, "shared.test")
        R["sni elsewhere"] = tls(O.other, "allowed.test")
        R["no sni"] = tls(O.web, None, host="allowed.test")
        R["host other"] = http(O.web, "shared.test")
        R["absolute other"] = http(O.web, raw=b"GET http://shared.test/ HTTP/1.1\\r\\nHost: allowed.test\\r\\nConnection: close\\r\\n\\r\\n")
        R["absolute swap"] = http(O.web, raw=b"GET http://allowed.test/ HTTP/1.1\\r\\nHost: shared.test\\r\\nConnection: close\\r\\n\\r\\n")
        R["two hosts"] = http(O.web, raw=b"GET / HTTP/1.1\\r\\nHost: allowed.test\\r\\nHost: shared.test\\r\\nConnection: close\\r\\n\\r\\n")
        R["no host"] = http(O.web, raw=b"GET / HTTP/1.0\\r\\n\\r\\n")
        R["second"] = http(O.web, raw=b"GET /1 HTTP/1.1\\r\\nHost: allowed.test\\r\\nContent-Length: 0\\r\\n\\r\\nGET /2 HTTP/1.1\\r\\nHost: shared.test\\r\\nConnection: close\\r\\n\\r\\n")
        # a client hello with an encrypted_client_hello extension (0xfe0d), outer name allowed
        import binascii
        def hello(exts):
            body = b"\\x03\\x03" + bytes(32) + b"\\0" + b"\\x00\\x02\\x13\\x01" + b"\\x01\\x00" + struct.pack(">H", len(exts)) + exts
            hs = b"\\x01" + struct.pack(">I", len(body))[1:] + body
            return b"\\x16\\x03\\x01" + struct.pack(">H", len(hs)) + hs
        n = b"allowed.test"
        sni = struct.pack(">HHHBH", 0, len(n) + 5, len(n) + 3, 0, len(n)) + n
        R["ech"] = tcp((O.web, 443), hello(sni + struct.pack(">HH", 0xfe0d, 8) + bytes(8)))
    """, web=o.ip(), other=o.ip(20))
    equal(r["good"], 200)
    for k in ("sni other", "sni elsewhere", "no sni"):
        equal(r[k][0], 0, f"{k}: {r[k]}")
    true(r["absolute swap"][0] in (400, 403) or '"host": "allowed.test"' in r["absolute swap"][1], "RFC 9112: the target counts, the Host follows it")
    for k in ("host other", "absolute other", "two hosts"):
        true(r[k][0] in (400, 403), f"{k}: {r[k]}")
    true(r["no host"][0] in (0, 400, 403), r["no host"])
    lacks(r["second"][1], "/2")
    true(r["ech"] in ("ECONNRESET", "closed") or r["ech"].startswith("\x15"), repr(r["ech"]))
    equal([h for h in o.hits if b"shared.test" in h["data"] or b"/2" in h["data"].split(b"\r\n")[0] or h["addr"] == o.ip(20)], [])
    logged(t, box, kind="deny", name="shared.test", port=443)
    logged(t, box, kind="deny", name="shared.test", port=80)
    logged(t, box, kind="deny", name="allowed.test", addr=o.ip(20), port=443)
