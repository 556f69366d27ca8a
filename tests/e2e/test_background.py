"""Background processes: the ring, re-attachment by offset, bytes that were lost."""
import os

from hutchtest import *


@tiers("vm", "container")
def runs_on_and_is_attachable(t):
    box = t.box()
    pid = box.background("echo one; read x; echo two-$x >&2; exit 5", keep_stdin=True, tag="job")
    a = box.attach(pid, 0)
    a.started()
    equal((a.pid, a.offset), (pid, 0))
    a.wait_output(b"one")
    a.abort()
    p = box.process(pid)
    equal((p["running"], p["tag"], p["exit"]), (True, "job", None))
    box.stdin(pid, b"Q\n")
    got = box.attach("tag:job", 0).collect()
    equal((got["stdout"], got["stderr"], got["lost"]), (b"one\n", b"two-Q\n", 0))
    equal(got["last"]["exit"], {"kind": "exit", "code": 5})
    p = box.process(pid)
    equal((p["running"], p["exit"]), (False, {"kind": "exit", "code": 5}))


@tiers("vm", "container")
def offsets_are_exact(t):
    box = t.box()
    pid = box.background("printf 0123456789; read x; printf abcdef; exit 0", keep_stdin=True)
    until(lambda: box.process(pid)["output_bytes"] == 10, 10)
    a = box.attach(pid, 4)
    a.started()
    equal(a.offset, 4)
    a.wait_output(b"456789")
    now = box.attach(pid, -1)
    now.started()
    equal(now.offset, 10)
    box.stdin(pid, b"\n")
    got = now.collect()
    equal((got["stdout"], got["last"]["offset"]), (b"abcdef", 16))
    equal(a.collect()["stdout"], b"abcdef")
    # After the end the output is still there, from any place.
    equal(box.attach(pid, 0).collect()["stdout"], b"0123456789abcdef")
    equal(box.attach(pid).collect()["stdout"], b"0123456789abcdef")
    equal(box.attach(pid, 15).collect()["stdout"], b"f")
    equal(box.attach(pid, 16).collect()["stdout"], b"")
    for bad in ("x", "-2", "1.5", "99999999999999999999"):
        refuses("invalid", box.attach, pid, bad)


@tiers("vm", "container")
def lost_bytes_are_counted(t):
    box = t.box()
    size = 3_000_000
    pid = box.background(["python3", "-c", f"import sys\nfor i in range({size}//10): sys.stdout.write('%09d\\n' % i)"])
    box.wait_process(pid, 30)
    equal(box.process(pid)["output_bytes"], size)
    a = box.attach(pid, 0)
    a.started()
    got = a.collect()
    true(got["lost"] > 0 or a.offset > 0, "a ring of 3 MB would be unbounded")
    begin = max(got["lost"], a.offset)
    equal(begin + len(got["stdout"]), size, "lost + received = produced")
    true(len(got["stdout"]) >= 64 << 10, f"only {len(got['stdout'])} bytes are held")
    # What is left is the exact tail.
    want = b"".join(b"%09d\n" % i for i in range(begin // 10, size // 10))
    equal(sha(got["stdout"]), sha(want[begin % 10:]))
    equal(got["last"]["offset"], size)


@tiers("vm", "container")
def nobody_listens_and_it_never_blocks(t):
    box = t.box()
    pid = box.background("head -c 50000000 /dev/zero | tr '\\0' x; echo; echo end")
    p = box.wait_process(pid, 60)
    equal(p["exit"], {"kind": "exit", "code": 0})
    equal(p["output_bytes"], 50000005)
    true(box.attach(pid).collect()["stdout"].endswith(b"x\nend\n"))


@tiers("vm", "container")
def several_listeners(t):
    box = t.box()
    pid = box.background("read x; for i in $(seq 200); do echo line-$i; done", keep_stdin=True)
    many = [box.attach(pid, 0).started() for _ in range(5)]
    box.stdin(pid, b"\n")
    want = b"".join(b"line-%d\n" % i for i in range(1, 201))
    for a in many:
        equal(a.collect()["stdout"], want)


@tiers("vm", "container")
def survives_its_client(t):
    box = t.box()
    mark = "bg-" + os.urandom(4).hex()
    pid = box.background(f"exec -a {mark} sleep 999")
    runs = lambda: box.exec(["pgrep", "-cf", f"^{mark}"]).text.strip() == "1"
    until(runs, 10, "the shell has become it")
    a = box.attach(pid).started()
    a.abort()
    true(runs(), "it runs on")
    box.signal(pid, "SIGKILL")
    equal(box.wait_process(pid)["exit"], {"kind": "signal", "signal": 9, "name": "SIGKILL"})


@tiers("vm", "container")
def deadline_of_a_background_process(t):
    box = t.box()
    pid = box.background(["sleep", "999"], timeout_ms=500)
    equal(box.wait_process(pid, 15)["exit"]["kind"], "timeout")


@tiers("vm", "container")
def unknown_processes(t):
    box = t.box()
    for bad in ("1", "999999", "tag:nope"):
        refuses("not_found", box.process, bad)
        refuses("not_found", box.attach, bad)
        refuses("not_found", box.signal, bad, 15)
        refuses("not_found", box.stdin, bad, b"x")
    for bad in ("x", "-1", "0", "1e3", "99999999999999999999"):
        refuses("invalid not_found", box.process, bad)
