"""What a sandbox may reach: policies, live changes, the log, presets, secrets, and the gate's own death."""
import contextlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading

import daemon
from hutchtest import *
from outside import ENV, egress, gated, inside, logged, outside

TIERS = tiers("vm", "container")


@TIERS
@gated
def none_is_the_default(t):
    o = t.outside
    box = t.box()
    equal(box.info()["network"], {"mode": "none"})
    r = inside(box, """
        until = time.monotonic() + 30 # the gate takes on a closed sandbox a moment after it is made; until then nothing answers
        while (dns := query("allowed.test")) == "ECONNREFUSED" and time.monotonic() < until: time.sleep(0.02)
        R["dns"] = dns
        R["http"] = http(O.web, "allowed.test")
        R["echo"] = tcp((O.web, 7))
        try: socket.getaddrinfo("allowed.test", 80); R["libc"] = "ok"
        except OSError as e: R["libc"] = "refused"
    """, web=o.ip())
    equal(r["dns"], [3, []], "NXDOMAIN")
    equal(r["http"][0], 403)
    contains(r["http"][1], "network_denied")
    contains(("ECONNRESET", "closed", "ECONNREFUSED"), r["echo"])
    equal(r["libc"], "refused")
    equal(o.asked, [], "no name left")
    equal(o.hits, [], "no packet left")
    logged(t, box, kind="dns", name="allowed.test", verdict="deny", rule="mode none")
    logged(t, box, kind="deny", addr=o.ip(), port=80, rule="mode none")


@TIERS
@gated
def open_reaches_the_outside(t):
    o = t.outside
    box = t.box(network={"mode": "open"})
    r = inside(box, """
        R["http"] = http("allowed.test")
        R["tls"] = tls("allowed.test", "allowed.test", ca="/tmp/ca.pem") if os.path.exists("/tmp/ca.pem") else tls("allowed.test", "allowed.test")
        R["echo"] = tcp((O.web, 7), b"ping")
        R["closed"] = http("127.0.0.1", port=80)
        R["meta"] = http("169.254.169.254")
    """, web=o.ip())
    equal(r["http"][0], 200)
    equal(json.loads(r["http"][1])["headers"]["host"], "allowed.test")
    equal(r["tls"][0], 200)
    equal(r["echo"], "ping")
    equal(r["closed"], [0, "ECONNREFUSED"], "its own loopback is its own")
    equal(r["meta"][0], 403)
    logged(t, box, kind="close", name="allowed.test", port=80, verdict="allow", rule="mode open", out=lambda n: n > 30)
    logged(t, box, kind="deny", addr="169.254.169.254", rule="closed")


@TIERS
@gated
def allow_list(t):
    o = t.outside
    box = t.box(network={"allow": ["allowed.test", "*.allowed.test", f"{o.ip()}:7"]})
    equal(box.info()["network"]["mode"], "allow", "what is allowed makes the mode")
    r = inside(box, """
        R["own"] = http("allowed.test")[0]
        R["sub"] = http("www.allowed.test")[0]
        R["tls"] = tls("api.allowed.test", "api.allowed.test")[0]
        R["cidr"] = tcp((O.web, 7), b"x")
        R["other"] = query("other.test")
        R["addr"] = http(O.web, "allowed.test")[0]
        R["port"] = http("allowed.test", port=8080)
        R["fake"] = http("allowed.test", "other.test")
    """, web=o.ip())
    equal((r["own"], r["sub"], r["tls"], r["cidr"]), (200, 200, 200, "x"))
    equal(r["other"], [3, []])
    equal(r["addr"], 200, "an address that the name was resolved to, under that name")
    equal(r["port"][0], 403, "a domain rule is for 80 and 443")
    equal(r["fake"][0], 403, "the Host must be allowed too")
    lacks(o.asked, "other.test")
    logged(t, box, kind="dns", name="other.test", verdict="deny")
    logged(t, box, kind="deny", name="other.test", port=80)


@TIERS
@gated
def vercel_forms(t):
    o = t.outside
    box = t.box(network={"allow": {"api.allowed.test": [{"match": {"path": {"startsWith": "/v1"}}, "transform": [{"headers": {"authorization": "Bearer hidden-7"}}]}], "other.test": []},
                         "subnets": {"allow": [o.net], "deny": [o.ip(20)]}})
    r = inside(box, """
        R["in"] = tls("api.allowed.test", "api.allowed.test", path="/v1/x", ca="/etc/ssl/certs/ca-certificates.crt")
        R["out"] = tls("api.allowed.test", "api.allowed.test", path="/v2")
        R["name"] = query("shared.test")
        R["range"] = tcp((O.web, 7), b"x")
        R["deny"] = tcp((O.other, 7), b"x")
    """, web=o.ip(), other=o.ip(20))
    equal((r["in"][0], r["out"][0], r["name"][0], r["range"]), (200, 200, 3, "x"), r)
    lacks(json.loads(r["out"][1])["headers"], "authorization")
    lacks(r["in"][1], "hidden-7", "masked on the way back")
    equal([h["data"].decode().split("uthorization: ")[1].split("\r")[0] for h in o.hits if b"/v1/x" in h["data"]], ["Bearer hidden-7"])
    true(r["deny"] != "x", "a denied range wins")
    lacks(json.dumps(box.info()["network"]), "hidden-7")
    for form, mode in (("deny-all", "none"), ({"mode": "allow-all"}, "open")):
        equal(t.c.put(f"{box.p}/network", form)["network"], {"mode": mode})
    contains(str(refuses("unsupported", t.c.put, f"{box.p}/network", {"allow": {"a.test": [{"forwardURL": "https://x.test"}]}})), "cannot be forwarded")


@TIERS
@gated
def live_change_cuts_what_is_now_denied(t):
    o = t.outside
    box = t.box(network={"mode": "open"})
    p = box.stream(["python3", "-uc", f"""
import socket, sys
s = socket.create_connection(('{o.ip()}', 7), timeout=60)
k = socket.create_connection(('{o.ip(20)}', 7), timeout=60)
s.sendall(b'one'); k.sendall(b'one'); s.recv(9); k.recv(9)
print('connected', flush=True)
try: d = s.recv(9); print('closed' if not d else d, flush=True)
except OSError as e: print(type(e).__name__, flush=True)
k.sendall(b'two'); print(k.recv(9), flush=True)
"""])
    p.wait_output(b"connected")
    got = t.c.put(f"{box.p}/network", {"allow": [f"{o.ip(20)}:7", "allowed.test"]})
    equal(got["cut"], 1)
    equal(got["network"]["mode"], "allow")
    text = p.collect()["stdout"].decode()
    true("ConnectionResetError" in text or "closed" in text, text)
    contains(text, "b'two'", "what is still allowed goes on")
    logged(t, box, kind="cut", addr=o.ip(), port=7)
    equal(t.c.get(f"{box.p}/network")["mode"], "allow")
    t.c.put(f"{box.p}/network", {"mode": "none"})
    equal(inside(box, "R['x'] = http('allowed.test')")["x"][0], 0)
    t.c.put(f"{box.p}/network", {"mode": "open"})
    equal(inside(box, "R['x'] = http('allowed.test')[0]")["x"], 200)


@TIERS
@gated
@timeout(240)
def a_change_while_paused_counts_on_waking(t):
    """Also one that needs the gate's certificate inside, and also for a sandbox that never left memory."""
    INJECT = {"allow": ["api.allowed.test"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": "literal-4321"}]}
    for how in ({"standby": True}, {"standby": False}):
        box = t.box(network={"mode": "open"})
        equal(inside(box, "R['x'] = http('allowed.test')[0]")["x"], 200)
        box.pause(**how)
        t.c.put(f"{box.p}/network", {"mode": "none"})
        box.resume()
        equal(inside(box, "R['x'] = http('allowed.test')")["x"][0], 0, f"closed while paused, {how}")
        box.pause(**how)
        t.c.put(f"{box.p}/network", INJECT)
        box.resume()
        r = box.exec(["sh", "-c", "curl -sS https://api.allowed.test/"], deadline=60)
        equal(r.exit["code"], 0, f"{how} {r.stderr!r}")
        equal(json.loads(r.text)["headers"]["x-key"], "*" * 12)
        contains(box.ok(["env"]), "NODE_EXTRA_CA_CERTS=")
        box.kill()


@TIERS
@gated
def log_pages_filters_and_verifies(t):
    box = t.box(network={"allow": ["allowed.test"]})
    inside(box, """
        for i in range(5): query("n%d.other.test" % i)
        query("allowed.test")
    """)
    logged(t, box, kind="dns", name="allowed.test", verdict="allow")
    denied = egress(t, box, verdict="deny", kind="dns")
    equal([r["name"] for r in denied], [f"n{i}.other.test" for i in range(5)])
    equal([r["seq"] for r in egress(t, box, limit=2)], [r["seq"] for r in egress(t, box)], "pages of two make the whole")
    equal({r["name"] for r in egress(t, box, name="*.other.test")}, {f"n{i}.other.test" for i in range(5)})
    page = t.c.get(f"{box.p}/egress", verify=1)
    equal(page["verified"], len(page["records"]))
    # a line that somebody changed is found
    path = os.path.join(t.d.home, "log", "egress", f"{box.id}.log")
    text = open(path).read()
    with open(path, "r+") as f:
        f.write(text.replace("n3.other.test", "n3.Other.test"))
    refuses("conflict internal", t.c.get, f"{box.p}/egress", verify=1)
    with open(path, "r+") as f:
        f.write(text)
    # and so are some that are missing at the end
    os.truncate(path, text.rindex("\n", 0, -1) + 1)
    contains(refuses("conflict", t.c.get, f"{box.p}/egress", verify=1).message, "removed")
    with open(path, "r+") as f:
        f.write(text)
    equal(t.c.get(f"{box.p}/egress", verify=1)["verified"], page["verified"])
    box.kill()
    equal(len(t.c.get(f"/v1/sandboxes/{box.id}/egress", verdict="deny")["records"]), 5, "after its end too")


@TIERS
@gated
def denials_are_events(t):
    box = t.box()
    inside(box, "query('secret-data.exfil.test')")
    until(lambda: [e for e in t.c.get("/v1/events", follow="false", sandbox=box.id)["events"]
                   if e["type"] == "network.denied" and e["data"].get("name") == "secret-data.exfil.test"], 10, "an event for the denial")


@TIERS
@gated
def survives_a_restart_of_the_daemon(t):
    o = t.outside
    box = t.box(network={"allow": ["allowed.test", f"{o.ip()}:7"]})
    box.put("/tmp/hold.py", f"""
import socket, time
s = socket.create_connection(('{o.ip()}', 7), timeout=60)
for i in range(600):
    s.sendall(b'.'); s.recv(9); open('/tmp/beat', 'w').write(str(i)); time.sleep(0.1)
""".encode())
    box.background(["python3", "/tmp/hold.py"])
    until(lambda: box.exec(["cat", "/tmp/beat"]).text.strip(), 10, "the connection")
    for _ in range(3):  # each time the new daemon must find out what the gate serves before it asks for anything
        t.d.sigkill()
        t.d.start(settle=False)
    equal(box.info()["state"], "running")
    a = int(box.exec(["cat", "/tmp/beat"]).text or 0)
    until(lambda: int(box.exec(["cat", "/tmp/beat"]).text or 0) > a + 3, 10, "the connection goes on")
    equal(box.info()["network"]["allow"][0], "allowed.test")
    until(lambda: inside(box, "R['x'] = http('allowed.test')[0]")["x"] == 200, 10, "new connections")
    t.d.wait_pools()


@TIERS
@gated
def closed_while_the_gate_is_away(t):
    o = t.outside
    box = t.box(network={"mode": "open"})
    pid = t.d.pids("hutch-egress")[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        r = inside(box, "R['x'] = http(O.web, 'allowed.test', wait=2)\nR['d'] = query('allowed.test', wait=1)", web=o.ip())
        equal(r, {"x": [0, "TIMEOUT"], "d": "TIMEOUT"}, "a gate that stands still lets nothing through")
    finally:
        os.kill(pid, signal.SIGCONT)
    equal(o.hits, [])


@TIERS
@gated
def secret_is_put_in_outside(t):
    o = t.outside
    t.c.put("/v1/secrets/api-token", {"value": "swordfish-1234"})
    t.cleanup_later(lambda: t.c.delete("/v1/secrets/api-token"))
    box = t.box(network={"allow": ["api.allowed.test", "other.test"],
                         "inject": [{"domain": "api.allowed.test", "secret": "api-token", "header": "Authorization", "format": "Bearer {secret}"}]})
    r = box.exec(["sh", "-c", "curl -sS -H 'Authorization: Bearer mine' https://api.allowed.test/v1; echo; curl -sS https://api.allowed.test/echo?swordfish-1234; echo;"
                  " curl -sS -o /dev/null -w '%{http_code}' http://other.test/; echo; env; cat /proc/1/environ 2>/dev/null"], deadline=60)
    lines = r.text.splitlines()
    true(lines and lines[0].startswith("{"), f"{r.text!r} {r.stderr!r}")
    equal(json.loads(lines[0])["headers"].get("authorization"), "Bearer **************", "the echo of it is masked")
    equal(lines[1], "*" * 14)
    equal(lines[2], "200")
    true(any(b"authorization: bearer swordfish-1234" in h["data"].lower() for h in o.hits), "the real server saw it")
    lacks(r.text, "swordfish")
    listed = {s["name"]: s for s in t.c.get("/v1/secrets")["secrets"]}
    equal(listed["api-token"]["calls"], 2)
    lacks(json.dumps(listed), "swordfish")
    blob = b"".join(open(os.path.join(t.d.home, f), "rb").read() for f in os.listdir(t.d.home) if f.startswith("state.db"))
    lacks(blob, b"swordfish", "sealed at rest")
    equal(oct(os.stat(os.path.join(t.d.home, "secrets.key")).st_mode & 0o777), "0o600")
    logged(t, box, kind="http", name="api.allowed.test", secret="api-token")


@TIERS
@gated
def rules_of_e2b_reach_the_server(t):
    o = t.outside
    t.c.post("/secrets", {"name": "E2b_Token", "value": "swordfish-5678"})
    t.cleanup_later(lambda: t.c.delete("/secrets/E2b_Token"))
    rules = {"api.allowed.test": [{"transform": {"headers": {"Authorization": "Bearer ${e2b.secrets.E2b_Token}", "X-Plain": "literal-24680"}}}]}
    sid = t.c.post("/v2/sandboxes", {"templateID": "base", "metadata": {"hutch.isolation": t.tier},
                                     "network": {"allowOut": ["api.allowed.test"], "denyOut": ["0.0.0.0/0"], "rules": rules}})["sandboxID"]
    t.cleanup_later(lambda: t.c.delete(f"/sandboxes/{sid}"))
    r = t.c.post(f"/v1/sandboxes/{sid}/exec", {"cmd": ["sh", "-c", "curl -sS https://api.allowed.test/v1; curl -sS -o /dev/null -w ' %{http_code}' http://other.test/"]}, deadline=60)
    seen = b"".join(h["data"] for h in o.hits).lower()
    contains(seen, b"authorization: bearer swordfish-5678")
    contains(seen, b"x-plain: literal-24680")
    lacks(r["stdout"], "swordfish")
    true(not r["stdout"].endswith(" 200"), r["stdout"])
    shown = t.c.get(f"/sandboxes/{sid}")["network"]["rules"]["api.allowed.test"][0]["transform"]["headers"]
    equal(shown, {"Authorization": "Bearer ${e2b.secrets.E2b_Token}", "X-Plain": "********"})
    t.c.put(f"/sandboxes/{sid}/network", {"allowOut": ["api.allowed.test"], "denyOut": ["0.0.0.0/0"]})  # what is left out is gone
    o.hits.clear()
    t.c.post(f"/v1/sandboxes/{sid}/exec", {"cmd": ["sh", "-c", "curl -sS http://api.allowed.test/v1"]}, deadline=60)
    lacks(b"".join(h["data"] for h in o.hits).lower(), b"swordfish")


@TIERS
@gated
def e2bs_default_is_open_behind_the_gate(t):
    o = t.outside
    made = t.c.post("/sandboxes", {"templateID": "base", "metadata": {"hutch.isolation": t.tier}})
    t.cleanup_later(lambda: t.c.delete(f"/sandboxes/{made['sandboxID']}"))
    box = t.c.box(made["sandboxID"])
    closed = ["10.0.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "10.77.0.1", "fd00:ec2::254", "::ffff:10.0.0.1"]
    r = inside(box, """
        R["web"] = http("allowed.test")[0]
        R["tls"] = tls("allowed.test", "allowed.test")[0]
        R["addr"] = http(O.web)[0]
        R["closed"] = {a: http(a, wait=5)[0] for a in O.closed}
        R["private name"] = query("private.test")[1]
        R["udp"] = udp((O.web, 7777))
    """, web=o.ip(), closed=closed)
    equal((r["web"], r["tls"], r["addr"], r["private name"]), (200, 200, 200, []))
    equal({a: v for a, v in r["closed"].items() if v not in (0, 403)}, {})
    true(r["udp"] not in ("x", "TIMEOUT"), r["udp"])
    lacks(made, "networkLimited")
    for want in ({"kind": "open", "name": "allowed.test", "port": 80}, {"kind": "open", "name": "allowed.test", "port": 443}, {"kind": "deny", "addr": "169.254.169.254"},
                 {"kind": "deny", "addr": "10.0.0.1"}, {"kind": "deny", "type": "udp"}, {"kind": "dns", "name": "private.test"}):
        logged(t, box, **want)


@TIERS
@gated
def tools_trust_the_gate_where_it_looks_inside(t):
    box = t.box(network={"allow": [{"domain": "api.allowed.test", "methods": ["GET"], "paths": ["/v1/"]}]})
    r = box.exec(["sh", "-c", "for u in /v1/x /v2/x; do curl -sS -o /dev/null -w '%{http_code} ' https://api.allowed.test$u; done;"
                  "python3 -c \"import urllib.request as u; print(u.urlopen('https://api.allowed.test/v1/p').status, end=' ')\";"
                  "node -e \"require('https').get('https://api.allowed.test/v1/n', r => console.log(r.statusCode))\""], deadline=90, timeout_ms=80000)
    equal(r.text.split(), ["200", "403", "200", "200"], repr(r.stderr))
    # a policy that needs no look inside needs no certificate either
    plain_box = t.box(network={"allow": ["allowed.test"]})
    equal(plain_box.exec(["sh", "-c", "ls /etc/hutch/ca.pem 2>/dev/null; env | grep -c CERT"]).text.strip(), "0")


@TIERS
@gated
def literal_values_and_live_injection(t):
    o = t.outside
    box = t.box(network={"allow": ["api.allowed.test"]})
    net = t.c.put(f"{box.p}/network", {"allow": ["api.allowed.test"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": "literal-98765"}]})["network"]
    true(net["inject"][0]["secret"].startswith("x"), net)
    lacks(json.dumps(net), "literal-98765")
    r = box.exec(["sh", "-c", "curl -sS https://api.allowed.test/"], deadline=60)
    equal(json.loads(r.text)["headers"]["x-key"], "*" * 13)
    true(any(b"literal-98765" in h["data"] for h in o.hits))
    equal(t.c.get("/v1/secrets")["secrets"], [], "not among the named ones")


def hidden_secrets(t):
    with tempfile.TemporaryDirectory() as copy:  # the daemon has the original for itself
        for f in ("state.db", "state.db-wal"):
            shutil.copy(os.path.join(t.d.home, f), copy)
        with contextlib.suppress(sqlite3.DatabaseError), contextlib.closing(sqlite3.connect(os.path.join(copy, "state.db"))) as db:  # copied in the middle of a write
            return db.execute("SELECT count(*) FROM secrets WHERE sandbox > ''").fetchone()[0]


@TIERS
@gated
@timeout(120)
def a_change_that_fails_leaves_nothing(t):
    """Neither its value, nor the belief that its certificate is inside already."""
    def put(value):
        return t.c.put(f"{box.p}/network", {"allow": ["api.allowed.test"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": value}]}, deadline=60)
    box = t.box(network={"allow": ["api.allowed.test"]})
    pid = t.d.pids("hutch-egress")[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        refuses("unavailable timeout", put, "literal-1")
    finally:
        os.kill(pid, signal.SIGCONT)
    lacks(t.c.get(f"{box.p}/network"), "inject")
    until(lambda: hidden_secrets(t) == 0, 20, "its value is gone")
    put("literal-2")
    contains(box.ok(["env"]), "NODE_EXTRA_CA_CERTS=")
    put("literal-3")
    put("literal-4")
    until(lambda: hidden_secrets(t) == 1, 20, "only the value in use is kept")
    r = box.exec(["curl", "-sS", "https://api.allowed.test/"], deadline=60)
    equal(json.loads(r.text)["headers"]["x-key"], "*" * 9, repr(r.stderr))
    refuses("invalid", put, "two\nlines")


@plain
@gated
def secrets_are_checked(t):
    for name, body in (("-bad", {"value": "x"}), ("ok", {"value": ""}), ("ok", {"value": "a\nb"}), ("ok", {"value": "x" * 9000}), ("ok", {}), ("ok", {"value": "x", "calls_max": -1})):
        refuses("invalid too_large", t.c.put, f"/v1/secrets/{name}", body)
    refuses("not_found", t.c.delete, "/v1/secrets/nosuch")
    refuses("invalid", t.create, isolation="container", network={"inject": [{"domain": "a.test", "secret": "nosuch", "header": "x"}]})


@TIERS
@own_daemon(HUTCH_NETWORK_CEILING='{"mode":"none"}', HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
def ceiling_wins_and_says_so(t):
    box = t.box(network={"mode": "open"})
    contains(box.info()["network"]["limited"], "mode none")
    equal(inside(box, "R['x'] = http('1.2.3.4')[0]")["x"], 403)
    logged(t, box, kind="deny", rule="ceiling host…")
    made = t.c.post("/sandboxes", {"templateID": "base", "metadata": {"hutch.isolation": t.tier}})  # E2B's default is the open internet
    t.cleanup_later(lambda: t.c.delete(f"/sandboxes/{made['sandboxID']}"))
    contains(made["networkLimited"], "mode none")
    contains(t.c.get(f"/sandboxes/{made['sandboxID']}")["networkLimited"], "mode none")
    equal(inside(t.c.box(made["sandboxID"]), "R['x'] = http('1.2.3.4')[0]")["x"], 403)


@TIERS
@own_daemon(HUTCH_PRESET_CORP="allowed.test,other.test:8080", HUTCH_PRESET_GIT="shared.test", HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
def operators_presets(t):
    box = t.box(network={"presets": ["corp", "git"]})
    equal(box.info()["network"], {"mode": "allow", "presets": ["corp", "git"], "leads_to": ["allowed.test", "other.test:8080", "shared.test"]})
    t.c.put(f"{box.p}/network", box.info()["network"])  # what was shown is taken back
    logged(t, box, kind="policy")
    r = inside(box, "R['a'] = query('nosuch.test')\nR['b'] = query('shared.test', wait=15)")
    equal(r["a"], [3, []])
    logged(t, box, kind="dns", name="shared.test", verdict="allow")
    refuses("invalid", t.box, network={"presets": ["nosuch"]})


@TIERS
@gated
def preview_of_a_closed_sandbox(t):
    """Getting in does not need a way out, and leads to no port of ours."""
    box = t.box()
    box.background(["python3", "-m", "http.server", "8099"], cwd="/etc")
    u = t.c.get(f"{box.p}/url", port=8099)
    contains(u["url"], f"http://8099-{box.id}.localhost")

    def get(port):
        s = socket.create_connection(("127.0.0.1", t.d.port), timeout=30)
        s.sendall(f"GET /hostname HTTP/1.1\r\nHost: {port}-{box.id}.localhost\r\nConnection: close\r\n\r\n".encode())
        got = b""
        while True:
            d = s.recv(65536)
            if not d:
                return got
            got += d
    until(lambda: b" 200 " in get(8099)[:20], 20, "the preview")
    for port in range(61880, 61884):
        lacks(get(port)[:20], b" 200 ", f"port {port} is the gate's")


def doctor_network(t):
    p = subprocess.run([daemon.program("hutch"), "doctor", "--network", "--isolation", t.tier, "--json"], env={**t.d.env, "HUTCH_NO_START": "1"}, capture_output=True, timeout=150)
    return p.returncode, json.loads(p.stdout), p.stderr


@TIERS
@gated
@timeout(200)
def canary_tries_every_policy(t):
    t.outside.zone["example.com"] = [t.outside.ip()]
    box = t.box(network={"allow": ["api.allowed.test", "192.0.2.0/24"], "inject": [{"domain": "api.allowed.test", "header": "x-key", "value": "of its own"}]})
    preset = t.box(network={"presets": ["apt"]})
    wide = t.box(network={"allow": [{"cidr": "0.0.0.0/0", "protocol": "udp"}]})
    rc, rows, err = doctor_network(t)
    equal([r for r in rows if r["status"] != "ok"], [], err)
    equal(rc, 0)
    equal(sorted({r["policy"] for r in rows}), sorted(["mode allow", "mode none", "mode open", *(f"sandbox {b.id}" for b in (box, preset, wide))]))
    leads = preset.info()["network"]["leads_to"]
    contains([(r["probe"], r["want"]) for r in rows if r["policy"] == f"sandbox {preset.id}"], (f"name {leads[0]}", "allowed"))
    for policy in {r["policy"] for r in rows}:
        true({"name", "tcp", "udp"} <= {r["probe"].split()[0] for r in rows if r["policy"] == policy and r["want"] == "denied"}, f"{policy}: a name, an address and UDP that must be denied")
    mine = [r for r in rows if r["policy"] == f"sandbox {box.id}"]
    contains([(r["probe"], r["want"]) for r in mine], ("name api.allowed.test", "allowed"))
    true(any(r["probe"].startswith("tcp 169.254.169.254") and r["found"] == "inside: refused; log: deny" for r in mine), mine)
    equal([b["id"] for b in t.c.get("/v1/sandboxes")["sandboxes"]], [wide.id, preset.id, box.id], "scratch sandboxes are gone")


class _Own:
    """The host's own addresses, opened by the operator."""

    def __str__(self):
        links = json.loads(subprocess.run(["ip", "-j", "-4", "addr"], check=True, capture_output=True).stdout)
        return json.dumps({"mode": "open", "private": [a["local"] for n in links if n["ifname"] != "lo" for a in n["addr_info"]]})


@TIERS
@own_daemon(HUTCH_NETWORK_CEILING=_Own(), HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0)
@timeout(120)
def canary_finds_a_leak(t):
    rc, rows, err = doctor_network(t)
    equal(rc, 1, err)
    bad = [r for r in rows if r["status"] != "ok" and r.get("code") != "blocked"]
    equal([(r["policy"], r["code"]) for r in bad], [("mode open", "leak")], "the host is reachable in mode open")
    contains(bad[0]["found"], "log: allow")


@TIERS
@gated
def no_ipv4_mapped_or_ipv6_way_round(t):
    o = t.outside
    box = t.box(network={"allow": ["allowed.test"]})
    r = inside(box, """
        for a in ("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::1.2.3.4", "2002:a9fe:a9fe::1", "2001:db8::1", "fe80::1", "ff02::1", "fd00:ec2::254"):
            R[a] = http(a, "allowed.test", wait=3)
    """)
    for a, v in r.items():
        true(v[0] in (0, 403), f"{a}: {v}")
    equal([h for h in o.hits], [])
