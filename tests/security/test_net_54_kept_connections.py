"""54: a long-lived connection kept after a deny must be cut: streams, tunnels through the proxy port, idle ones."""
from hutchtest import *
from outside import gated, logged

HOLD = r"""
import socket, sys, time
def up(s, first):
    s.settimeout(60)
    if first: s.sendall(first)
    return s
web = sys.argv[1]
held = {
    "idle": up(socket.create_connection((web, 7)), b""),
    "echo": up(socket.create_connection((web, 7)), b"x"),
    "stream": up(socket.create_connection(("allowed.test", 80)), b"GET /slow HTTP/1.1\r\nHost: allowed.test\r\n\r\n"),
    "connect": up(socket.create_connection(("10.77.0.1", 3128)), b"CONNECT %s:7 HTTP/1.1\r\nHost: x\r\n\r\n" % web.encode()),
}
for k in ("echo", "stream", "connect"): held[k].recv(4096)
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
    box = t.box(network={"mode": "allow", "allow": ["allowed.test", f"{o.ip()}:7"]})
    box.put("/tmp/hold.py", HOLD.encode())
    p = box.stream(["python3", "/tmp/hold.py", o.ip()], deadline=80)
    p.wait_output(b"holding")
    got = t.c.put(f"{box.p}/network", {"mode": "none"})
    equal(got["cut"], 4)
    text = p.collect()["stdout"].decode()
    for k in ("idle", "echo", "stream", "connect"):
        contains(text, k)
    lacks(text, "TIMEOUT")
    logged(t, box, kind="cut", addr=o.ip(), port=7)
    logged(t, box, kind="cut", name="allowed.test", port=80)
