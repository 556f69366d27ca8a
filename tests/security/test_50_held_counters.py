"""What the kernel counts per user, or for the whole machine, taken by one sandbox and held: neighbours and the host's root still get theirs."""
import subprocess
import sys

from attack import attack
from hutchtest import *

# Takes as much as there is, says how much that was and why no more, and holds it. With a second argument: that many, then lets go.
TAKER = r'''
import ctypes, errno, os, resource, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
librt = ctypes.CDLL("librt.so.1", use_errno=True)
def must(v):
    if v < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))
    return v
def inotify(n):
    must(libc.inotify_init1(0))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN + 3})
def signals(n):
    must(libc.sigqueue(os.getpid(), signal.SIGRTMIN + 3, ctypes.c_void_p(n)))
def timers(n):
    t = ctypes.c_void_p()
    must(librt.timer_create(1, None, ctypes.byref(t)))
def queues(n):
    name = b"/held-%d-%d" % (os.getpid(), n)
    must(librt.mq_open(name, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600, None))
    librt.mq_unlink(name)  # it stays as long as we have it open
def terminals(n):
    os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
def aio(n):
    c = ctypes.c_ulong(0)
    r = libc.syscall(206, 256, ctypes.byref(c))
    must(r)
kind, want = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300000
for what in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE, resource.RLIMIT_NOFILE):
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (hard, hard))
n, why = 0, "enough"
try:
    while n < want:
        globals()[kind](n)
        n += 1
except OSError as e:
    why = errno.errorcode[e.errno]
print(kind, n, why, flush=True)
if len(sys.argv) < 3:
    time.sleep(600)
'''

# what, how many an honest program asks for, why the taker must have been stopped
COUNTERS = (("inotify", 8, ("EMFILE",)), ("signals", 500, ("EAGAIN",)), ("timers", 500, ("EAGAIN",)), ("queues", 4, ("EMFILE",)),
            ("terminals", 4, ("ENOSPC",)), ("aio", 1, ("ENOSYS",)))


def said(text):
    _, n, why = (text.decode() if isinstance(text, bytes) else text).split()
    return int(n), why


def try_one(t, a, kind, honest, stopped):
    """Two users of the attacker's box take it all; then the others ask."""
    takers = [a.box.stream(["python3", "/tmp/taker.py", kind], user=u, deadline=110) for u in ("user", "root")]
    try:
        got = [said(s.wait_output(b"\n")) for s in takers]
        t.note(f"{kind} {got[0][0]}+{got[1][0]}")
        for n, why in got:
            contains(stopped, why, f"{kind}: {n} taken, and then no more because of")
        neighbour = a.neighbour.box.ok(["python3", "/tmp/taker.py", kind, str(honest)], user="user")
        host = subprocess.run([sys.executable, "-c", TAKER, kind, str(honest)], capture_output=True, text=True, timeout=60).stdout
        if kind != "aio":
            equal(said(neighbour), (honest, "enough"), f"{kind} of the neighbour")
        equal(said(host), (honest, "enough"), f"{kind} of the host's root")
    finally:
        for s in takers:
            s.abort()
        a.box.exec("pkill -9 -f /tmp/taker.py", user="root")


@attack("held-counters", tier_names=("container",))
def each_is_the_box_s_own(t, a):
    for box in (a.box, a.neighbour.box):
        box.put("/tmp/taker.py", TAKER.encode(), user="root", mode="0755")
    for kind, honest, stopped in COUNTERS:
        try_one(t, a, kind, honest, stopped)
    # what we ourselves need of them for a sandbox
    with a.neighbour.box.watch("/tmp"):
        pass
    a.must_live()
