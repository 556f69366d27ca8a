"""A taken-over agent answers with malformed, oversized, endless and contradicting frames.

Another program takes the agent's place on its channel (tests/lib/fakeagent.py)
and lies in reply to an exec. The daemon must answer with a typed error or with
what the guest said about itself, never hang, never crash, never disturb others.
"""
import os
import subprocess
import sys


import fakeagent
from attack import attack
from hutchtest import *

HARMLESS = {"exit-twice", "after-the-end"}  # well-formed up to the exit: the guest's own word about its own process


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


def lie(t, a, name):
    box = t.box()
    helper = None
    if t.tier == "vm":
        with open(fakeagent.__file__, "rb") as f:
            box.put("/tmp/fakeagent.py", f.read(), user="root")
        # From the moment it is ready the agent does not answer any more, so it tells by a request that goes unanswered:
        # start it detached and let the exec below wait for it.
        box.background(["python3", "/tmp/fakeagent.py", "1", name], user="root")
        try:
            until(lambda: box.exec(["test", "-e", "/tmp/fakeagent-ready"], deadline=15, timeout_ms=5000).code == 0, 20)
            raise AssertionError("the agent still answers after it was stopped")
        except (ApiError, Late):
            pass  # this very call got the lie
    else:
        pid = container_agent(t, box)
        helper = subprocess.Popen([sys.executable, fakeagent.__file__, str(pid), name], stdout=subprocess.PIPE)
        try:
            equal(helper.stdout.readline(), b"ready\n")
            try:
                r = box.exec(["true"], deadline=60, timeout_ms=5000)
                true(name in HARMLESS, f"{name}: believed: {r}")
            except ApiError as e:
                true(e.code in ("guest", "gone", "timeout", "unavailable", "canceled", "internal", "invalid", "not_found", "denied", "conflict"), f"{name}: {e}")
                true(e.code != "internal", f"{name}: a guest's lie is not our internal error: {e}")
                lacks(e.message, "\x1b", name)
        finally:
            helper.kill()
            helper.communicate()
    equal(t.c.health()["status"], "ok", name)
    try:
        box.kill()
    except ApiError as e:
        equal(e.code, "not_found", name)
    o = t.c.box(box.id).info()
    equal(o["state"], "gone", name)


FIRST = ["garbage", "zeros", "ones", "huge-length", "length-over-limit", "wrong-epoch", "unknown-type", "request-to-the-host", "reserved-bits", "unknown-channel"]
SECOND = ["broken-record", "unknown-event", "empty-event", "empty-result", "unknown-error-code", "hostile-message", "result-without-exit", "odd-exit", "odd-pid"]
THIRD = ["exit-twice", "after-the-end", "unknown-streams", "endless-credit", "short-credit", "deep-records", "many-events", "past-the-credit", "torn", "sync-again", "old-version"]
VM = ["garbage", "huge-length", "broken-record", "past-the-credit", "many-events", "odd-exit"]


@attack("hostile-agent", tier_names=("container",), limit=200)
def malformed_frames(t, a):
    for name in FIRST:
        lie(t, a, name)


@attack("hostile-agent", tier_names=("container",), limit=200)
def malformed_records(t, a):
    for name in SECOND:
        lie(t, a, name)


@attack("hostile-agent", tier_names=("container",), limit=200)
def contradictions_and_floods(t, a):
    rss = lambda: int(next(l for l in open(f"/proc/{t.d.pid}/status") if l.startswith("VmRSS")).split()[1])  # noqa: E731
    before = rss()
    for name in THIRD:
        lie(t, a, name)
    within(rss() - before, -(1 << 20), 64 << 10, "KiB the daemon grew by")
    equal(set(fakeagent.LIES), set(FIRST + SECOND + THIRD), "every lie is told")


@attack("hostile-agent", tier_names=("vm",), limit=240)
def from_inside_a_vm(t, a):
    """Root in the guest owns PID 1 and does the same from there."""
    for name in VM if not SLOW else sorted(fakeagent.LIES):
        lie(t, a, name)
