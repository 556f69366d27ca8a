"""Pause and resume: memory, files, processes and identity come back whole, whoever asked, whatever dies in between."""
import os
import time

from hutchtest import *
from keeper import background, keeper, told
from outside import gated, inside

@tiers("vm")
@timeout(120)
def memory_files_and_processes_come_back(t):
    box = t.box(name="sleeper", env={"A": "b"})
    pid, ask = keeper(box)
    first = ask()
    box.put("/home/user/tree/a", b"x" * 300_000)
    before = box.info()
    o = box.pause()
    equal((o["state"], o["paused"]["kind"], o["paused"]["memory"]), ("paused", "disk", True))
    true(o["paused"]["bytes"] > 1_000_000, "its memory is on disk")
    equal(t.d.pids_of(o["box"]), [], "no process of it is left")
    equal(box.info()["state"], "paused")
    contains([x["id"] for x in t.c.sandboxes()], box.id)
    e = refuses("conflict", box.exec, ["true"])
    contains(e.message, "paused")
    o = box.resume()
    equal((o["state"], o["paused"], o["generation"]), ("running", None, before["generation"] + 1))
    for k in ("id", "name", "template_id", "created_at", "box", "metadata"):
        equal(o[k], before[k], k)
    second = ask()
    equal(second[0], str(int(first[0]) + 1), "the process went on where it was")
    equal(second[1:], first[1:], "its memory is the same")
    equal(box.get("/home/user/tree/a"), b"x" * 300_000)
    equal(box.process("tag:keeper")["pid"], pid)
    equal(box.ok("echo $A; hostname"), "b\nsleeper\n")


@tiers("vm")
@timeout(120)
def clock_and_randomness_are_fresh(t):
    box = t.box()
    first = box.ok("cat /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1").splitlines()
    box.pause()
    time.sleep(1.2)
    clock_is_within_50_ms(box, box.resume())
    again = box.ok("cat /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1").splitlines()
    equal(again[0], first[0], "no reboot")
    true(again[1] != first[1], "other random bytes")


@tiers("container")
@own_daemon()
@timeout(120)
def stopped_container_survives_the_daemon(t):
    box = t.box(name="keeps", auto_resume=True)
    box.put("/home/user/kept", b"1")
    for how in (t.d.sigkill, t.d.shutdown, t.d.kill_everything):
        box.pause()
        how()
        t.d.start(settle=False)
        equal(box.info()["state"], "paused")
        equal(box.get("/home/user/kept"), b"1")
    box.kill()


@tiers("vm")
@own_daemon()
@timeout(180)
def paused_survives_the_daemon(t):
    """Restart of the daemon, orderly stop and start, and everything killed at once (a power cut as far as processes go)."""
    box = t.box(name="keeps")
    pid, ask = keeper(box)
    first = ask()
    for how in ("sigkill", "shutdown", "everything"):
        box.pause()
        if how == "sigkill":
            t.d.sigkill()
        elif how == "shutdown":
            t.d.shutdown()
        else:
            t.d.kill_everything()
        t.d.start(settle=False)
        o = box.info()
        equal((o["state"], o["name"], o["paused"]["memory"]), ("paused", "keeps", True), how)
        box.resume()
        now = ask()
        equal(now[0], str(int(first[0]) + 1), how)
        equal(now[1:], first[1:], how)
        first = now
    box.pause()
    box.kill()
    equal(box.info()["state"], "gone")


@tiers("vm")
@timeout(120)
def files_only_is_a_reboot(t):
    box = t.box()
    pid, ask = keeper(box)
    boot = box.ok("cat /proc/sys/kernel/random/boot_id")
    box.put("/home/user/kept", b"kept")
    o = box.pause(memory=False)
    equal(o["paused"]["memory"], False)
    equal(o["paused"]["bytes"], 0)
    o = box.resume(deadline=120)
    equal(o["start"]["path"], "boot")
    equal(box.get("/home/user/kept"), b"kept")
    true(box.ok("cat /proc/sys/kernel/random/boot_id") != boot, "another boot id")
    equal(box.ok("pgrep -f [k]eeper.py || echo none"), "none\n")
    equal(box.ok("hostname").strip(), box.id)
    # A machine that was booted can be paused with its memory as well.
    pid, ask = keeper(box)
    first = ask()
    o = box.pause()
    equal(o["paused"]["memory"], True)
    box.resume()
    equal(ask()[1:], first[1:])
    # And the memory can be left out afterwards: the way to rescue a machine whose memory is bad.
    box.pause()
    box.resume(memory=False, deadline=120)
    equal(box.ok("pgrep -f [k]eeper.py || echo none"), "none\n")
    equal(box.get("/home/user/kept"), b"kept")


@tiers("vm")
@timeout(120)
def streams_are_cut_with_a_reason(t):
    box = t.box()
    s = box.stream("i=0; while :; do i=$((i+1)); echo tick-$i; sleep 0.02; done")
    s.wait_output(b"tick-3\n")
    pid = s.pid
    box.pause()
    last = list(s)[-1]
    equal(last["event"], "interrupted")
    contains(last["error"]["message"], "paused")
    box.resume()
    a = box.attach(pid, 0, deadline=30)
    ticks = a.wait_output(b"tick-40\n").decode().split()
    equal(ticks[:40], [f"tick-{i}" for i in range(1, 41)], "output goes on without a gap")
    a.abort()


@tiers("vm")
@timeout(120)
def calls_wait_and_wake(t):
    box = t.box(auto_resume=True)
    equal(box.info()["auto_resume"], True)
    box.put("f", b"1")
    box.pause()
    equal(box.ok(["cat", "f"]), "1")
    equal(box.info()["state"], "running")
    # Calls that arrive while it is pausing wait for it, and then wake it. (One that came before it would be cut.)
    th = Threads()
    th.go(box.pause)
    box.wait_state("pausing", "paused")
    for i in range(4):
        th.go(box.ok, ["echo", str(i)])
    th.go(box.get, "f")
    th.join(60)
    # Two resumes and two pauses at once are one each.
    for _ in range(2):
        th = Threads()
        th.go(box.pause)
        th.go(box.pause)
        equal([o["state"] for o in th.join(60)], ["paused", "paused"])
        th = Threads()
        th.go(box.resume)
        th.go(box.resume)
        a, b = th.join(60)
        equal((a["state"], a["generation"]), ("running", b["generation"]))
    # A resume that arrives during a pause comes after it.
    th = Threads()
    th.go(box.pause)
    box.wait_state("pausing", "paused")
    th.go(box.resume)
    th.join(60)
    equal(box.wait_state("running", "paused")["state"], "running")


@tiers("vm")
@timeout(120)
def timeout_can_pause(t):
    box = t.box(timeout_s=60, on_timeout="pause")
    pid, ask = keeper(box)
    box.timeout(1)
    o = box.wait_state("paused", seconds=30)
    equal(o["paused"]["memory"], True)
    box.resume(timeout_s=60)
    true(int(ask()[0]) >= 1)


@tiers("vm")
@timeout(120)
def kill_at_any_moment(t):
    for delay in (0, 0.004, 0.012, 0.03, 0.06):
        box = t.box()
        box.put("f", b"1")
        th = Threads()

        def pause():
            try:
                return box.pause()["state"]
            except ApiError as e:
                return e.code
        th.go(pause)
        time.sleep(delay)
        box.kill()
        contains(("paused", "gone", "conflict"), th.join(60)[0])
        equal(box.info()["state"], "gone")
        box = t.box()
        box.pause()

        def resume():
            try:
                return box.resume()["state"]
            except ApiError as e:
                return e.code
        th = Threads()
        th.go(resume)
        time.sleep(delay)
        box.kill()
        contains(("running", "gone", "conflict"), th.join(60)[0])
        equal(box.info()["state"], "gone")


@tiers("vm", "container")
@timeout(120)
def standby_keeps_memory_in_memory(t):
    box = t.box()
    pid, ask = keeper(box)
    first = ask()
    o = box.pause(standby=True)
    equal((o["state"], o["paused"]["kind"], o["paused"]["memory"]), ("paused", "standby", True))
    refuses("conflict", box.exec, ["true"])
    cpu = t.d.cpu_of(o["box"])
    time.sleep(0.5)
    equal(t.d.cpu_of(o["box"]), cpu, "it uses no processor")
    o = box.resume()
    equal((o["state"], o["start"]["path"]), ("running", "standby"))
    second = ask()
    equal(second[1:], first[1:])
    equal(int(second[0]), int(first[0]) + 1)
    clock_is_within_50_ms(box, o)
    box.pause(standby=True)
    box.kill()


@tiers("vm", "container")
@own_daemon()
@timeout(120)
def standby_survives_the_daemon(t):
    box = t.box()
    pid, ask = keeper(box)
    first = ask()
    box.pause(standby=True)
    t.d.sigkill()
    t.d.start(settle=False)
    equal(box.info()["paused"]["kind"], "standby")
    box.resume()
    equal(ask()[1:], first[1:])
    box.pause(standby=True)
    t.d.sigkill()
    t.d.start(settle=False)
    if t.tier == "vm":
        equal(box.pause()["paused"]["kind"], "disk", "from standby to disk, under another daemon")
        box.resume()
        equal(ask()[1:], first[1:])
    box.kill()


@tiers("vm")
@own_daemon(HUTCH_STANDBY="1")
@timeout(120)
def standby_goes_to_disk_after_a_while(t):
    box = t.box()
    pid, ask = keeper(box)
    first = ask()
    box.pause(standby=True)
    o = until(lambda: (lambda x: x if x["paused"]["kind"] == "disk" else None)(box.info()), 30, "it went to disk")
    equal(t.d.pids_of(o["box"]), [])
    box.resume()
    equal(ask()[1:], first[1:])
    box.kill()


@tiers("vm")
@own_daemon(HUTCH_STANDBY="0", HUTCH_STANDBY_FREE=str(1 << 30), HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0")
@timeout(120)
def standby_goes_to_disk_when_memory_is_short(t):
    """All of them, one after the other; here the host never has enough."""
    boxes = [t.box(), t.box()]
    for b in boxes:
        b.put("kept", b"1")
        b.pause(standby=True)
    for b in boxes:
        until(lambda: b.info()["paused"]["kind"] == "disk", 60, "it went to disk")
        equal((b.resume()["start"]["path"], b.get("kept")), ("resume", b"1"))


@tiers("container")
@timeout(120)
def a_container_is_stopped_and_started(t):
    box = t.box()
    box.put("/home/user/kept", os.urandom(200_000))
    want = sha(box.get("/home/user/kept"))
    box.ok("mkdir -p /home/user/d && ln -s kept /home/user/d/link && sudo chown root /home/user/d && sudo rm -rf /usr/share/doc")
    boot = box.ok("cat /proc/sys/kernel/random/boot_id")
    pid, ask = keeper(box)
    e = refuses("unsupported", box.pause, memory=True)
    contains(e.message, "container")
    equal(box.info()["state"], "running")
    o = box.pause()
    equal((o["paused"]["kind"], o["paused"]["memory"]), ("disk", False))
    equal(t.d.pids_of(o["box"]), [])
    o = box.resume()
    equal(o["start"]["path"], "boot")
    equal(sha(box.get("/home/user/kept")), want)
    equal(box.ok("readlink /home/user/d/link; stat -c %U /home/user/d; test -e /usr/share/doc || echo removed"), "kept\nroot\nremoved\n")
    true(box.ok("cat /proc/sys/kernel/random/boot_id") != boot)
    equal(box.ok("pgrep -f [k]eeper.py || echo none"), "none\n")
    for _ in range(3):
        box.pause()
        box.resume()
    equal(sha(box.get("/home/user/kept")), want)
    box.pause()
    box.kill()


# A process with an open file in a volume: what it is told goes there, through a descriptor from before the pause.
WRITER = r"""
import sys
f = open("/data/log", "a")
print("ready", flush=True)
for line in sys.stdin:
    f.write(line)
    f.flush()
    print("wrote", line.strip(), flush=True)
"""


@tiers("vm", "container")
@timeout(240)
def a_volume_is_there_again(t):
    v = t.c.post("/v1/volumes", {"name": "pausedata", "size_mib": 64})
    t.cleanup_later(t.c.delete, "/v1/volumes/" + v["id"])
    at = [{"name": "pausedata", "path": "/data"}]
    box, other = t.box(volumes=at), t.box(volumes=at)
    blob = os.urandom(400_000)
    box.put("/data/blob", blob)
    pid = background(box, "writer", WRITER)
    n = 0
    for how in ({}, {"standby": True}, {"memory": False}):
        equal(told(box, pid, f"line {n}"), f"wrote line {n}")
        n += 1
        box.pause(**how)
        # The others go on with it; it cannot be deleted under the one that sleeps.
        equal(sha(other.get("/data/blob")), sha(blob), how)
        other.put("/data/meanwhile", str(how).encode())
        refuses("conflict", t.c.delete, "/v1/volumes/pausedata")
        box.resume(deadline=120)
        equal(box.get("/data/meanwhile"), str(how).encode(), "what others wrote meanwhile")
        equal(sha(box.get("/data/blob")), sha(blob), how)
        if how.get("standby") or (t.tier == "vm" and how.get("memory", True)):
            equal(told(box, pid, f"line {n}"), f"wrote line {n}", "a descriptor from before the pause")
            n += 1
        else:
            pid = background(box, "writer", WRITER)
        equal(other.ok("cat /data/log"), "".join(f"line {i}\n" for i in range(n)))
        box.put("/data/back", b"b")
        equal(other.get("/data/back"), b"b")


# A process that holds a connection and says, when asked, what became of it.
CALLER = r"""
import socket, sys
s = socket.create_connection((sys.argv[1], 7), 10)
s.settimeout(8)
print("ready", flush=True)
for line in sys.stdin:
    try:
        s.sendall(b"ping")
        got = s.recv(100)
        print("alive" if got == b"ping" else "closed", flush=True)
    except OSError as e:
        print("dead", type(e).__name__, flush=True)
"""


@tiers("vm", "container")
@gated
def network_policy_holds_after_a_resume(t):
    o = t.outside
    policy = {"allow": ["allowed.test", f"{o.ip()}:7"]}
    box = t.box(network=policy)
    pid = background(box, "caller", CALLER, o.ip())
    equal(told(box, pid, "?"), "alive")

    def check(how):
        equal(box.info()["network"]["allow"], policy["allow"], how)
        r = inside(box, """
            R["own"] = http("allowed.test")[0]
            R["echo"] = tcp((O.web, 7), b"x")
            R["other"] = query("other.test")
            R["closed"] = http(O.web, "other.test")[0]
        """, web=o.ip())
        equal((r["own"], r["echo"], r["other"], r["closed"]), (200, "x", [3, []], 403), how)
    check("before")
    for how in ({}, {"standby": True}, {"memory": False}):
        box.pause(**how)
        box.resume(deadline=120)
        check(how)
        if not how and t.tier == "vm":
            contains(("dead ConnectionResetError", "dead TimeoutError", "dead BrokenPipeError", "closed"), told(box, pid, "?"), "a connection from before")
