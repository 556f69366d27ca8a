"""Timers of a sandbox: timeout, idleness, longest life. Each says that it was the one."""
from hutchtest import *
from keeper import background, told
from outside import gated

BURN = "import time\nx = 0\nwhile True:\n    x += 1\n"


def over(box, reason, seconds=60):
    o = box.wait_state("gone", seconds=seconds)
    equal(o["end"]["reason"], reason)
    return o


@tiers("vm", "container")
@timeout(150)
def idle_is_without_work(t):
    """A sleeping process is idle; a silent one that computes is not, nor is one whose client listens or calls."""
    idle = {"idle_timeout_s": 3}
    burner, listener, caller = t.box(**idle), t.box(**idle), t.box(**idle)
    burner.background(["python3", "-c", BURN])
    s = listener.stream(["sleep", "999"], deadline=140)
    s.started()
    # Two that sleep, one after the other: when both have ended, more than twice the time has passed for the others.
    for _ in range(2):
        sleeper = t.box(**idle)
        equal((sleeper.obj["idle_timeout_s"], sleeper.obj["on_idle"]), (3, "kill"))
        sleeper.background(["sleep", "999"])
        until(lambda: (caller.ok(["true"]), sleeper.info()["state"] == "gone")[1], 60, "the sleeper ends", step=0.5)
        contains(over(sleeper, "idle")["end"]["message"], "3 s")
    for b in (burner, listener, caller):
        equal(b.info()["state"], "running")
    # What kept them stops: they end as well.
    s.close()
    burner.ok("pkill -9 python3; true")
    for b in (burner, listener, caller):
        over(b, "idle")


# A byte now and then: next to no processor time.
TRICKLE = r"""
import socket, sys, threading, time
s = socket.create_connection((sys.argv[1], 7), 10)
def run():
    while not over.wait(0.5):
        s.sendall(b"x")
        s.recv(1)
over = threading.Event()
threading.Thread(target=run).start()
print("ready", flush=True)
sys.stdin.readline()
over.set()
print("over", flush=True)
time.sleep(999)
"""


@tiers("vm", "container")
@gated
def traffic_is_work(t):
    net = {"mode": "open"}
    box = t.box(idle_timeout_s=4, network=net)
    pid = background(box, "trickle", TRICKLE, t.outside.ip())
    for _ in range(2):
        sleeper = t.box(idle_timeout_s=4, network=net)
        sleeper.background(["sleep", "999"])
        over(sleeper, "idle")
    equal(box.info()["state"], "running")
    equal(told(box, pid, "stop"), "over")
    over(box, "idle")


@tiers("vm", "container")
@timeout(120)
def looking_is_no_work(t):
    box = t.box(idle_timeout_s=2)

    def look():
        try:
            box.metrics()
        except ApiError as e:
            contains(("gone", "not_found"), e.code)
        return box.info()["state"] == "gone"
    until(look, 60, "it ends though it is looked at", step=0.3)
    over(box, "idle")


@tiers("vm", "container")
@timeout(120)
def idle_can_pause(t):
    box = t.box(idle_timeout_s=2, on_idle="pause")
    box.put("kept", b"1")
    pid = box.background(["sleep", "999"])
    o = box.wait_state("paused", seconds=60)
    equal((o["paused"]["kind"], o["paused"]["reason"]), ("disk", "idle"))
    box.resume(deadline=90)
    equal(box.get("kept"), b"1")
    if t.tier == "vm":
        equal(box.process(pid)["running"], True)
    o = box.wait_state("paused", seconds=60)
    equal(o["paused"]["reason"], "idle", "and again")


@tiers("container")
@timeout(60)
def code_contexts_that_rest_are_idle(t):
    box = t.box(idle_timeout_s=3)
    equal(box.eval("print(1)")["stdout"], "1\n")
    over(box, "idle")


@tiers("container")
@timeout(90)
def longest_life_is_not_extended(t):
    box = t.box(max_lifetime_s=4, timeout_s=300)
    end = box.obj["expires_at"]
    equal(box.obj["max_lifetime_s"], 4)
    equal(box.timeout(200)["expires_at"], end)
    equal(box.keepalive(timeout_s=500)["expires_at"], end)
    asleep = t.box(max_lifetime_s=4, on_timeout="pause", timeout_s=300)
    o = asleep.pause()
    equal(o["expires_at"], asleep.obj["expires_at"], "it counts while it is paused")
    contains(over(box, "max-lifetime")["end"]["message"], "4 s")
    over(asleep, "max-lifetime")
    short = t.box(max_lifetime_s=300, timeout_s=1)
    over(short, "timeout")


@plain
def keep_alive_only_extends(t):
    box = t.create(isolation="container", timeout_s=300)
    first = box.obj["expires_at"]
    equal(box.keepalive(timeout_s=5)["expires_at"], first)
    o = box.keepalive(timeout_s=600)
    true(o["expires_at"] > first)
    equal(o["timeout_s"], 600)
    true(box.keepalive()["expires_at"] >= o["expires_at"])
    true(box.timeout(100)["expires_at"] < o["expires_at"], "timeout sets")
    refuses("invalid", box.keepalive, timeout_s=0)
    box.pause()
    refuses("conflict", box.keepalive)
    box.kill()
    refuses("not_found", box.keepalive)


@plain
def policy_can_be_changed(t):
    box = t.create(isolation="container")
    equal([box.obj[k] for k in ("idle_timeout_s", "on_idle", "max_lifetime_s")], [0, "kill", 0])
    o = box.patch(idle_timeout_s=900, on_idle="pause", on_timeout="pause")
    equal([o[k] for k in ("idle_timeout_s", "on_idle", "on_timeout")], [900, "pause", "pause"])
    o = box.patch(idle_timeout_s=0)
    equal([o[k] for k in ("idle_timeout_s", "on_idle")], [0, "pause"])
    refuses("invalid", box.patch, on_idle="sleep")
    refuses("invalid", box.patch, idle_timeout_s=-1)
    refuses("invalid", box.patch, max_lifetime_s=10)
    refuses("invalid", t.c.create, isolation="container", max_lifetime_s="long")
    box.patch(idle_timeout_s=2, on_idle="kill")
    over(box, "idle")


@tiers("container")
@own_daemon()
@timeout(120)
def policy_holds_over_a_restart(t):
    a, b = t.box(idle_timeout_s=4), t.box(max_lifetime_s=8)
    busy = t.box(idle_timeout_s=4)
    busy.background(["python3", "-c", BURN])
    t.d.sigkill()
    t.d.start(settle=False)
    over(a, "idle")
    over(b, "max-lifetime")
    equal(busy.info()["state"], "running")
