"""Watching a folder."""
import os

from hutchtest import *


def has(*want):
    return lambda got: all(w in got for w in want)


@tiers("vm", "container")
def sees_what_happens(t):
    box = t.box()
    box.mkdir("/home/user/w")
    with box.watch("/home/user/w", deadline=30) as w:
        box.put("/home/user/w/a", b"1")
        got = w.until(has(("create", "a"), ("write", "a")))
        true(got.index(("create", "a")) < got.index(("write", "a")), got)
        box.ok("echo more >> w/a")
        w.until(has(("write", "a")))
        box.ok("mv w/a w/b")
        got = w.until(lambda g: ("rename", "a") in g and any(k in ("create", "rename") and n == "b" for k, n in g))
        box.ok("chmod 600 w/b")
        w.until(has(("attr", "b")))
        box.ok("rm w/b")
        w.until(has(("remove", "b")))


@tiers("vm", "container")
def sequence_numbers_grow(t):
    box = t.box()
    box.mkdir("/home/user/w")
    with box.watch("/home/user/w", deadline=30) as w:
        box.ok("for i in 1 2 3 4 5; do touch w/f$i; done")
        seqs = []
        for kind, o in w:
            equal(kind, "change")
            seqs.append(o["seq"])
            if o["name"] == "f5":
                break
        equal(seqs, sorted(set(seqs)))


@tiers("vm", "container")
def recursive(t):
    box = t.box()
    box.mkdir("/home/user/r/deep/er")
    with box.watch("/home/user/r", recursive=1, deadline=40) as w:
        box.put("/home/user/r/deep/er/f", b"x")
        w.until(has(("create", "deep/er/f")))
        # Folders made later are watched too, with what was put into them at once.
        box.ok("mkdir -p r/new/one/two && echo x > r/new/one/two/f")
        w.until(has(("create", "new"), ("create", "new/one/two/f")))
        box.ok("echo y >> r/new/one/two/f")
        w.until(has(("write", "new/one/two/f")))
        box.ok("mv r/new r/moved")
        w.until(lambda g: ("rename", "new") in g)
        box.ok("echo z > r/moved/one/later")
        w.until(has(("create", "moved/one/later")))
        box.ok("rm -r r/moved")
        w.until(lambda g: any(k == "remove" and n == "moved" for k, n in g))


@tiers("vm", "container")
def not_recursive_stays_flat(t):
    box = t.box()
    box.mkdir("/home/user/n/sub")
    with box.watch("/home/user/n", deadline=20) as w:
        box.put("/home/user/n/sub/x", b"x")
        box.put("/home/user/n/mark", b"x")
        got = w.until(has(("create", "mark")))
        true(not any("/" in (n or "") for _, n in got), got)


@tiers("vm", "container")
@timeout(130)
def overflow_is_said(t):
    box = t.box()
    box.mkdir("/home/user/o")
    with box.watch("/home/user/o", deadline=120) as w:
        # Nobody reads while far more happens than any queue should hold.
        box.ok(["python3", "-c", "import os\nfor i in range(%d):\n  p='/home/user/o/%%06d'%%i\n  os.close(os.open(p,os.O_CREAT|os.O_WRONLY))\n  os.unlink(p)" % (8000 if t.tier == "vm" else 60000)], deadline=110)
        box.put("/home/user/o/last", b"x")
        kinds = set()
        for kind, o in w:
            kinds.add(kind)
            if kind == "overflow" or (kind == "change" and o["name"] == "last"):
                break
        contains(kinds, "overflow")
        box.put("/home/user/o/after", b"x")
        for kind, o in w:
            if kind == "change" and o["name"] == "after":
                break
    box.ok(["true"])


@tiers("vm", "container")
def ends_with_a_reason(t):
    box = t.box()
    box.mkdir("/home/user/e")
    w = box.watch("/home/user/e", deadline=30)
    box.kill()
    last = list(w)[-1]
    equal(last[0], "end")
    true(last[1].get("reason"), last)


@tiers("vm", "container")
def watched_folder_goes_away(t):
    box = t.box()
    box.mkdir("/home/user/gone")
    with box.watch("/home/user/gone", deadline=30) as w:
        box.rm("/home/user/gone", recursive=1)
        for kind, o in w:
            if kind == "end" or (kind == "change" and o["type"] == "remove"):
                break
    box.ok(["true"])


@tiers("vm", "container")
def errors(t):
    box = t.box()
    refuses("not_found", box.watch, "/home/user/none")
    refuses("invalid", box.watch, "")
    box.put("file", b"x")
    try:
        box.watch("/home/user/file").close()
    except ApiError as e:
        equal(e.code, "invalid")


@tiers("vm", "container")
def leaving_frees_the_watch(t):
    box = t.box()
    box.mkdir("/home/user/l")
    for _ in range(40):
        box.watch("/home/user/l").stream.abort()

    def held():
        out = box.ok("grep -c '^inotify' /proc/1/fdinfo/* 2>/dev/null | awk -F: '{n+=$2} END {print n+0}'", user="root")
        return int(out)
    until(lambda: held() <= 4, 15, "watches of clients that left are given back")
