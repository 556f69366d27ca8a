"""FIFOs, devices, sockets and endless files in file calls: bounded, typed, never stuck."""
import socket

from attack import attack
from hutchtest import *


@attack("special-files")
def fifo(t, a):
    a.box.ok("mkfifo /home/user/pipe; chmod 666 /home/user/pipe")
    for _ in range(3):
        for call in (lambda: a.box.get("/home/user/pipe", deadline=20), lambda: a.box.put("/home/user/pipe", b"x", deadline=20)):
            refuses("invalid denied conflict unsupported", call)
    equal(a.box.stat("/home/user/pipe")["type"], "other")
    a.must_live()


@attack("special-files")
def devices_and_sockets(t, a):
    a.box.ok(["python3", "-c", "import socket; s=socket.socket(socket.AF_UNIX); s.bind('/home/user/sock')"])
    for p in ("/dev/zero", "/dev/random", "/dev/full", "/dev/tty", "/dev/ptmx", "/home/user/sock"):
        try:
            with t.c.stream("GET", a.box.p + "/files", query={"path": p, "length": 4096}, deadline=20) as s:
                s.read()
        except ApiError as e:
            true(e.code in ("invalid", "denied", "not_found", "unsupported", "conflict", "guest"), f"{p}: {e}")
        try:
            a.box.put(p, b"xx", deadline=20)
        except ApiError as e:
            true(e.code in ("invalid", "denied", "not_found", "unsupported", "conflict", "quota", "guest"), f"{p}: {e}")
    a.must_live()


@attack("special-files")
def endless_file(t, a):
    """A file that grows while it is read: the answer stays within the length it announced, or is cut and said."""
    pid = a.box.background("while :; do head -c 1000000 /dev/zero >> /home/user/grow; done", timeout_ms=6000)
    until(lambda: a.box.exec(["test", "-s", "/home/user/grow"]).code == 0, 10)
    for _ in range(3):
        s = t.c.stream("GET", a.box.p + "/files", query={"path": "/home/user/grow"}, deadline=30)
        want, n = int(s.headers["Content-Length"]), 0
        while True:
            b = s.read1()
            if not b:
                break
            n += len(b)
        equal(n, want)
    a.box.signal(pid, 9)
    # And one that shrinks: fewer bytes than announced must be seen as an error, not as a short file.
    a.box.put("/home/user/shrink", b"x" * 40_000_000, deadline=60)
    s = t.c.stream("GET", a.box.p + "/files", query={"path": "/home/user/shrink"}, deadline=30)
    a.box.ok(["truncate", "-s", "0", "/home/user/shrink"])
    n = len(s.read())
    t.note(f"{n} of 40000000 bytes before the cut")
    within(n, 0, 40_000_000, "what is missing shows as a connection closed before the announced length, never as padding")
    a.must_live()


@attack("special-files")
def directory_that_never_ends(t, a):
    a.box.ok("ln -s . loop; mkdir -p d; cd d; for i in $(seq 60); do mkdir x; cd x; done")
    got = a.box.ls("/home/user", depth=64)
    true(len(got) < 1000, f"{len(got)} entries")
    a.must_live()
