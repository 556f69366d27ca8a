"""Metrics, logs, events, health, doctor, the description of the API."""
import json
import re
import time

from hutchtest import *


@tiers("vm", "container")
def metrics(t):
    box = t.box()
    m = box.metrics()
    equal({"cpu_ns", "cpu_count", "memory_used", "memory_cache", "memory_total", "disk_used", "disk_total", "processes", "at"} - set(m), set())
    true(m["cpu_count"] >= 1 and m["memory_total"] > 0 and m["disk_total"] > 0 and m["processes"] >= 1, m)
    within(m["memory_total"] >> 20, 512 - t.diff("memory_slack_mib"), 512)
    true(m["memory_used"] <= m["memory_total"] and m["disk_used"] <= m["disk_total"], m)
    box.ok(["python3", "-c", "import time\nt=time.process_time()\nwhile time.process_time()-t<0.5: pass"])
    n = box.metrics()
    true(n["cpu_ns"] - m["cpu_ns"] >= 300e6, f"{n['cpu_ns'] - m['cpu_ns']} ns for half a second of CPU")
    pid = box.background(["python3", "-c", "import sys; x=bytearray(150<<20)\nfor i in range(0,len(x),4096): x[i]=1\nprint('up',flush=True); sys.stdin.read()"], keep_stdin=True)
    box.attach(pid, 0, deadline=30).wait_output(b"up")
    o = box.metrics()
    within((o["memory_used"] - n["memory_used"]) >> 20, 100, 220, "MiB more in use by 150 MiB of heap")
    box.signal(pid, 9)
    box.ok("head -c 50000000 /dev/urandom > big; sync")
    p = box.metrics()
    within((p["disk_used"] - m["disk_used"]) / 1e6, 40, 80, "MB more on the disk by a file of 50 MB")


@tiers("vm", "container")
def logs_tell_the_life(t):
    box = t.box()
    entries = box.logs()
    true(entries and all({"at", "level", "message"} <= set(e) for e in entries), entries)
    equal(len(box.logs(limit=1)), 1)
    refuses("invalid", box.logs, limit=-1)
    box.kill()
    text = json.dumps(box.logs())
    true("kill" in text.lower() or "gone" in text.lower() or "stop" in text.lower(), text)


@tiers("vm", "container")
def events_in_order(t):
    box = t.box()
    box.kill()
    evs = t.c.get("/v1/events", follow=0, sandbox=box.id)["events"]
    types = [e["type"] for e in evs]
    contains(types, "sandbox.running")
    contains(types, "sandbox.gone")
    true(types.index("sandbox.running") < types.index("sandbox.gone"), types)
    seqs = [e["seq"] for e in evs]
    equal(seqs, sorted(set(seqs)))
    equal({e["sandbox"] for e in evs}, {box.id})
    equal(t.c.get("/v1/events", follow=0, since=seqs[-1], sandbox=box.id)["events"], [])
    rest = t.c.get("/v1/events", follow=0, since=seqs[0], sandbox=box.id)["events"]
    equal([e["seq"] for e in rest], seqs[1:])


@tiers("vm", "container")
def events_can_be_followed(t):
    s = t.c.stream("GET", "/v1/events", query={"follow": 1}, deadline=30)
    equal(s.headers.get_content_type(), "text/event-stream")
    box = t.box()
    seen = []
    for kind, ident, data in s.sse():
        o = json.loads(data)
        if o.get("sandbox") == box.id:
            equal(str(o["seq"]), ident)
            seen.append(o["type"])
            if o["type"] == "sandbox.running":
                break
    s.close()
    box.kill()


@plain
def health_needs_no_key(t):
    h = t.d.tcp().call("GET", "/healthz").json()
    equal(h["status"], "ok")
    true(h["version"] and h["pid"] > 1)


@plain
def prometheus(t):
    t.create(isolation="container")
    text = t.c.call("GET", "/metrics").body.decode()
    names = set()
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        m = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[^}]*\})? [-+0-9.eE]+(nan|inf)?( \d+)?', line)
        true(m, f"not exposition format: {line!r}")
        names.add(m[1])
    true(any(n.startswith("hutch_") for n in names), names)


@plain
def doctor(t):
    checks = t.c.get("/v1/doctor")["checks"]
    true(len(checks) >= 5, checks)
    for c in checks:
        true(c["status"] in ("ok", "warn", "fail") and c["name"] and c["found"], c)
        if c["status"] != "ok":
            true(c["lost"] and c["fix"], f"{c}: says neither what is lost nor how to fix it")
    mounts = [c for c in checks if c["name"] == "mounts"]  # tried by hutch-spawn, as boxes need them
    true(len(mounts) == 1 and mounts[0]["status"] == "ok", checks)


@plain
def openapi_describes_the_server(t):
    doc = t.c.get("/v1/openapi.json")
    true(doc["openapi"].startswith("3."), doc.get("openapi"))
    paths = doc["paths"]
    for want in ("/v1/sandboxes", "/v1/sandboxes/{id}", "/v1/sandboxes/{id}/exec", "/v1/sandboxes/{id}/files", "/v1/templates", "/v1/keys", "/healthz"):
        contains(list(paths), want)
    # Every documented path is routed: it answers something other than "no such path", and 405-like for other methods.
    for path, methods in paths.items():
        concrete = path.replace("{id}", "iaaaaaaaaaaaaaaaaaaaa").replace("{name}", "no-such").replace("{pid}", "999")
        for method in methods:
            if method == "parameters" or path.startswith("/v1/shutdown") or (path, method) in (("/v1/events", "get"), ("/v1/keys", "post"), ("/v1/templates", "post"), ("/v1/sandboxes", "post")):
                continue
            r = t.c.call(method.upper(), concrete, body=b"" if method in ("post", "put", "patch") else None, ok=False, deadline=15)
            if r.status >= 400 and method != "head":
                e = error_of(r.status, r.body)
                lacks(e.message.lower(), "no such path", f"{method} {path}")


@plain
def unknown_paths_and_methods(t):
    refuses("not_found", t.c.call, "GET", "/v1/nothing")
    refuses("not_found", t.c.call, "GET", "/v1/sandboxes/iaaaaaaaaaaaaaaaaaaaa")
    refuses("not_found", t.c.call, "GET", "/v1/sandboxes/iaaaaaaaaaaaaaaaaaaaa/nothing")
    r = t.c.call("DELETE", "/v1/sandboxes", ok=False)
    true(r.status in (400, 404, 405, 501), r)
    r = t.c.call("BREW", "/v1/sandboxes", ok=False)
    true(r.status in (400, 404, 405, 501), r)


@tiers("vm", "container")
def idle_stream_is_kept_alive(t):
    """A silent command sends keepalives (every 15 s), so that proxies do not cut it."""
    box = t.box()
    s = box.stream(["sleep", "999"], deadline=25)
    s.started()
    t0 = time.monotonic()
    ev = next(s)
    equal(ev["event"], "keepalive")
    within(time.monotonic() - t0, 10, 20)
    s.abort()
