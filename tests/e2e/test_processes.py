"""The process table, signals, stdin, tags."""
import time

from hutchtest import *


@tiers("vm", "container")
def table(t):
    box = t.box()
    a = box.background(["sleep", "998"], tag="one", cwd="/tmp")
    b = box.background("sleep 997", user="root", tag="two")
    table = {p["pid"]: p for p in box.processes()}
    equal({a, b} <= set(table), True, table)
    p = table[a]
    equal((p["tag"], p["cmd"], p["cwd"], p["user"], p["running"], p["exit"]), ("one", ["sleep", "998"], "/tmp", "user", True, None))
    equal(table[b]["user"], "root")
    equal(box.process("tag:two")["pid"], b)
    equal(box.process(a)["cmd"], ["sleep", "998"])
    from datetime import datetime
    began = datetime.fromisoformat(p["started_at"].replace("Z", "+00:00")).timestamp()
    within(abs(began - time.time()), 0, 30)


@tiers("vm", "container")
def signals(t):
    box = t.box()
    pid = box.background("trap 'echo got-usr1' USR1; trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done")
    a = box.attach(pid, 0)
    a.wait_output(b"up")
    box.signal(pid, "SIGUSR1", group=False)
    a.wait_output(b"got-usr1")
    box.signal(pid, 15, group=False)
    got = a.collect()
    contains(got["stdout"], b"bye")
    equal(got["last"]["exit"], {"kind": "exit", "code": 9})
    for bad in ("SIGNOPE", 0, 65, -1, None, "", 1.5, [9]):
        refuses("invalid", box.signal, box.background(["sleep", "5"]), bad)
    refuses("not_found conflict gone", box.signal, pid, 9)


@tiers("vm", "container")
def group_signal_reaches_children(t):
    box = t.box()
    pid = box.background("sleep 996 & sleep 995 & echo up; wait")
    box.attach(pid, 0).wait_output(b"up")
    box.signal(pid, "SIGKILL", group=True)
    equal(box.wait_process(pid)["exit"]["signal"], 9)
    until(lambda: box.exec("pgrep -xf 'sleep 99[56]'").code == 1, 10, "children got it too")


@tiers("vm", "container")
def standard_input_in_pieces(t):
    box = t.box()
    pid = box.background(["cat"], keep_stdin=True)
    for i in range(20):
        equal(box.stdin(pid, b"piece-%d\n" % i).status, 204)
    box.stdin(pid, b"last", eof=True)
    got = box.attach(pid, 0).collect()
    equal(got["stdout"], b"".join(b"piece-%d\n" % i for i in range(20)) + b"last")
    equal(got["last"]["exit"], {"kind": "exit", "code": 0})
    refuses("conflict not_found gone invalid", box.stdin, pid, b"more")


@tiers("vm", "container")
def big_standard_input(t):
    box = t.box()
    data = b"".join(Pattern(8_000_000))
    pid = box.background(["sha256sum"], keep_stdin=True)
    box.stdin(pid, data, eof=True)
    equal(box.attach(pid, 0).collect()["stdout"].split()[0].decode(), sha(data))


@tiers("vm", "container")
def reader_that_never_reads(t):
    """Input to a process that does not read is bounded and answered, and the sandbox stays usable."""
    box = t.box()
    rss = lambda: int(next(l for l in open(f"/proc/{t.d.pid}/status") if l.startswith("VmRSS")).split()[1])  # noqa: E731
    before = rss()
    pid = box.background(["sleep", "994"], keep_stdin=True)
    s = t.c.dial()
    body = b"x" * 65536
    s.sendall(b"POST %s/processes/%d/stdin HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % (box.p.encode(), pid))
    s.settimeout(2.0)
    sent = 0
    try:
        while sent < 64 << 20:
            s.sendall(b"%x\r\n%s\r\n" % (len(body), body))
            sent += len(body)
    except (TimeoutError, OSError):
        pass
    within(rss() - before, -(1 << 20), 24 << 10, f"KiB the daemon grew by ({sent >> 20} MiB were sent)")
    box.ok(["true"])
    s.close()
    box.signal(pid, 9)


@tiers("vm", "container")
def no_stdin_asked_no_stdin_taken(t):
    box = t.box()
    pid = box.background(["sleep", "993"])
    refuses("conflict invalid gone", box.stdin, pid, b"x")
