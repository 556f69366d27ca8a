"""Memory in the buffers of sockets, which a kernel may count nowhere: TCP, UDP, unix sockets, pipes."""
from attack import attack
from hutchtest import *

BOX_MIB = 128

FILL = r"""
import errno, os, resource, socket, struct, sys, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
block = bytes(1 << 16)
def push(s):
    n = 0
    try:
        while True: n += s.send(block)
    except OSError as e:
        if e.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM): raise
    return n
def tcp():
    l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(64)
    while True:
        c = socket.socket(); c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        c.settimeout(5); c.connect(l.getsockname()); a, _ = l.accept(); c.setblocking(False)
        yield push(c), (a, c)
def unix():
    while True:
        a, b = socket.socketpair(); a.setblocking(False)
        yield push(a), (a, b)
def udp():
    while True:
        a = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); a.bind(("127.0.0.1", 0))
        a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        b = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); b.connect(a.getsockname()); b.setblocking(False)
        try:
            for _ in range(100): b.send(block[:60000])
        except OSError: pass
        # what does not fit is dropped without a word: SO_MEMINFO says what is there
        yield struct.unpack_from("I", a.getsockopt(socket.SOL_SOCKET, 55, 36))[0], (a, b)
def pipe():
    import fcntl
    while True:
        r, w = os.pipe(); os.set_blocking(w, False)
        try: fcntl.fcntl(w, 1031, 1 << 20)
        except OSError: pass
        n = 0
        try:
            while True: n += os.write(w, block)
        except OSError: pass
        yield n, (r, w)
kept, total, idle = [], 0, 0
end = time.monotonic() + 12
try:
    for n, pair in globals()[sys.argv[1]]():
        kept.append(pair); total += n
        idle = idle + 1 if not n else 0
        if total > 512 << 20 or idle > 50 or time.monotonic() > end: break
except OSError as e:
    print("stopped by", errno.errorcode.get(e.errno, e), file=sys.stderr)
print("held", total >> 20, flush=True)
time.sleep(600)
"""


def held(a, kind):
    """MiB that went into buffers and stayed; None: the sandbox's own memory ended it, which is an answer too."""
    a.box.put("/tmp/fill.py", FILL.encode(), user="root", mode="0755")
    with a.box.stream(["python3", "/tmp/fill.py", kind], user="user", deadline=60) as s:
        try:
            got = s.wait_output(b"\n", names=("stdout",))
        except AssertionError as e:
            if "oom" in str(e) or "signal" in str(e):
                return None, a.box.metrics()
            raise
        m = a.box.metrics()
    a.box.exec("pkill -9 -f /tmp/fill.py", user="root")
    return int(got.split()[1]), m


@attack("socket-buffers", tier_names=("container",), memory_mib=BOX_MIB)
def buffers_count_as_memory(t, a):
    for kind in ("udp", "tcp", "unix", "pipe"):
        mib, m = held(a, kind)
        told = m["memory_used"] + m["memory_cache"] >> 20
        t.note(f"{kind} {mib} MiB, told {told}")
        if mib is None:
            continue
        true(mib <= BOX_MIB, f"{kind}: a box of {BOX_MIB} MiB holds {mib} MiB in buffers")
        true(mib <= told, f"{kind}: {mib} MiB in buffers, and the metrics say {told}")
    a.must_live()
