"""Clones of one template are not the same machine twice."""
import array
import hashlib
import itertools
import json
import os
import subprocess

from hutchtest import *

PROBE = r"""
import os, uuid, json, socket, random, secrets, ssl
print(json.dumps({
  "urandom": os.urandom(32).hex(), "getrandom": os.getrandom(16).hex(), "uuid4": str(uuid.uuid4()), "random": random.random(),
  "secrets": secrets.token_hex(16), "openssl": ssl.RAND_bytes(16).hex(), "hash": hash("x" * 20),
  "hostname": socket.gethostname(), "machine_id": open("/etc/machine-id").read().strip(),
  "boot_id": open("/proc/sys/kernel/random/boot_id").read().strip(), "tmp": os.path.basename(__import__("tempfile").mkdtemp()),
}))
"""


@tiers("vm", "container")
@timeout(120)
def clones_differ(t):
    boxes = [t.box() for _ in range(6)]
    got = [json.loads(b.ok(["python3", "-c", PROBE])) for b in boxes]
    for key in ("urandom", "getrandom", "uuid4", "random", "secrets", "openssl", "hostname", "machine_id", "tmp"):
        values = [g[key] for g in got]
        equal(len(set(values)), len(values), f"{key}: {values}")
    if t.diff("own_boot_id"):
        values = [g["boot_id"] for g in got]
        equal(len(set(values)), len(values), f"boot_id: {values}")
    for g in got:
        equal(len(g["machine_id"]), 32)
    t.note(" ".join(sorted({b.obj["start"]["path"] for b in boxes})))


@tiers("vm", "container")
def first_random_bytes_of_the_kernel_differ(t):
    """Read at once with the smallest program there is, before anything else could have stirred the pool."""
    got = [t.box().ok("head -c 16 /dev/urandom | od -An -tx1") for _ in range(4)]
    equal(len(set(got)), 4, got)


@tiers("vm", "container")
def node_differs_too(t):
    got = [t.box().ok(["node", "-e", "console.log(crypto.randomUUID(), Math.random())"]) for _ in range(2)]
    equal(len(set(got)), 2, got)


@tiers("vm", "container")
@timeout(120)
def clock_is_right(t):
    got = []
    for _ in range(3):
        box = t.box()
        got.append(clock_is_within_50_ms(box, box.obj))
    box.pause(standby=True)
    got.append(clock_is_within_50_ms(box, box.resume()))
    box.pause()
    got.append(clock_is_within_50_ms(box, box.resume(deadline=90)))
    t.note("offsets in ms: " + " ".join(f"{x * 1000:.1f}" for x in got))


@tiers("vm", "container")
def hostname_is_consistent(t):
    box = t.box()
    name = box.ok(["hostname"]).strip()
    equal(box.ok(["uname", "-n"]).strip(), name)
    equal(box.ok(["cat", "/etc/hostname"]).strip(), name)
    r = box.exec(["getent", "hosts", name])
    equal(r.code, 0, "its own name resolves without a network")


@tiers("vm", "container")
def hosts_can_be_edited(t):
    box = t.box()
    box.ok("echo '192.0.2.7 appended' >> /etc/hosts && sed -i '$ a 192.0.2.8 replaced' /etc/hosts", user="root")
    for name, address in (("appended", "192.0.2.7"), ("replaced", "192.0.2.8")):
        contains(box.ok(["getent", "hosts", name]), address)
    contains(box.ok("cat /etc/hosts"), "localhost", "and its own lines are still there")
    contains(box.ok("getent hosts $(hostname)"), box.ok(["hostname"]).strip())


@tiers("vm", "container")
def generation_is_counted(t):
    a, b = t.box(), t.box()
    true(a.obj["generation"] >= 1 and b.obj["generation"] >= 1)


@tiers("vm", "container")
def nothing_of_the_sibling(t):
    a = t.box(env={"SECRET": "s3cr3t-of-a"})
    a.put("/home/user/private", b"of a")
    a.ok("echo of-a > /tmp/left; echo of-a > /dev/shm/left")
    b = t.box()
    lacks(b.ok(["env"]), "s3cr3t")
    refuses("not_found", b.get, "/home/user/private")
    equal(b.ok(["ls", "/tmp", "/dev/shm"]).count("left"), 0)
    lacks(b.ok("cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'", user="root"), "s3cr3t")
    a.kill()
    c = t.box()
    refuses("not_found", c.get, "/home/user/private")


@tiers("vm", "container")
def history_is_clean(t):
    """No traces of the build or of priming in a fresh sandbox."""
    box = t.box()
    equal(box.ok("ls -A /tmp /var/tmp /dev/shm | grep -v ':$' | grep -v '^$' || true"), "")
    equal(box.ok("cat ~/.bash_history /root/.bash_history 2>/dev/null || true", user="root"), "")
    procs = [p for p in box.ok("ps -eo pid=,ppid=,args=", user="root").splitlines()]
    foreign = [p for p in procs if not any(w in p for w in ("[", "hutch-agent", "ps -eo", "/init", "agent"))]
    true(len(foreign) <= 1, f"processes of a fresh sandbox: {foreign}")


# Live in a snapshot. Their generators are the same in every clone until somebody says that it is one.
TWIN = rb"""
import json, os, random, secrets, signal, socket, ssl, sys, uuid
at, told = sys.argv[1], 0
alone = random.Random(os.urandom(16))   # nobody re-seeds this one
def again(*_):
    global told
    told += 1
    random.seed()
    ssl.RAND_add(os.urandom(48), 48)
signal.signal(signal.SIGUSR1, again)
random.random(), ssl.RAND_bytes(16), uuid.uuid4()
s = socket.socket(socket.AF_UNIX)
s.bind(at)
s.listen(8)
while True:
    c, _ = s.accept()
    c.sendall(json.dumps({"random": random.random(), "urandom": os.urandom(16).hex(), "uuid4": str(uuid.uuid4()), "secrets": secrets.token_hex(8),
                          "openssl": ssl.RAND_bytes(16).hex(), "alone": alone.random(), "told": told, "pid": os.getpid()}).encode())
    c.close()
"""
HOOK = b"""#!/bin/sh
echo "$HUTCH_GENERATION $HUTCH_SANDBOX_ID" >> /run/twin.hooks
pkill -USR1 -f '^python3 /opt/twin.py /run/told.sock'
rm -f /run/restarted.sock
pkill -KILL -f '^python3 /opt/twin.py /run/restarted.sock'
"""
ASK = r"""
import json, socket, sys, time
got = []
for name in ("told", "restarted"):
    while True:
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(f"/run/{name}.sock")
            break
        except OSError:
            time.sleep(0.05)
    got.append(json.loads(s.recv(4096)))
print(json.dumps(got))
"""
DRAWN = ("urandom", "uuid4", "secrets", "random", "openssl")


@tiers("vm")
@timeout(180)
def processes_of_a_snapshot_are_not_twins(t):
    """Clones of a machine in which processes were running: what the kernel gives differs by itself, what a process keeps differs
    after the hook, which has it seed again or, if it cannot, restarts it."""
    box = t.box()
    for path, data, mode in (("/opt/twin.py", TWIN, "644"), ("/etc/hutch/post-restore.d/50-twin", HOOK, "755")):
        box.put(path, data, mode=mode, user="root")
    box.background(["python3", "/opt/twin.py", "/run/told.sock"], user="root")
    box.background("while :; do python3 /opt/twin.py /run/restarted.sock; done", user="root")
    ask = lambda b: json.loads(b.ok(["python3", "-c", ASK], user="root", deadline=60))  # noqa: E731
    first = ask(box)
    kids = t.fork(box, count=2)[1]
    got = [ask(k) for k in kids]
    (a, a2), (b, b2) = got
    for key in DRAWN:
        true(a[key] != b[key], f"{key}: {got}")
    for key in (*DRAWN, "alone"):
        true(a2[key] != b2[key], f"of the one that was restarted, {key}: {got}")
    for k, g in zip(kids, (a, b)):
        equal(g["told"], 1, "it was told that it is a clone")
        equal(k.ok("cat /run/twin.hooks"), f"2 {k.id}\n", "the hook knows whose and which")
    equal(a["alone"], b["alone"], "what nobody seeds again is the same in both: this is why there are hooks")
    equal((a["pid"], b["pid"]), (first[0]["pid"],) * 2, "pids are those of the snapshot")
    equal(ask(box)[0]["told"], 0, "the parent is no clone")
    # The same machine again after a pause: told once more, under the next generation.
    one = kids[0]
    one.pause()
    one.resume()
    again, _ = ask(one)
    equal((again["pid"], again["told"]), (a["pid"], 2))
    equal(one.ok("cat /run/twin.hooks"), f"2 {one.id}\n3 {one.id}\n")
    for key in DRAWN:
        lacks((a[key], b[key]), again[key], key)


def memory_of(pid):
    """The pages a process has, in pieces. Others are not touched: to read them would make them."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem, open(f"/proc/{pid}/pagemap", "rb", 0) as pages:
        for line in maps:
            where, access = line.split()[:2]
            if "r" not in access or "[v" in line:
                continue
            at, end = (int(x, 16) >> 12 for x in where.split("-"))
            pages.seek(at * 8)
            there = array.array("Q", pages.read((end - at) * 8))
            for present, run in itertools.groupby(range(len(there)), lambda i: there[i] >> 63):
                if present:
                    run = list(run)
                    mem.seek((at + run[0]) << 12)
                    yield mem.read(len(run) << 12)


@tiers("vm")
@own_daemon(HUTCH_POOL_VM="1", HUTCH_POOL_PRESTARTED="1")
@timeout(120)
def memory_of_an_ended_clone_is_nowhere(t):
    """Marks in a clone's memory, seen in its machine from outside, and after its end in no process and no file of ours."""
    # The clone makes the mark itself: what a client sends passes through the daemon's memory, and may be found there.
    seed = os.urandom(12).hex()
    mark = hashlib.sha256(seed.encode()).hexdigest()[:24]
    has = lambda pid: any(mark.encode() in part for part in memory_of(pid))  # noqa: E731
    box = t.box()
    box.ok(f"yes $(printf {seed} | sha256sum | cut -c1-24) | head -c 4000000 > /dev/shm/marks")
    machine = t.d.init_of(box.info()["box"])
    true(has(machine), "it can be seen from outside while it lives")
    box.kill()
    new = t.box()
    new.ok(["true"])
    t.d.wait_pools()
    machines = t.d.pids("qemu-system-x86")
    true(len(machines) >= 2, "the new one, and one that waits")
    held = [(name, pid) for name in ("qemu-system-x86", "hutchd", "hutch-spawn", "hutch-egress") for pid in t.d.pids(name) if has(pid)]
    equal(held, [], "processes that hold it")
    grep = subprocess.run(["grep", "-rlF", mark, *(os.path.join(t.d.home, x) for x in ("boxes", "snapshots", "tmp", "log", "state.db"))], capture_output=True, text=True)
    equal((grep.returncode, grep.stdout), (1, ""), "files that hold it")


@tiers("vm", "container")
def network_of_clones_is_their_own(t):
    """Clones may have the same MAC and address: each has a network of its own, and there is no way from one to the other."""
    a, b = t.box(network={"mode": "open"}), t.box(network={"mode": "open"})
    b.background(["python3", "-m", "http.server", "8123", "--bind", "0.0.0.0"])
    until(lambda: b.exec(["python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8123), 2)"]).code == 0, 20, "it listens")
    addresses = b.ok("hostname -I 2>/dev/null || true").split() or ["127.0.0.1"]
    for ip in addresses:
        probe = f"import socket\ntry:\n    s = socket.create_connection(('{ip}', 8123), 3); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.recv(9)[:9])\nexcept OSError as e:\n    print('refused')"
        lacks(a.ok(["python3", "-c", probe]), "200", f"from one clone to {ip} of another")
