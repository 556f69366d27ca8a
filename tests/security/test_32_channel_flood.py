"""Output nobody reads, input nobody takes, many streams: flow control holds."""
from attack import attack
from hutchtest import *


@attack("channel-flood", limit=150)
def endless_output_never_read(t, a):
    rss = lambda: int(next(l for l in open(f"/proc/{t.d.pid}/status") if l.startswith("VmRSS")).split()[1])  # noqa: E731
    before = rss()
    streams = [a.box.stream("exec cat /dev/zero") for _ in range(12)]
    for s in streams:
        s.started()
    for _ in range(8):
        a.box.ok(["true"], deadline=40)
    within(rss() - before, -(1 << 20), 64 << 10, "KiB the daemon grew by")
    for s in streams:
        s.abort()
    until(lambda: a.box.exec(["pgrep", "-x", "cat"], deadline=30).code == 1, 30, "writers end with their readers")
    a.must_live()


@attack("channel-flood", limit=150)
def endless_output_in_the_background(t, a):
    pids = [a.box.background("exec cat /dev/zero", timeout_ms=6000) for _ in range(4)]
    for _ in range(6):
        a.box.ok(["true"], deadline=40)
    for p in pids:
        a.box.wait_process(p, 60)
    a.must_live()
