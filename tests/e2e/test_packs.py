"""Snapshots as signed files: out of one home, into another, and nothing but what was signed."""
import contextlib
import glob
import http.client
import json
import os
import subprocess

import daemon as _daemon
from hutchtest import *
from keeper import keeper, told
from packs import HEAD, export, hutch, take
from recipes import built


@contextlib.contextmanager
def second_home(**env):
    """Another daemon with a home of its own."""
    d = _daemon.Daemon(name="second", env={"HUTCH_POOL_VM": "0", "HUTCH_POOL_PRESTARTED": "0", "HUTCH_POOL_CONTAINER": "0", **env})
    try:
        yield d.start(settle=False)
        equal(d.stop(), [], "leaks of the second daemon")
    finally:
        d.kill_everything()
        d.scrub()
        d.destroy()


def trust(a, b):
    """b takes what a signs; the key's owner."""
    key = a.client.get("/v1/signers")["own"]
    rc, _, err = hutch(b, "snapshot", "trust", "first", key)
    equal(rc, 0, err)
    return key


def refused(d, code, path, **query):
    """It is refused, and leaves nothing."""
    before = left(d)
    e = refuses(code, take, d.client, path, **query)
    until(lambda: left(d) == before, 20, f"nothing of it stays: {left(d)} after {before}")
    return e.message


def left(d):
    return sorted(glob.glob(d.home + "/snapshots/*") + glob.glob(d.home + "/snapshots/.*") + glob.glob(d.home + "/templates/*"))


def dies(d, pack, *steps):
    """The daemon is killed at these steps of an import: the next start leaves nothing of it."""
    d.shutdown()
    d.env["HUTCH_FAULT"] = d.top + "/fault"
    before = left(d)
    for step in steps:
        d.start(settle=False)
        with open(d.env["HUTCH_FAULT"], "w") as f:
            f.write(step)
        pid = d.pid
        try:
            take(d.client, pack)
            raise AssertionError(f"the daemon outlived {step}")
        except (OSError, Late, Untyped, http.client.HTTPException):
            pass  # the connection broke with the daemon
        d.wait_gone(pid, 60)
        os.unlink(d.env["HUTCH_FAULT"])
        d.start(settle=False)
        until(lambda: left(d) == before, 20, f"{step}: nothing of it stays: {left(d)} after {before}")
        equal(d.client.get("/v1/snapshots")["snapshots"], [], step)
        d.shutdown()
    del d.env["HUTCH_FAULT"]
    d.start(settle=False)


def changed(path, to, at, byte=None):
    """A copy with one byte changed; at < 0: from the end. Blocks are shared where the disk can."""
    subprocess.run(["cp", "--reflink=auto", path, to], check=True)
    with open(to, "r+b") as f:
        f.seek(at, 2 if at < 0 else 0)
        old = f.read(1)
        f.seek(at, 2 if at < 0 else 0)
        f.write(bytes([old[0] ^ 1]))
    return to


@tiers("vm")
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(600)
def a_machine_moves_with_its_memory(t):
    pack, bad = t.d.top + "/pack", t.d.top + "/bad"
    box = t.box(env={"A": "b"})
    box.put("f", b"0")
    first = t.snapshot(box, name="below")
    kid = t.create(snapshot="below")     # stands on a layer, which has to come along
    pid, ask = keeper(kid)
    said = ask()
    kid.put("g", b"1" * 300_000)
    s = t.snapshot(kid, name="moment")
    m = export(t.d, "moment", pack)
    equal((m["tier"], m["memory"], len(m["machines"]), [p["role"] for p in m["parts"]]),
          ("vm", True, 2, ["image", "ram", "devices", "boot", "disk", "disk", "state", "pages"]))
    size, whole = os.path.getsize(pack), sum(p["bytes"] for p in m["parts"])
    true(size < whole / 2, f"holes are left out: {size} of {whole}")
    t.note(f"pack of {size >> 20} MiB for files of {whole >> 20} MiB")
    equal(oct(os.stat(t.d.home + "/pack.key").st_mode & 0o777), "0o600")
    with second_home() as d:
        # Nobody is trusted who was not named.
        key = t.c.get("/v1/signers")["own"]
        told_why = refused(d, "denied", pack)
        contains(told_why, key)
        contains(told_why, "hutch snapshot trust")
        refuses("denied", d.tcp(d.new_key()["key"]).put, "/v1/signers/me", {"key": key})
        equal(trust(t.d, d), key)
        equal(d.client.get("/v1/signers")["signers"], [{"name": "first", "key": key}])
        # Changed anywhere, cut anywhere, or with something behind it: refused, by what is wrong.
        contains(refused(d, "denied", changed(pack, bad, 50)), "signature")
        contains(refused(d, "denied", changed(pack, bad, HEAD + 100)), "signature")
        contains(refused(d, "invalid", changed(pack, bad, HEAD + len(json.dumps(m, separators=(",", ":"))) + 2000)), "sum of its image")
        os.truncate(bad, 4 << 20)
        contains(refused(d, "invalid", bad), "cut off in its")
        with open(bad, "wb") as f:
            f.write(b"HUTCHPK\1")
        contains(refused(d, "invalid", bad), "cut off")
        # The same template is here: it is not copied.
        templates = os.listdir(d.home + "/templates")
        got = take(d.client, pack)
        equal((got["name"], got["memory"], got["tier"], got["sandbox"], got["signer"], got["template_id"]), ("moment", True, "vm", None, "first", s["template_id"]))
        equal(os.listdir(d.home + "/templates"), templates)
        contains(refused(d, "conflict", pack), "another name")
        # It goes on where it was.
        there = d.client.create(snapshot="moment", isolation="vm", deadline=120)
        equal(there.info()["start"]["path"], "snapshot")
        again = told(there, pid, "?").split()
        equal((int(again[0]), again[1:]), (int(said[0]) + 1, said[1:]), "the process goes on with its memory")
        equal((there.get("f"), there.get("g")), (b"0", b"1" * 300_000))
        equal(there.ok("echo $A").strip(), "b")
        there.kill()
        d.client.delete("/v1/snapshots/moment")
        until(lambda: not glob.glob(d.home + "/snapshots/*"), 20, "the layer went with it")
        # A home that has not the template gets it, for this alone: all of it or nothing, also if the daemon dies on the way.
        d.client.delete("/v1/templates/base")
        dies(d, pack, *(("import.whole", "import.template", "import.placed") if SLOW else ("import.template",)))
        rc, out, err = hutch(d, "snapshot", "import", pack, "--name", "other")
        equal(rc, 0, err)
        other = d.client.get("/v1/snapshots/" + out.strip())
        true(other["template_id"] != s["template_id"])
        equal([x for x in d.client.get("/v1/templates")["templates"] if x["source"] == "pack"], [], "it is in no list")
        contains(refuses("unsupported", d.client.create, template=other["template_id"], isolation="container").message, "isolation vm")
        second = take(d.client, pack, name="third")
        equal(second["template_id"], other["template_id"], "and the next pack finds it")
        d.shutdown()
        d.start(settle=False)
        there = d.client.create(snapshot="other", deadline=120)
        again = told(there, pid, "?").split()
        equal(again[1:], said[1:])
        there.kill()
        for name in ("other", "third"):
            d.client.delete("/v1/snapshots/" + name)
        until(lambda: not glob.glob(d.home + "/templates/" + other["template_id"] + "*"), 20, "the template goes with the last that stands on it")
        equal(hutch(d, "snapshot", "distrust", "first")[0], 0)
        refused(d, "denied", pack)
    with second_home(HUTCH_PACK_MAX="1") as d:
        trust(t.d, d)
        contains(refused(d, "too_large", pack), "HUTCH_PACK_MAX")


@tiers("vm")
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(400)
def a_machine_of_another_host_is_refused_by_what_differs(t):
    """Signed by one who is trusted, but made elsewhere: what the home says of the machine is changed before it is packed."""
    pack, box = t.d.top + "/pack", t.box()
    box.put("f", b"0")
    s = t.snapshot(box, name="moment")
    t.snapshot(box, name="files", memory=False)
    manifest, = glob.glob(f"{t.d.home}/templates/{s['template_id']}/vm/*/manifest.json")
    with open(manifest) as f:
        true_text = f.read()
    own = os.stat(manifest)

    def say(**members):
        with open(manifest + ".new", "w") as f:
            f.write(json.dumps({**json.loads(true_text), **members}))
        os.chown(manifest + ".new", own.st_uid, own.st_gid)
        os.rename(manifest + ".new", manifest)  # never into the file: other homes have it too

    say(qemu="9.9.9")
    export(t.d, "moment", pack)
    contains(refused(t.d, "conflict", pack, name="other"), "another QEMU")
    # Files alone do not care which kernel and agent ran before.
    say(kernel="1.0.0", agent="0" * 64)
    export(t.d, "files", pack)
    got = take(t.c, pack, name="other")
    kid = t.create(snapshot="other", deadline=120)
    equal((kid.info()["start"]["path"], kid.get("f")), ("boot", b"0"))
    kid.kill()
    t.c.delete("/v1/snapshots/" + got["id"])
    say()


@tiers("container")
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(400)
def a_container_moves_with_its_files(t):
    pack, bad = t.d.top + "/pack", t.d.top + "/bad"
    box = t.box(env={"A": "b"})
    data = os.urandom(300_000)
    box.put("f", data)
    box.ok("mkdir -p d && ln -s ../f d/link && sudo chown root d && sudo chmod 2750 d && sudo rm -rf /usr/share/doc && sudo mknod -m 600 fifo p; truncate -s 1G hole")
    s = t.snapshot(box, name="files")
    m = export(t.d, "files", pack)
    equal((m["tier"], m["memory"], [p["role"] for p in m["parts"]]), ("container", False, ["tree"]))
    equal([b["id"] for b in t.c.sandboxes() if b["id"] != box.id], [], "the sandbox it was read through is gone")
    t.note(f"pack of {os.path.getsize(pack) >> 20} MiB")
    with second_home() as d:
        refused(d, "denied", pack)
        trust(t.d, d)
        contains(refused(d, "invalid", changed(pack, bad, 20 - 4104)), "sum of its tree")
        got = take(d.client, pack, name="other")
        equal((got["name"], got["tier"], got["sandbox"], got["signer"]), ("other", "container", None, "first"))
        true(got["template_id"] != s["template_id"])
        d.shutdown()
        d.start(settle=False)
        for _ in range(2):
            there = d.client.create(snapshot="other", deadline=120)
            equal(there.info()["isolation"]["tier"], "container")
            equal(there.get("f"), data)
            equal(there.ok("readlink d/link; stat -c '%U %a' d; test -e /usr/share/doc || echo removed; echo $A; id -un; stat -c %s hole"),
                  "../f\nroot 2750\nremoved\nb\nuser\n1073741824\n")
            there.put("f", b"mine")
        kid = d.client.create(snapshot=there.snapshot(name="next")["id"], deadline=120)
        equal(kid.get("f"), b"mine")
        for b in d.client.sandboxes():
            d.client.box(b["id"]).kill()
        for name in ("other", "next"):
            d.client.delete("/v1/snapshots/" + name)
        until(lambda: not glob.glob(d.home + "/templates/" + got["template_id"] + "*") and not os.listdir(d.home + "/snapshots"), 20, "all of it is gone")


@tiers("container")
@own_daemon(HUTCH_DEFAULT_ISOLATION="container", HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(500)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def a_recipe_on_a_pack_is_packed_whole(t):
    """No difference is put onto an image that came in a pack: root would open what it did not write."""
    pack = t.d.top + "/pack"
    box = t.box()
    box.put("f", b"packed")
    t.snapshot(box, name="files")
    export(t.d, "files", pack)
    got = take(t.c, pack, name="other")
    _, evs = built(t, "onpack", f"FROM {got['template_id']}\nUSER root\nRUN echo proof > /etc/proof\n", deadline=380)
    lines = [e.get("line", "") for e in evs]
    true("formatting the image" in lines and "copying" not in lines, lines)
    equal(t.create(template="onpack", isolation="container").ok("cat /etc/proof /home/user/f"), "proof\npacked")
    t.c.delete("/v1/snapshots/other")


@tiers("container")
@own_daemon(HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(120)
def an_import_that_is_given_up_leaves_nothing(t):
    box = t.box()
    t.snapshot(box, name="files")
    pack = t.d.top + "/pack"
    export(t.d, "files", pack)
    refuses("invalid", t.c.call, "POST", "/v1/snapshots/import", query={"name": "../x"}, body=b"x")
    refuses("not_found", t.c.call, "GET", "/v1/snapshots/other/pack")
    before = left(t.d)
    with open(pack, "rb") as f:
        head = f.read(8 << 20)
    with t.c.dial() as s:
        s.sendall(b"POST /v1/snapshots/import?name=again HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % os.path.getsize(pack) + head)
        until(lambda: len(left(t.d)) > len(before), 20, "it is under way")
    until(lambda: left(t.d) == before, 20, "nothing stays of one whose sender left")
    # The client of an export leaves: the sandbox that was read goes, too.
    with t.c.dial() as s:
        s.sendall(b"GET /v1/snapshots/files/pack HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: len(t.c.sandboxes()) > 1, 20, "it is being read")
    until(lambda: len(t.c.sandboxes()) == 1, 30, "nobody waits for it")
    # The daemon dies half-way: the next start sweeps.
    with t.c.dial() as s:
        s.sendall(b"POST /v1/snapshots/import?name=again HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % os.path.getsize(pack) + head)
        until(lambda: len(left(t.d)) > len(before), 20, "it is under way")
        t.d.sigkill()
    t.d.start(settle=False)
    equal(left(t.d), before)
    equal(take(t.c, pack, name="again")["signer"], "this-home")
    t.c.delete("/v1/snapshots/again")
