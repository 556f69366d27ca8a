"""A guest that takes its own kernel down takes nothing else with it."""
import subprocess

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
    """A kernel log flood on the guest's console does not fill the host's disk or memory."""
    def held():  # of this daemon alone: others use the disk, too
        out = subprocess.run(["du", "-sck", t.d.home, t.d.top], capture_output=True, text=True).stdout
        return int(out.splitlines()[-1].split()[0])
    before = held()
    a.box.exec("for i in $(seq 20000); do echo 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'; done > /dev/kmsg", user="root", deadline=90, timeout_ms=60000)
    a.box.exec("head -c 50000000 /dev/zero | tr '\\0' c > /dev/ttyS0", user="root", deadline=90, timeout_ms=10000)
    within((held() - before) >> 10, -100000, 150, "MiB of the host's disk")
    a.alive()
