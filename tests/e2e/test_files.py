"""Files: bytes up and down, the tree, odd names, errors."""
import json
import os

from hutchtest import *


@tiers("vm", "container")
def small_round_trip(t):
    box = t.box()
    for data in (b"", b"x", bytes(range(256)), "grüße\n".encode(), os.urandom(65536), os.urandom(65537)):
        e = box.put("/home/user/f", data)
        equal((e["name"], e["path"], e["type"], e["size"], e["owner"], e["mode"]), ("f", "/home/user/f", "file", len(data), "user", "0644"))
        equal(box.get("/home/user/f"), data)
        h = box.head("/home/user/f")
        equal((h.status, int(h.headers["Content-Length"]), h.body), (200, len(data), b""))
    equal(box.ok("cat f | sha256sum").split()[0], sha(data))


@tiers("vm", "container")
@timeout(120)
def hundred_megabytes(t):
    box = t.box()
    size = 100_000_000
    p = Pattern(size)
    want = p.sha()
    d = t.d
    rss = lambda: int(next(l for l in open(f"/proc/{d.pid}/status") if l.startswith("VmRSS")).split()[1])  # noqa: E731
    before = rss()
    e = box.put("/home/user/big", iter(p), deadline=100)  # chunked, length unknown
    equal(e["size"], size)
    within(rss() - before, -(1 << 20), 64 << 10, "KiB the daemon grew by")
    import hashlib
    h, n = hashlib.sha256(), 0
    s = t.c.stream("GET", box.p + "/files", query={"path": "/home/user/big"}, deadline=100)
    equal(int(s.headers["Content-Length"]), size)
    while True:
        b = s.read1()
        if not b:
            break
        h.update(b)
        n += len(b)
    equal((n, h.hexdigest()), (size, want))
    equal(box.ok(["sha256sum", "/home/user/big"], deadline=100).split()[0], want, "and inside")


@tiers("vm", "container")
def parts(t):
    box = t.box()
    box.put("p", b"0123456789")
    equal(box.get("p", offset=3), b"3456789")
    equal(box.get("p", length=4), b"0123")
    equal(box.get("p", offset=3, length=4), b"3456")
    equal(box.get("p", offset=8, length=100), b"89")
    equal(box.get("p", offset=10), b"")
    equal(box.get("p", length=0), b"")
    for q in ({"offset": -1}, {"offset": "x"}, {"length": -1}, {"length": "1k"}, {"offset": 2**70}):
        refuses("invalid", box.get, "p", **q)
    box.put("p", b"ab", append=1)
    equal(box.get("p"), b"0123456789ab")
    box.put("p", b"new")
    equal(box.get("p"), b"new", "a write replaces the whole file")


@tiers("vm", "container")
def parents_modes_owners(t):
    box = t.box()
    e = box.put("/home/user/a/b/c/d.txt", b"x", mode="0600")
    equal((e["mode"], e["owner"]), ("0600", "user"))
    equal(box.stat("/home/user/a/b")["owner"], "user", "parents belong to the user too")
    e = box.put("/root/r", b"x", user="root", mode="0755")
    equal((e["owner"], e["uid"], e["mode"]), ("root", 0, "0755"))
    # File calls are the operator's hand and reach everything inside; `user` says whose home and whose files.
    equal(box.get("/root/r"), b"x")
    equal(box.put("/etc/made", b"x")["owner"], "user")
    equal(box.get("r", user="root"), b"x")
    for bad in ("8", "99999", "abc", "-1", "0x1ff"):
        refuses("invalid", box.put, "m", b"x", mode=bad)
    equal(box.put("~/tilde", b"x")["path"], "/home/user/tilde")
    equal(box.put("relative", b"x")["path"], "/home/user/relative")


@tiers("vm", "container")
def tree(t):
    box = t.box()
    e = box.mkdir("/home/user/d/e/f")
    equal((e["type"], e["path"]), ("dir", "/home/user/d/e/f"))
    box.put("/home/user/d/1", b"1")
    box.put("/home/user/d/e/2", b"22")
    box.put("/home/user/d/e/f/3", b"333")
    equal([x["name"] for x in box.ls("/home/user/d")], ["1", "e"], "names in byte order")
    deep = {x["path"]: x["type"] for x in box.ls("/home/user/d", depth=10)}
    equal(deep, {"/home/user/d/1": "file", "/home/user/d/e": "dir", "/home/user/d/e/2": "file", "/home/user/d/e/f": "dir",
                 "/home/user/d/e/f/3": "file"})
    equal(len(box.ls("/home/user/d", depth=2)), 4)
    refuses("invalid", box.ls, "/home/user/d/1")
    refuses("not_found", box.ls, "/home/user/none")
    refuses("invalid", box.ls, "/home/user/d", depth=0)
    refuses("conflict invalid", box.mkdir, "/home/user/d/1")
    refuses("conflict invalid", box.rm, "/home/user/d")
    equal(box.rm("/home/user/d", recursive=1).status, 204)
    refuses("not_found", box.stat, "/home/user/d")
    refuses("not_found", box.rm, "/home/user/d")


@tiers("vm", "container")
def move(t):
    box = t.box()
    box.put("from", b"m")
    e = box.move("/home/user/from", "/home/user/to/here")
    equal(e["path"], "/home/user/to/here")
    equal(box.get("to/here"), b"m")
    refuses("not_found", box.move, "/home/user/from", "/home/user/x")
    box.mkdir("/home/user/dir1")
    box.put("/home/user/dir1/f", b"1")
    box.move("/home/user/dir1", "/home/user/dir2")
    equal(box.get("/home/user/dir2/f"), b"1")
    box.put("other", b"old")
    box.move("/home/user/dir2/f", "/home/user/other")
    equal(box.get("other"), b"1", "a move replaces a file")
    for bad in ({"from": "a"}, {"to": "a"}, {"from": "", "to": "b"}, {"from": 1, "to": "b"}):
        refuses("invalid", t.c.post, box.p + "/files/move", bad)


@tiers("vm", "container")
def move_across_file_systems(t):
    box = t.box()
    data = os.urandom(300_000)
    box.put("/home/user/x", data)
    e = refuses("invalid", box.move, "/home/user/x", "/dev/shm/x")
    contains(e.message, "file system", "says why")
    equal(box.get("/home/user/x"), data, "and nothing was moved by half")


@tiers("vm", "container")
def attributes(t):
    box = t.box()
    box.put("f", b"x")
    equal(box.attr("/home/user/f", mode="0711")["mode"], "0711")
    equal(box.attr("/home/user/f", owner="root", group="root")["owner"], "root")
    equal(box.attr("/home/user/f", owner="user")["uid"], 1000)
    equal(box.ok(["stat", "-c", "%a", "f"]).strip(), "711")
    refuses("not_found", box.attr, "/home/user/none", mode="0600")
    refuses("invalid", box.attr, "/home/user/f", mode="rwx")
    refuses("not_found invalid", box.attr, "/home/user/f", owner="nobody-like-that")
    refuses("invalid", box.attr, "/home/user/f")


@tiers("vm", "container")
def symlinks(t):
    box = t.box()
    box.put("real", b"r")
    e = box.symlink("real", "/home/user/link")
    equal((e["type"], e["path"]), ("symlink", "/home/user/link"))
    s = box.stat("/home/user/link")
    equal(s["type"], "symlink", "stat tells about the link itself")
    true(s["target"] in ("real", "/home/user/real"), s)
    equal(box.get("link"), b"r")
    box.put("link", b"through")
    equal(box.get("real"), b"through")
    box.rm("/home/user/link")
    equal(box.get("real"), b"through", "removing a link leaves its target")
    box.symlink("/nowhere", "/home/user/dangling")
    equal(box.stat("/home/user/dangling")["type"], "symlink")
    refuses("not_found", box.get, "dangling")
    box.symlink("loop2", "/home/user/loop1")
    box.symlink("loop1", "/home/user/loop2")
    refuses("invalid not_found", box.get, "loop1")
    box.mkdir("/home/user/tree")
    box.put("/home/user/keep/me", b"x")
    box.symlink("/home/user/keep", "/home/user/tree/to-keep")
    box.rm("/home/user/tree", recursive=1)
    equal(box.get("/home/user/keep/me"), b"x", "a recursive removal does not follow links")


@tiers("vm", "container")
def odd_names(t):
    box = t.box()
    names = ["with space", "ünï🦀", "new\nline", "-dash", "'q\"", "*", "a&b=c?d#e%41+", "back\\slash", ".hidden", "...", "x" * 255, "~", "$HOME", "tab\t"]
    for n in names:
        box.put("/home/user/odd/" + n, n.encode())
    for n in names:
        equal(box.get("/home/user/odd/" + n), n.encode(), repr(n))
    equal(sorted(x["name"] for x in box.ls("/home/user/odd")), sorted(names))
    for n in names:
        box.rm("/home/user/odd/" + n)
    equal(box.ls("/home/user/odd"), [])


@tiers("vm", "container")
def names_that_are_not_utf8(t):
    """The guest may have them; listing says so without breaking the JSON, and they can be removed."""
    box = t.box()
    box.ok("mkdir bin; touch $'bin/\\xff\\xfe' bin/fine")
    r = t.c.call("GET", box.p + "/dirs", query={"path": "/home/user/bin"})
    got = json.loads(r.body.decode("utf-8"))  # strict
    equal(len(got["entries"]), 2)
    contains([e["name"] for e in got["entries"]], "fine")
    box.rm("/home/user/bin", recursive=1)


@tiers("vm", "container")
def errors(t):
    box = t.box()
    refuses("not_found", box.get, "/no/such")
    refuses("invalid", box.get, "/etc")
    refuses("invalid not_found", box.get, "/etc/passwd/x")
    refuses("invalid", box.get, "x" * 5000)
    refuses("invalid", box.get, "/home/user/" + "y" * 256)
    refuses("invalid", box.get, "")
    refuses("invalid", box.get, "a\u0000b")
    refuses("invalid", t.c.call, "GET", box.p + "/files")
    refuses("invalid conflict", box.put, "/home/user", b"x")
    refuses("invalid", t.c.call, "GET", box.p + "/files?path=%ff%fe%00")
    refuses("not_found invalid", box.get, "/etc/passwd", user="nobody-like-that")
    equal(box.head("/no/such").status, 404)
    box.ok(["true"])


@tiers("vm", "container")
def proc_files_have_no_length(t):
    """Files that say size 0 but have content."""
    box = t.box()
    contains(box.get("/proc/self/status", user="root"), b"Name:")
    contains(box.get("/proc/version"), b"Linux")


@tiers("vm", "container")
def what_the_kernel_refuses_is_no_fault_of_ours(t):
    """/proc/self is the agent: its memory is not for reading. What cannot be read is an error of the request."""
    box = t.box()
    for path in ("/proc/self/mem", "/proc/1/mem", "/proc/self/maps", "/proc/1/environ", "/proc/thread-self/mem"):
        refuses("denied", box.get, path, user="root")
    refuses("denied", box.get, "/proc/self/mem", user="root", offset=4096)
    refuses("denied", box.put, "/proc/self/comm", b"x", user="root")
    pid = box.ok("sleep 600 >/dev/null 2>&1 & echo $!", user="root").strip()
    refuses("invalid denied", box.get, f"/proc/{pid}/mem", user="root")
    contains(box.get(f"/proc/{pid}/cmdline", user="root"), b"sleep")


@tiers("vm", "container")
def upload_that_stops_in_the_middle(t):
    box = t.box()
    box.put("half", b"before")
    s = t.c.dial()
    s.sendall(b"PUT %s/files?path=half HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" % box.p.encode() + b"x" * 5000)
    s.close()
    until(lambda: box.exec(["true"]).code == 0, 5)
    got = box.get("half")
    true(got == b"before" or set(got) <= {ord("x")}, "old content, or a part of the new: never a mixture")


@tiers("vm", "container")
def many_at_once(t):
    box = t.box()
    th = Threads()
    blobs = [os.urandom(200_000) for _ in range(16)]
    for i, b in enumerate(blobs):
        th.go(lambda i=i, b=b: (box.put(f"par/{i}", b, deadline=50), box.get(f"par/{i}", deadline=50))[1])
    equal([sha(x) for x in th.join(55)], [sha(b) for b in blobs])


@tiers("vm", "container")
def big_directory(t):
    box = t.box()
    box.ok("mkdir many; cd many; python3 -c 'for i in range(5000): open(\"f%05d\"%i,\"w\")'")
    got = box.ls("/home/user/many")
    equal(len(got), 5000)
    equal([e["name"] for e in got], [f"f{i:05d}" for i in range(5000)])
    box.rm("/home/user/many", recursive=1)


@tiers("vm", "container")
def expect_continue_and_early_refusal(t):
    box = t.box()
    s = t.c.dial(10)
    s.sendall(b"PUT %s/files?path=exp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n" % box.p.encode())
    head = s.recv(4096)
    true(head.startswith(b"HTTP/1.1 100"), head)
    s.sendall(b"abc")
    true(s.recv(4096).startswith(b"HTTP/1.1 201"))
    s.close()
    equal(box.get("exp"), b"abc")
