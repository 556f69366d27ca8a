"""1 GB on one line: nobody's memory grows with it."""
from attack import attack
from hutchtest import *


SIZE = 1_000_000_000 if SLOW else 250_000_000


@attack("long-line", limit=200)
def one_line(t, a):
    rss = lambda: int(next(l for l in open(f"/proc/{t.d.pid}/status") if l.startswith("VmRSS")).split()[1])  # noqa: E731
    before, n, peak = rss(), 0, 0
    s = a.box.stream(f"head -c {SIZE} /dev/zero | tr '\\0' x", deadline=180)
    for ev in s:
        if ev["event"] == "stdout":
            n += len(ev["data"])
            if n % (16 << 20) < 70000:
                peak = max(peak, rss())
        elif ev["event"] == "exit":
            equal(ev["exit"], {"kind": "exit", "code": 0})
    equal(n, SIZE)
    within(peak - before, -(1 << 20), 64 << 10, "KiB the daemon grew by")
    r = a.box.exec(f"head -c {SIZE // 5} /dev/zero | tr '\\0' x", deadline=120)
    equal((r.obj["stdout_bytes"], r.obj["truncated"], len(r.stdout)), (SIZE // 5, True, 1048576))
    a.must_live()
