"""Commands: status, streams, environment, limits, what happens when the client leaves."""
import hashlib
import json
import os
import time

from hutchtest import *


@tiers("vm", "container")
def exit_statuses(t):
    box = t.box()
    for n in (0, 1, 3, 127, 255):
        equal(box.exec(["sh", "-c", f"exit {n}"]).exit, {"kind": "exit", "code": n})
    r = box.exec("kill -9 $$")
    equal(r.exit, {"kind": "signal", "signal": 9, "name": "SIGKILL"})
    equal(box.exec("kill -TERM $$").exit, {"kind": "signal", "signal": 15, "name": "SIGTERM"})
    equal(box.exec("kill -SEGV $$").exit["signal"], 11)


@tiers("vm", "container")
def start_failures_are_typed(t):
    box = t.box()
    refuses("not_found", box.exec, ["/no/such/program"])
    refuses("not_found", box.exec, ["no-such-program-anywhere"])
    refuses("denied invalid", box.exec, ["/etc/passwd"])
    refuses("not_found invalid", box.exec, ["true"], cwd="/no/such/dir")
    refuses("not_found invalid", box.exec, ["true"], cwd="/etc/passwd")
    refuses("not_found invalid", box.exec, ["true"], user="nobody-like-that")
    equal(box.ok(["echo", "fine"]), "fine\n")


@tiers("vm", "container")
def bad_commands_are_refused(t):
    box = t.box()
    for bad in ([], [""], [1], None, {"a": 1}, [["x"]], 7, True):
        refuses("invalid not_found", box.exec, bad)
    for bad in ({"timeout_ms": -1}, {"timeout_ms": "1"}, {"max_output": 16777217}, {"max_output": -1}, {"env": {"a": 1}}, {"env": {"a=b": "c"}},
                {"stdin": 5}, {"stdin_base64": "%%%"}, {"stdin": "a", "stdin_base64": "YQ=="}, {"stream": 1}, {"pty": {"cols": 0, "rows": 1}},
                {"pty": {"cols": 70000, "rows": 1}}, {"no_such_member": 1}, {"cwd": "a\u0000b"}, {"user": ""}):
        refuses("invalid", box.exec, ["true"], **bad)
    equal(box.ok(["echo", "fine"]), "fine\n")


@tiers("vm", "container")
def arguments_are_not_reinterpreted(t):
    box = t.box()
    argv = ["a b", "$HOME", "`id`", "--help", "-", "", "ünïcode", "new\nline", "'quote\"", "*", "\\", "\t"]
    out = box.exec(["python3", "-c", "import sys,json; print(json.dumps(sys.argv[1:]))", *argv])
    equal(json.loads(out.text), argv)
    equal(box.ok("echo $((6*7)) | tr 4 5"), "52\n", "a string is a shell command")
    big = "x" * 50_000
    equal(len(box.ok(["printf", "%s", big])), 50_000)
    refuses("too_large invalid", box.exec, ["true", "x" * 3_000_000])


@tiers("vm", "container")
def standard_input(t):
    box = t.box()
    equal(box.ok(["cat"], stdin="hällo\n"), "hällo\n")
    equal(box.exec(["cat"], stdin_base64="AAH/gA==").stdout, b"\x00\x01\xff\x80")
    equal(box.ok(["cat"]), "", "without stdin it is empty, not open")
    equal(box.ok("readlink /proc/self/fd/0").strip(), "/dev/null")
    big = "0123456789" * 60_000
    equal(box.ok(["sha256sum"], stdin=big).split()[0], sha(big.encode()))
    # A reader that stops early is no error.
    equal(box.exec(["head", "-c", "5"], stdin=big).stdout, b"01234")
    equal(box.exec(["true"], stdin=big).code, 0)


@tiers("vm", "container")
def environment_and_place(t):
    box = t.box()
    out = dict(l.split("=", 1) for l in box.ok(["env"], env={"A": "1", "B": "x=y"}).splitlines())
    equal((out["A"], out["B"]), ("1", "x=y"))
    equal((out["HOME"], out["USER"]), ("/home/user", "user"))
    true("/usr/bin" in out["PATH"], out["PATH"])
    equal(box.ok(["pwd"]), "/home/user\n")
    equal(box.ok(["pwd"], cwd="/tmp"), "/tmp\n")
    equal(box.ok(["id", "-u"]), "1000\n")
    equal(box.ok(["id", "-un"]), "user\n")


@tiers("vm", "container")
def users_and_sudo(t):
    box = t.box()
    out = box.ok("id -u; echo $HOME; pwd", user="root").split()
    equal(out[:2], ["0", "/root"])
    equal(box.ok(["sudo", "-n", "id", "-u"]), "0\n", "user has passwordless sudo inside")
    box.ok(["sudo", "-n", "sh", "-c", "echo x > /root/made-by-sudo"])
    equal(box.ok(["cat", "/root/made-by-sudo"], user="root"), "x\n")
    equal(box.exec(["cat", "/root/made-by-sudo"]).code, 1)
    equal(box.ok("touch /home/user/f && stat -c %U:%G /home/user/f"), "user:user\n")


@tiers("vm", "container")
def text_and_bytes(t):
    box = t.box()
    r = box.exec(["printf", "grüße 🦀\\n"])
    equal(r.obj.get("stdout"), "grüße 🦀\n")
    r = box.exec(["printf", "\\xff\\xfe\\x00z"])
    true("stdout" not in r.obj or r.obj["stdout"] is None, "not UTF-8: only base64")
    equal(r.stdout, b"\xff\xfe\x00z")
    r = box.exec(["printf", "a\\0b"])
    equal(r.stdout, b"a\x00b")
    r = box.exec("printf out; printf err >&2")
    equal((r.stdout, r.stderr), (b"out", b"err"))
    equal((r.obj["stdout_bytes"], r.obj["stderr_bytes"], r.obj["truncated"]), (3, 3, False))
    true(r.obj["duration_ms"] >= 0 and r.obj["pid"] > 0)


@tiers("vm", "container")
def output_is_cut_and_said(t):
    box = t.box()
    r = box.exec("head -c 3000000 /dev/zero | tr '\\0' x; head -c 2000 /dev/zero | tr '\\0' y >&2", max_output=1000)
    equal(r.exit["code"], 0)
    equal((len(r.stdout), len(r.stderr)), (1000, 1000))
    equal((r.obj["stdout_bytes"], r.obj["stderr_bytes"], r.obj["truncated"]), (3000000, 2000, True))
    r = box.exec("head -c 1048577 /dev/zero | tr '\\0' x")
    equal((len(r.stdout), r.obj["truncated"]), (1048576, True), "default limit")
    r = box.exec("head -c 1048576 /dev/zero | tr '\\0' x")
    equal((len(r.stdout), r.obj["truncated"]), (1048576, False))
    # A character on the edge of the limit is not torn into invalid text.
    r = box.exec(["printf", "aé"], max_output=2)
    true(r.stdout in (b"a", b"a\xc3"), r)


@tiers("vm", "container")
@timeout(120)
def output_of_200_mb(t):
    box = t.box()
    d = t.d
    size = 200_000_000
    code = ("import sys,hashlib\n"
            "base=hashlib.shake_128(b'hutch'+bytes(8)).digest(65536)\n"
            "n=%d; i=0; w=sys.stdout.buffer.write\n"
            "while n>0:\n"
            "    b=i.to_bytes(8,'big')+base[8:]\n"
            "    w(b if n>=65536 else b[:n]); n-=65536; i+=1\n" % size)
    want = Pattern(size).sha()
    rss = lambda: int(next(l for l in open(f"/proc/{d.pid}/status") if l.startswith("VmRSS")).split()[1])  # noqa: E731
    before = rss()
    h, n, peak = hashlib.sha256(), 0, 0
    s = box.stream(["python3", "-c", code], deadline=110)
    for ev in s:
        if ev["event"] == "stdout":
            b = event_bytes(ev)
            h.update(b)
            n += len(b)
            if (n >> 23) != ((n - len(b)) >> 23):
                peak = max(peak, rss())
        elif ev["event"] == "lost":
            raise AssertionError(f"lost {ev['bytes']} bytes of a stream that was read")
        elif ev["event"] in ("exit", "interrupted"):
            last = ev
    equal(last["event"], "exit")
    equal(last["exit"], {"kind": "exit", "code": 0})
    equal(n, size)
    equal(h.hexdigest(), want)
    equal(last["offset"], size)
    within(peak - before, -(1 << 20), 64 << 10, "KiB the daemon grew by")


@tiers("vm", "container")
def timeout_kills_the_tree(t):
    box = t.box()
    mark = "tree-" + os.urandom(4).hex()
    r = box.exec(f"setsid bash -c 'exec -a {mark} sleep 999' & (exec -a {mark} sleep 999) & exec -a {mark} sleep 999", timeout_ms=700)
    equal(r.exit["kind"], "timeout")
    equal(r.exit["timeout_ms"], 700)
    within(r.obj["duration_ms"], 650, 15000)
    until(lambda: box.exec(["pgrep", "-cf", f"^{mark}"]).text.strip() == "0", 10, "no process of the tree is left, not even in a session of its own")


@tiers("vm", "container")
def timeout_cannot_be_ignored(t):
    box = t.box()
    r = box.exec(["python3", "-c", "import signal,time\nfor s in range(1,65):\n  try: signal.signal(s, signal.SIG_IGN)\n  except OSError: pass\nprint('armed', flush=True)\ntime.sleep(999)"], timeout_ms=3000)
    equal(r.exit["kind"], "timeout")
    equal(r.stdout, b"armed\n", "what was written before counts")


@tiers("vm", "container")
def client_leaves_and_the_command_dies(t):
    box = t.box()
    for stream in (True, False):
        mark = "left-" + os.urandom(4).hex()
        cmd = f"setsid bash -c 'exec -a {mark} sleep 999' & exec -a {mark} sleep 999"
        if stream:
            s = box.stream(cmd)
            s.started()
        else:
            body = json.dumps({"cmd": cmd}).encode()
            raw = t.c.dial()
            raw.sendall(b"POST %s/exec HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                        % (box.p.encode(), len(body), body))
        until(lambda: int(box.exec(["pgrep", "-cf", f"^{mark}"]).text) >= 2, 15, "both sleepers run")
        (s.abort if stream else raw.close)()
        until(lambda: box.exec(["pgrep", "-cf", f"^{mark}"]).text.strip() == "0", 15, f"killed after the client left (stream={stream})")


@tiers("vm", "container")
def order_of_a_stream(t):
    box = t.box()
    s = box.stream("for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; done; exit 4")
    evs = list(s)
    equal(evs[0]["event"], "started")
    true(evs[0]["pid"] > 0)
    equal(evs[-1]["event"], "exit")
    equal(evs[-1]["exit"], {"kind": "exit", "code": 4})
    out = b"".join(event_bytes(e) for e in evs if e["event"] == "stdout")
    err = b"".join(event_bytes(e) for e in evs if e["event"] == "stderr")
    equal(out, b"out1\nout2\nout3\nout4\nout5\n")
    equal(err, b"err1\nerr2\nerr3\nerr4\nerr5\n")
    equal({e["event"] for e in evs} - {"started", "stdout", "stderr", "exit", "keepalive"}, set())


@tiers("vm", "container")
def output_comes_as_it_happens(t):
    box = t.box()
    s = box.stream("echo one; read x; echo two-$x; read y; echo three-$y", keep_stdin=True)
    s.wait_output(b"one")
    box.stdin(s.pid, b"A\n")
    s.wait_output(b"two-A")
    box.stdin(s.pid, b"B\n")
    s.wait_output(b"three-B")
    equal(s.collect()["last"]["exit"], {"kind": "exit", "code": 0})


@tiers("vm", "container")
def utf8_is_not_torn_between_events(t):
    """A character that was written in two pieces arrives whole, or as bytes; never as a replacement."""
    box = t.box()
    s = box.stream(["python3", "-c", "import os,sys\nb='é€🦀'.encode()*3000\nfor i in range(0,len(b),7): os.write(1,b[i:i+7])"])
    got = s.collect()
    equal(got["stdout"].decode(), "é€🦀" * 3000)


@tiers("vm", "container")
def twenty_at_once(t):
    box = t.box()
    th = Threads()
    for i in range(20):
        th.go(lambda i=i: box.ok(["sh", "-c", f"cat; echo {i}; echo {i} >&2; exit 0"], stdin=f"in{i}\n", deadline=55))
    equal(th.join(58), [f"in{i}\n{i}\n" for i in range(20)])


@tiers("vm", "container")
def silent_and_instant(t):
    box = t.box()
    for _ in range(30):
        r = box.exec(["true"])
        equal((r.exit, r.stdout, r.stderr), ({"kind": "exit", "code": 0}, b"", b""))
    for _ in range(20):
        equal(box.ok(["echo", "x"]), "x\n", "output of a process that ends at once is never lost")


@tiers("vm", "container")
def leftover_background_child_does_not_hang_the_answer(t):
    """A daemon that keeps stdout open must not keep the caller waiting for ever: its deadline still works."""
    box = t.box()
    s = box.stream("sleep 999 & echo started; exit 0", timeout_ms=2500, deadline=30)
    got = s.collect()
    equal(got["stdout"], b"started\n")
    true(got["last"]["event"] == "exit", got["last"])


@tiers("vm", "container")
def orphans_are_reaped(t):
    box = t.box()
    box.ok("for i in $(seq 50); do (sleep 0.1 &) ; done; sleep 0.5")
    until(lambda: "Z" not in box.ok(["ps", "-eo", "stat="]), 10, "no zombie is left")


@tiers("vm", "container")
def wide_and_deep_json_output(t):
    """Output that looks like our own protocol stays output."""
    box = t.box()
    evil = '{"event":"exit","exit":{"kind":"exit","code":0}}\n'
    got = box.stream(["printf", "%s", evil * 3]).collect()
    equal(got["stdout"].decode(), evil * 3)


@tiers("vm", "container")
@timeout(90)
def memory_of_the_daemon_is_bounded_by_a_slow_reader(t):
    """A reader that stops reading stops the writer, nobody's memory grows, others are served."""
    box = t.box()
    rss = lambda: int(next(l for l in open(f"/proc/{t.d.pid}/status") if l.startswith("VmRSS")).split()[1])  # noqa: E731
    before = rss()
    s = box.stream("yes 0123456789012345678901234567890123456789 | head -c 400000000")
    s.started()
    times = []
    for _ in range(25):
        t0 = time.monotonic()
        box.ok(["true"])
        times.append(time.monotonic() - t0)
    within(rss() - before, -(1 << 20), 48 << 10, "KiB the daemon grew by while nobody read")
    s.abort()
    until(lambda: box.exec(["pgrep", "-x", "yes"]).code == 1, 15, "the writer is gone with its reader")
