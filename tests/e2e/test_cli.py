"""The command line: statuses, streams, files in and out."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

import daemon as _daemon
from hutchtest import *


def hutch(t, *args, stdin=None, seconds=60, env=None):
    e = {**t.d.env, "HUTCH_NO_START": "1", **(env or {})}
    return subprocess.run([_daemon.program("hutch"), *args], env=e, input=stdin, capture_output=True, timeout=seconds,
                          stdin=subprocess.DEVNULL if stdin is None else None, cwd=t.tmp)


def ok(t, *args, **kw):
    p = hutch(t, *args, **kw)
    if p.returncode:
        raise AssertionError(f"hutch {' '.join(args)}: {p.returncode}\n{p.stderr.decode()[-800:]}")
    return p.stdout.decode()


@tiers("vm", "container")
def run_passes_status_and_streams(t):
    p = hutch(t, "run", "--isolation", t.tier, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    equal((p.returncode, p.stdout, p.stderr), (7, b"out\n", b"err\n"))
    p = hutch(t, "run", "--isolation", t.tier, "--", "cat", stdin=b"through\x00\xff")
    equal((p.returncode, p.stdout), (0, b"through\x00\xff"))
    p = hutch(t, "run", "--isolation", t.tier, "--", "sh", "-c", "kill -9 $$")
    equal(p.returncode, 137)
    equal(t.c.sandboxes(), [], "a one-shot leaves nothing")


@tiers("vm", "container")
def run_scripts(t):
    for name, text, want in (("a.py", "import sys; print('py', sys.argv[1:], sys.stdin.read())", "py ['x', 'y z'] in\n"),
                             ("b.js", "console.log('js', process.argv.slice(2))", "js [ 'x', 'y z' ]\n"),
                             ("c.sh", "echo sh $1 \"$2\"", "sh x y z\n")):
        with open(os.path.join(t.tmp, name), "w") as f:
            f.write(text)
        p = hutch(t, "run", "--isolation", t.tier, name, "x", "y z", stdin=b"in")
        equal((p.returncode, p.stdout.decode()), (0, want), p.stderr)
    p = hutch(t, "run", "--isolation", t.tier, "missing.py")
    equal(p.returncode, 66)
    p = hutch(t, "run", "thing.exe")
    equal(p.returncode, 64)


@tiers("vm", "container")
def create_use_kill(t):
    sid = ok(t, "create", "--isolation", t.tier, "--name", "clibox", "--meta", "a=b", "--env", "X=1", "--timeout", "120").strip()
    t.boxes.append(t.c.box(sid))
    o = t.c.box(sid).info()
    equal((o["name"], o["metadata"], o["timeout_s"]), ("clibox", {"a": "b"}, 120))
    equal(ok(t, "exec", "clibox", "--", "sh", "-c", "echo $X"), "1\n")
    equal(hutch(t, "exec", sid, "--", "sh", "-c", "exit 9").returncode, 9)
    equal(ok(t, "exec", sid, "--user", "root", "--cwd", "/tmp", "--", "sh", "-c", "id -u; pwd"), "0\n/tmp\n")
    listed = json.loads(ok(t, "ls", "--json"))
    equal([x["id"] for x in listed], [sid])
    contains(ok(t, "ls"), "clibox")
    equal(json.loads(ok(t, "info", "clibox", "--json"))["id"], sid)
    ok(t, "timeout", "clibox", "200")
    equal(t.c.box(sid).info()["timeout_s"], 200)
    ok(t, "kill", "clibox")
    equal(t.c.box(sid).info()["end"]["reason"], "killed")
    p = hutch(t, "kill", "clibox")
    equal(p.returncode, 66)
    true(p.stderr, "and says so")


@tiers("vm", "container")
def copy_in_and_out(t):
    box = t.box()
    src = os.path.join(t.tmp, "tree")
    os.makedirs(src + "/sub")
    data = os.urandom(300_000)
    with open(src + "/a.bin", "wb") as f:
        f.write(data)
    with open(src + "/sub/b c.txt", "w") as f:
        f.write("b")
    ok(t, "cp", src + "/a.bin", f"{box.id}:/home/user/a.bin")
    equal(sha(box.get("a.bin")), sha(data))
    ok(t, "cp", f"{box.id}:/home/user/a.bin", t.tmp + "/back.bin")
    with open(t.tmp + "/back.bin", "rb") as f:
        equal(sha(f.read()), sha(data))
    ok(t, "cp", src, f"{box.id}:/home/user/tree")
    equal(box.ok(["cat", "/home/user/tree/sub/b c.txt"]), "b")
    ok(t, "cp", f"{box.id}:/home/user/tree", t.tmp + "/tree2")
    with open(t.tmp + "/tree2/a.bin", "rb") as f:
        equal(sha(f.read()), sha(data))
    equal(hutch(t, "cp", f"{box.id}:/no/such", t.tmp + "/x").returncode, 66)


def fake_tar(box, python):
    """A hostile sandbox: what it sends as its archive is up to it."""
    box.put("/usr/local/bin/tar", ("#!/usr/bin/env python3\n" + """
import io, os, sys, tarfile, time
def head(name, size):
    t = tarfile.TarInfo(name); t.size = size
    return t.tobuf(tarfile.GNU_FORMAT)
out = sys.stdout.buffer
""" + python).encode(), mode="0755", user="root")


def left_in(folder):
    return sorted(os.path.relpath(os.path.join(top, n), folder) for top, dirs, files in os.walk(folder) for n in dirs + files)


@tiers("vm", "container")
def cp_makes_no_links_that_lead_out(t):
    """A link that an earlier copy made must not lead a later one elsewhere."""
    box = t.box()
    outside = os.path.join(t.tmp, "precious")
    os.makedirs(outside)
    box.ok(f"mkdir -p w/sub && cd w && echo x > f && ln -s f in && ln -s ../f sub/up && ln -s {outside} evil && ln -s ../../.. sub/out && ln -s . here && ln -s here/here/../../.. trick && ln -s sub/../../.. trick2")
    p = hutch(t, "cp", f"{box.id}:/home/user/w", t.tmp)
    equal(p.returncode, 0, p.stderr)
    equal(left_in(t.tmp + "/w"), ["f", "here", "in", "sub", "sub/up"])
    contains(p.stderr.decode(), "4 links that lead out of the directory were left out; --links keeps them")
    ok(t, "cp", "--links", f"{box.id}:/home/user/w", t.tmp + "/w2")
    equal(os.readlink(t.tmp + "/w2/evil"), outside)
    # now the link is a folder inside, with a file in it
    box.ok("rm w/evil && mkdir w/evil && echo planted > w/evil/planted")
    p = hutch(t, "cp", f"{box.id}:/home/user/w/evil", t.tmp + "/w2")
    true(p.returncode, "a link in the way is not followed")
    contains(p.stderr.decode(), "is not followed")
    equal(os.listdir(outside), [])
    ok(t, "cp", f"{box.id}:/home/user/w/evil", t.tmp + "/w")
    equal(left_in(t.tmp + "/w/evil"), ["planted"])


@tiers("vm", "container")
def cp_is_bounded(t):
    box = t.box()
    box.ok("truncate -s 3M big; mkdir many; touch many/1 many/2 many/3")
    cases = ((["--max-size", "2"], "big", "larger than 2 MiB, the limit; --max-size raises it"), (["--max-files", "2"], "many", "more than 2 files and directories, the limit; --max-files raises it"))
    for opts, what, words in cases:
        p = hutch(t, "cp", *opts, f"{box.id}:/home/user/{what}", f"{t.tmp}/{what}")
        true(p.returncode)
        contains(p.stderr.decode(), words)
        true(not os.path.isfile(f"{t.tmp}/{what}"), "nothing under its name")
        ok(t, "cp", f"{box.id}:/home/user/{what}", f"{t.tmp}/ok-{what}")
    # an archive without an end: the copy ends at the limit, and so does the command inside
    fake_tar(box, "out.write(head('./endless', 1 << 40))\nwhile True: out.write(bytes(65536))")
    p = hutch(t, "cp", "--max-size", "3", f"{box.id}:/home/user/many", t.tmp + "/endless")
    contains(p.stderr.decode(), "larger than 3 MiB")
    equal(left_in(t.tmp + "/endless"), [])
    until(lambda: "tar" not in box.ok("ps -eo args | grep '[u]sr/local/bin/tar' || true"), 20, "the packer was killed")
    # folders that only a long name asks for are counted
    fake_tar(box, "out.write(head('./' + 'd/' * 4000 + 'f', 0)); out.write(bytes(1024))")
    p = hutch(t, "cp", "--max-files", "100", f"{box.id}:/home/user/many", t.tmp + "/deep")
    contains(p.stderr.decode(), "more than 100 files and directories")


@tiers("container")
def cp_escapes_what_the_sandbox_says(t):
    box = t.box()
    fake_tar(box, r"sys.stderr.write('tar: \x1b]52;c;cm0gLXJmIC8=\x07gone\nsecond line\n'); sys.exit(2)")
    box.ok("mkdir d")
    p = hutch(t, "cp", f"{box.id}:/home/user/d", t.tmp + "/d")
    true(p.returncode)
    contains(p.stderr, b"tar: \\x1b]52;c;cm0gLXJmIC8=\\x07gone\nsecond line\n")
    lacks(p.stderr, b"\x1b")
    os.makedirs(t.tmp + "/in")
    p = hutch(t, "cp", t.tmp + "/in", f"{box.id}:/home/user/d")
    lacks(p.stderr, b"\x1b]")


@tiers("container")
def cp_leaves_no_half_files(t):
    """Not after a failure and not after ^C: a file has its name when it is whole."""
    box = t.box()
    half = "out.write(head('./whole', 3) + b'abc' + bytes(509) + head('./half', 9 << 20) + bytes(1 << 20)); out.flush()\n"
    box.ok("mkdir d; truncate -s 20G large")
    fake_tar(box, half)
    out = t.tmp + "/out"
    p = hutch(t, "cp", f"{box.id}:/home/user/d", out)
    contains(p.stderr.decode(), "ended early")
    equal(left_in(out), ["whole"])
    fake_tar(box, half + "time.sleep(600)")
    for what in ("d", "large"):
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        p = subprocess.Popen([_daemon.program("hutch"), "cp", "--max-size", "100000", f"{box.id}:/home/user/{what}", out], env={**t.d.env, "HUTCH_NO_START": "1"}, stderr=subprocess.DEVNULL)
        until(lambda: any(os.path.basename(n).startswith(".hutch-") for n in left_in(out)), 30, "it is being copied")
        p.send_signal(signal.SIGINT)
        equal(p.wait(30), -signal.SIGINT)
        equal(left_in(out), ["d", "d/whole"] if what == "d" else [])
    # neither is a device replaced by a file
    node = t.tmp + "/null"
    os.mknod(node, 0o666 | 0o020000, os.makedev(1, 3))
    ok(t, "cp", f"{box.id}:/etc/hostname", node)
    true(os.path.exists(node) and not os.path.isfile(node))
    os.unlink(node)


@tiers("vm", "container")
def hostile_tree_does_not_escape_cp(t):
    """Links inside the sandbox must not make `cp` write outside the folder it copies into."""
    box = t.box()
    box.ok("mkdir -p evil && ln -s /etc evil/link && ln -s ../../../../../../../tmp/hutch-cp-escape evil/up && echo x > evil/f")
    out = os.path.join(t.tmp, "out")
    hutch(t, "cp", f"{box.id}:/home/user/evil", out)
    true(not os.path.exists("/tmp/hutch-cp-escape"))
    for top, dirs, files in os.walk(out):
        for x in dirs + files:
            p = os.path.join(top, x)
            if os.path.islink(p):
                continue
            true(os.path.realpath(p).startswith(os.path.realpath(t.tmp)), p)


@tiers("vm", "container")
def interrupt_destroys(t):
    for sig in (signal.SIGINT, signal.SIGTERM):
        p = subprocess.Popen([_daemon.program("hutch"), "run", "--isolation", t.tier, "--", "sh", "-c", "echo up; sleep 999"],
                             env={**t.d.env, "HUTCH_NO_START": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            equal(p.stdout.readline(), b"up\n")
            p.send_signal(sig)
            rc = p.wait(30)
            equal(rc, 128 + sig)
        finally:
            if p.poll() is None:
                p.kill()
            p.communicate()
        until(lambda: t.c.sandboxes() == [], 15, "the sandbox is destroyed")


@tiers("vm", "container")
def killed_client_leaves_nothing_running(t):
    """kill -9 of the client: the command dies with its stream; the sandbox ends by its timeout at the latest."""
    p = subprocess.Popen([_daemon.program("hutch"), "run", "--isolation", t.tier, "--timeout", "3", "--", "sh", "-c", "echo up; sleep 999"],
                         env={**t.d.env, "HUTCH_NO_START": "1"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    equal(p.stdout.readline(), b"up\n")
    p.kill()
    p.communicate()
    ids = [o["id"] for o in t.c.sandboxes()]
    for i in ids:
        b = t.c.box(i)
        t.boxes.append(b)
        until(lambda: b.exec(["pgrep", "-xf", "sleep 999"]).code == 1, 15, "its command is dead")


@plain
def errors_have_statuses(t):
    for args, want in ((("frobnicate",), 64), (("run",), 64), (("create", "--nope"), 64), (("info", "nobody"), 66), (("exec", "nobody", "--", "true"), 66),
                       (("create", "--template", "none", "--isolation", "container"), 66), (("create", "--isolation", "wish"), 64)):
        p = hutch(t, *args)
        equal(p.returncode, want, f"{args}: {p.stderr}")
        true(p.stderr and not p.stdout, args)
    equal(hutch(t, "--help").returncode, 0)
    equal(hutch(t, "version").returncode, 0)


@plain
def broken_pipe_is_quiet(t):
    e = {**t.d.env, "HUTCH_NO_START": "1"}
    p = subprocess.run(["bash", "-c", f"{_daemon.program('hutch')} run --isolation container -- yes | head -n 2; echo ${{PIPESTATUS[0]}}"], env=e,
                       capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    equal(p.stdout.decode().splitlines()[:2], ["y", "y"])
    until(lambda: t.c.sandboxes() == [], 20, "the sandbox is destroyed")


@plain
def timers_and_recovery_by_cli(t):
    i = ok(t, "create", "--isolation", "container", "--idle", "20m", "--on-idle", "pause", "--max-lifetime", "1h", "--name", "timed").strip()
    box = t.c.box(i)
    t.cleanup_later(box.kill)
    o = box.info()
    equal((o["idle_timeout_s"], o["on_idle"], o["max_lifetime_s"]), (1200, "pause", 3600))
    before = o["expires_at"]
    ok(t, "keepalive", "timed", "10m")
    true(box.info()["expires_at"] > before)
    contains(ok(t, "info", "timed"), "1200 s, then pause")
    os.kill(t.d.init_of(o["box"]), signal.SIGKILL)
    box.wait_state("failed")
    contains(ok(t, "recover", i), "recovered; lost: memory, processes")
    contains(ok(t, "recover", "timed"), "recovered, nothing lost")


@plain
def keys_by_cli(t):
    out = ok(t, "key", "create", "cli-key")
    key = next(w for w in out.split() if w.startswith("e2b_"))
    t.d.tcp(key).sandboxes()
    rows = json.loads(ok(t, "key", "ls", "--json"))
    rows = rows["keys"] if isinstance(rows, dict) else rows
    kid = next(r["id"] for r in rows if r["name"] == "cli-key")
    env = {"HUTCH_URL": f"http://127.0.0.1:{t.d.port}", "HUTCH_API_KEY": key}
    equal(json.loads(ok(t, "ls", "--json", env=env)), [])
    ok(t, "key", "revoke", kid)
    equal(hutch(t, "ls", env=env).returncode, 77)


@plain
def templates_by_cli(t):
    contains(ok(t, "template", "ls"), "base")
    equal(hutch(t, "template", "rm", "none").returncode, 66)


@plain
def doctor_by_cli(t):
    p = hutch(t, "doctor")
    true(p.returncode in (0, 1), p)
    contains(p.stdout.decode().lower(), "kvm")


@tiers("vm", "container")
def bench_by_cli(t):
    rows = [json.loads(line) for line in ok(t, "bench", "-n", "2", "--isolation", t.tier, "--json").splitlines()]
    equal([(r["tier"], r["rounds"]) for r in rows], [(t.tier, 2)])
    for what in ("create_ms", "first_exec_ms", "exec_ms", "destroy_ms", "host_exec_ms"):
        true(rows[0][what] > 0, what)
    contains(ok(t, "bench", "-n", "1", "--isolation", t.tier), t.tier)
    equal(hutch(t, "bench", "-n", "0").returncode, 64)
    equal(t.c.get("/v1/sandboxes")["sandboxes"], [], "nothing stays behind")


@tiers("vm", "container")
def logs_and_events(t):
    box = t.box()
    true(ok(t, "logs", box.id), "a life has a log")
    contains(ok(t, "events"), box.id)


@tiers("vm", "container")
def terminal_escapes_do_not_reach_the_operator(t):
    """Names and messages a guest chose are shown escaped in tables."""
    box = t.box(metadata={"evil": "\x1b]0;owned\x07\x1b[2J"})
    for args in (("ls",), ("info", box.id)):
        out = ok(t, *args)
        lacks(out, "\x1b]0")
        lacks(out, "\x07")


@plain
@own_daemon()
@timeout(90)
def up_and_down(t):
    contains(ok(t, "up"), str(t.d.pid))
    pid = t.d.pid
    t.d.census.mine()
    ok(t, "down")
    t.d.wait_gone(pid)
    t0 = time.monotonic()
    out = subprocess.run([_daemon.program("hutch"), "ls", "--json"], env=t.d.env, capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    equal(out.returncode, 0, out.stderr)
    t.note(f"started on demand in {time.monotonic() - t0:.1f} s")
    equal(json.loads(out.stdout), [])


@tiers("vm", "container")
@own_daemon()
@timeout(90)
def programs_in_a_closed_folder_work(t):
    """As in a clone under /root: the uid that hutchd drops to may not walk there."""
    pid = t.d.pid
    t.d.census.mine()
    ok(t, "down")
    t.d.wait_gone(pid)
    with tempfile.TemporaryDirectory() as closed:  # 0700, root's
        shutil.copytree(_daemon.BUILD, os.path.join(closed, "build"), ignore=lambda d, names: [n for n in names if not n.startswith("hutch")])
        shutil.copytree(os.path.join(_daemon.REPO, "share"), os.path.join(closed, "share"))
        t.d.bin = os.path.join(closed, "build")
        t.d.start(settle=False)
        box = t.box()
        equal(box.ok(["echo", "hi"]), "hi\n")
        contains(ok(t, "eval", "--in", box.id, "6 * 7"), "42")  # its kernel comes from share/


@tiers("container")
def eval_shows_what_comes(t):
    box = t.box()
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
    with tempfile.TemporaryDirectory() as d:
        p = hutch(t, "eval", "--in", box.id, "--save", d, f"print('out')\ndisplay({{'image/png': '{png}'}}, raw=True)\n[1, 'two\x1b']")
        equal((p.returncode, p.stdout.decode()), (0, "out\n[1, 'two\\x1b']\n"))
        true(open(os.path.join(d, "eval-1.png"), "rb").read().startswith(b"\x89PNG"), "the picture is saved")
    p = hutch(t, "eval", "--in", box.id, "1/0")
    equal((p.returncode, p.stdout), (1, b""))
    true(b"ZeroDivisionError" in p.stderr, p.stderr)
    p = hutch(t, "eval", "--in", box.id, "-l", "bash", "-", stdin=b"echo $((6 * 7)); exit 3")
    equal((p.returncode, p.stdout), (1, b"42\n"))
    p = hutch(t, "eval", "--in", box.id, "--json", "6 * 7")
    equal(json.loads(p.stdout)["results"][0]["data"]["text/plain"], "42")
    before = len(t.c.sandboxes())
    p = hutch(t, "eval", "-t", "base", "6 * 7")
    equal((p.returncode, p.stdout), (0, b"42\n"))
    equal(len(t.c.sandboxes()), before, "a fresh sandbox does not stay")


@tiers("vm", "container")
@timeout(120)
def snapshots_and_forks(t):
    box = t.box(name="origin")
    box.put("f", b"1")
    first = ok(t, "snapshot", "create", "origin", "--name", "first").strip()
    second = ok(t, "snapshot", "create", "origin", "--files-only", "--expires", "1h").strip()
    t.cleanup_later(t.c.delete, "/v1/snapshots/" + second)
    rows = ok(t, "snapshots").splitlines()
    equal([r.split()[0] for r in rows[1:]], [first, second])
    contains(rows[2], "└", "the second came of the first")
    equal([s["id"] for s in json.loads(ok(t, "snapshots", "--json", "--of", "origin"))], [second, first])
    kid = ok(t, "create", "--snapshot", "first", "--timeout", "120").strip()
    t.boxes.append(t.c.box(kid))
    equal(ok(t, "exec", kid, "--", "cat", "f"), "1")
    ids = ok(t, "fork", "origin", "-n", "2", "--timeout", "60").split()
    t.boxes += [t.c.box(i) for i in ids]
    equal([ok(t, "exec", i, "--", "cat", "f") for i in ids], ["1", "1"])
    ok(t, "snapshots", "rm", "first")
    equal(hutch(t, "snapshots", "rm", "first").returncode, 66)
    equal(hutch(t, "snapshots", "ls").returncode, 64)
    equal(hutch(t, "create", "--snapshot", "first").returncode, 66)


@tiers("container")
@timeout(60)
def a_program_that_does_not_run(t):
    """127 and 126, as shells say it, with a hint about the program and not about the sandbox."""
    box = t.box(name="shellish")
    box.put("plain", b"no program")
    r = hutch(t, "exec", "shellish", "--", "no-such-program")
    equal(r.returncode, 127)
    contains(r.stderr, b"hint: check its spelling")
    r = hutch(t, "exec", "shellish", "--", "/home/user/plain")
    equal(r.returncode, 126)
    r = hutch(t, "exec", "shellish", "--cwd", "/nowhere", "--", "true")
    equal(r.returncode, 66)
    contains(r.stderr, b"hint: --cwd")
    ok(t, "pause", "--files-only", "shellish")
    contains(hutch(t, "exec", "shellish", "--", "true").stderr, b"hint: `hutch resume shellish` first")
    contains(hutch(t, "create", "--name", "shellish").stderr, b"hint: choose another name")
