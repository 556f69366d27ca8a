"""What a sandbox may use: reached limits are said, and do no harm."""
from hutchtest import *


@tiers("vm", "container")
@timeout(90)
def memory_ends_in_oom(t):
    box = t.box(memory_mib=256)
    r = box.exec(["python3", "-c", "x=[]\nwhile True: x.append(bytearray(4<<20))"], deadline=80, timeout_ms=70000)
    equal(r.exit["kind"], "oom", r)
    equal(r.exit["signal"], 9)
    o = box.info()
    equal(o["state"], "running", "the kernel killed the command, not the sandbox")
    box.ok(["echo", "still here"])


@tiers("vm", "container")
def memory_below_the_limit_is_fine(t):
    box = t.box()
    box.ok(["python3", "-c", "x=bytearray(250<<20)\nfor i in range(0,len(x),4096): x[i]=1\nprint(len(x))"])


def small_disk(t):
    """A size with little room: filled in seconds, also through an emulated disk."""
    return t.c.get("/v1/templates/base")["disk_min_mib"] + 64


@tiers("vm", "container")
@timeout(120)
def full_disk_is_typed(t):
    size = small_disk(t)
    box = t.box(disk_mib=size)
    r = box.exec("dd if=/dev/zero of=/home/user/fill bs=1M 2>&1", timeout_ms=110_000, deadline=115)
    contains(r.text.lower(), "no space left")
    e = refuses("quota", box.put, "/home/user/more", b"x" * 3_000_000)
    true("space" in e.message.lower() or "full" in e.message.lower() or "disk" in e.message.lower(), e.message)
    box.ok(["rm", "/home/user/fill"])
    box.put("/home/user/more", b"x" * 3_000_000)
    m = box.metrics()
    within(m["disk_total"] >> 20, size * 0.7, size * 1.03, "what the file system keeps for itself aside")


@tiers("vm", "container")
def disk_below_the_template_is_refused(t):
    low = t.c.get("/v1/templates/base")["disk_min_mib"]
    refuses("invalid", t.box, disk_mib=low - 1)


@tiers("vm", "container")
@timeout(200)
def processes_are_limited(t):
    box = t.box(memory_mib=256)
    # Each child stops at opening a FIFO that nobody writes to; a shell whose fork fails ends.
    code = "mkfifo /tmp/f; trap 'echo stopped $n; kill -9 0' EXIT; n=0; while [ $n -lt 20000 ]; do read x </tmp/f & n=$((n+1)); done"
    r = box.exec(["sh", "-c", code], timeout_ms=180_000, deadline=190)
    if r.exit["kind"] == "signal":
        contains(r.text, "stopped")
        n = int(r.text.split()[-1])
        within(n, 50, 19_999, "processes before the limit")
        t.note(f"{n} processes")
    else:
        equal(r.exit["kind"], "oom", r)
    until(lambda: box.exec(["true"], deadline=30).code == 0, 40)


@tiers("vm", "container")
def cpu_does_not_starve_the_agent(t):
    box = t.box()
    for _ in range(8):
        box.background("while :; do :; done")
    for _ in range(5):
        equal(box.ok(["echo", "ok"], deadline=30), "ok\n")


@tiers("vm", "container")
def open_files_are_limited_to_the_process(t):
    box = t.box()
    r = box.exec(["python3", "-c", "import os\nn=0\ntry:\n while True: os.open('/dev/null',0); n+=1\nexcept OSError as e: print(n, e.errno)"])
    n, err = map(int, r.text.split())
    equal(err, 24)
    within(n, 200, 2_000_000)
    box.ok(["true"])


@tiers("vm", "container")
@timeout(120)
def inodes_run_out_before_the_host_does(t):
    box = t.box(disk_mib=small_disk(t))
    code = ("import os\nos.makedirs('/home/user/i')\nn=0\n"
            "try:\n while n<3000000:\n  os.close(os.open('/home/user/i/%d'%n, os.O_CREAT|os.O_WRONLY)); n+=1\n"
            "except OSError as e: print(n, e.errno)\nelse: print(n, 0)")
    r = box.exec(["python3", "-c", code], timeout_ms=100_000, deadline=110)
    n, err = map(int, r.text.split())
    equal(err, 28, f"after {n} files")
    t.note(f"{n} files")
    box.ok(["true"])
