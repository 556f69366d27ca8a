"""A guest that takes its own kernel down takes nothing else with it."""
import os
import subprocess
import time

from attack import attack
from hutchtest import *


@attack("guest-crash")
def reboot_calls(t, a):
    r = a.both("""
        for n, v in (("cad-off", 0),):
            tryit(n, lambda v=v: sc(169, 0xfee1dead, 672274793, v, 0))
    """) if t.tier == "container" else {}
    if a.refused:
        r.update(a.both("""
            for n, v in (("restart", 0x01234567), ("halt", 0xcdef0123), ("off", 0x4321fedc)):
                tryit(n, lambda v=v: sc(169, 0xfee1dead, 672274793, v, 0))
        """))
        a.judge(r)
        a.alive()
        return
    # A triple fault by way of a panic, then a reboot: the sandbox ends, typed.
    try:
        a.box.exec("echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger; sleep 30", user="root", deadline=60)
    except ApiError as e:
        true(e.code in ("gone", "guest", "unavailable"), e)
    o = a.box.wait_state("gone", "failed", seconds=30)
    true(o["end"]["reason"] in ("guest-exit", "host-fault"), o["end"])


@attack("guest-crash", tier_names=("vm",))
def console_flood(t, a):
    """A flood on the guest's console fills neither the host's disk nor its memory, keeps hutch-spawn idle, and reaches nobody's terminal."""
    def logs():
        out = subprocess.run(["du", "-scb", os.path.join(t.d.home, "log"), t.d.top], capture_output=True, text=True).stdout
        return int(out.splitlines()[-1].split()[0])

    def spawner():  # KiB resident, seconds of CPU
        pids = t.d.pids("hutch-spawn")
        rss = sum(int(l.split()[1]) for p in pids for l in open(f"/proc/{p}/status") if l.startswith("VmRSS"))
        cpu = sum(sum(map(int, open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[11:13])) for p in pids)
        return rss, cpu / os.sysconf("SC_CLK_TCK")
    size, (rss, cpu), began = logs(), spawner(), time.monotonic()
    a.box.exec("for i in $(seq 20000); do echo 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'; done > /dev/kmsg", user="root", deadline=90, timeout_ms=60000)
    a.box.exec("head -c 50000000 /dev/zero | tr '\\0' '\\033' > /dev/ttyS0", user="root", deadline=90, timeout_ms=10000)
    a.box.exec("sleep 1; printf '\\033]0;title\\007the end\\n' > /dev/ttyS0; sleep 1", user="root", deadline=90)
    took = time.monotonic() - began
    within(logs() - size, -1 << 20, 64 << 10, "bytes of logs")
    grown, used = spawner()
    within(grown - rss, -1 << 20, 2 << 10, "KiB that hutch-spawn grew by")
    t.note(f"hutch-spawn {(used - cpu) / took:.3f} cores, {grown - rss} KiB")
    within((used - cpu) / took, 0, 0.02, "cores that hutch-spawn used meanwhile")
    lines = a.box.console()
    contains(lines[-1], "\\x1b]0;title\\x07the end", "what came last is there, escaped")
    text = "\n".join(lines)
    true(len(text) <= 4 * 16384 and text.isascii() and text.replace("\n", "").isprintable(), text[-200:])
    equal([l for l in open(os.path.join(t.d.home, "log", "spawn.log"), "rb").read().splitlines() if b"\x1b" in l], [])
    a.alive()
