"""Volumes: data that outlives sandboxes, shared by many of them, of a fixed size, and reachable without any."""
import os
import threading

from hutchtest import *
from keeper import background, told

BOTH = ("vm", "container")


def volume(t, name="data", **members):
    v = t.c.post("/v1/volumes", {"name": name, "size_mib": 64, **members})
    t.cleanup_later(t.c.delete, "/v1/volumes/" + v["id"])
    return v


def mounts(*items):
    return [{"name": n, "path": p, "read_only": ro} for n, p, ro in items]


class Content:
    """The content API of one volume."""

    def __init__(self, t, name="data"):
        self.c, self.p = t.c, "/v1/volumes/" + name

    def put(self, path, data, **q):
        return self.c.call("PUT", self.p + "/files", query={"path": path, **q}, body=data).json()

    def get(self, path, **q):
        return self.c.call("GET", self.p + "/files", query={"path": path, **q}).body

    def names(self, path="/", **q):
        return [e["path"] for e in self.c.get(self.p + "/dirs", path=path, **q)["entries"]]

    def stat(self, path):
        return self.c.get(self.p + "/files/stat", path=path)

    def rm(self, path, **q):
        return self.c.delete(self.p + "/files", path=path, **q)


@plain
def made_listed_and_deleted(t):
    v = volume(t, "first", size_mib=32, inodes=500)
    equal((v["name"], v["size_mib"], v["inodes"], v["attached"]), ("first", 32, 500, []))
    equal([x["name"] for x in t.c.get("/v1/volumes")["volumes"]], ["first"])
    equal(t.c.get("/v1/volumes/first")["id"], v["id"])
    within(t.c.get("/v1/volumes/" + v["id"])["disk_bytes"], 1, 8 << 20, "an empty volume takes little")
    refuses("conflict", t.c.post, "/v1/volumes", {"name": "first"})
    t.c.delete("/v1/volumes/first")
    equal(t.c.get("/v1/volumes")["volumes"], [])
    refuses("not_found", t.c.delete, "/v1/volumes/first")
    refuses("not_found", t.c.get, "/v1/volumes/" + v["id"])
    equal(os.listdir(t.d.home + "/volumes"), [], "nothing is left on the disk")
    volume(t, "first")  # the name is free again


@plain
def bad_names_sizes_and_places(t):
    for name in ("", ".", "..", "a/b", "../x", "a b", "a.b", "{x}", "é", "a" * 64, "v" + "0" * 20, "a\n", "$(id)"):
        refuses("invalid", t.c.post, "/v1/volumes", {"name": name})
    for members in ({"size_mib": 1}, {"size_mib": 1 << 31}, {"inodes": 3}, {"inodes": 1 << 30}, {"path": "/etc"}, {"size_mib": "big"}):
        refuses("invalid", t.c.post, "/v1/volumes", {"name": "x", "size_mib": 64, **members})
    volume(t)
    for path in ("", "data", "/", "/data/", "//data", "/a/../b", "/./a", "/proc", "/proc/x", "/sys", "/dev/shm/x", "/a\nb", "/" + "x" * 300):
        refuses("invalid", t.create, isolation="container", volumes=mounts(("data", path, False)))
    refuses("invalid", t.create, isolation="container", volumes=mounts(("data", "/a", False), ("data", "/a", True)))
    refuses("invalid", t.create, isolation="container", volumes=mounts(("data", "/a", False), ("data", "/a/b", False)))
    e = refuses("invalid", t.create, isolation="container", volumes=mounts(("nothing", "/a", False)))
    contains(e.message, "nothing")
    refuses("invalid", t.create, isolation="container", volumes=[{"name": "data", "path": "/a", "host": "/etc"}])
    for name in ("..%2f..%2fetc", "%00", "a%2fb", "data%00"):
        refuses("not_found invalid", t.c.call, "GET", "/v1/volumes/" + name)
        refuses("not_found invalid", t.c.call, "GET", "/v1/volumes/" + name + "/files?path=/etc/passwd")


@tiers(*BOTH)
def data_outlives_sandboxes(t):
    v = volume(t)
    one = t.box(volumes=mounts(("data", "/data", False)))
    equal([(x["name"], x["volume_id"], x["path"], x["read_only"]) for x in one.info()["volumes"]], [("data", v["id"], "/data", False)])
    equal([u["sandbox"] for u in t.c.get("/v1/volumes/data")["attached"]], [one.id])
    one.ok("id -un > /data/who; mkdir -p /data/a/b; seq 1000 > /data/a/b/numbers; ln -s a/b/numbers /data/link; chmod 640 /data/who; sync")
    one.kill()
    two = t.box(volumes=mounts(("data", "/mnt/elsewhere", False)))
    equal(two.ok("cat /mnt/elsewhere/who; tail -1 /mnt/elsewhere/link; stat -c '%U %a' /mnt/elsewhere/who"), "user\n1000\nuser 640\n")
    equal(two.get("/mnt/elsewhere/a/b/numbers").split()[-1], b"1000")
    two.kill()
    equal(t.c.get("/v1/volumes/data")["attached"], [])
    equal(Content(t).get("/who"), b"user\n")


@tiers(*BOTH)
def shared_by_several_at_once(t):
    volume(t)
    a, b = t.box(volumes=mounts(("data", "/data", False))), t.box(volumes=mounts(("data", "/data", False)))
    c = t.box(volumes=mounts(("data", "/data", True)))
    a.ok("echo from-a > /data/a")
    equal(b.ok("cat /data/a"), "from-a\n")
    b.ok("echo more >> /data/a; mv /data/a /data/b")
    equal(a.ok("cat /data/b; ls /data"), "from-a\nmore\nb\n")
    equal(c.ok("cat /data/b"), "from-a\nmore\n")
    Content(t).put("/from-api", b"hello")
    for box in (a, b, c):
        equal(box.get("/data/from-api"), b"hello")
    # Many writers into one directory: nothing is lost.
    th = Threads()
    for k, box in enumerate((a, b)):
        th.go(box.ok, f"mkdir -p /data/many; for i in $(seq 60); do echo {k}-$i > /data/many/{k}-$i; done")
    th.join(60)
    equal(len(c.ok("cat /data/many/*").split()), 120)


@tiers(*BOTH)
def read_only_is_enforced(t):
    volume(t)
    Content(t).put("/f", b"fixed")
    box = t.box(volumes=mounts(("data", "/data", True)))
    for who in ("user", "root"):
        r = box.exec("exec 2>&1; echo x > /data/f; echo y > /data/new; rm -f /data/f; mkdir /data/d; mv /data/f /data/g; chmod 777 /data/f; truncate -s 0 /data/f; ln -s a /data/l",
                     user=who)
        contains(r.text, "Read-only")
    refuses("denied invalid internal unavailable conflict", box.put, "/data/new", b"x")
    r = box.exec("mount -o remount,rw /data; umount /data; umount -l /data; echo x > /data/f", user="root")
    equal(Content(t).get("/f"), b"fixed")
    equal(Content(t).names(), ["/f"])


@tiers(*BOTH)
def size_is_a_limit(t):
    volume(t, "small", size_mib=32, inodes=200)
    box = t.box(volumes=mounts(("small", "/data", False)))
    r = box.exec("dd if=/dev/zero of=/data/big bs=1M count=64 2>&1", deadline=60)
    contains(r.text, "No space left")
    within(box.stat("/data/big")["size"], 8 << 20, 32 << 20)
    e = refuses("quota", Content(t, "small").put, "/more", b"x" * (8 << 20))
    contains(e.message, "space")
    box.ok("rm /data/big")
    Content(t, "small").put("/more", b"x" * (8 << 20))
    r = box.exec("exec 2>&1; for i in $(seq 300); do : > /data/f$i || exit 9; done")
    equal(r.exit, {"kind": "exit", "code": 9})
    contains(r.text, "No space left")
    within(len([n for n in Content(t, "small").names() if n.startswith("/f")]), 100, 200, "files until there were no more inodes")
    box.ok(["true"])


@tiers(*BOTH)
def deleting_waits_for_nobody(t):
    volume(t)
    box = t.box(volumes=mounts(("data", "/data", False)))
    e = refuses("conflict", t.c.delete, "/v1/volumes/data")
    contains(e.message, "1 sandbox")
    box.ok("echo still > /data/here")
    box.kill()
    t.c.delete("/v1/volumes/data")
    refuses("invalid", t.create, isolation=t.tier, volumes=mounts(("data", "/data", False)))


@plain
def content_without_a_sandbox(t):
    volume(t)
    c = Content(t)
    equal(c.names(), [])
    e = c.put("/dir/sub/file", b"hello", mode="600")
    equal((e["path"], e["size"], e["mode"], e["uid"]), ("/dir/sub/file", 5, "0600", 1000))
    big = Pattern(9_000_000)
    c.c.call("PUT", c.p + "/files", query={"path": "/big"}, body=iter(big), deadline=60)
    equal(sha(c.get("/big")), big.sha())
    equal(c.get("/big", offset=8_999_990), b"".join(big)[-10:])
    equal(c.names(depth=3), ["/big", "/dir", "/dir/sub", "/dir/sub/file"])
    equal(c.c.post(c.p + "/files/move", {"from": "/dir/sub/file", "to": "/moved"})["path"], "/moved")
    equal(c.c.post(c.p + "/files/attr", {"path": "/moved", "mode": "755", "owner": "1234", "group": "55"})["mode"], "0755")
    equal((c.stat("/moved")["uid"], c.stat("/moved")["gid"]), (1234, 55))
    equal(c.c.post(c.p + "/files/symlink", {"target": "/big", "path": "/link"})["type"], "symlink")
    equal(sha(c.get("/link")), big.sha(), "an absolute link leads into the volume")
    c.c.post(c.p + "/files/symlink", {"target": "/etc/passwd", "path": "/out"})
    refuses("not_found", c.get, "/out")
    c.c.post(c.p + "/files/symlink", {"target": "../../../../etc/passwd", "path": "/dir/out"})
    refuses("not_found", c.get, "/dir/out")
    refuses("not_found", c.get, "/../../../etc/passwd")
    refuses("not_found", c.get, "/proc/self/environ")
    refuses("conflict", c.rm, "/dir")
    c.rm("/dir", recursive=1)
    c.rm("/big")
    refuses("not_found", c.stat, "/big")
    refuses("invalid", c.c.call, "GET", c.p + "/files")
    equal(sorted(c.names()), ["/link", "/moved", "/out"])


@tiers(*BOTH)
@own_daemon()
@timeout(120)
def survives_the_daemon(t):
    """kill -9 of the daemon: sandboxes keep their volumes, and everything goes on."""
    v = volume(t)
    box = t.box(volumes=mounts(("data", "/data", False)))
    box.ok("echo before > /data/f")
    pid = box.background("i=0; while :; do i=$((i+1)); echo $i > /data/tick.new && mv /data/tick.new /data/tick; sleep 0.05; done")
    until(lambda: box.ok("cat /data/tick 2>/dev/null || true").strip() != "", 20, "a tick")
    t.d.sigkill()
    t.d.start(settle=False)
    equal(box.info()["volumes"][0]["volume_id"], v["id"])
    equal(box.ok("cat /data/f"), "before\n")
    one = int(Content(t).get("/tick"))
    until(lambda: int(Content(t).get("/tick")) > one + 3, 30, "ticks go on")
    true(box.process(pid)["running"], "the writer did not notice")
    refuses("conflict", t.c.delete, "/v1/volumes/data")
    new = t.box(volumes=mounts(("data", "/data", True)))
    equal(new.ok("cat /data/f"), "before\n")


@tiers(*BOTH)
@own_daemon()
@timeout(150)
def survives_a_power_cut(t):
    """Everything dies at once. What was synced is there, the volume is whole, and it is free."""
    v = volume(t)
    box = t.box(volumes=mounts(("data", "/data", False)))
    box.ok("seq 5000 > /data/synced && sync /data/synced && for i in $(seq 50); do echo $i > /data/loose-$i; done")
    Content(t).put("/by-api", b"api")
    t.d.kill_everything()
    t.d.start(settle=False)
    equal(box.info()["state"], "failed")
    equal(t.c.get("/v1/volumes/data")["id"], v["id"])
    equal(len(Content(t).get("/synced").split()), 5000)
    new = t.box(volumes=mounts(("data", "/data", False)))
    equal(new.ok("wc -l < /data/synced; touch /data/new"), "5000\n")
    new.kill()
    t.c.delete("/v1/volumes/data")  # the failed sandbox does not hold it


HOLDER = r"""
import os, sys
held = open("/data/held", "w+")
held.write("held")
held.flush()
folder = os.open("/data", os.O_RDONLY)
print("ready", flush=True)
for line in sys.stdin:
    open(os.open(line.strip(), os.O_CREAT | os.O_WRONLY, dir_fd=folder), "w").write(line)
    held.seek(0)
    print(held.read(), *sorted(os.listdir(folder)), flush=True)
"""


@tiers("vm")
@timeout(180)
def copied_with_its_memory(t):
    """A process with a file of the volume open is copied: everybody's goes on, on the one volume."""
    v = volume(t)
    volume(t, "other")
    box = t.box(volumes=mounts(("data", "/data", False)))
    pid = background(box, "holder", HOLDER, user="root")
    equal(told(box, pid, "1"), "held 1 held")
    (kid,) = t.fork(box)[1]
    equal(told(kid, pid, "2"), "held 1 2 held")
    equal(told(box, pid, "3"), "held 1 2 3 held")
    equal([(x["volume_id"], x["path"], x["read_only"]) for x in kid.info()["volumes"]], [(v["id"], "/data", False)])
    box.pause()
    t.snapshot(box, name="s")
    made = t.create(snapshot="s", volumes=mounts(("other", "/more", False)))
    equal(sorted((x["name"], x["path"]) for x in made.info()["volumes"]), [("data", "/data"), ("other", "/more")], "its own come along")
    equal(told(made, pid, "4"), "held 1 2 3 4 held")
    equal(made.ok("sudo sh -c 'echo x > /more/x'; cat /more/x; ls /data"), "x\n1\n2\n3\n4\nheld\n")
    box.resume()
    equal(told(box, pid, "5"), "held 1 2 3 4 5 held")
    equal(Content(t).names(), ["/1", "/2", "/3", "/4", "/5", "/held"])
    # What is mounted in its memory cannot be something else.
    for wrong in (("other", "/data", False), ("data", "/data", True)):
        contains(refuses("invalid", t.create, snapshot="s", volumes=mounts(wrong)).message, "memory of the snapshot")
    files = t.create(snapshot="s", memory=False, deadline=120)
    equal((files.info()["volumes"], files.ok("ls /data")), ([], ""))
    for b in (box, kid, made):
        b.kill()
    t.c.delete("/v1/volumes/data")
    contains(refuses("conflict", t.create, snapshot="s").message, "no longer exists")
    volume(t)


@tiers("vm", "container")
@timeout(240)
def a_rollback_leaves_it_as_it_is(t):
    """The sandbox goes back, what its volume holds does not, and it is there again; also if the rollback fails late."""
    volume(t)
    box = t.box(volumes=mounts(("data", "/data", False)))
    box.put("f", b"1")
    box.ok("sudo sh -c 'echo 1 > /data/x'")
    pid = background(box, "holder", HOLDER, user="root")
    equal(told(box, pid, "a"), "held a held x")
    s = t.snapshot(box)
    box.put("f", b"2")
    box.ok("sudo sh -c 'echo 2 > /data/x'")
    box.rollback(s["id"])
    equal((box.get("f"), box.ok("cat /data/x")), (b"1", "2\n"))
    if t.tier == "vm":
        equal(told(box, pid, "b"), "held a b held x")
    box.ok("sudo sh -c 'echo 3 > /data/y'")
    equal(Content(t).names()[-2:], ["/x", "/y"])
    # A hook that fails: the new machine is not to be, and the old one has its volume again.
    box.ok("sudo sh -c 'mkdir -p /etc/hutch/post-restore.d; echo \"#!/bin/sh\nexit 1\" > /etc/hutch/post-restore.d/no; chmod 755 /etc/hutch/post-restore.d/no'")
    s = t.snapshot(box)
    had = box.info()["box"]
    contains(refuses("guest", box.rollback, s["id"]).message, "post-restore hook")
    equal(box.info()["box"], had)
    box.ok("sudo sh -c 'echo 4 > /data/z'; cat /data/x", deadline=60)
    equal(Content(t).names()[-3:], ["/x", "/y", "/z"])


@plain
@own_daemon()
@timeout(150)
def a_daemon_that_dies_between_steps(t):
    """kill -9 while volumes are made and deleted: afterwards each is whole or gone, and nothing is left over."""
    for k in range(4):
        names = [f"v{k}-{i}" for i in range(6)]
        known = []
        stop = threading.Event()

        def work():
            for n in names:
                if stop.is_set():
                    return
                try:
                    t.c.post("/v1/volumes", {"name": n, "size_mib": 32})
                    known.append(n)
                    if len(known) % 2:
                        t.c.delete("/v1/volumes/" + n)
                        known.remove(n)
                except Exception:
                    return  # the daemon died under it
        th = threading.Thread(target=work)
        th.start()
        until(lambda: len(known) > 0 or not th.is_alive(), 20, "a volume")
        for _ in range(k * 3):
            threading.Event().wait(0.01)
        t.d.sigkill()
        stop.set()
        th.join()
        t.d.start(settle=False)
        have = [v["name"] for v in t.c.get("/v1/volumes")["volumes"]]
        for v in t.c.get("/v1/volumes")["volumes"]:
            Content(t, v["id"]).put("/f", b"works")
            equal(Content(t, v["id"]).get("/f"), b"works")
        for n in known[:-1]:
            contains(have, n, "answered, so it is there")
        def settled():
            files = sorted(os.listdir(t.d.home + "/volumes"))
            return files == sorted(v["id"] + ".ext4" for v in t.c.get("/v1/volumes")["volumes"])
        until(settled, 20, "images and rows agree")
        for n in have:
            t.c.delete("/v1/volumes/" + n)
    equal(os.listdir(t.d.home + "/volumes"), [])


@tiers(*BOTH)
@own_daemon()
@timeout(90)
def a_keeper_that_dies(t):
    """Its process is killed: the content API and the sandboxes go on with a new one."""
    volume(t)
    box = t.box(volumes=mounts(("data", "/data", False)))
    Content(t).put("/f", b"one")
    for n in range(3):
        for pid in keepers(t):
            os.kill(pid, 9)
        equal(until(lambda: quiet(lambda: Content(t).get("/f")), 20, "the content again"), b"one")
        equal(box.ok("cat /data/f", deadline=40), "one")
    box.ok("echo two > /data/f")
    equal(Content(t).get("/f"), b"two\n")


def keepers(t):
    return [p.pid for p in t.d.census.mine() if b"--keeper" in p.cmd]


def quiet(fn):
    try:
        return fn()
    except ApiError:
        return None


@plain
def the_command_line(t):
    import subprocess

    def hutch(*args, code=0):
        import daemon
        r = subprocess.run([daemon.program("hutch"), *args], env={**t.d.env, "HUTCH_NO_START": "1"}, capture_output=True, text=True, timeout=60)
        equal(r.returncode, code, r.stderr)
        return r.stdout + r.stderr
    t.cleanup_later(lambda: quiet(lambda: t.c.delete("/v1/volumes/clidata")))
    equal(hutch("volume", "create", "clidata", "--size", "48"), "clidata\n")
    contains(hutch("volume", "ls"), "clidata")
    contains(hutch("run", "--isolation", "container", "--volume", "clidata:/data", "--", "sh", "-c", "echo kept > /data/f; cat /data/f"), "kept")
    contains(hutch("run", "--isolation", "container", "--volume", "clidata:/d:ro", "--", "sh", "-c", "cat /d/f; touch /d/g; echo $?"), "Read-only")
    box = hutch("create", "--isolation", "container", "--volume", "clidata:/data").strip()
    contains(hutch("volume", "ls"), box)
    contains(hutch("volume", "rm", "clidata", code=73), "attached")
    hutch("kill", box)
    hutch("volume", "rm", "clidata")
    lacks(hutch("volume", "ls"), "clidata")
    contains(hutch("create", "--volume", "nopath", code=64), "NAME:/path")
