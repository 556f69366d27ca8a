"""Whatever dies, whenever: what still runs is taken over, what is gone is said with its reason, nothing is left."""
import glob
import json
import os
import random
import signal
import subprocess
import threading
import time

import daemon as _daemon
from hutchtest import *
from keeper import keeper

TICK = "i=0; while :; do i=$((i+1)); echo tick-$i; sleep 0.05; done"


def numbers(data):
    return [int(x[5:]) for x in data.decode().split() if x.startswith("tick-")]


def consecutive(ns):
    return all(b == a + 1 for a, b in zip(ns, ns[1:]))


@tiers("vm", "container")
@own_daemon()
@timeout(150)
def sigkill_with_ten_sandboxes(t):
    boxes = [t.box(name=f"keep-{i}", metadata={"n": str(i)}) for i in range(10)]
    files = {}
    for i, b in enumerate(boxes):
        files[b.id] = os.urandom(2000)
        b.put("/home/user/before", files[b.id])
    bg = {b.id: b.background(TICK, tag="ticker") for b in boxes}
    # An exec that a client is reading at this moment.
    s = boxes[0].stream(TICK)
    s.wait_output(b"tick-3\n")
    unfinished = s.pid
    first = numbers(boxes[3].attach(bg[boxes[3].id], 0, deadline=20).wait_output(b"tick-4\n"))
    before = {b.id: b.info() for b in boxes}
    t.d.sigkill()
    try:
        list(s)
    except Exception:
        pass  # the connection broke with the daemon
    t.d.start(settle=False)
    after = {o["id"]: o for o in t.c.sandboxes()}
    equal(sorted(after), sorted(before), "all are still there")
    for i, o in after.items():
        equal(o["state"], "running")
        for k in ("name", "metadata", "template_id", "cpu", "memory_mib", "created_at", "expires_at", "isolation", "kernel"):
            equal(o[k], before[i][k], k)
    for b in boxes:
        equal(b.get("/home/user/before"), files[b.id])
        equal(b.ok(["echo", "again"], deadline=40), "again\n")
        p = b.process("tag:ticker")
        equal((p["pid"], p["running"]), (bg[b.id], True))
    # Output goes on, without a gap in what the ring still holds.
    a = boxes[3].attach(bg[boxes[3].id], 0, deadline=30)
    got = numbers(a.wait_output(b"tick-%d\n" % (first[-1] + 20)))
    true(consecutive(got) and got[0] == 1, f"ticks {got[:5]} … {got[-5:]}")
    a.abort()
    p = boxes[0].process(unfinished)
    true(p["running"], "the unfinished exec goes on")
    a = boxes[0].attach(unfinished, 0, deadline=30)
    got = numbers(a.wait_output(b"tick-30\n"))
    true(consecutive(got), got)
    a.abort()
    boxes[0].signal(unfinished, "SIGKILL")
    equal(boxes[0].wait_process(unfinished)["exit"]["signal"], 9)
    boxes[1].kill()
    equal(boxes[1].info()["end"]["reason"], "killed")
    new = t.box()
    new.ok(["true"])


@tiers("vm", "container")
@own_daemon()
@timeout(120)
def sigkill_twice_in_a_row(t):
    box = t.box()
    pid = box.background(TICK)
    for _ in range(2):
        t.d.sigkill()
        t.d.start(settle=False)
    equal(box.info()["state"], "running")
    box.attach(pid, -1, deadline=20).wait_output(b"tick-")
    box.ok(["true"])


@tiers("vm", "container")
@own_daemon()
@timeout(120)
def sigkill_during_transfers(t):
    """Half an upload, half a download, a terminal, a watch: all cut; the sandbox is usable afterwards."""
    box = t.box()
    box.put("big", b"x" * 30_000_000, deadline=60)
    box.mkdir("/home/user/w")
    w = box.watch("/home/user/w")
    ws = box.pty()
    ws.send(b"echo u''p\n")
    ws.wait_for(b"up")
    down = t.c.stream("GET", box.p + "/files", query={"path": "big"})
    down.read1()
    up = t.c.dial()
    up.sendall(b"PUT %s/files?path=half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n" % box.p.encode() + b"y" * 200_000)
    s = box.stream("yes | head -c 100000000")
    s.started()
    t.d.sigkill()
    for x in (w, ws, down, s):
        x.close()
    up.close()
    t.d.start(settle=False)
    equal(box.info()["state"], "running")
    equal(box.ok(["echo", "fine"], deadline=40), "fine\n")
    equal(sha(box.get("big", deadline=60)), sha(b"x" * 30_000_000))
    box.put("half", b"whole")
    equal(box.get("half"), b"whole")


@tiers("vm", "container")
@own_daemon()
@timeout(240)
def sigkill_at_any_moment(t):
    """Kills while creating, running and removing; afterwards every listed sandbox works and every trace of the others is gone."""
    rng = random.Random(2)
    rounds = 20 if SLOW else 4
    for n in range(rounds):
        c = t.c
        th = Threads()

        def churn():
            mine = []
            try:
                while True:
                    b = c.create(isolation=t.tier)
                    mine.append(b)
                    b.exec(["true"])
                    if rng.random() < 0.6:
                        b.kill()
            except Exception:
                return mine
        for _ in range(3):
            th.go(churn)
        stop = Deadline(rng.uniform(0.15, 1.2))
        until(lambda: stop.over, 5)
        t.d.sigkill()
        th.join(30)
        t.d.start(settle=False)
        for o in t.c.sandboxes():
            b = t.c.box(o["id"])
            o = until(lambda: (lambda x: x if x["state"] not in ("creating", "stopping") else None)(b.info()), 30, "a settled state")
            if o["state"] == "running":
                b.ok(["true"], deadline=40)
                b.kill()
            elif o["state"] == "failed":
                true(o["end"] and o["end"]["reason"], o)
                b.kill()
            else:
                equal(o["state"], "gone")
    equal(t.c.sandboxes(), [])
    until(lambda: set(os.listdir(os.path.join(t.d.home, "boxes"))) is not None, 1)
    base = t.box()
    base.ok(["true"])


@tiers("vm", "container")
@own_daemon()
@timeout(90)
def sigterm_leaves_the_sandboxes(t):
    """SIGTERM is an upgrade: hutchd goes, sandboxes stay for the next one."""
    box = t.box()
    pid = box.background(TICK)
    old = t.d.pid
    t.d.signal(signal.SIGTERM)
    t.d.wait_gone(old, 20)
    equal(t.d.proc.poll(), 0, "exit status of hutchd")
    t.d.start(settle=False)
    true(t.d.pid != old)
    equal(box.info()["state"], "running")
    got = numbers(box.attach(pid, 0, deadline=20).wait_output(b"tick-5\n"))
    true(consecutive(got))


@tiers("vm", "container")
@own_daemon()
@timeout(90)
def shutdown_ends_them_with_a_reason(t):
    box = t.box()
    s = box.stream(["sleep", "999"])
    s.started()
    t.d.shutdown(keep=False)
    try:
        last = s.collect()["last"]
        true(last is None or last["event"] == "interrupted", last)
    except Exception:
        pass
    t.d.start(settle=False)
    o = box.info()
    equal((o["state"], o["end"]["reason"]), ("gone", "shutdown"))
    equal(t.c.sandboxes(), [])


@tiers("vm", "container")
@own_daemon()
@timeout(90)
def shutdown_that_keeps(t):
    box = t.box()
    t.d.shutdown(keep=True)
    t.d.start(settle=False)
    equal(box.info()["state"], "running")
    box.ok(["true"])


@tiers("vm", "container")
@own_daemon()
@timeout(90)
def deadline_holds_over_a_restart(t):
    a, b, c = t.box(timeout_s=4), t.box(timeout_s=9), t.box(timeout_s=300)
    t.d.sigkill()
    end = Deadline(5)
    until(lambda: end.over, 10)  # a's time runs out while nobody is there
    t.d.start(settle=False)
    o = a.wait_state("gone", seconds=10)
    equal(o["end"]["reason"], "timeout")
    o = b.wait_state("gone", seconds=15)
    equal(o["end"]["reason"], "timeout")
    equal(c.info()["state"], "running")


@tiers("vm", "container")
@own_daemon()
@timeout(180)
def spawner_dies(t):
    """hutch-spawn holds the sandboxes. Without it they fail, with the reason; another one is started, and the daemon goes on."""
    box, asleep = t.box(name="cut"), t.box()
    box.put("kept", b"1")
    box.ok("sync")
    asleep.put("kept", b"2")
    asleep.pause()
    s = box.stream(["sleep", "999"], deadline=60)
    s.started()
    pid, old = t.d.pid, t.d.spawn_pid
    t.d.census.mine()
    os.kill(old, signal.SIGKILL)
    o = box.wait_state("failed", seconds=30)
    equal(o["end"]["reason"], "host-fault", o["end"])
    contains(o["end"]["message"], "hutch-spawn")
    last = s.collect()["last"]
    true(last is None or last["event"] == "interrupted", f"an exit status is never invented: {last}")

    def made():
        try:
            return t.box()
        except ApiError as e:
            equal(e.code, "unavailable")
            return None
    until(made, 60, "a sandbox under the new spawner").ok(["true"], deadline=40)
    equal(t.d.pid, pid, "the same daemon")
    true(t.d.spawn_pid != old, "another spawner")
    equal(asleep.info()["state"], "paused")
    asleep.resume(deadline=120)
    equal(asleep.get("kept"), b"2")
    got = box.recover()
    equal((got["sandbox"]["state"], got["sandbox"]["name"]), ("running", "cut"))
    equal(box.get("kept"), b"1")
    # Its watcher ends with it when that is wanted.
    t.d.shutdown()
    until(lambda: not t.d.pids("hutch-watch") and not t.d.pids("hutch-spawn"), 20, "nothing of the spawner is left")
    t.d.start(settle=False)


def box_process(t, box):
    return t.d.init_of(box.info()["box"])


@tiers("vm", "container")
@own_daemon()
@timeout(90)
def a_command_ends_after_its_sandbox(t):
    """Whoever hears that a command was interrupted, and looks, does not find a sandbox that runs. The spawner, which knows how it ended, is late."""
    box = t.box()
    s = box.stream(["sleep", "999"], deadline=40)
    s.started()
    seen = []
    reader = threading.Thread(target=lambda: seen.append((s.collect()["last"], box.info()["state"])))
    spawner = t.d.pids("hutch-spawn")
    for pid in spawner:
        os.kill(pid, signal.SIGSTOP)
    try:
        reader.start()
        os.kill(box_process(t, box), signal.SIGKILL)
        reader.join(1)
        equal(seen, [], "how it ended is not known yet")
    finally:
        for pid in spawner:
            os.kill(pid, signal.SIGCONT)
    reader.join(40)
    equal((seen[0][0]["event"], seen[0][1]), ("interrupted", "failed"))


@tiers("vm", "container")
@own_daemon()
@timeout(90)
def its_process_is_killed_from_outside(t):
    box, other = t.box(), t.box()
    s = box.stream(["sleep", "999"], deadline=40)
    s.started()
    os.kill(box_process(t, box), signal.SIGKILL)
    last = s.collect()["last"]
    equal(last["event"], "interrupted")
    true(last["error"]["code"] in ("gone", "guest", "unavailable"), last)
    o = box.wait_state("failed", seconds=15)
    equal(o["end"]["reason"], "host-fault")
    true(o["end"]["message"])
    contains(refuses("gone", box.exec, ["true"]).hint, "/recover brings it back")
    other.ok(["true"])
    equal(t.d.pids_of(o["box"]), [], "it holds neither processor nor memory")
    equal(box.kill().status, 204)
    until(lambda: not os.path.exists(os.path.join(t.d.home, "boxes", o["box"])), 10, "its disk goes with it")


@tiers("vm", "container")
@own_daemon()
@timeout(240)
def failed_is_recovered_from_its_disk(t):
    v = t.c.post("/v1/volumes", {"name": "data", "size_mib": 64})
    box = t.box(name="phoenix", env={"A": "b"}, volumes=[{"name": v["name"], "path": "/data"}])
    box.put("/home/user/tree/a", b"x" * 300_000)
    box.put("/data/v", b"volume")
    box.ok("sync")
    box.background(["sleep", "999"])
    before = box.info()
    os.kill(box_process(t, box), signal.SIGKILL)
    box.wait_state("failed", seconds=15)
    # A restart of the daemon does not lose it.
    t.d.sigkill()
    t.d.start(settle=False)
    equal(box.info()["state"], "failed")
    got = box.recover(timeout_s=200)
    equal(got["lost"], ["memory", "processes", "writes"])
    o = got["sandbox"]
    equal((o["state"], o["end"], o["start"]["path"], o["timeout_s"]), ("running", None, "boot", 200))
    true(o["generation"] > before["generation"])
    for k in ("id", "name", "template_id", "created_at", "box", "metadata"):
        equal(o[k], before[k], k)
    equal(box.get("/home/user/tree/a"), b"x" * 300_000)
    equal(box.get("/data/v"), b"volume")
    equal(box.ok("echo $A; hostname; pgrep sleep || echo none"), "b\nphoenix\nnone\n")
    equal(t.c.box("phoenix").info()["id"], box.id, "its name is its own again")
    equal(box.recover()["lost"], [], "one that runs is whole")
    # Everything at once, as a power cut: the same.
    box.ok("echo more > /home/user/more; sync")
    t.d.kill_everything()
    t.d.start(settle=False)
    equal(box.info()["state"], "failed")
    box.recover()
    equal(box.get("/home/user/more"), b"more\n")
    box.kill()
    refuses("gone", box.recover)
    t.c.delete("/v1/volumes/data")


@tiers("vm", "container")
@own_daemon()
@timeout(120)
def recovered_by_several_at_once(t):
    box = t.box()
    box.put("/home/user/f", b"1")
    box.ok("sync")
    os.kill(box_process(t, box), signal.SIGKILL)
    box.wait_state("failed", seconds=15)
    th = Threads()
    for _ in range(4):
        th.go(lambda: box.recover(deadline=100))
    got = th.join(110)
    equal([g["lost"] for g in got], [["memory", "processes", "writes"]] * 4, "all of them get the one answer")
    equal(len({(g["sandbox"]["state"], g["sandbox"]["generation"], g["sandbox"]["box"]) for g in got}), 1)
    equal([e["type"] for e in t.c.get("/v1/events", follow=0, sandbox=box.id)["events"]].count("sandbox.recovered"), 1, "and it happened once")
    equal(box.get("/home/user/f"), b"1")


def fail(t, box):
    os.kill(box_process(t, box), signal.SIGKILL)
    return box.wait_state("failed", seconds=15)


@tiers("vm", "container")
@own_daemon()
@timeout(150)
def failed_is_reached_by_its_name(t):
    def hutch(*args):
        p = subprocess.run([_daemon.program("hutch"), *args], env={**t.d.env, "HUTCH_NO_START": "1"}, stdin=subprocess.DEVNULL, capture_output=True, timeout=100)
        return p.returncode, p.stdout.decode(), p.stderr.decode()
    box = t.box(name="victim")
    by_name = t.c.box("victim")
    box.put("kept", b"1")
    box.ok("sync")
    fail(t, box)
    contains(hutch("ls")[1], "victim")
    equal((by_name.info()["id"], by_name.info()["state"]), (box.id, "failed"))
    contains(hutch("info", "victim")[1], box.id)
    # What cannot be done says what can.
    for what in (lambda: by_name.exec(["true"]), by_name.pause, by_name.resume, lambda: by_name.timeout(100), lambda: t.c.put(by_name.p + "/network", {"mode": "none"})):
        e = refuses("gone", what)
        contains(e.message, "its files are kept")
        equal(e.hint, "POST /v1/sandboxes/victim/recover brings it back from its disk")
    rc, _, said = hutch("exec", "victim", "--", "true")
    equal(rc, 66)
    contains(said, "hint: `hutch recover victim` brings it back")
    t.d.sigkill()  # nor does a restart lose the name
    t.d.start(settle=False)
    equal(hutch("recover", "victim")[0], 0)
    equal(by_name.get("kept"), b"1")
    fail(t, box)
    equal(hutch("kill", "victim")[0], 0)
    equal(box.info()["state"], "gone")
    refuses("not_found", by_name.info)


@tiers("container")
@own_daemon(HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0")
@timeout(90)
def a_kill_of_one_that_just_failed_is_complete(t):
    """The row may not say yet that it failed; the database is kept busy, so that it takes a while."""
    other, th, over = t.box(), Threads(), []

    def write(n):
        c = t.d.client.box(other.id)
        while not over:
            c.patch(metadata={f"k{i}": f"{n}" * 900 for i in range(15)})
    for n in range(4):
        th.go(write, n)
    try:
        for _ in range(50):
            box = t.box()
            os.kill(box_process(t, box), signal.SIGKILL)
            until(lambda: box.info()["state"] == "failed", 15, step=0.001)
            box.kill()
            equal(box.info()["state"], "gone")
    finally:
        over.append(1)
        th.join(30)


@tiers("container")
@own_daemon()
@timeout(90)
def a_name_that_was_taken_meanwhile(t):
    """The living one has the name; the failed one has its id."""
    box = t.box(name="mine")
    fail(t, box)
    other = t.box(name="mine")
    equal(t.c.box("mine").info()["id"], other.id)
    e = refuses("conflict", box.recover)
    contains(e.message, "rename")
    contains(e.hint, "choose another name")
    # Of several that failed, the last.
    fail(t, other)
    equal(t.c.box("mine").info()["id"], other.id)
    box.patch(name="first")
    equal(t.c.box("first").info()["id"], box.id)
    new = t.box(name="first")  # a failed one does not keep others from its name
    equal(t.c.box("first").info()["id"], new.id)
    new.patch(name="second")
    box.patch(name="mine")
    equal(box.recover()["sandbox"]["name"], "mine")
    equal(t.c.box("mine").info()["id"], box.id)


@tiers("container")
@own_daemon(HUTCH_FAILED_KEEP="2")
@timeout(90)
def what_nobody_recovers_ends(t):
    box = t.box()
    disk = os.path.join(t.d.home, "boxes", box.info()["box"])
    os.kill(box_process(t, box), signal.SIGKILL)
    o = box.wait_state("failed", seconds=15)
    true(os.path.exists(disk), "its disk is kept")
    o = box.wait_state("gone", seconds=30)
    equal(o["end"]["reason"], "host-fault", "the first cause is the cause")
    until(lambda: not os.path.exists(disk), 10, "the disk is gone")


@tiers("vm")
@own_daemon()
@timeout(180)
def damaged_memory_is_given_up(t):
    box = t.box()
    box.put("kept", b"1")
    o = box.pause()
    state = os.path.join(t.d.home, "boxes", o["box"], "saved", "state")
    with open(state, "r+b") as f:
        f.seek(os.path.getsize(state) // 2)
        f.write(b"damage" * 1000)
    refuses("conflict internal unavailable", box.resume)
    equal(box.info()["state"], "paused")
    got = box.recover()
    equal(got["lost"], ["memory", "processes"])
    equal(box.get("kept"), b"1")


@tiers("vm", "container")
@own_daemon(HUTCH_AGENT_SILENT="6")
@timeout(120)
def its_process_stands_still(t):
    """SIGSTOP from outside: nobody answers. Calls end typed, the others go on, and it can be removed."""
    box, other = t.box(), t.box()
    pid = box_process(t, box)
    os.kill(pid, signal.SIGSTOP)
    try:
        t0 = time.monotonic()
        try:
            r = box.exec(["true"], timeout_ms=2000, deadline=70)
            true(False, f"an answer from a stopped sandbox: {r}")
        except ApiError as e:
            contains(("timeout", "guest", "unavailable", "gone"), e.code, str(e))
            contains(e.message, "has not answered for")
        t.note(f"typed after {time.monotonic() - t0:.0f} s")
        for _ in range(3):
            other.ok(["true"])
        equal(t.c.health()["status"], "ok")
        box.info()
        t0 = time.monotonic()
        try:
            box.kill()
        except ApiError as e:
            equal(e.code, "not_found")
        within(time.monotonic() - t0, 0, 30, "seconds to remove a stopped one")
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
    until(lambda: t.c.box(box.id).info()["state"] == "gone", 10)


@tiers("vm", "container")
@own_daemon()
@timeout(120)
def power_cut(t):
    """Every process dies at once, the disk stays. Afterwards: all marked with a reason, all leftovers cleaned."""
    boxes = [t.box(name=f"cut-{i}") for i in range(3)]
    boxes[0].put("x", b"x" * 100000)
    t.d.kill_everything()
    t.d.start(settle=False)
    equal([o for o in t.c.sandboxes() if o["state"] == "running"], [])
    for b in boxes:
        o = b.info()
        equal(o["state"], "failed")
        equal(o["end"]["reason"], "host-fault", o["end"])
        true(o["end"]["message"])
    for b in boxes:
        b.kill()
    left = [n for n in os.listdir(os.path.join(t.d.home, "boxes")) if any(n == b.info()["box"] for b in boxes)]
    equal(left, [], "files of dead sandboxes")
    again = t.box(name="cut-0")
    again.ok(["true"])


@plain
@own_daemon()
@timeout(60)
def second_daemon_on_the_same_home_is_refused(t):
    env = dict(t.d.env, HUTCH_LISTEN=f"127.0.0.1:{_daemon.free_port()}")
    p = subprocess.run([_daemon.program("hutchd")], env=env, capture_output=True, timeout=30)
    true(p.returncode not in (0, -11, -6), f"a second hutchd on one home ended with {p.returncode}: {p.stderr[-300:]}")
    equal(t.c.health()["status"], "ok")
    t.create(isolation="container").ok(["true"])


@plain
@own_daemon()
@timeout(90)
def two_daemons_side_by_side(t):
    other = _daemon.Daemon(name="second")
    try:
        other.start(settle=False)
        a, b = t.create(isolation="container", name="same"), other.client.create(isolation="container", name="same")
        a.put("who", b"first")
        b.put("who", b"second")
        equal((a.get("who"), b.get("who")), (b"first", b"second"))
        refuses("not_found", t.c.box(b.id).info)
        left = other.stop()
        equal(left, [], "leaks of the second daemon")
        a.ok(["true"])
    finally:
        other.kill_everything()
        other.scrub()
        other.destroy()


@plain
@own_daemon()
@timeout(60)
def damaged_database_is_no_silent_reset(t):
    box = t.create(isolation="container")
    t.d.shutdown(keep=False)
    path = os.path.join(t.d.home, "state.db")
    with open(path, "r+b") as f:
        good = f.read()
        f.seek(0)
        f.write(b"this is not a database" * 1000)
    for x in ("-wal", "-shm"):
        try:
            os.unlink(path + x)
        except FileNotFoundError:
            pass
    p = subprocess.run([_daemon.program("hutchd")], env=t.d.env, capture_output=True, timeout=30)
    true(p.returncode > 0, f"hutchd on a damaged database ended with {p.returncode}")
    true(p.stderr or p.stdout, "and says why")
    with open(path, "wb") as f:
        f.write(good)
    t.d.start(settle=False)
    equal(box.info()["end"]["reason"], "shutdown")


@plain
@own_daemon()
@timeout(60)
def bad_settings_stop_the_start(t):
    for k, v in (("HUTCH_LISTEN", "nonsense"), ("HUTCH_LISTEN", "127.0.0.1:99999"), ("HUTCH_POOL_VM", "-1"), ("HUTCH_ACCEL", "warp"), ("HUTCH_HOME", "relative"), ("HUTCH_DEFAULT_ISOLATION", "wish")):
        top = os.path.join(t.tmp, "x")
        env = dict(t.d.env, HUTCH_HOME=top + "/home", HUTCH_RUN=top + "/run", HUTCH_LISTEN=f"127.0.0.1:{_daemon.free_port()}")
        os.makedirs(top, exist_ok=True)
        os.chmod(t.tmp, 0o755)
        env[k] = v
        p = subprocess.Popen([_daemon.program("hutchd")], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            out, _ = p.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            p.kill()
            raise AssertionError(f"{k}={v} was accepted") from None
        true(p.returncode > 0 and k.encode() in out or b"listen" in out.lower() or b"address" in out.lower(), f"{k}={v}: {p.returncode} {out[-300:]}")


@plain
@own_daemon()
@timeout(60)
def full_home_disk_is_typed(t):
    """The host's own disk is full: create fails with a type, nothing is half made, and it works again afterwards."""
    boxes = os.path.join(t.d.home, "boxes")
    st = os.stat(boxes)
    # Stands for a full disk without filling a real one: nothing can be made in boxes/ (a file system without room).
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=4k,nr_inodes=2,mode={st.st_mode & 0o7777:o},uid={st.st_uid},gid={st.st_gid}", "none", boxes], check=True)
    try:
        # hutch-spawn has a private mount namespace: make it see the same.
        pid = t.d.spawn_pid
        if pid:
            subprocess.run(["nsenter", "-t", str(pid), "-m", "mount", "-t", "tmpfs", "-o", f"size=4k,nr_inodes=2,mode={st.st_mode & 0o7777:o},uid={st.st_uid},gid={st.st_gid}", "none", boxes], check=True)
        codes = set()
        for _ in range(8):  # the first few may come from the pool
            for tier in ("container", "vm"):
                try:
                    t.create(isolation=tier, deadline=40)
                except ApiError as e:
                    codes.add(e.code)
        true(codes and codes <= {"quota", "unavailable", "internal"}, codes)
    finally:
        if t.d.spawn_pid:
            subprocess.run(["nsenter", "-t", str(t.d.spawn_pid), "-m", "umount", "-l", boxes])
        subprocess.run(["umount", "-l", boxes])
    equal(t.c.health()["status"], "ok")
    for b in t.boxes:
        b.kill()
    t.create(isolation="container").ok(["true"])


def of_another_emulator(d):
    """Make a home look as if all its machines had been made under another QEMU: other keys, other words in the manifests."""
    def edit(path, change):
        own = os.stat(path)
        with open(path) as f:
            o = json.load(f)
        change(o)
        with open(path + ".new", "w") as f:
            json.dump(o, f)
        os.chown(path + ".new", own.st_uid, own.st_gid)
        os.rename(path + ".new", path)  # never into the file: other homes have it too

    def turn(o, member):
        o[member] = o[member][::-1]

    for path in glob.glob(d.home + "/templates/*/vm/*/manifest.json"):
        edit(path, lambda o: (turn(o, "key"), o.update(qemu="1.2.3")))
        os.rename(os.path.dirname(path), os.path.join(os.path.dirname(os.path.dirname(path)), os.path.basename(os.path.dirname(path))[::-1]))
    for path in glob.glob(d.home + "/boxes/*/machine.json"):
        edit(path, lambda o: turn(o, "variant"))
    for path in glob.glob(d.home + "/boxes/*/saved/manifest.json") + glob.glob(d.home + "/snapshots/*/manifest.json"):
        edit(path, lambda o: (turn(o["machine"], "variant"), o["emulator"].update(qemu="1.2.3")))


@tiers("vm")
@own_daemon(HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0")
@timeout(300)
def another_emulator_costs_memory_and_not_files(t):
    box, lost = t.box(), t.box()
    for b in (box, lost):
        b.put("kept", b"1")
        b.ok("sync")
    t.snapshot(box, name="moment")
    os.kill(box_process(t, lost), signal.SIGKILL)
    lost.wait_state("failed")
    box.pause()
    t.d.shutdown()
    of_another_emulator(t.d)
    t.d.start(settle=False)
    contains(refuses("conflict", box.resume).message, "another version of QEMU")
    equal(box.info()["state"], "paused")
    box.resume(memory=False, deadline=120)
    equal((box.get("kept"), box.info()["start"]["path"]), (b"1", "boot"))
    # It is a machine of this emulator now, memory and all, although its disk began under the other.
    _, ask = keeper(box)
    before = ask()
    box.pause()
    box.resume(deadline=120)
    equal(ask()[1:], before[1:])
    lost.recover()
    equal(lost.get("kept"), b"1")
    contains(refuses("conflict", t.create, snapshot="moment").message, "another version of QEMU")
    equal(t.create(snapshot="moment", memory=False, deadline=120).get("kept"), b"1")
