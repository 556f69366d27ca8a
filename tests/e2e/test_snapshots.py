"""Snapshots: taken of a running sandbox that goes on, made into any number of others, kept as long as something stands on them."""
import contextlib
import os
import sqlite3
import time

from hutchtest import *
from keeper import keeper, told

BOTH = ("vm", "container")


def names(t, **query):
    return [s["name"] or s["id"] for s in t.c.get("/v1/snapshots", **query)["snapshots"]]


def files_of(t):
    """What lies in the snapshots folder."""
    return sorted(os.listdir(t.d.home + "/snapshots"))


def no_files(t):
    until(lambda: not files_of(t), 20, "the files of snapshots are gone")


def same_answers(a, b):
    """Two sandboxes that should share no identity: (what they answer to the same questions)."""
    ask = "hostname; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1; cat /proc/sys/kernel/random/uuid; cat /etc/hostname; grep -c $(hostname) /etc/hosts"
    return list(zip(a.ok(ask).splitlines(), b.ok(ask).splitlines()))


@tiers("vm")
@timeout(180)
def memory_and_files_of_one_moment(t):
    box = t.box(env={"A": "b"})
    pid, ask = keeper(box)
    first = ask()
    box.put("/home/user/f", b"1")
    s = t.snapshot(box, name="moment")
    equal((s["memory"], s["sandbox"], s["tier"], s["parent"], s["users"]), (True, box.id, "vm", None, 0))
    true(s["memory_bytes"] > 1_000_000 and s["disk_bytes"] > 100_000 and s["downtime_ms"] > 0, str(s))
    t.note(f"downtime {s['downtime_ms']} ms, {s['memory_bytes'] >> 20} MiB of memory, {s['disk_bytes'] >> 20} MiB of disk")
    equal(box.info()["state"], "running")
    second = ask()
    equal((int(second[0]), second[1:]), (int(first[0]) + 1, first[1:]), "it goes on")
    box.put("/home/user/f", b"2")
    box.put("/home/user/g", b"2")
    kids = [t.create(snapshot="moment"), t.create(snapshot=s["id"], name="kid", env={"C": "d"})]
    for kid in kids:
        o = kid.info()
        equal((o["snapshot"], o["start"]["path"], o["generation"], o["isolation"]["tier"]), (s["id"], "snapshot", 2, "vm"))
        equal(kid.get("/home/user/f"), b"1")
        refuses("not_found", kid.get, "/home/user/g")
        p = kid.process("tag:keeper")
        equal(p["pid"], pid)
        kid.stdin(pid, b"?\n")
        out = kid.attach(pid, p["output_bytes"], deadline=30).wait_output(b"\n").decode().split()
        equal((int(out[0]), out[1:]), (int(first[0]) + 1, first[1:]), "its memory is the parent's of that moment")
        clock_is_right(kid)
    equal(kids[1].ok("echo $A$C; hostname"), "bd\nkid\n")
    for a, b in ((box, kids[0]), (kids[0], kids[1])):
        for x, y in same_answers(a, b)[:-1]:
            true(x != y, f"{x} in both")
    equal(t.c.get("/v1/snapshots/moment")["users"], 2)
    # Children write, the snapshot does not change.
    kids[0].put("/home/user/f", b"3")
    kids[0].ok("rm -rf /home/user/keeper.py")
    third = t.create(snapshot="moment")
    equal(third.get("/home/user/f"), b"1")
    true(len(third.get("/home/user/keeper.py")) > 100)
    # A name is taken, and sizes are the snapshot's.
    refuses("conflict", box.snapshot, name="moment")
    refuses("invalid", t.create, snapshot="moment", memory_mib=1024)
    refuses("invalid", t.create, snapshot="moment", isolation="container")
    refuses("invalid", t.create, snapshot="moment", template="base")
    refuses("not_found", t.create, snapshot="no-such")


@tiers(*BOTH)
@timeout(180)
def files_alone(t):
    box = t.box()
    data = os.urandom(300_000)
    box.put("/home/user/f", data)
    box.ok("mkdir -p d && ln -s ../f d/link && sudo chown root d && sudo rm -rf /usr/share/doc")
    pid, ask = keeper(box)
    s = t.snapshot(box, name="files", memory=False)
    equal((s["memory"], s["memory_bytes"], s["tier"]), (False, 0, t.tier))
    true(s["disk_bytes"] > 300_000)
    ask()
    box.put("/home/user/f", b"other")
    kid = t.create(snapshot="files", deadline=120)
    equal(kid.info()["start"]["path"], "boot")
    equal(kid.get("/home/user/f"), data)
    equal(kid.ok("readlink d/link; stat -c %U d; test -e /usr/share/doc || echo removed; pgrep -f [k]eeper.py || echo none"), "../f\nroot\nremoved\nnone\n")
    equal(kid.ok("hostname").strip(), kid.id)
    kid.put("/home/user/f", b"mine")
    again = t.create(snapshot="files", deadline=120)
    equal(again.get("/home/user/f"), data)
    for x, y in same_answers(kid, again)[:-1]:
        true(x != y, f"{x} in both")
    if t.tier == "container":
        contains(refuses("unsupported", box.snapshot, memory=True).message, "container")
        equal(box.snapshot(name="plain")["memory"], False, "without being asked for memory it keeps files")
        t.c.delete("/v1/snapshots/plain")
    else:
        refuses("invalid", t.create, snapshot="files", memory=True)


@tiers(*BOTH)
@timeout(180)
def outlives_what_it_was_taken_of(t):
    box = t.box()
    box.put("f", b"1")
    s = t.snapshot(box, name="first")
    box.kill()
    kid = t.create(snapshot="first")
    equal(kid.get("f"), b"1")
    kid.put("g", b"2")
    t.snapshot(kid, name="second")
    kid.put("g", b"3")
    # Deleted by name and list at once; what stands on it goes on, and can be copied further.
    t.c.delete("/v1/snapshots/first")
    refuses("not_found", t.c.get, "/v1/snapshots/first")
    refuses("not_found", t.c.delete, "/v1/snapshots/" + s["id"])
    refuses("not_found", t.create, snapshot="first")
    equal(names(t), ["second"])
    grandchild = t.create(snapshot="second")
    equal((grandchild.get("f"), grandchild.get("g")), (b"1", b"2"))
    grandchild.pause()
    grandchild.resume()
    equal((grandchild.get("f"), grandchild.get("g"), kid.get("g")), (b"1", b"2", b"3"))
    t.c.delete("/v1/snapshots/second")
    for b in (kid, grandchild):
        b.kill()
    no_files(t)


@tiers("vm")
@timeout(180)
def a_child_pauses_resumes_and_is_copied(t):
    box = t.box()
    pid, ask = keeper(box)
    ask()
    t.snapshot(box, name="one")
    kid = t.create(snapshot="one")
    kid.put("/home/user/mine", b"kid")
    kid.pause()
    kid.resume()
    equal(kid.get("/home/user/mine"), b"kid")
    kid.pause(standby=True)
    kid.resume()
    s = t.snapshot(kid, name="two")
    equal(s["parent"], t.c.get("/v1/snapshots/one")["id"])
    kid.pause(memory=False)
    kid.resume(deadline=120)
    equal(kid.get("/home/user/mine"), b"kid")
    t.snapshot(kid, name="three")  # of a machine that was booted
    last = [t.create(snapshot=n, deadline=120) for n in ("two", "three")]
    for b in last:
        equal(b.get("/home/user/mine"), b"kid")
    equal(last[0].process("tag:keeper")["pid"], pid)
    boot = t.create(snapshot="two", memory=False, deadline=120)
    equal((boot.get("/home/user/mine"), boot.info()["start"]["path"]), (b"kid", "boot"))
    equal(boot.ok("pgrep -f [k]eeper.py || echo none"), "none\n")


@tiers(*BOTH)
@timeout(120)
def listed_filtered_and_paged(t):
    a, b = t.box(name="one"), t.box()
    made = [t.snapshot(x, name=f"n{i}", memory=False) for i, x in enumerate((a, b, a, a))]
    nameless = t.snapshot(a, memory=False)
    equal(names(t), [nameless["id"], "n3", "n2", "n1", "n0"])
    equal(names(t, sandbox=b.id), ["n1"])
    equal(names(t, sandbox="one"), [nameless["id"], "n3", "n2", "n0"])
    equal(names(t, name="n2"), ["n2"])
    page = t.c.get("/v1/snapshots", limit=2)
    equal([s["id"] for s in page["snapshots"]], [nameless["id"], made[3]["id"]])
    equal(page["bytes"], sum(s["memory_bytes"] + s["disk_bytes"] for s in page["snapshots"]))
    equal(names(t, limit=2, cursor=page["next"]), ["n2", "n1"])
    equal([made[2]["parent"], made[3]["parent"], made[1]["parent"], nameless["parent"]], [made[0]["id"], made[2]["id"], None, made[3]["id"]], "the tree")
    refuses("invalid", t.c.get, "/v1/snapshots", cursor="x")
    for bad in ("../etc", "A", "", "a" * 64):
        refuses("invalid", a.snapshot, name=bad)
    refuses("invalid", a.snapshot, names="x")
    refuses("not_found", t.c.get, "/v1/snapshots/..%2f..%2fetc")


@tiers(*BOTH)
@timeout(240)
def of_one_that_is_paused(t):
    box = t.box()
    data = os.urandom(300_000)
    box.put("/home/user/f", data)
    pid, ask = keeper(box)
    first = ask()
    box.pause(standby=True)
    s = t.snapshot(box, name="standby")
    equal((s["memory"], s["downtime_ms"]), (t.tier == "vm", 0))
    equal((box.info()["state"], box.info()["paused"]["kind"]), ("paused", "standby"), "nobody woke it")
    kid = t.create(snapshot="standby")
    equal(kid.get("/home/user/f"), data)
    if t.tier == "vm":
        equal(told(kid, pid, "?").split()[1:], first[1:], "its memory is the sandbox's")
    kid.kill()
    box.resume()
    equal(ask()[1:], first[1:], "it goes on where it was")
    box.put("/home/user/later", b"1")
    box.pause()
    s = t.snapshot(box, name="paused")
    equal((s["memory"], s["downtime_ms"]), (t.tier == "vm", 0))
    true(s["disk_bytes"] > 300_000 and (t.tier != "vm" or s["memory_bytes"] > 1_000_000), str(s))
    equal(box.info()["state"], "paused", "nobody woke it")
    kid = t.create(snapshot="paused")
    (clone,) = t.fork(box)[1]
    for b in (kid, clone):
        equal(b.get("/home/user/f"), data)
        if t.tier == "vm":
            equal(told(b, pid, "?").split()[1:], first[1:], "its memory is the sandbox's")
            clock_is_right(b)
    for x, y in same_answers(kid, clone)[:-1]:
        true(x != y, f"{x} in both")
    equal(box.info()["state"], "paused")
    # While it is copied it may be woken: the one after the other.
    th = Threads()
    th.go(lambda: t.snapshot(box, name="while"))
    th.go(box.resume)
    th.join(120)
    equal(box.get("/home/user/f"), data)
    if t.tier == "vm":
        equal(ask()[1:], first[1:])
    equal(t.create(snapshot="while").get("/home/user/f"), data)
    # Its files alone, and what the snapshot has does not depend on it.
    box.put("/home/user/f", b"other")
    box.pause(memory=False)
    files = t.snapshot(box, name="files")
    equal((files["memory"], files["memory_bytes"]), (False, 0))
    refuses("conflict unsupported", box.snapshot, memory=True)
    box.kill()
    again = t.create(snapshot="files", deadline=120)
    equal((again.get("/home/user/f"), again.info()["start"]["path"]), (b"other", "boot"))
    if t.tier == "vm":
        equal(told(t.create(snapshot="paused"), pid, "?").split()[1:], first[1:])


@tiers(*BOTH)
@timeout(120)
def expire_and_keep_the_last(t):
    box = t.box()
    t.snapshot(box, name="stays", memory=False)
    t.snapshot(box, name="goes", memory=False, expires_s=1)
    until(lambda: names(t) == ["stays"], 30, "it expired")
    kept = [t.snapshot(box, memory=False, keep_last=2)["id"] for _ in range(4)]
    equal(names(t), [kept[3], kept[2], "stays"])
    until(lambda: files_of(t) == sorted([kept[3], kept[2], t.c.get("/v1/snapshots/stays")["id"]]), 20, "their files went too")


@plain
@own_daemon()
def one_whose_row_is_damaged_keeps_its_files(t):
    box = t.create(isolation="container")
    box.put("f", b"1")
    ids = [box.snapshot(name=n)["id"] for n in ("good", "bad")]
    box.kill()
    t.d.sigkill()
    with contextlib.closing(sqlite3.connect(t.d.home + "/state.db")) as db:
        text = db.execute("SELECT json FROM snapshots WHERE name = 'bad'").fetchone()[0]
        db.execute("UPDATE snapshots SET json = ? WHERE name = 'bad'", (text.replace('"container"', '"another"'),))
        db.commit()
    t.d.start(settle=False)
    equal(names(t), ["good"])
    equal(files_of(t), sorted(ids), "what this daemon cannot read may be another's")
    t.d.sigkill()
    with contextlib.closing(sqlite3.connect(t.d.home + "/state.db")) as db:
        db.execute("UPDATE snapshots SET json = ? WHERE name = 'bad'", (text,))
        db.commit()
    t.d.start(settle=False)
    equal(sorted(names(t)), ["bad", "good"])
    kid = t.create(isolation="container", snapshot="bad")
    equal(kid.get("f"), b"1")
    kid.kill()
    for n in ("good", "bad"):
        t.c.delete(f"/v1/snapshots/{n}")
    no_files(t)


@tiers(*BOTH)
@own_daemon()
@timeout(240)
def survive_the_daemon(t):
    box = t.box()
    box.put("f", b"1")
    s = box.snapshot(name="kept")
    kid = t.create(snapshot="kept")
    kid.put("g", b"2")
    t.c.delete("/v1/snapshots/kept")
    box.snapshot(name="kept")
    t.d.sigkill()
    # Half a snapshot, and one that was never written down: what a daemon that is killed may leave.
    os.makedirs(t.d.home + "/snapshots/.s00000000000000000000.tmp")
    os.makedirs(t.d.home + "/snapshots/s00000000000000000000")
    t.d.start(settle=False)
    equal(names(t), ["kept"])
    equal((kid.get("f"), kid.get("g")), (b"1", b"2"))
    want = [t.c.get("/v1/snapshots/kept")["id"]] + ([s["id"]] if t.tier == "vm" else [])
    until(lambda: files_of(t) == sorted(want), 10, "only what is needed is there")
    kid.pause()
    t.d.kill_everything()
    t.d.start(settle=False)
    kid.resume()
    equal((kid.get("f"), kid.get("g")), (b"1", b"2"))
    other = t.create(snapshot="kept")
    equal(other.get("f"), b"1")
    kid.kill()
    other.kill()
    until(lambda: len(files_of(t)) == 1, 20, "the deleted one went with the last that stood on it")
    t.c.delete("/v1/snapshots/kept")
    no_files(t)


@tiers(*BOTH)
@own_daemon()
@timeout(300)
def killed_at_any_moment(t):
    """The daemon dies while a snapshot is taken: afterwards there is all of it or nothing, and the sandbox runs."""
    box = t.box()
    box.put("f", b"x" * 200_000)
    for i, delay in enumerate((0.0, 0.01, 0.03, 0.06, 0.1, 0.2)):
        th = Threads()

        def take():
            try:
                return box.snapshot(name=f"n{i}")
            except Exception as e:
                return e
        th.go(take)
        time.sleep(delay)
        t.d.sigkill()
        th.join(60)
        t.d.start(settle=False)
        equal(box.ok(["echo", "on"]), "on\n", f"after {delay}")
        there = [s for s in t.c.get("/v1/snapshots")["snapshots"] if s["name"] == f"n{i}"]
        equal(files_of(t), [s["id"] for s in there], f"files after {delay}")
        for s in there:
            kid = t.create(snapshot=s["id"])
            equal(sha(kid.get("f")), sha(b"x" * 200_000))
            kid.kill()
            t.c.delete("/v1/snapshots/" + s["id"])
        no_files(t)


@tiers(*BOTH)
@timeout(120)
def kill_while_it_is_taken(t):
    for delay in (0, 0.01, 0.05):
        box = t.box()
        box.put("f", b"1")
        th = Threads()

        def take():
            try:
                return box.snapshot()["id"]
            except ApiError as e:
                contains(("gone", "conflict", "not_found"), e.code)
                return None
        th.go(take)
        time.sleep(delay)
        box.kill()
        s = th.join(60)[0]
        if s:
            kid = t.create(snapshot=s)
            equal(kid.get("f"), b"1")
            kid.kill()
            t.c.delete("/v1/snapshots/" + s)
        no_files(t)
