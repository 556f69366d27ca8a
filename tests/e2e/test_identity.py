"""Clones of one template are not the same machine twice."""
import json

from hutchtest import *
from recipes import built, tar_of

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


# Lives in a template's snapshot. Its generators are the same in every clone until somebody says that it is one.
TWIN = rb"""
import json, os, random, secrets, signal, socket, ssl, time, uuid
told = 0
alone = random.Random(os.urandom(16))   # nobody re-seeds this one
def again(*_):
    global told
    told += 1
    random.seed()
    ssl.RAND_add(os.urandom(48), 48)
signal.signal(signal.SIGUSR1, again)
random.random(), ssl.RAND_bytes(16), uuid.uuid4()
s = socket.socket(socket.AF_UNIX)
s.bind("/run/twin.sock")
os.chmod("/run/twin.sock", 0o777)
s.listen(8)
while True:
    c, _ = s.accept()
    c.sendall(json.dumps({"random": random.random(), "urandom": os.urandom(16).hex(), "uuid4": str(uuid.uuid4()), "secrets": secrets.token_hex(8),
                          "openssl": ssl.RAND_bytes(16).hex(), "alone": alone.random(), "told": told, "pid": os.getpid(), "wall": time.time()}).encode())
    c.close()
"""
HOOK = b"""#!/bin/sh
echo "$HUTCH_GENERATION $HUTCH_SANDBOX_ID" >> /run/twin.hooks
pkill -USR1 -f /opt/twin.py
"""
ASK = "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/twin.sock'); print(s.recv(4096).decode())"


@tiers("vm")
@timeout(600)
def processes_of_a_snapshot_are_not_twins(t):
    """Clones of a template whose START was running: what the kernel gives differs by itself, what a process keeps differs after the hook."""
    built(t, "twins", "FROM base\nUSER root\nCOPY twin.py /opt/twin.py\nCOPY hook.sh /etc/hutch/post-restore.d/50-twin\nRUN chmod 755 /etc/hutch/post-restore.d/50-twin\n"
                      "START python3 -u /opt/twin.py\nREADY test -S /run/twin.sock\n", tar_of({"twin.py": TWIN, "hook.sh": HOOK}), deadline=560)
    boxes = [t.create(template="twins", isolation="vm", deadline=60) for _ in range(2)]
    a, b = got = [json.loads(x.ok(["python3", "-c", ASK])) for x in boxes]
    for key in ("urandom", "uuid4", "secrets", "random", "openssl"):
        true(a[key] != b[key], f"{key}: {got}")
    for x, g in zip(boxes, got):
        true(g["told"] >= 1, "it was told that it is a clone")
        contains(x.ok("cat /run/twin.hooks"), f"1 {x.id}\n", "the hook knows whose and which")
    equal(a["alone"], b["alone"], "what nobody re-seeds is the same in both: this is why there are hooks")
    equal(a["pid"], b["pid"], "pids are those of the snapshot")
    # The same machine again after a pause: told once more, under the next generation.
    one = boxes[0]
    one.pause()
    one.resume()
    again = json.loads(one.ok(["python3", "-c", ASK]))
    equal((again["pid"], again["told"]), (a["pid"], a["told"] + 1))
    contains(one.ok("cat /run/twin.hooks"), f"2 {one.id}\n")
    for key in ("urandom", "uuid4", "secrets", "random", "openssl"):
        lacks((a[key], b[key]), again[key], key)


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
