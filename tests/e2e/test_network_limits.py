"""What a sandbox, all of them together and a secret may use of the network; and that what was used stays used."""
import contextlib
import hashlib
import os
import shutil
import signal
import sqlite3
import tempfile

from hutchtest import *
from outside import ENV, egress, gated, inside, logged, outside

TIERS = tiers("vm", "container")
FEW = shared_daemon("few", **{**ENV, "HUTCH_NETWORK_CONNECTIONS": 4, "HUTCH_NETWORK_BYTES_PER_SECOND": 1000000, "HUTCH_NETWORK_UDP_IDLE": 2,
                              "HUTCH_TENANTS": '{"*": {"bytes_per_day": 100000}}', "HUTCH_POOL_VM": 0})
RATE = """
    s = socket.create_connection((O.web, 7), timeout=30)
    t0 = time.monotonic()
    for i in range(64):
        s.sendall(bytes(8192)); n = 0
        while n < 8192: n += len(s.recv(65536))
    R["rate"] = 2 * 64 * 8192 / (time.monotonic() - t0)
"""


def begin():
    o = outside()
    o.reset()
    return o


def kill_gate(t):
    os.kill(t.d.pids("hutch-egress")[0], signal.SIGKILL)


@TIERS
@gated
def of_one_sandbox(t):
    o = t.outside
    box = t.box(network={"mode": "open", "limits": {"connections": 3, "bytes": 400000}})
    r = inside(box, """
        R["few"] = hold((O.web, 7), 5)
        for s in HELD: s.close()
        for i in range(200):  # until the gate has seen that
            if hold((O.web, 7), 1) == ["x"]: break
            time.sleep(0.05)
        R["moved"] = 0
        try:
            s = HELD[-1]
            for i in range(100):
                s.sendall(bytes(8192)); n = 0
                while n < 8192:
                    d = s.recv(65536)
                    if not d: raise OSError()
                    n += len(d)
                R["moved"] += 8192
        except OSError: pass
        R["after"] = http(O.web)[0]
    """, web=o.ip())
    equal(r["few"], ["x", "x", "x", "", ""])
    true(150000 < r["moved"] < 400000, r["moved"])
    equal(r["after"], 0, "what was given is used up")
    logged(t, box, kind="deny", port=7, rule="limit")
    logged(t, box, kind="cut", port=7)


@TIERS
@gated
def bandwidth_of_one_sandbox(t):
    box = t.box(network={"mode": "open", "limits": {"bytes_per_second": 500000}})
    rate = inside(box, RATE, web=t.outside.ip())["rate"]
    true(rate < 700000, f"{rate:.0f} bytes a second where 500000 and a first burst are allowed")


@TIERS
@gated
def calls_and_bytes_of_a_secret(t):
    t.c.put("/v1/secrets/few", {"value": "only-three-times", "calls_max": 3})
    t.c.put("/v1/secrets/small", {"value": "only-so-many-bytes", "bytes_max": 20000})
    t.cleanup_later(lambda: [t.c.delete(f"/v1/secrets/{n}") for n in ("few", "small")])
    box = t.box(network={"allow": ["api.allowed.test", "shared.test"], "inject": [{"domain": "api.allowed.test", "secret": "few", "header": "x-key"},
                                                                                  {"domain": "shared.test", "secret": "small", "header": "x-key"}]})

    def ask(url, times):
        return box.exec(["curl", "-sS", "-w", "%{http_code} ", *["-o", "/dev/null", url] * times], deadline=60).text.split()
    equal(ask("https://api.allowed.test/", 5), ["200", "200", "200", "403", "403"])
    logged(t, box, kind="deny", name="api.allowed.test", secret="few", reason=lambda s: "budget" in s)
    got = ask("https://shared.test/echo?" + "x" * 9000, 4)
    equal((got[0], got[-1]), ("200", "403"), got)
    # What was used is stored without anybody asking, so there is no more after the gate has died.
    def stored():
        with tempfile.TemporaryDirectory() as copy:  # the daemon has the original for itself
            for f in ("state.db", "state.db-wal"):
                shutil.copy(os.path.join(t.d.home, f), copy)
            with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(os.path.join(copy, "state.db"))) as db:  # copied in the middle of a write
                return set(db.execute("SELECT name, CASE name WHEN 'few' THEN calls = 3 ELSE bytes >= 20000 END FROM secrets"))
    until(lambda: stored() == {("few", 1), ("small", 1)}, 20, "their use in the store")
    kill_gate(t)
    until(lambda: ask("https://api.allowed.test/", 1) == ["403"], 30, "still used up")
    t.c.put("/v1/secrets/few", {"value": "only-three-times", "calls_max": 2})  # a new budget begins anew
    equal(ask("https://api.allowed.test/", 4), ["200", "200", "403", "403"])


def counted(t, name):
    """What hutch-egress has stored under this name."""
    try:
        with open(os.path.join(t.d.home, "log", "egress", name + ".count")) as f:
            return sum(map(int, f.read().split()[:2]))
    except FileNotFoundError:
        return 0


def take(box, n, web, times=1):
    """How much of n bytes came back, each time; the way there counts as well."""
    return inside(box, "R['n'] = [len(a[1]) if a[0] == 200 else 0 for a in (http(O.web, path='/echo?' + 'x' * O.n) for i in range(O.times))]", web=web, n=n, times=times)["n"]


def gate_dies(t, box):
    kill_gate(t)
    until(lambda: inside(box, "R['x'] = query('allowed.test')[0]")["x"] == 0, 30, "the gate is back")


@TIERS
@gated
def bytes_outlive_the_gate_and_a_pause(t):
    o = t.outside
    box = t.box(network={"mode": "open", "limits": {"bytes": 160000}})
    equal(take(box, 25000, o.ip(), 2), [25000] * 2)
    until(lambda: counted(t, box.id) > 100000, 20, "the count is stored")
    gate_dies(t, box)
    equal(take(box, 25000, o.ip()), [25000])
    box.pause()
    box.resume()
    true(counted(t, box.id) > 150000, "a pause stores it at once")
    equal(take(box, 25000, o.ip(), 2)[1], 0, "150,000 were used before; what is under way when it ends may pass")
    logged(t, box, reason=lambda s: "byte limit" in (s or ""))


@TIERS
@FEW
def of_the_host(t):
    o = begin()
    code = "R['got'] = hold((O.web, 7), 3)"
    one, two = t.box(network={"mode": "open"}), t.box(network={"mode": "open"})
    one.put("/tmp/hold.py", f"""
import socket, time
s = [socket.create_connection(('{o.ip()}', 7), timeout=60) for _ in range(3)]
for c in s: c.sendall(b'x'); c.recv(9)
open('/tmp/held', 'w').write('yes'); time.sleep(600)
""".encode())
    one.background(["python3", "/tmp/hold.py"])
    until(lambda: one.exec(["cat", "/tmp/held"]).code == 0, 20, "three connections of the one")
    equal(inside(two, code, web=o.ip())["got"], ["x", "", ""], "of four, one is left for the other")
    logged(t, two, kind="deny", port=7, rule="limit")
    one.kill()
    until(lambda: inside(two, code, web=o.ip())["got"] == ["x", "x", "x"], 20, "they are free again")
    rate = inside(two, RATE, web=o.ip())["rate"]
    true(rate < 1400000, f"{rate:.0f} bytes a second where 1000000 and a first burst are allowed for all")


@TIERS
@FEW
def a_tenants_day_outlives_the_gate(t):
    o = begin()
    name = "day-" + os.urandom(4).hex()
    box = t.d.tcp(t.d.new_key(name)["key"]).create(isolation=t.tier, network={"mode": "open"})
    t.boxes.append(box)
    equal(take(box, 40000, o.ip()), [40000])
    until(lambda: counted(t, ".group-" + hashlib.sha256(f"tenant {name}".encode()).hexdigest()[:32]) > 80000, 20, "the count is stored")
    gate_dies(t, box)
    equal(take(box, 40000, o.ip(), 2)[1], 0, "of 100,000")
    logged(t, box, reason=lambda s: "in a day" in (s or ""))


@TIERS
@FEW
def an_idle_flow_of_datagrams_ends(t):
    o = begin()
    box = t.box(network={"allow": [{"cidr": o.ip(), "ports": [7777], "protocol": "udp"}], "limits": {"connections": 1}})
    equal(inside(box, "R['x'] = udp((O.web, 7777), b'one')", web=o.ip())["x"], "one")
    end = logged(t, box, seconds=30, kind="close", type="udp", addr=o.ip(), reason="idle")
    equal((end["in"], end["out"]), (3, 3))
    true(end["ms"] >= 2000, end)
    # One that moves stays, and counts; when it rests its place is free again.
    r = inside(box, """
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10); s.connect((O.web, 7777))
        for i in range(20):
            s.send(b"%d" % i); R["last"] = s.recv(9).decode(); time.sleep(0.15)
        for i in range(100):
            R["free"] = udp((O.web, 7777), b"again")
            if R["free"] == "again": break
            time.sleep(0.2)
    """, web=o.ip())
    equal((r["last"], r["free"]), ("19", "again"))
    lives = [x for x in egress(t, box) if x["kind"] == "close" and x["type"] == "udp"]
    true(any(x["in"] > 3 for x in lives), f"what moves is one flow: {lives}")
