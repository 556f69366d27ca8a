"""A taken-over agent answers with malformed, oversized, endless and contradicting frames.

Another program takes the agent's place on its channel (tests/lib/fakeagent.py)
and lies in reply to an exec. The daemon must answer with a typed error or with
what the guest said about itself, never hang, never crash, never disturb others.
"""
import os
import subprocess
import sys
import threading
import time

import fakeagent
from attack import attack
from hutchtest import *

HARMLESS = {"exit-twice", "after-the-end"}  # well-formed up to the exit: the guest's own word about its own process
# What a daemon may pass over without a word; then nobody answers, and that a silent agent is noticed is
# test_recovery.its_process_stands_still. Everything else must be answered with a typed error.
PASSED_OVER = {"request-to-the-host", "broken-record", "unknown-event", "empty-event", "unknown-streams", "endless-credit", "short-credit", "many-events",
               "past-the-credit", "torn", "old-version"}
TYPED = ("guest", "gone", "timeout", "unavailable", "canceled", "invalid", "not_found", "denied", "conflict")  # "internal" would blame us


def container_agent(t, box):
    """Host pid of the container's PID 1."""
    mark = "mark-" + os.urandom(6).hex()
    pid = box.background(["python3", "-c", f"import time  # {mark}\ntime.sleep(600)"])

    def find():
        table = {p.pid: p for p in t.d.census.mine()}
        for p in table.values():
            if mark.encode() in p.cmd:
                while p.ppid in table and p.comm != "hutch-agent":
                    p = table[p.ppid]
                while p.ppid in table and table[p.ppid].comm == "hutch-agent":
                    p = table[p.ppid]
                return p.pid
        return None
    got = until(find, 10, "the agent's pid")
    box.signal(pid, 9)
    return got


def gone(t, box, name):
    """Whatever happened: the daemon is well and the sandbox can be removed."""
    equal(t.c.health()["status"], "ok", name)
    try:
        box.kill()
    except ApiError as e:
        equal(e.code, "not_found", name)
    until(lambda: t.c.box(box.id).info()["state"] == "gone", 15, f"{name}: gone")


def impostor(t, box, name):
    """Take the place of a container's agent; returns the process once it has the channel."""
    p = subprocess.Popen([sys.executable, fakeagent.__file__, str(container_agent(t, box)), name], stdout=subprocess.PIPE)
    try:
        equal(p.stdout.readline(), b"ready\n", name)
    except BaseException:
        p.kill()
        p.communicate()
        raise
    return p


def lie(t, name):
    box = t.box()
    p = impostor(t, box, name)
    try:
        r = box.exec(["true"], deadline=1.5 if name in PASSED_OVER else 30, timeout_ms=5000)
        true(name in HARMLESS, f"{name}: believed: {r}")
    except Late:
        true(name in PASSED_OVER, f"{name}: no answer")
    except ApiError as e:
        true(e.code in TYPED, f"{name}: {e}")
        lacks(e.message, "\x1b", name)
    finally:
        p.kill()
        p.communicate()
    gone(t, box, name)


FRAMES = ["garbage", "zeros", "ones", "huge-length", "length-over-limit", "wrong-epoch", "unknown-type", "request-to-the-host", "reserved-bits", "unknown-channel"]
RECORDS = ["broken-record", "unknown-event", "empty-event", "empty-result", "unknown-error-code", "hostile-message", "result-without-exit", "odd-exit", "odd-pid"]
CONTRADICTIONS = ["exit-twice", "after-the-end", "unknown-streams", "endless-credit", "short-credit", "deep-records", "many-events", "past-the-credit", "torn",
                  "sync-again", "old-version"]
FLOODS = ["endless-data"]
# From inside a VM only lies with a visible effect: the typed refusal proves that the port was really taken.
VISIBLE = ["garbage", "huge-length", "unknown-type", "wrong-epoch", "odd-exit"]


@attack("hostile-agent", tier_names=("container",), limit=200)
def malformed_frames(t, a):
    for name in FRAMES:
        lie(t, name)


@attack("hostile-agent", tier_names=("container",), limit=200)
def malformed_records(t, a):
    for name in RECORDS:
        lie(t, name)


@attack("hostile-agent", tier_names=("container",), limit=200)
def contradictions(t, a):
    for name in CONTRADICTIONS:
        lie(t, name)
    equal(set(fakeagent.LIES), set(FRAMES + RECORDS + CONTRADICTIONS + FLOODS), "every lie is told")


@attack("hostile-agent", tier_names=("container",), limit=100)
def more_than_was_granted(t, a):
    """Credit is the daemon's protection: an agent that sends past it, to a client that does not read, must not fill our memory."""
    rss = lambda: int(next(l for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS")).split()[1])  # noqa: E731
    pid = t.d.pid
    before = peak = rss()
    box = t.box()
    p = impostor(t, box, "endless-data")
    try:
        s = box.stream(["true"], deadline=30)
        end = Deadline(2)
        while not end.over:
            peak = max(peak, rss())
            time.sleep(0.01)
        refuses("guest gone unavailable not_found", box.exec, ["true"], deadline=30)
        s.abort()
    finally:
        p.kill()
        p.communicate()
    t.note(f"peak +{(peak - before) >> 10} MiB")
    within(peak - before, 0, 48 << 10, "KiB the daemon grew by")
    gone(t, box, "endless-data")


@attack("hostile-agent", tier_names=("vm",), limit=200)
def from_inside_a_vm(t, a):
    """Root in the guest takes the agent's port by rebinding its driver."""
    with open(fakeagent.__file__, "rb") as f:
        code = f.read()

    def one(name):
        box = t.c.create(isolation="vm")
        t.boxes.append(box)
        box.put("/tmp/fakeagent.py", code, user="root")
        box.background(["python3", "/tmp/fakeagent.py", "1", name], user="root")
        end = Deadline(60)
        while True:
            try:
                box.exec(["true"], deadline=min(10, end.check(f"{name}: the port was not taken")), timeout_ms=5000)  # the agent still answers
            except ApiError as e:
                # some lies are told unasked: then the sandbox may have ended before this call came
                true(e.code == "guest" or e.code == "gone" and "agent" in str(e), f"{name}: {e.code}: {e}")
                break
            except Late:
                end.check(f"{name}: the port was not taken")  # that question was lost between the agent and the impostor
            threading.Event().wait(0.1)
        gone(t, box, name)
    for name in VISIBLE if not SLOW else VISIBLE * 3:
        one(name)
