"""Many at once."""
import time

from hutchtest import *


@tiers("vm", "container")
@own_daemon()
@timeout(240)
def fifty_at_once(t):
    n = 50
    need = n * t.diff("scale_mib")
    have = int(next(l for l in open("/proc/meminfo") if l.startswith("MemAvailable")).split()[1]) >> 10
    if have < need + 1024:
        skip(f"not enough memory: {need} MiB wanted, {have} MiB available")
    th = Threads()
    t0 = time.monotonic()

    def one(i):
        b = t.c.create(isolation=t.tier, name=f"many-{i}", deadline=150)
        t.boxes.append(b)
        equal(b.ok(["echo", str(i)], deadline=150), f"{i}\n")
        return b

    def lane(k):
        return [one(i) for i in range(k, n, 10)]
    for k in range(10):
        th.go(lane, k)
    boxes = [b for bs in th.join(200) for b in bs]
    t.note(f"{n} created and answered in {time.monotonic() - t0:.1f} s")
    equal(len({b.id for b in boxes}), n)
    equal(len(t.c.sandboxes(state="running")), n)
    # All of them answer while all of them live.
    th = Threads()
    for k in range(10):
        th.go(lambda k=k: [boxes[i].ok(["hostname"], deadline=100) for i in range(k, n, 10)])
    names = [x for xs in th.join(150) for x in xs]
    equal(len(set(names)), n, "each its own host name")
    th = Threads()
    for k in range(10):
        th.go(lambda k=k: [boxes[i].kill().status for i in range(k, n, 10)])
    equal(th.join(100), [[204] * 5] * 10)
    equal(t.c.sandboxes(), [])


@tiers("vm", "container")
@own_daemon()
@timeout(120)
def ten_creates_at_the_same_moment(t):
    th = Threads()
    for _ in range(10):
        th.go(lambda: t.create(isolation=t.tier, deadline=60))
    boxes = th.join(80)
    equal(len({b.id for b in boxes}), 10)
    for b in boxes:
        b.ok(["true"], deadline=60)
    t.note(" ".join(sorted(b.obj["start"]["path"] for b in boxes)))


@tiers("vm", "container")
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(90)
def works_without_pools(t):
    box = t.box()
    equal(box.obj["start"]["path"], "restore" if t.tier == "vm" else "cold")
    box.ok(["true"])


@tiers("vm")
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=2, HUTCH_POOL_CONTAINER=0)
@timeout(90)
def prestarted_path(t):
    t.d.wait_pools()
    equal(t.box().obj["start"]["path"], "prestarted")


@tiers("vm", "container")
@own_daemon()
@timeout(90)
def pool_path(t):
    want = "pool" if t.tier == "vm" else "slot"

    def try_one():
        b = t.box()
        p = b.obj["start"]["path"]
        b.kill()
        return p == want
    until(try_one, 40, f"a create by {want}")


@tiers("container")
@slow
@own_daemon()
@timeout(900)
def thousand_lives(t):
    for i in range(1000):
        b = t.create(isolation="container")
        b.ok(["true"])
        b.kill()
        t.boxes.clear()


@tiers("vm", "container")
@slow
@timeout(900)
def hundred_streams_never_read(t):
    box = t.box()
    streams = [box.stream("yes | head -c 1000000000") for _ in range(100)]
    for s in streams:
        s.started()
    for _ in range(20):
        box.ok(["true"], deadline=60)
    for s in streams:
        s.abort()
