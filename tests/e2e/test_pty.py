"""Terminals over WebSocket."""
import os

from hutchtest import *


def shell(box, **q):
    ws = box.pty(**{"cmd": ["/bin/bash", "--norc", "--noprofile"], "env.PS1": "$ ", **q})
    m = ws.recv()
    true(isinstance(m, dict) and m["started"]["pid"] > 0, f"first message {m!r}")
    return ws, m["started"]["pid"]


@tiers("vm", "container")
def echo_and_exit(t):
    box = t.box()
    ws, _ = shell(box)
    ws.send(b"echo hel''lo\n")
    ws.wait_for(b"hello")
    ws.send(b"exit 7\n")
    _, end = ws.drain()
    equal(end, {"kind": "exit", "code": 7})
    equal(ws.close_code, 1000)


@tiers("vm", "container")
def is_a_terminal_of_the_asked_size(t):
    box = t.box()
    ws, _ = shell(box, cols=132, rows=43)
    ws.send(b"tty; stty size; echo en''d\n")
    got = ws.wait_for(b"end")
    contains(got, b"/dev/pts/")
    contains(got, b"43 132")
    ws.send({"resize": {"cols": 90, "rows": 30}})
    ws.send(b"stty size; echo en''d2\n")
    contains(ws.wait_for(b"end2"), b"30 90")
    ws.close()


@tiers("vm", "container")
def resize_reaches_the_program(t):
    box = t.box()
    ws = box.pty(cmd=["/bin/bash", "-c", "trap 'stty size' WINCH; echo up; while :; do sleep 0.1; done"], cols=80, rows=24)
    ws.wait_for(b"up")
    ws.send({"resize": {"cols": 111, "rows": 22}})
    ws.wait_for(b"22 111")
    ws.close()


@tiers("vm", "container")
def control_c(t):
    box = t.box()
    ws, _ = shell(box, **{"env.PS1": "next> "})
    ws.send(b"sleep 900; echo st=$?\n")
    until(lambda: box.exec(["pgrep", "-xf", "sleep 900"]).code == 0, 10, "sleep runs")
    ws.send(b"\x03")
    # The terminal drops what was typed before the interrupt; once the program is gone, that is over.
    until(lambda: box.exec(["pgrep", "-xf", "sleep 900"]).code == 1, 10, "sleep is gone")
    ws.send(b"echo st=$?\n")
    ws.wait_for(b"st=130")
    ws.send(b"exit\n")
    _, end = ws.drain()
    equal(end["kind"], "exit")


@tiers("vm", "container")
def binary_both_ways(t):
    box = t.box()
    ws = box.pty(cmd=["/bin/bash", "-c", "stty raw -echo; echo up; head -c 256 | od -An -v -tx1"])
    ws.wait_for(b"up")
    ws.send(bytes(range(256)))
    got, end = ws.drain()
    equal(bytes.fromhex(got.decode().replace("\r", " ").replace("\n", " ").strip()), bytes(range(256)))
    equal(end, {"kind": "exit", "code": 0})


@tiers("vm", "container")
def attach_to_a_running_one(t):
    box = t.box()
    ws, pid = shell(box)
    ws.send(b"X=kept; echo read''y\n")
    ws.wait_for(b"ready")
    two = box.pty(pid=pid)
    two.send(b"echo $X-here\n")
    two.wait_for(b"kept-here")
    ws.wait_for(b"kept-here")
    two.close()
    ws.send(b"echo st''ill\n")
    ws.wait_for(b"still")
    equal([p["pid"] for p in box.processes() if p["running"] and p["pid"] == pid], [pid])
    box.signal(pid, "SIGKILL")
    _, end = ws.drain()
    equal(end["signal"], 9)


@tiers("vm", "container")
def over_exec(t):
    box = t.box()
    got = box.stream("tty >/dev/null && stty size && echo $TERM", pty={"cols": 77, "rows": 11}).collect()
    contains(got["stdout"], b"11 77")
    equal(got["stderr"], b"")
    equal(got["last"]["exit"], {"kind": "exit", "code": 0})
    s = box.stream("read x; stty size", pty={"cols": 77, "rows": 11}, keep_stdin=True)
    s.started()
    box.resize(s.pid, 55, 44)
    box.stdin(s.pid, b"\n")
    contains(s.collect()["stdout"], b"44 55")


@tiers("vm", "container")
def login_shell_is_the_default(t):
    box = t.box()
    ws = box.pty()
    ws.send(b"echo $0 $USER $PWD; shopt -q login_shell && echo do''ne\n")
    got = ws.wait_for(b"done")
    contains(got, b"user /home/user")
    ws.close()


@tiers("vm", "container")
def client_leaves(t):
    """The last client of a terminal left: it hangs up like a terminal does."""
    box = t.box()
    mark = "pty-" + os.urandom(4).hex()
    ws = box.pty(cmd=["/bin/bash", "-c", f"echo up; exec -a {mark} sleep 999"])
    ws.wait_for(b"up")
    ws.close()
    until(lambda: box.exec(["pgrep", "-cf", f"^{mark}"]).text.strip() == "0", 20, "the program of a left terminal ends")


@tiers("vm", "container")
def bad_requests(t):
    box = t.box()
    for q in ({"cols": 0, "rows": 24}, {"cols": 80, "rows": 70000}, {"cols": "x"}, {"pid": 999999}, {"pid": "x"}, {"user": "nobody-like-that"}):
        refuses("invalid not_found", box.pty, **q)
    # Not an upgrade: a typed error, not a hang.
    refuses("invalid", t.c.call, "GET", box.p + "/pty")
    ws, _ = shell(box)
    ws.send_frame(1, b"{not json")
    m = ws.drain()
    true(ws.close_code in (1000, 1002, 1003, 1007, 1008), f"close code {ws.close_code} {m}")
    ws, _ = shell(box)
    ws.send_frame(2, b"unmasked", mask=False)
    ws.drain()
    true(ws.close_code in (None, 1002), "an unmasked client frame is a protocol error (RFC 6455 5.1)")
    box.ok(["true"])


@tiers("vm", "container")
def flood_is_bounded(t):
    box = t.box()
    ws = box.pty(cmd=["/bin/bash", "-c", "stty -opost; yes 0123456789 | head -c 20000000; echo; echo do''ne"], deadline=60)
    got, n = b"", 0
    while True:
        m = ws.recv()
        if m is None:
            break
        if isinstance(m, bytes):
            n += len(m)
            got = (got + m)[-100:]
    contains(got, b"done")
    within(n, 20_000_000, 20_100_000)
