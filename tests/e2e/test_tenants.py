"""What the sandboxes of one API key's owner may have of the network together, and that it can be changed while they run."""
import json
import os
import signal
import subprocess
import time

import daemon
from hutchtest import *
from outside import ENV, inside, logged, outside

TIERS = tiers("vm", "container")


def set_tenants(**entries):
    path = os.path.join(outside().dir, "tenants.json")
    with open(path, "w") as f:
        json.dump(entries, f)
    os.chmod(path, 0o644)
    return "@" + path


class _File:
    def __str__(self):
        return set_tenants(**{"acme": {"connections": 4, "ceiling": {"allow": ["allowed.test", outside().ip(), outside().ip(20) + ":7"]}}, "*": {"bytes_per_day": 100000}})


HOLD = """
import socket, time
s = [socket.create_connection(('{}', 7), timeout=60) for _ in range(3)]
for c in s: c.sendall(b'x'); c.recv(9)
open('/tmp/held', 'w').write('yes'); time.sleep(600)
"""


@TIERS
@own_daemon(**{**ENV, "HUTCH_TENANTS": _File(), "HUTCH_POOL_VM": 0, "HUTCH_POOL_CONTAINER": 0})
def together_and_live(t):
    o = outside()
    o.reset()
    acme = [t.d.tcp(t.d.new_key("acme")["key"]) for _ in range(2)]  # two keys, one owner
    other = t.d.tcp(t.d.new_key("other")["key"])
    one, two = (c.create(isolation=t.tier, network={"mode": "open"}) for c in acme)
    third = other.create(isolation=t.tier, network={"mode": "open"})
    mine = t.box(network={"mode": "open"})
    t.boxes += [one, two, third]
    equal([b.info()["tenant"] for b in (one, two, third, mine)], ["acme", "acme", "other", None])
    contains(one.info()["network"]["limited"], "for this tenant")
    lacks(third.info()["network"], "limited")
    # connections, over all of them
    one.put("/tmp/hold.py", HOLD.format(o.ip()).encode())
    one.background(["python3", "/tmp/hold.py"])
    until(lambda: one.exec(["cat", "/tmp/held"]).code == 0, 30, "three connections of the one")
    hold = "R['got'] = hold((O.web, 7), 3)"
    equal(inside(two, hold, web=o.ip())["got"], ["x", "", ""], "of four, one is left for the other sandbox of that owner")
    contains(logged(t, two, kind="deny", port=7, rule="limit")["reason"], "this tenant")
    for b in (third, mine):
        equal(inside(b, hold, web=o.ip())["got"], ["x"] * 3, "others have their own")
    # the ceiling
    ask = "R['got'] = (query('allowed.test')[0], query('other.test')[0], http('other.test', wait=5)[0] if query('other.test')[0] == 0 else 0)"
    equal(inside(two, ask)["got"], [0, 3, 0])
    equal(inside(third, ask)["got"], [0, 0, 200])
    logged(t, two, kind="dns", name="other.test", verdict="deny", rule="ceiling tenant acme…")
    # bytes of a day
    r = inside(third, "R['n'] = []\nfor i in range(4):\n    a = http('allowed.test', path='/echo?' + 'x' * 30000); R['n'].append(len(a[1]) if a[0] == 200 else 0)")
    equal(r["n"][0], 30000)
    equal(r["n"][3], 0, "100,000 bytes are used up")
    until(lambda: inside(third, "R['x'] = tcp((O.web, 7))", web=o.ip())["x"] != "hello", 5, "nothing further")
    logged(t, third, rule=lambda x: True, reason=lambda x: "in a day" in (x or ""))
    # changed while they run: what is denied now is cut
    set_tenants(acme={"ceiling": {"allow": ["other.test"]}})
    t.d.signal(signal.SIGHUP)
    logged(t, one, kind="cut", port=7)
    until(lambda: inside(two, ask)["got"] == [3, 0, 200], 10, "the new ceiling")
    equal(inside(third, hold, web=o.ip())["got"], ["x"] * 3, "a tenant without an entry has no limit")
    set_tenants(acme={"nonsense": 1})
    t.d.signal(signal.SIGHUP)
    until(lambda: "keeping the previous tenants" in open(t.d.log_path).read(), 10, "a wrong file is told")
    equal(inside(two, ask)["got"], [3, 0, 200], "and changes nothing")


@TIERS
@own_daemon(**{**ENV, "HUTCH_TENANTS": _File(), "HUTCH_POOL_VM": 0, "HUTCH_POOL_CONTAINER": 0})
def stays_with_the_sandbox(t):
    """Copies, a restart of the daemon and one of the gate: whose it is does not change."""
    o = outside()
    o.reset()
    box = t.d.tcp(t.d.new_key("acme")["key"]).create(isolation=t.tier, network={"mode": "open"})
    t.boxes.append(box)
    _, (copy,) = t.fork(t.c.box(box.id), count=1)
    equal(copy.info()["tenant"], "acme")
    t.d.sigkill()
    t.d.start()
    os.kill(t.d.pids("hutch-egress")[0], signal.SIGKILL)
    for b in (t.c.box(box.id), copy):
        equal(b.info()["tenant"], "acme")
        until(lambda: inside(b, "R['x'] = [query(n) for n in ('allowed.test', 'other.test')]")["x"] == [[0, [o.ip()]], [3, []]], 20, "its ceiling")


@TIERS
@own_daemon(**{**ENV, "HUTCH_TENANTS": '{"acme": {"ceiling": {"allow": ["allowed.test"]}}, "shut": {"ceiling": {"mode": "none"}}, "free": {"connections": 9}, "less": {"ceiling": {"mode": "open", "deny": ["other.test"]}}}',
               "HUTCH_POOL_VM": 0, "HUTCH_POOL_CONTAINER": 0})
@timeout(200)
def the_canary_tries_every_ceiling(t):
    outside().reset()
    outside().zone["example.com"] = [outside().ip()]
    acme = t.d.tcp(t.d.new_key("acme")["key"])
    box = acme.create(isolation=t.tier, network={"allow": ["allowed.test", "other.test"]})
    mine = t.box(network={"allow": ["other.test"]})
    t.boxes.append(box)
    member = t.d.tcp(t.d.new_key("acme", role="member")["key"])
    contains(refuses("forbidden", member.create, isolation=t.tier, tenant="shut").message, "role admin")
    refuses("denied", acme.get, "/v1/tenants")
    refuses("forbidden", member.get, "/v1/tenants")
    limits = t.c.get("/v1/tenants")
    equal([(x["name"], x["connections"], x["ceiling"]) for x in limits["tenants"]],
          [("acme", None, {"allow": ["allowed.test"]}), ("shut", None, {"mode": "none"}), ("free", 9, None), ("less", None, {"mode": "open", "deny": ["other.test"]})])
    less = t.d.tcp(t.d.new_key("less")["key"]).create(isolation=t.tier, network={"mode": "open"})
    t.boxes.append(less)
    contains(less.info()["network"]["limited"], "except for what it denies")
    equal(limits["host"]["ceiling"]["mode"], "open")

    def doctor(**env):
        p = subprocess.run([daemon.program("hutch"), "doctor", "--network", "--isolation", t.tier, "--json"], env={**t.d.env, "HUTCH_NO_START": "1", **env},
                           capture_output=True, timeout=150)
        return p.returncode, json.loads(p.stdout), p.stderr

    def rows_of(rows, policy):
        return [(r["probe"], r["want"], r["found"]) for r in rows if r["policy"] == policy]
    rc, rows, err = doctor()
    equal(([r for r in rows if r["status"] != "ok"], rc), ([], 0), err)
    equal({r["policy"] for r in rows}, {"mode none", "mode allow", "mode open", "ceiling of tenant acme", "ceiling of tenant shut", "ceiling of tenant less", f"sandbox {box.id}", f"sandbox {mine.id}"})
    for policy in ("ceiling of tenant acme", "ceiling of tenant shut"):
        got = rows_of(rows, policy)
        contains(got, ("tcp 198.51.100.1 port 80", "denied", "inside: refused; log: deny"))
        true([g for g in got if g[0].endswith(".com") and g[1:] == ("denied", "inside: refused; log: deny")], got)
    contains([g[:2] for g in rows_of(rows, "ceiling of tenant acme")], ("name allowed.test", "allowed"))
    if t.tier == "vm":
        return  # who may try what does not depend on the tier
    # With a key of an admin: every tenant's, and not what is the operator's own.
    key = t.d.new_key("acme")["key"]
    rc, rows, err = doctor(HUTCH_API_KEY=key)
    equal(([r["policy"] for r in rows if r["status"] == "fail"], rc), ([], 0), err)
    equal({r["policy"] for r in rows if r["status"] == "skip"}, {f"sandbox {mine.id}"})


@tiers("vm", "container")
@own_daemon(HUTCH_TENANTS='{"acme": {"running": 2}, "small": {"memory_mib": 1100}}', HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(180)
def who_rests_makes_room(t):
    """A tenant's limit of running sandboxes: one that is idle and asked to be paused then goes, nothing else does."""
    c = t.d.tcp(t.d.new_key("acme")["key"])

    def box(client=c, **m):
        b = client.create(isolation=t.tier, auto_resume=True, **m)
        t.boxes.append(b)
        return b
    a = box()
    b = box(idle_timeout_s=3600, on_idle="pause")
    a.put("f", b"of a")
    b.put("f", b"of b")
    e = refuses("quota", box)  # b was busy a moment ago
    contains(e.message, "running in HUTCH_TENANTS")
    def room():  # once b was found idle
        try:
            return box(idle_timeout_s=3600, on_idle="pause")
        except ApiError as e:
            equal(e.code, "quota")
    third = until(room, 60, "b rests")
    info = until(lambda: b.info()["state"] == "paused" and b.info(), 60, "b is paused")
    equal(info["paused"]["reason"], "quota")
    equal(a.info()["state"], "running", "it never asked to be paused")
    # A call wakes b, and then another has to go; the newest is busy, and a is not to be touched.
    with third.stream(["sleep", "1000"]) as held:
        held.started()
        equal(refuses("quota", b.get, "f").message, e.message)
        equal(b.info()["state"], "paused")
        a.kill()
        equal(b.get("f"), b"of b")
    # Memory alike; the operator has no limit.
    small = t.d.tcp(t.d.new_key("small")["key"])
    box(small, memory_mib=512), box(small, memory_mib=512)
    contains(refuses("quota", box, small, memory_mib=128).message, "memory_mib in HUTCH_TENANTS")
    box(t.c, memory_mib=128)
    equal([(x["running"], x["memory_mib"]) for x in t.c.get("/v1/tenants")["tenants"]], [(2, None), (None, 1100)])


@tiers("vm", "container")
@own_daemon(HUTCH_TENANTS='{"acme": {"held_bytes": 1000000}}', HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(180)
def what_is_held_is_counted_and_bounded(t):
    def used(tenant):
        return next((u for u in t.c.get("/v1/usage")["tenants"] if u["tenant"] == tenant), None)
    acme, other = t.d.tcp(t.d.new_key("acme")["key"]), t.d.tcp(t.d.new_key("other")["key"])
    a, b = acme.create(isolation=t.tier), other.create(isolation=t.tier)
    t.boxes += [a, b]
    for x in (a, b):
        x.put("f", os.urandom(2_000_000))
    equal((used("acme"), used("other"), used(None)["bytes"]), (None, None, 0))
    s = a.snapshot()
    t.cleanup_later(lambda: t.c.get("/v1/snapshots")["snapshots"] and t.c.delete("/v1/snapshots/" + s["id"]))
    equal(s["tenant"], "acme")
    u = used("acme")
    equal((u["snapshots"], u["snapshot_bytes"], u["bytes"], u["limit_bytes"]), (1, s["memory_bytes"] + s["disk_bytes"], s["memory_bytes"] + s["disk_bytes"], 1000000))
    true(u["bytes"] > 2_000_000)
    # It is over its limit now: no more of that, by name; others go on, and so does what runs.
    for call in (a.snapshot, a.fork, a.pause):
        contains(refuses("quota", call).message, "held_bytes")
    a.ok("true")
    b.pause()
    def counted():  # memory at once, files by a worker
        u = used("other")
        time.sleep(0.3)
        return u and u["paused_bytes"] > 2_000_000 and u == used("other") and u
    u = until(counted, 20, "its files are counted")
    equal((u["paused"], u["snapshots"], u["limit_bytes"]), (1, 0, None))
    t.d.shutdown(keep=True)
    t.d.start(settle=False)
    equal(used("other"), u)
    b.resume()
    equal(used("other"), None)
    t.c.delete("/v1/snapshots/" + s["id"])
    equal(used("acme"), None)
    a.pause()


@tiers("container")
def the_same_idempotency_key_of_two_tenants(t):
    """A key is a word that clients choose: another tenant's sandbox, and its token, are not the answer to it."""
    a, b = (t.d.tcp(t.d.new_key(n)["key"]) for n in ("idem-a", "idem-b"))
    body = {"templateID": "base", "metadata": {"hutch.isolation": t.tier}}

    def make(c, path="/v2/sandboxes"):
        return c.call("POST", path, json_body=body, headers={"Idempotency-Key": "job-1"}, ok=False)
    one, again, other = make(a), make(a), make(b)
    ids = [r.json()["sandboxID"] for r in (one, again, other)]
    for i in set(ids):
        t.cleanup_later(lambda i=i: t.c.call("DELETE", f"/sandboxes/{i}", ok=False))
    equal(ids[0], ids[1], "one key, one sandbox")
    true(ids[2] != ids[0] and other.json()["envdAccessToken"] != one.json()["envdAccessToken"], "another tenant's key is another key")
    equal(make(a, "/sandboxes").status, 422, "the same key for another call")


@plain
def build_files_of_others(t):
    """The hash of build files is the client's word: what one tenant sent under it is not there for another, nor for another template."""
    a, b = (t.d.tcp(t.d.new_key(n)["key"]) for n in ("files-a", "files-b"))
    one, two = (a.post("/v3/templates", {"name": n})["templateID"] for n in ("files-one", "files-two"))
    for i in (one, two):
        t.cleanup_later(lambda i=i: t.c.call("DELETE", f"/templates/{i}", ok=False))
    digest = "ab" * 32
    cache = os.path.join(t.d.home, "cache")
    t.cleanup_later(lambda: [os.unlink(os.path.join(cache, n)) for n in os.listdir(cache) if digest in n])

    def at(c, template):
        return c.get(f"/templates/{template}/files/{digest}")
    url = at(a, one)["url"].split("/", 3)[3]
    equal(a.call("PUT", "/" + url, body=b"planted", ok=False).status, 200)
    equal([at(a, one)["present"], at(a, two)["present"], at(b, one)["present"]], [True, False, False])
    shelf = [x for x in at(b, one)["url"].split("?")[1].split("&") if x.startswith("shelf=")][0]
    forged = url.split("?")[0] + "?" + "&".join([shelf] + [x for x in url.split("?")[1].split("&") if not x.startswith("shelf=")])
    equal(b.call("PUT", "/" + forged, body=b"x", ok=False).status, 403, "the signature is for one shelf")
