"""Clones of one template are not the same machine twice."""
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
    import json
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
