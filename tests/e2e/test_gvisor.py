"""What is particular to gVisor: whose kernel answers, who may ask for it, what is said where it is not installed. The rest of the tier is
tested by the same bodies as containers (lib/tiers.py, ON_GVISOR)."""
import os
import subprocess

import daemon
from hutchtest import *


@tiers("gvisor")
def the_kernel_is_gvisors(t):
    box = t.box()
    i = box.obj["isolation"]
    equal((i["tier"], i["accel"]), ("gvisor", "none"))
    contains(i["boundary"], "gVisor")
    contains(box.ok(["cat", "/proc/version"]), "gvisor")
    # a process of the guest's is none of the host's: its number, name and arguments exist only inside
    box.ok(["bash", "-c", "(exec -a only-inside-gvisor sleep 60) >/dev/null 2>&1 </dev/null &"])
    until(lambda: "only-inside-gvisor" in box.ok("cat /proc/[0-9]*/cmdline | tr '\\0' ' '"), 10, "it runs inside")
    on_host = [p for p in os.listdir("/proc") if p.isdigit() and b"only-inside-gvisor" in _read(f"/proc/{p}/cmdline")]
    equal(on_host, [])


def _read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


@tiers("gvisor")
def runsc_is_nobody_on_the_host(t):
    """Its halves have ids of the sandbox's own range, no new privileges and a filter; nothing of them is root outside."""
    t.box()
    seen = 0
    for p in t.d.census.mine():
        if p.comm != "runsc":
            continue
        status = _read(f"/proc/{p.pid}/status").decode()
        if not status:
            continue  # it ended meanwhile
        seen += 1
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        true(all(int(u) > 65535 for u in fields["Uid"].split()), f"uid of {p.pid}: {fields['Uid']}")
        equal((fields["NoNewPrivs"], fields["Seccomp"]), ("1", "2"), f"process {p.pid}")
    true(seen >= 3, f"runsc, its two halves: {seen} seen")


@tiers("gvisor")
def what_is_in_tmp_survives_a_pause(t):
    """runsc would keep it in memory."""
    box = t.box()
    box.ok("echo kept > /tmp/a; dd if=/dev/zero of=/tmp/b bs=1M count=3 2>/dev/null")
    before = box.metrics()["disk_used"]
    true(before > 3 << 20, f"/tmp counts as disk: {before}")
    box.pause()
    box.resume()
    equal(box.ok("cat /tmp/a"), "kept\n")


@tiers("gvisor")
@own_daemon(HUTCH_MIN_ISOLATION="gvisor", HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0)
def a_floor_between_container_and_vm(t):
    refuses("denied", t.create, isolation="container")
    equal(t.create(isolation="gvisor").obj["isolation"]["tier"], "gvisor")


@tiers("gvisor")
@own_daemon(HUTCH_DEFAULT_ISOLATION="gvisor", HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0)
def as_the_default(t):
    equal(t.create().obj["isolation"]["tier"], "gvisor")
    equal(t.create(isolation="container").obj["isolation"]["tier"], "container")  # who says what they want gets it


@plain
@own_daemon(HUTCH_RUNSC="/nonexistent/runsc", HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0)
def without_runsc(t):
    """Refused, with what to do; nothing else is started in its place, and doctor knows."""
    e = refuses("unsupported", t.create, isolation="gvisor")
    contains(str(e), "hutch gvisor install")
    equal(t.c.get("/v1/sandboxes")["sandboxes"], [])
    row = [c for c in t.c.get("/v1/doctor")["checks"] if c["name"] == "runsc"][0]
    contains(row["found"], "not installed")
    equal(t.create(isolation="container").obj["isolation"]["tier"], "container")


@tiers("gvisor")
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0)
def doctor_names_it(t):
    row = [c for c in t.c.get("/v1/doctor")["checks"] if c["name"] == "runsc"][0]
    equal((row["status"], row["found"]), ("ok", t.d.env["HUTCH_RUNSC"]))


@plain
def installing_needs_a_compiler(t):
    """`hutch gvisor install` fails before it touches anything: without Go, and where it may not write."""
    def install(*args, path="/nonexistent"):
        return subprocess.run([daemon.program("hutch"), "gvisor", "install", *args], env={**t.d.env, "PATH": path}, capture_output=True, text=True, timeout=60)
    place = os.path.join(t.tmp, "runsc")
    p = install("--to", place)
    true(p.returncode != 0, p.stdout)
    contains(p.stderr, "Go compiler")
    p = install("--to", "/nonexistent/folder/runsc")
    true(p.returncode != 0, p.stdout)
    contains(p.stderr, "/nonexistent/folder")
    p = install("--to", "runsc")
    equal(p.returncode, 64)
    true(not os.path.exists(place), "nothing was put in place")


@plain
def installing_puts_what_was_built_in_place(t):
    """With a `go` that builds something at once: what it built is where it belongs, can be run, and was built without cgo."""
    tools = os.path.join(t.tmp, "bin")
    os.mkdir(tools)
    with open(os.path.join(tools, "go"), "w") as f:
        f.write('#!/bin/sh\n[ "$1" = install ] && [ "$CGO_ENABLED" = 0 ] || exit 9\n'
                'case $2 in gvisor.dev/gvisor/runsc@v0*) echo built > "$GOBIN/runsc" ;; *) exit 8 ;; esac\n')
    os.chmod(os.path.join(tools, "go"), 0o755)
    place = os.path.join(t.tmp, "runsc")
    p = subprocess.run([daemon.program("hutch"), "gvisor", "install", "--to", place], env={**t.d.env, "PATH": f"{tools}:/usr/bin:/bin"},
                       capture_output=True, text=True, timeout=60)
    equal((p.returncode, p.stdout), (0, place + "\n"), p.stderr)
    equal(_read(place), b"built\n")
    equal(os.stat(place).st_mode & 0o777, 0o755)
    p = subprocess.run([daemon.program("hutch"), "gvisor", "install", "--to", place, "--version", "other"], env={**t.d.env, "PATH": f"{tools}:/usr/bin:/bin"},
                       capture_output=True, text=True, timeout=60)
    true(p.returncode != 0, p.stdout)
    contains(p.stderr, "status 8")
    equal(_read(place), b"built\n", "a build that fails leaves the old one")
