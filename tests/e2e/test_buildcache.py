"""Steps of recipes that are not run again."""
import oci
import os

from hutchtest import *
from recipes import build, built, tar_of

QUIET = dict(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
CONTAINER = dict(QUIET, HUTCH_DEFAULT_ISOLATION="container", HUTCH_BUILD_CACHE=1024)  # where builds run


def tiny(t):
    """A small image to build on."""
    t.cleanup_later(t.c.delete, "/v1/templates/tinybase")
    blob = oci.oci_layout(oci.tiny_tree(), env=["PATH=/usr/bin:/bin"], workdir="/home/user", cmd=["/bin/sh"])
    evs = list(t.c.stream("POST", "/v1/templates/tinybase/import", body=blob, headers={"Content-Type": "application/x-tar"}, deadline=170).events())
    equal(evs[-1]["event"], "done", evs[-1])


def ran(evs):
    """(which steps ran, which came from the cache)"""
    steps = [e["step"] for e in evs if e["event"] == "progress" and e.get("step", "").split()[0] in ("RUN", "COPY", "CACHED")]
    new = list(dict.fromkeys(s for s in steps if not s.startswith("CACHED")))
    return new, [s[7:] for s in dict.fromkeys(steps) if s.startswith(("CACHED RUN", "CACHED COPY"))]


def look(t, name):
    box = t.create(template=name, isolation="container")
    out = box.ok(["/bin/sh", "-c", "cat /home/user/a /home/user/b /home/user/c; cat /home/user/d 2>/dev/null; echo $WHO; pwd"]).split()
    box.kill()
    return out


def steps_on_disk(t):
    return sorted(os.listdir(os.path.join(t.d.home, "snapshots")))


RECIPE = """FROM tinybase
ENV WHO=me
WORKDIR /home/user
RUN cat /proc/sys/kernel/random/uuid > a
COPY one.txt b
RUN cat /proc/sys/kernel/random/uuid > c
"""


@plain
@timeout(300)
@own_daemon(**CONTAINER)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def only_what_changed_runs(t):
    """The beginning of a recipe that was built before is not run again, whatever the template's name; force runs all of it."""
    tiny(t)
    files = {"one.txt": b"1\n", "two.txt": b"2\n"}
    _, evs = built(t, "first", RECIPE, tar_of(files))
    equal([len(x) for x in ran(evs)], [3, 0], ran(evs))
    first = look(t, "first")
    # one step more: only that one, and what it sees is what the others left
    _, evs = built(t, "second", RECIPE + "RUN cat a > d\n", tar_of(files))
    equal([len(x) for x in ran(evs)], [1, 3], ran(evs))
    equal(look(t, "second"), first[:3] + [first[0]] + ["me", "/home/user"])
    # another last step; another file that no COPY names
    _, evs = built(t, "third", RECIPE.replace("uuid > c", "boot_id > c"), tar_of(dict(files, **{"two.txt": b"other\n"})))
    equal([len(x) for x in ran(evs)], [1, 2], ran(evs))
    equal((look(t, "third")[:2], look(t, "third")[2] != first[2]), (first[:2], True))
    # the file that COPY names: it and all after it
    _, evs = built(t, "fourth", RECIPE, tar_of(dict(files, **{"one.txt": b"new\n"})))
    equal([len(x) for x in ran(evs)], [2, 1], ran(evs))
    fourth = look(t, "fourth")
    equal((fourth[:2], fourth[2] != first[2]), ([first[0], "new"], True))
    # told to: everything, and what that left is what counts from now on
    _, evs = built(t, "fifth", RECIPE, tar_of(files), force=True)
    equal([len(x) for x in ran(evs)], [3, 0], ran(evs))
    fifth = look(t, "fifth")
    true(fifth[0] != first[0], fifth)
    built(t, "sixth", RECIPE, tar_of(files))
    equal(look(t, "sixth"), fifth)
    # nothing of it is shown, nothing of it holds the template, and it goes with it
    equal((t.c.get("/v1/snapshots")["snapshots"], t.c.get("/v1/usage")["tenants"][0]["snapshots"]), ([], 0))
    true(steps_on_disk(t), "they are kept")
    for name in ("first", "second", "third", "fourth", "fifth", "sixth", "tinybase"):
        until(lambda n=name: gone(t, n), 60, f"{name} is free")
    until(lambda: not steps_on_disk(t), 60, "the steps go with what they stand on")


def gone(t, name):
    try:
        t.c.delete(f"/v1/templates/{name}")
    except ApiError as e:
        if e.code == "not_found":
            return True
        equal(e.code, "conflict")
        return False
    return True


@plain
@timeout(200)
@own_daemon(**dict(CONTAINER, HUTCH_BUILD_CACHE=1))
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def the_cache_is_bounded(t):
    """Steps over the limit go, oldest first; a build does not mind."""
    tiny(t)
    big = "".join(f"RUN head -c 700000 /dev/urandom > /home/user/f{i}; sync\n" for i in range(3))
    _, evs = built(t, "large", "FROM tinybase\n" + big)
    equal([len(x) for x in ran(evs)], [3, 0])
    true(len(steps_on_disk(t)) <= 1, steps_on_disk(t))
    _, evs = built(t, "again", "FROM tinybase\n" + big)
    equal(sum(len(x) for x in ran(evs)), 3)


@plain
@timeout(200)
@own_daemon(**CONTAINER)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def a_spoilt_step_runs_again(t):
    """One whose files are damaged is thrown away and its steps run; a step that fails is not kept."""
    tiny(t)
    recipe = "FROM tinybase\nRUN cat /proc/sys/kernel/random/uuid > /home/user/a\n"
    built(t, "first", recipe)
    for step in steps_on_disk(t):
        os.truncate(os.path.join(t.d.home, "snapshots", step, "upper.ext4"), 10)
    for _ in range(2):
        evs = build(t, "fails", recipe + "RUN exit 3\n")
        equal(evs[-1]["event"], "error", evs[-1])
        equal([len(x) for x in ran(evs)], [1, 1] if _ else [2, 0], ran(evs))


@plain
@timeout(300)
@own_daemon(**dict(QUIET, HUTCH_BUILD_CACHE=1024))
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def of_a_microvm_after_a_restart(t):
    """A VM's steps are kept with its memory, and outlive the daemon."""
    tiny(t)
    recipe = "FROM tinybase\nENV WHO=me\nRUN cat /proc/sys/kernel/random/uuid > /home/user/a; echo $$ > /dev/shm/in-memory\n"
    built(t, "first", recipe, deadline=250)
    t.d.stop()
    t.d.start()
    _, evs = built(t, "second", recipe + "RUN cat /dev/shm/in-memory; cp /home/user/a /home/user/b; echo $WHO > /home/user/c\n", deadline=250)
    equal([len(x) for x in ran(evs)], [1, 1], ran(evs))
    before, after = (t.create(template=x, isolation="container").ok(["/bin/sh", "-c", "cat /home/user/?"]).split() for x in ("first", "second"))
    equal(after, before * 2 + ["me"])
