"""Fork: copies of a running sandbox that share one moment of it and nothing else."""
import os
import time

from hutchtest import *
from keeper import keeper
from outside import gated

BOTH = ("vm", "container")
IDENTITY = ("hostname", "cat /etc/machine-id", "cat /etc/hostname", "head -c 16 /dev/urandom | od -An -tx1", "cat /proc/sys/kernel/random/uuid",
            "python3 -c 'import os, uuid; print(os.urandom(8).hex(), uuid.uuid4())'")


def snapshot_files(t):
    return os.listdir(t.d.home + "/snapshots")


@tiers("vm")
@timeout(180)
def children_have_the_parents_memory(t):
    box = t.box(env={"A": "b"}, metadata={"m": "1"}, timeout_s=200)
    pid, ask = keeper(box)
    first = ask()
    box.put("/home/user/f", b"1")
    before = box.info()
    reply, kids = t.fork(box, count=3, timeout_s=99)
    equal((len(kids), reply["memory"]), (3, True))
    true(reply["downtime_ms"] > 0)
    t.note(f"downtime {reply['downtime_ms']} ms")
    after = box.info()
    for k in ("state", "id", "expires_at", "generation", "box"):
        equal(after[k], before[k], k)
    for kid in kids:
        o = kid.info()
        equal((o["state"], o["timeout_s"], o["metadata"], o["generation"]), ("running", 99, {"m": "1"}, 2))
        equal(kid.get("/home/user/f"), b"1")
        p = kid.process("tag:keeper")
        kid.stdin(pid, b"?\n")
        out = kid.attach(pid, p["output_bytes"], deadline=30).wait_output(b"\n").decode().split()
        equal((int(out[0]), out[1:]), (int(first[0]) + 1, first[1:]))
        equal(kid.ok("echo $A"), "b\n")
        clock_is_right(kid)
    second = ask()
    equal((int(second[0]), second[1:]), (int(first[0]) + 1, first[1:]), "the parent did not notice")
    # Nobody sees what another writes.
    for i, kid in enumerate(kids):
        kid.put("/home/user/f", b"kid%d" % i)
    equal([k.get("/home/user/f") for k in kids] + [box.get("/home/user/f")], [b"kid0", b"kid1", b"kid2", b"1"])


@tiers("vm")
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(300)
def many_children_share_what_they_do_not_write(t):
    """The pages of a snapshot lie in memory once; each child's own are its own, and stay so over a pause, a copy and another daemon."""
    mib = 64
    box = t.box(timeout_s=280)
    total = box.ok(f"head -c {mib << 20} /dev/urandom > /dev/shm/big; cksum < /dev/shm/big", deadline=120)
    kids = t.fork(box, count=5)[1]  # five times 64 MiB are more than the template's memory and those

    def own(kid):
        """MiB that are this process's alone."""
        text = open(f"/proc/{t.d.init_of(kid.info()['box'])}/smaps_rollup").read()
        return sum(int(l.split()[1]) for l in text.splitlines() if l.startswith("Private_")) / 1024
    sizes = [own(k) for k in kids]
    t.note(f"own memory {' '.join('%.0f' % s for s in sizes)} MiB, of the parent {own(box):.0f} MiB")
    true(max(sizes) < mib, f"{sizes}: each holds the parent's {mib} MiB")
    true(own(box) > mib)
    check = "cksum < /dev/shm/big"
    equal([k.ok(check, deadline=60) for k in kids], [total] * 5)
    changed = "printf %s | dd of=/dev/shm/big bs=1 seek=50000000 conv=notrunc status=none; " + check
    own_sums = [k.ok(changed % f"kid{i}", deadline=60) for i, k in enumerate(kids[:3])]
    equal(len({total, *own_sums}), 4, "each has its own")
    # A pause keeps what it shares as well as what it wrote.
    kids[0].pause()
    kids[0].resume()
    equal(kids[0].ok(check, deadline=60), own_sums[0])
    # So does a copy of a copy, and one more when the first is gone.
    grandchild = t.fork(kids[1], count=1)[1][0]
    kids[1].kill()
    equal(grandchild.ok(check, deadline=60), own_sums[1])
    # Another daemon knows what its machines stand on.
    t.d.sigkill()
    t.d.start(settle=False)
    kids[2].pause()
    box.kill()
    kids[3].kill()
    kids[2].resume()
    equal([kids[2].ok(check, deadline=60), kids[4].ok(check, deadline=60)], [own_sums[2], total])
    kids[4].rollback(t.snapshot(kids[4])["id"])
    equal(kids[4].ok(check, deadline=60), total)


@tiers(*BOTH)
@timeout(180)
def nothing_is_shared_but_the_past(t):
    box = t.box()
    box.ok("head -c 100 /dev/urandom >/dev/null; cat /proc/sys/kernel/random/uuid >/dev/null")  # a generator that has been used
    everyone = [box] + t.fork(box, count=3)[1]
    for what in IDENTITY:
        seen = [b.ok(what) for b in everyone]
        equal(len(set(seen)), len(seen), what)
    equal(len({b.info()["box"] for b in everyone}), 4)


@tiers("container")
@timeout(60)
def previews_are_not_shared(t):
    """Who was let in at one is not let in at its siblings."""
    box = t.box(preview="token")
    everyone = [box] + t.fork(box, count=3)[1]
    tokens = [t.c.get(f"{b.p}/url?port=8000")["token"] for b in everyone]
    true(all(tokens), tokens)
    equal(len(set(tokens)), 4)


@tiers("container")
@timeout(60)
def a_container_is_copied_as_files(t):
    box = t.box()
    data = os.urandom(100_000)
    box.put("/home/user/f", data)
    pid, _ = keeper(box)
    v = t.c.post("/v1/volumes", {"name": "shared", "size_mib": 64})
    t.cleanup_later(t.c.delete, "/v1/volumes/" + v["id"])
    other = t.box(volumes=[{"name": "shared", "path": "/data"}])
    reply, kids = t.fork(box, count=4)
    equal(reply["memory"], False, "said in the reply")
    true(reply["downtime_ms"] > 0)
    for kid in kids:
        equal(kid.get("/home/user/f"), data)
        equal(kid.ok("pgrep -f [k]eeper.py || echo none"), "none\n")
    refuses("unsupported", box.fork, memory=True)
    (kid,) = t.fork(other)[1]
    other.ok("sudo sh -c 'echo hello >/data/x'")
    equal(kid.ok("cat /data/x"), "hello\n", "volumes come along")


@tiers(*BOTH)
@timeout(180)
def forks_of_forks(t):
    box = t.box()
    box.put("0", b"0")
    at = box
    for i in range(1, 4):
        (at,) = t.fork(at)[1]
        at.put(str(i), b"%d" % i)
    equal(sorted(e["name"] for e in at.ls("/home/user") if e["name"].isdigit()), ["0", "1", "2", "3"])
    box.kill()
    at.pause()
    at.resume()
    equal([at.get(str(i)) for i in range(4)], [b"0", b"1", b"2", b"3"])
    for b in t.boxes:
        if b.id != box.id:
            b.kill()
    until(lambda: not snapshot_files(t), 20, "a fork's files go with the last that needs them")
    equal(t.c.get("/v1/snapshots")["snapshots"], [], "and they are in no list")


@tiers("vm")
@timeout(180)
def forks_at_once_share_one_moment(t):
    box = t.box()
    box.put("f", b"1")
    th = Threads()
    for _ in range(5):
        th.go(lambda: t.fork(box))
    replies = th.join(120)
    kids = [k for _, ks in replies for k in ks]
    equal([k.get("f") for k in kids], [b"1"] * 5)
    on = [k.info()["snapshot"] for k in kids]
    true(len(set(on)) < 5, "at least two of them share")
    equal(len(snapshot_files(t)), len(set(on)))


@tiers("container")
@own_daemon(HUTCH_MAX_SANDBOXES="3")
@timeout(60)
def one_that_fails_does_not_fail_the_others(t):
    box = t.box()
    reply, kids = t.fork(box, partly=True, count=4)
    equal(len(kids), 2)
    bad = [f["error"] for f in reply["forks"] if "error" in f]
    equal([e["code"] for e in bad], ["quota", "quota"])
    contains(bad[0]["message"], "HUTCH_MAX_SANDBOXES")
    for b in t.boxes:
        b.kill()
    until(lambda: not snapshot_files(t), 20, "the moment is gone too")


@tiers(*BOTH)
@timeout(60)
def refusals(t):
    box = t.box()
    for bad in ({"count": 0}, {"count": 101}, {"count": "x"}, {"n": 1}, {"timeout_s": 0}, {"timeout_s": 10**9}):
        refuses("invalid", box.fork, **bad)
    if t.tier == "vm":
        box.pause(standby=True)
        t.fork(box, count=1)[1][0].ok(["true"])
        equal(box.info()["paused"]["kind"], "standby", "nobody woke it")
    box.kill()
    refuses("gone", box.fork)
    refuses("not_found", t.c.post, "/v1/sandboxes/nobody/fork", {})


@tiers("vm")
@gated
@timeout(120)
def connections_of_the_parent_are_dead_in_children(t):
    o = t.outside
    box = t.box(network={"allow": [f"{o.ip()}:7"]})
    box.put("/tmp/hold.py", f"""
import socket, sys
s = socket.create_connection(('{o.ip()}', 7), timeout=20)
print("connected", flush=True)
for line in sys.stdin:
    try:
        s.sendall(b'.')
        print("alive" if s.recv(9) else "closed", flush=True)
    except OSError as e:
        print("dead", type(e).__name__, flush=True)
        s = socket.create_connection(('{o.ip()}', 7), timeout=20)
""".encode())
    pid = box.background(["python3", "-u", "/tmp/hold.py"], keep_stdin=True)
    box.attach(pid, 0, deadline=30).wait_output(b"connected\n")

    def poke(b):
        at = b.process(pid)["output_bytes"]
        b.stdin(pid, b"?\n")
        return b.attach(pid, at, deadline=40).wait_output(b"\n").decode().split()[0]
    equal(poke(box), "alive")
    (kid,) = t.fork(box)[1]
    contains(("dead", "closed"), poke(kid), "the child's copy of the connection")
    equal(poke(kid), "alive", "a new one works, under the parent's policy")
    equal(poke(box), "alive", "the parent's goes on")
    equal(kid.info()["network"]["allow"], box.info()["network"]["allow"])


@tiers(*BOTH)
@own_daemon()
@timeout(240)
def killed_at_any_moment(t):
    """The daemon dies during a fork: the parent runs, children are whole or not there, no file is left over."""
    box = t.box()
    box.put("f", b"1")
    for delay in (0.0, 0.05, 0.15, 0.3, 0.6):
        th = Threads()

        def fork():
            try:
                box.fork(count=3)
            except Exception:
                pass  # the daemon is gone
        th.go(fork)
        time.sleep(delay)
        t.d.sigkill()
        th.join(60)
        t.d.start(settle=False)
        equal(box.get("f"), b"1", f"after {delay}")
        for o in t.c.sandboxes():
            if o["id"] != box.id:
                kid = t.c.box(o["id"])
                equal(kid.get("f"), b"1")
                kid.kill()
        until(lambda: not snapshot_files(t), 20, f"files after {delay}")
