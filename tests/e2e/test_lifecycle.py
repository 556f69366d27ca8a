"""Create, list, inspect, change, end."""
import re
import time
from datetime import datetime

from hutchtest import *

ID = re.compile(r"i[a-z0-9]{20}")
STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def stamp(s):
    return datetime.fromisoformat(s.replace("Z", "+00:00")).timestamp()


@tiers("vm", "container")
def defaults(t):
    box = t.box()
    o = box.obj
    true(ID.fullmatch(o["id"]), f"id {o['id']}")
    equal(o["state"], "running")
    equal(o["name"], None)
    equal(o["template"], "base")
    equal((o["cpu"], o["memory_mib"], o["disk_mib"], o["timeout_s"], o["on_timeout"]), (1, 512, 4096, 300, "kill"))
    equal(o["metadata"], {})
    equal(o["network"], {"mode": "none"})
    equal(o["end"], None)
    equal(o["isolation"]["tier"], t.tier)
    true(o["isolation"]["boundary"], "the boundary in plain words")
    for k in ("created_at", "started_at", "expires_at"):
        true(STAMP.fullmatch(o[k]), f"{k}: {o[k]}")
    within(stamp(o["expires_at"]) - stamp(o["started_at"]), 295, 305, "expiry")
    within(abs(stamp(o["created_at"]) - time.time()), 0, 60)
    true(o["start"]["path"] in (("pool", "prestarted", "restore") if t.tier == "vm" else ("slot", "cold")), o["start"])
    true(o["generation"] >= 1)
    equal(box.info(), o, "info is what create answered")


@plain
def default_tier_is_vm(t):
    o = t.create().obj
    equal(o["isolation"]["tier"], "vm")
    true(o["isolation"]["accel"] in ("kvm", "tcg"), o["isolation"])
    equal(t.create(isolation="auto").obj["isolation"]["tier"], "vm")


@tiers("vm", "container")
def kernel_is_told_truthfully(t):
    box = t.box()
    inside = box.ok(["uname", "-r"]).strip()
    equal(box.obj["kernel"], inside)
    import os
    equal(inside != os.uname().release, t.diff("own_kernel"), f"guest {inside}, host {os.uname().release}")


@tiers("vm", "container")
@timeout(180)
@leak_slack("fd", "hutchd: ", 12, "the RAM, state and disk of a new VM size stay open for its next use")
def sizes_are_honoured(t):
    box = t.box(cpu=2, memory_mib=768, disk_mib=6144)
    o = box.obj
    equal((o["cpu"], o["memory_mib"], o["disk_mib"]), (2, 768, 6144))
    m = box.metrics()
    if t.diff("own_cpus"):
        equal(box.ok(["nproc"]).strip(), "2")
    if t.diff("own_kernel"):
        total = int(re.search(r"MemTotal:\s+(\d+)", box.ok(["cat", "/proc/meminfo"]))[1]) // 1024
        within(total, 768 - t.diff("memory_slack_mib"), 768)
    within(m["memory_total"] >> 20, 768 - t.diff("memory_slack_mib"), 768)
    size = int(box.ok("df -B1 --output=size / | tail -1").strip())
    within(size >> 20, 6144 * 0.85, 6144 * 1.01, "size of /")


@tiers("vm", "container")
def fractional_cpu_is_a_quota(t):
    box = t.box(cpu=0.5)
    equal(box.obj["cpu"], 0.5)
    spin = "import time; t=time.monotonic(); c=time.process_time(); n=0\nwhile time.monotonic()-t<3: n+=1\nprint(time.process_time()-c, time.monotonic()-t)"
    before, start = box.metrics()["cpu_ns"], time.monotonic()
    box.ok(["python3", "-c", spin])
    used = (box.metrics()["cpu_ns"] - before) / 1e9
    within(used / (time.monotonic() - start), 0.03, 0.75, "cores used while spinning at half a core")


@tiers("vm", "container")
def names(t):
    box = t.box(name="alpha-1")
    equal(box.obj["name"], "alpha-1")
    equal(t.c.box("alpha-1").info()["id"], box.id)
    equal(t.c.box("alpha-1").ok(["echo", "hi"]), "hi\n")
    refuses("conflict", t.box, name="alpha-1")
    box.kill()
    again = t.box(name="alpha-1")
    true(again.id != box.id)


@plain
def bad_names_are_refused(t):
    for bad in ("", "A", "-a", "a_b", "a/b", "a.b", "../x", "a" * 64, "ä", "a\u0000", "a b", "a\n"):
        refuses("invalid", t.create, isolation="container", name=bad)
    t.create(isolation="container", name="a" * 63)


@tiers("vm", "container")
def list_filters(t):
    a = t.box(name="list-a", metadata={"team": "red", "n": "1"})
    b = t.box(metadata={"team": "red", "n": "2"})
    c = t.box(metadata={"team": "blue"})

    def ids(**q):
        return [s["id"] for s in t.c.sandboxes(**q)]
    equal(ids(), [c.id, b.id, a.id], "newest first")
    equal(ids(**{"meta.team": "red"}), [b.id, a.id])
    equal(ids(**{"meta.team": "red", "meta.n": "2"}), [b.id])
    equal(ids(**{"meta.team": "green"}), [])
    equal(ids(name="list-a"), [a.id])
    equal(ids(template="base"), [c.id, b.id, a.id])
    equal(ids(template="nope"), [])
    equal(ids(state="running"), [c.id, b.id, a.id])
    equal(ids(state="failed"), [])
    b.kill()
    equal(ids(), [c.id, a.id], "gone ones are not listed")
    contains(ids(state="gone"), b.id)
    refuses("invalid", t.c.get, "/v1/sandboxes", state="sleepy")


@plain
def list_pages(t):
    made = [t.create(isolation="container").id for _ in range(7)][::-1]
    seen, cursor, pages = [], None, 0
    while True:
        q = {"limit": 3}
        if cursor:
            q["cursor"] = cursor
        page = t.c.get("/v1/sandboxes", **q)
        true(len(page["sandboxes"]) <= 3)
        seen += [s["id"] for s in page["sandboxes"]]
        pages += 1
        cursor = page["next"]
        if not cursor:
            break
    equal(seen, made)
    equal(pages, 3)
    for bad in ("0", "-1", "x", "99999999999999999999"):
        refuses("invalid", t.c.get, "/v1/sandboxes", limit=bad)
    refuses("invalid", t.c.get, "/v1/sandboxes", cursor="../../etc")


@tiers("vm", "container")
def kill_is_complete(t):
    box = t.box()
    box.background(["sleep", "1000"])
    r = box.kill()
    equal(r.status, 204)
    o = box.info()
    equal(o["state"], "gone")
    equal(o["end"]["reason"], "killed")
    true(o["end"]["message"], "a sentence")
    true(STAMP.fullmatch(o["end"]["at"]), o["end"])
    refuses("not_found", box.kill)
    refuses("gone not_found", box.exec, ["true"])
    refuses("gone not_found", box.get, "/etc/hostname")
    refuses("not_found", t.c.box("iaaaaaaaaaaaaaaaaaaaa").info)


@tiers("vm", "container")
def kill_ends_open_streams_with_a_reason(t):
    box = t.box()
    s = box.stream(["sh", "-c", "echo up; sleep 1000"])
    s.wait_output(b"up")
    box.kill()
    last = s.collect()["last"]
    equal(last["event"], "interrupted", "an exit status is never invented")
    true(last["error"]["code"] in ("gone", "canceled"), last)


@tiers("vm", "container")
def timeout_ends_it(t):
    box = t.box(timeout_s=2)
    equal(box.obj["timeout_s"], 2)
    s = box.stream(["sleep", "1000"])
    s.started()
    last = s.collect()["last"]
    equal(last["event"], "interrupted")
    o = box.wait_state("gone", seconds=15)
    equal(o["end"]["reason"], "timeout")
    lived = stamp(o["end"]["at"]) - stamp(o["started_at"])
    within(lived, 1.9, 6.0, "seconds lived with timeout_s=2")


@tiers("vm", "container")
def timeout_can_be_moved(t):
    box = t.box(timeout_s=3)
    o = box.timeout(300)
    equal(o["timeout_s"], 300)
    within(stamp(o["expires_at"]) - time.time(), 280, 310)
    o = box.patch(timeout_s=2)
    within(stamp(o["expires_at"]) - time.time(), 0, 3.5)
    box.wait_state("gone", seconds=15)


@plain
def bad_timeouts_are_refused(t):
    for bad in (0, -1, 86401, 1.5, "300", 10**30, True, [], {}):
        refuses("invalid", t.create, isolation="container", timeout_s=bad)
    box = t.create(isolation="container")
    for bad in (0, -1, 10**9, "1"):
        refuses("invalid", box.timeout, bad)
    refuses("invalid", t.create, isolation="container", on_timeout="sleep")


@tiers("vm", "container")
def patch(t):
    box = t.box(metadata={"a": "1"})
    o = box.patch(name="patched", metadata={"b": "2"})
    equal(o["name"], "patched")
    equal(o["metadata"], {"b": "2"})
    equal(box.info()["metadata"], {"b": "2"})
    other = t.box(name="taken")
    refuses("conflict", box.patch, name="taken")
    refuses("invalid", box.patch, name="No Good")
    refuses("invalid", box.patch, memory_mib=1024)
    equal(box.info()["name"], "patched")
    other.kill()
    equal(box.patch(name="taken")["name"], "taken")


@tiers("vm", "container")
def env_reaches_every_process(t):
    box = t.box(env={"GREETING": "hé llo=1", "EMPTY": ""})
    equal(box.ok("printf '%s|%s|' \"$GREETING\" \"${EMPTY-unset}\""), "hé llo=1||")
    equal(box.ok("printf %s \"$GREETING\"", env={"GREETING": "mine"}), "mine", "a command's own env wins")
    pid = box.background("printf %s \"$GREETING\"")
    equal(box.attach(pid, 0).collect()["stdout"].decode(), "hé llo=1")


@plain
def bad_members_are_refused(t):
    cases = [{"template": 7}, {"template": ""}, {"cpu": 0}, {"cpu": 65}, {"cpu": -1}, {"cpu": "1"}, {"memory_mib": 127},
             {"memory_mib": 65537}, {"memory_mib": 512.5}, {"disk_mib": 1}, {"disk_mib": 1048577}, {"env": {"A": 1}}, {"env": {"A=B": "x"}},
             {"env": {"": "x"}}, {"env": {"A\u0000": "x"}}, {"env": []}, {"metadata": {"k": 1}}, {"metadata": {str(i): "v" for i in range(65)}},
             {"metadata": {"k": "v" * 4097}}, {"isolation": "jail"}, {"tiemout_s": 3}, {"network": {"mode": "lan"}}, {"network": {"mode": "allow", "allow": ["a b"]}}, {"network": {"presets": ["nosuch"]}},
             {"network": {"mode": "open", "private": ["10.0.0.0/8"]}}, {"network": {"inject": [{"domain": "a.org", "secret": "nosuch", "header": "x"}]}}]
    for c in cases:
        e = refuses("invalid too_large" if "metadata" in c else "invalid", t.create, **{"isolation": "container", **c})
        true(e.message, "a message")
    refuses("not_found", t.create, isolation="container", template="no-such-template")
    equal(t.c.sandboxes(), [], "nothing was left behind")


@plain
@own_daemon(HUTCH_MIN_ISOLATION="vm")
def floor_is_kept(t):
    refuses("denied invalid unsupported", t.create, isolation="container")
    equal(t.create().obj["isolation"]["tier"], "vm")


@plain
@own_daemon(HUTCH_MAX_SANDBOXES="3")
def number_is_limited(t):
    made = [t.create(isolation="container") for _ in range(3)]
    refuses("quota", t.create, isolation="container")
    made[0].kill()
    t.create(isolation="container")


@tiers("vm", "container")
def create_and_kill_at_once(t):
    """Kill races with everything else; whoever wins, the answer is typed and nothing is left."""
    box = t.box()
    th = Threads()

    def go(fn, *a):
        try:
            return fn(*a)
        except ApiError as e:
            true(e.code in ("gone", "not_found", "conflict", "unavailable", "canceled", "guest"), e)
            return e
    for _ in range(4):
        th.go(go, box.exec, ["true"])
        th.go(go, box.kill)
        th.go(go, box.put, "/tmp/x", b"x" * 100000)
        th.go(go, box.info)
    th.join(40)
    until(lambda: box.info()["state"] == "gone", 10)
