"""54: a long-lived connection kept after a deny must be cut: streams, tunnels through the proxy port, WebSockets, TLS looked into or not, datagrams, idle ones."""
from hutchtest import *
from outside import egress, gated, logged

HOLD = r"""
import socket, ssl, sys, time
def up(s, first):
    s.settimeout(60)
    if first: s.sendall(first)
    return s
web = sys.argv[1]
GET = b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n"
def tls(name, s=None):
    s = s or socket.create_connection((name, 443))
    return ssl._create_unverified_context().wrap_socket(s, server_hostname=name)
def tunnel(to):
    s = socket.create_connection(("10.77.0.1", 3128))
    s.sendall(b"CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n" % to.encode())
    assert b" 200 " in s.recv(4096)
    return s
UP = b"GET /ws HTTP/1.1\r\nHost: allowed.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
held = {
    "idle": up(socket.create_connection((web, 7)), b""),
    "echo": up(socket.create_connection((web, 7)), b"x"),
    "stream": up(socket.create_connection(("allowed.test", 80)), b"GET /slow HTTP/1.1\r\nHost: allowed.test\r\n\r\n"),
    "connect": up(tunnel(web + ":7"), b"x"),
    "websocket": up(socket.create_connection(("allowed.test", 80)), UP),
    "websocket in a tunnel": up(tunnel("allowed.test:80"), UP),
    "tls": up(tls("allowed.test"), GET % (b"/slow", b"allowed.test")),
    "tls in a tunnel": up(tls("allowed.test", tunnel("allowed.test:443")), GET % (b"/slow", b"allowed.test")),
    "tls looked into": up(tls("api.allowed.test"), GET % (b"/slow", b"api.allowed.test")),
    "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
}
held["udp"].settimeout(60); held["udp"].connect((web, 7777)); held["udp"].send(b"x")
for k in held:
    if k != "idle": held[k].recv(4096)
for k in ("websocket", "websocket in a tunnel"):
    held[k].sendall(b"up"); assert held[k].recv(9) == b"up"
held["idle"].sendall(b"i"); held["idle"].recv(9)
print("holding", flush=True)
for k, s in held.items():
    try:
        while s.recv(65536): pass
        print(k, "closed", flush=True)
    except TimeoutError: print(k, "TIMEOUT", flush=True)
    except OSError as e: print(k, type(e).__name__, flush=True)
"""


@tiers("vm", "container")
@gated
def cut_at_once(t):
    o = t.outside
    box = t.box(network={"mode": "allow", "allow": ["allowed.test", f"{o.ip()}:7", {"domain": "api.allowed.test", "methods": ["GET"]},
                                                    {"cidr": o.ip(), "ports": [7777], "protocol": "udp"}]})
    box.put("/tmp/hold.py", HOLD.encode())
    p = box.stream(["python3", "/tmp/hold.py", o.ip()], deadline=80)
    p.wait_output(b"holding")
    got = t.c.put(f"{box.p}/network", {"mode": "none"})
    equal(got["cut"], 10)
    text = p.collect()["stdout"].decode()
    equal(text.count("\n"), 10, text)
    lacks(text, "TIMEOUT")
    equal({r["type"] for r in egress(t, box) if r["kind"] == "cut"}, {"tcp", "tls", "http", "udp"})
    logged(t, box, kind="cut", addr=o.ip(), port=7)
    logged(t, box, kind="cut", name="allowed.test", port=80)
