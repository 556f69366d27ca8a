"""Rollback: a running sandbox becomes what it was in one of its snapshots, or stays what it is."""
import glob
import os
import time

from hutchtest import *
from keeper import keeper

BOTH = ("vm", "container")


def attempt(box, s):
    """A rollback that something else may end."""
    try:
        return box.rollback(s["id"])
    except Exception as e:
        return e


@tiers(*BOTH)
@timeout(240)
def becomes_what_it_was(t):
    box = t.box(name="origin", env={"A": "b"}, timeout_s=900)
    pid, ask = keeper(box)
    first = ask()
    box.put("f", b"1")
    box.ok("sudo rm -rf /usr/share/doc")
    s = t.snapshot(box, name="before")
    before = box.info()
    ask(), box.put("f", b"2"), box.put("g", b"2")
    later = t.snapshot(box, name="after")
    stream = box.attach(pid, 0, deadline=60)
    stream.wait_output(b"\n")
    o = box.rollback("before")
    equal((o["id"], o["name"], o["state"], o["generation"]), (box.id, "origin", "running", before["generation"] + 1))
    equal((o["snapshot"], o["expires_at"]), (s["id"], before["expires_at"]))
    true(o["box"] != before["box"], "it has another machine")
    equal(box.get("f"), b"1")
    refuses("not_found", box.get, "g")
    equal(box.ok("test -e /usr/share/doc || echo removed; echo $A; hostname"), "removed\nb\norigin\n")
    stream.abort()
    if t.tier == "vm":
        equal(o["start"]["path"], "snapshot")
        again = ask()
        equal((int(again[0]), again[1:]), (int(first[0]) + 1, first[1:]), "its memory is what it was")
        clock_is_right(box)
    else:
        equal(o["start"]["path"], "boot")
        equal(box.ok("pgrep -f [k]eeper.py || echo none"), "none\n")
    # Forwards again, and back on the files alone.
    equal(box.rollback(later["id"])["snapshot"], later["id"])
    equal((box.get("f"), box.get("g")), (b"2", b"2"))
    boot = box.ok("cat /proc/sys/kernel/random/boot_id")
    equal(box.rollback("before", memory=False)["start"]["path"], "boot")
    true(box.ok("cat /proc/sys/kernel/random/boot_id") != boot)
    equal(box.get("f"), b"1")
    # It is a sandbox like any other: copies of it, a pause, the snapshots' deletion.
    kid = t.create(snapshot=t.snapshot(box, name="third")["id"])
    equal(kid.get("f"), b"1")
    box.pause(), box.resume()
    equal(box.get("f"), b"1")


@tiers("container")
def refusals(t):
    box, other = t.box(), t.box()
    s = t.snapshot(box)
    contains(refuses("invalid", other.rollback, s["id"]).message, "another sandbox")
    refuses("not_found", box.rollback, "no-such")
    refuses("invalid", box.rollback, s["id"], memory=True)
    refuses("invalid", box.rollback, "a b")
    box.pause()
    e = refuses("conflict", box.rollback, s["id"])
    contains(e.message, "is paused")
    contains(e.hint, "/resume")
    box.resume()
    equal(box.ok(["echo", "on"]), "on\n")


@tiers(*BOTH)
@own_daemon()
@timeout(180)
def stays_what_it_is_if_that_fails(t):
    box = t.box()
    pid, ask = keeper(box)
    first = ask()
    box.put("f", b"1")
    s = t.snapshot(box)
    box.put("f", b"2")
    for name in ("state", "upper.ext4"):
        for path in glob.glob(os.path.join(t.d.home, "snapshots", s["id"], name)):
            os.unlink(path)
    before = box.info()
    refuses("conflict internal not_found", box.rollback, s["id"])
    o = box.info()
    equal((o["state"], o["box"], o["generation"], o["snapshot"]), ("running", before["box"], before["generation"], before["snapshot"]))
    equal(box.get("f"), b"2")
    equal(int(ask()[0]), int(first[0]) + 1, "its processes were not touched")


@tiers(*BOTH)
@own_daemon()
@timeout(300)
def killed_at_any_moment(t):
    """The daemon dies in the middle: afterwards the sandbox runs as it was or as it was to become."""
    box = t.box()
    box.put("f", b"1")
    s = t.snapshot(box)
    for delay in (0.0, 0.02, 0.06, 0.12, 0.3):
        box.put("f", b"2")
        had = box.info()["box"]
        th = Threads()
        th.go(attempt, box, s)
        time.sleep(delay)
        t.d.sigkill()
        th.join(60)
        t.d.start(settle=False)
        o = box.info()
        equal(o["state"], "running", f"after {delay}")
        equal(box.get("f"), b"2" if o["box"] == had else b"1", f"after {delay}")
        equal(box.ok(["echo", "on"]), "on\n", f"after {delay}")


@tiers(*BOTH)
@timeout(120)
def kill_meanwhile(t):
    for delay in (0, 0.02, 0.08):
        box = t.box()
        s = box.snapshot()
        th = Threads()
        th.go(attempt, box, s)
        time.sleep(delay)
        box.kill()
        th.join(60)
        t.c.delete("/v1/snapshots/" + s["id"])
