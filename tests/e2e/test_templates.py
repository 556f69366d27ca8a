"""Templates: recipes, imports, what must not become one."""
import glob
import json
import os
import shutil
import tarfile
import time

import oci
from hutchtest import *
from recipes import build, built, tar_of


def build_fails(t, name, recipe, codes, context=None, **kw):
    try:
        evs = build(t, name, recipe, context, **kw)
    except ApiError as e:
        true(e.code in codes.split(), f"{e.code} ({e.message}), want {codes}")
        return e.message
    equal(evs[-1]["event"], "error", evs[-1])
    err = evs[-1]["error"]
    true(err["code"] in codes.split(), f"{err}, want {codes}")
    refuses("not_found", t.c.get, f"/v1/templates/{name}")
    return err["message"]


def do_import(t, name, blob, deadline=170):
    t.cleanup_later(t.c.delete, f"/v1/templates/{name}")
    s = t.c.stream("POST", f"/v1/templates/{name}/import", body=blob, headers={"Content-Type": "application/x-tar"}, deadline=deadline)
    return list(s.events())


@plain
def base_is_listed(t):
    ts = {x["name"]: x for x in t.c.get("/v1/templates")["templates"]}
    b = ts["base"]
    equal(b["source"], "bootstrap")
    true(b["size_bytes"] > 50 << 20 and b["disk_min_mib"] > 0 and b["created_at"] and b["id"].startswith("t"), b)
    equal(t.c.get("/v1/templates/base")["id"], b["id"])
    equal(t.c.get(f"/v1/templates/{b['id']}")["name"], "base")
    refuses("not_found", t.c.get, "/v1/templates/none")


@tiers("vm", "container")
def base_has_what_it_promises(t):
    box = t.box()
    for tool in ("python3", "pip3", "node", "npm", "git", "curl", "sudo", "ps", "less", "bash"):
        box.ok(["sh", "-c", f"command -v {tool}"])
    equal(box.ok(["python3", "-c", "import venv, ssl, sqlite3, ctypes; print(1)"]), "1\n")
    contains(box.ok(["cat", "/etc/os-release"]), "bookworm")


def import_tiny(t, name="tinybase"):
    """A small image to build on: packing base anew takes a minute, this takes seconds."""
    evs = do_import(t, name, oci.oci_layout(oci.tiny_tree(), env=["PATH=/usr/bin:/bin"], workdir="/home/user", cmd=["/bin/sh"]))
    equal(evs[-1]["event"], "done", evs[-1])
    return evs[-1]["template"]


def gone_or_busy(t, name):
    try:
        return t.c.delete(f"/v1/templates/{name}")
    except ApiError as e:
        equal(e.code, "conflict")
        return None


@plain
@timeout(200)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def recipe_with_everything(t):
    parent = import_tiny(t)
    ctx = tar_of({"app/hello.sh": b"#!/bin/sh\necho hello from $WHO in $PWD\n", "app/data.txt": b"42\n", "other/x": b"x"})
    recipe = """# a comment
FROM tinybase
ENV WHO=recipe PORT=8099
ENV SPACED="two words"
WORKDIR /srv/app
COPY app/ /srv/app/
COPY other/x /etc/x-marker
RUN ls -l && cat data.txt && \\
    echo built-by-$(id -u) > /srv/app/built
USER user
RUN id -u > /home/user/who
START while :; do date > /home/user/beat; sleep 0.2; done
READY test -s /home/user/beat
"""
    tpl, evs = built(t, "everything", recipe, ctx)
    equal((tpl["name"], tpl["source"], tpl["parent"]), ("everything", "recipe", parent["id"]))
    true(any(e["event"] == "progress" for e in evs) and any(e["event"] == "log" for e in evs), "progress and log lines")
    for tier in ("container", "vm"):
        box = t.create(template="everything", isolation=tier)
        equal(box.obj["template"], "everything")
        equal(box.ok(["/bin/sh", "-c", "pwd"]), "/srv/app\n")
        equal(box.ok(["/bin/sh", "hello.sh"]), "hello from recipe in /srv/app\n")
        equal(box.ok(["/bin/sh", "-c", "echo $SPACED"]), "two words\n")
        equal(box.ok(["id", "-u"]), "1000\n")
        equal(box.ok(["cat", "/srv/app/built"]), "built-by-0\n")
        equal(box.ok(["cat", "/home/user/who"]), "1000\n")
        equal(box.ok(["cat", "/etc/x-marker"]), "x")
        first = box.get("/home/user/beat") if box.exec(["/bin/sh", "-c", "test -s /home/user/beat"]).code == 0 else b""
        until(lambda: box.exec(["cat", "/home/user/beat"]).stdout not in (b"", first), 30, f"the start command runs ({tier})")
        refuses("conflict", t.c.delete, "/v1/templates/everything")
        box.kill()
    # The same content again: from the cache, the same template.
    again, _ = built(t, "everything", recipe, ctx)
    equal(again["id"], tpl["id"])
    # A template on a template: its steps begin where the parent ended, as its user, in its directory, with its environment.
    child, _ = built(t, "child", "FROM everything\nRUN cat data.txt > /tmp/copy; id -u >> /tmp/copy; echo $WHO >> /tmp/copy\nUSER root\nRUN cp /tmp/copy copy\n")
    equal(child["parent"], tpl["id"])
    # A template holds its whole tree: it outlives its parent.
    until(lambda: gone_or_busy(t, "everything"), 30, "nothing stands on it any more")
    refuses("not_found", t.c.get, "/v1/templates/everything")
    box = t.create(template="child", isolation="container")
    equal(box.ok(["cat", "/srv/app/copy"]), "42\n1000\nrecipe\n")
    refuses("conflict", t.c.delete, "/v1/templates/child")
    box.kill()
    refuses("not_found", t.create, template="everything", isolation="container")


@plain
@timeout(400)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def recipe_on_plain_debian(t):
    """As root in /, like the image of that name; of base the same steps are another user's, also where steps are kept."""
    step = "RUN id -un >&2; python3 -c 'print(1)' > /etc/proof\n"
    build_fails(t, "onbase", "FROM base\n" + step, "guest")
    built(t, "onbase", "FROM debian:12\n" + step + "RUN test $(pwd) = /\nSTART python3 -m http.server 8099 --bind 127.0.0.1\nREADY curl -sf -o /dev/null http://127.0.0.1:8099/\n", deadline=350)
    for tier in ("container", "vm"):
        box = t.create(template="onbase", isolation=tier)
        equal(box.ok(["cat", "/etc/proof"]), "1\n")
        until(lambda: box.exec(["curl", "-sf", "-o", "/dev/null", "http://127.0.0.1:8099/"]).code == 0, 30, f"the start command serves ({tier})")


@plain
@timeout(400)
@own_daemon(HUTCH_DEFAULT_ISOLATION="container", HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def what_differs_is_packed(t):
    """Of a build on base only what its steps changed; all of it where that cannot be told by looking at times."""
    steps = ["rm -r /usr/share/perl5 /etc/motd", "echo mine >> /etc/profile", "mkdir -p /opt/a && echo 1 > /opt/a/f && ln /opt/a/f /opt/a/g && ln -s f /opt/a/l",
             "cp /bin/true /opt/suid && chmod 4755 /opt/suid", "chown user /etc/shells", "touch -d 2001-01-01 /opt/a/f",
             """python3 -c 'import os; os.setxattr("/opt/a/f", "user.k", b"v")'"""]
    look = ("test ! -e /usr/share/perl5 && test ! -e /etc/motd && tail -n 1 /etc/profile && stat -c '%h %Y' /opt/a/f && readlink /opt/a/l && stat -c %a /opt/suid && "
            """stat -c %U /etc/shells && python3 -c 'import os; print(os.getxattr("/opt/a/f", "user.k").decode())'""")
    tpl, evs = built(t, "differs", "FROM base\nUSER root\n" + "".join(f"RUN {s}\n" for s in steps), deadline=380)
    lines = [e.get("line", "") for e in evs]
    true("copying" in lines and "packing the whole file system, not only what changed" not in lines, lines)
    equal(t.create(template="differs", isolation="container").ok(["sh", "-c", look]), "mine\n2 978307200\nf\n4755\nuser\nv\n")
    # Both directories are of base, so their files' times say nothing: it is noticed.
    tpl, evs = built(t, "swapped", "FROM differs\nUSER root\nRUN rm -r /usr/share/dpkg && mv /usr/share/perl /usr/share/dpkg && echo on > /opt/a/f\n", deadline=380)
    lines = [e.get("line", "") for e in evs]
    true("packing the whole file system, not only what changed" in lines, lines)
    here, there = (t.create(template=x, isolation="container") for x in ("swapped", "differs"))
    equal(here.ok(["sh", "-c", "cat /opt/a/f; test ! -e /usr/share/perl && ls -R /usr/share/dpkg/"]), "on\n" + there.ok(["sh", "-c", "cd /usr/share/perl && ls -R /usr/share/perl/"]).replace("share/perl", "share/dpkg"))


@plain
@timeout(200)
def recipe_failures(t):
    msg = build_fails(t, "bad1", "FROM base\nRUN echo visible-line; exit 3\n", "invalid guest conflict")
    contains(msg, "3", "the message says the status")
    build_fails(t, "bad2", "FROM no-such-template\nRUN true\n", "not_found invalid")
    msg = build_fails(t, "bad5", "FROM python:3.11\nRUN true\n", "not_found")
    contains(msg, "FROM python:3.11: ")
    contains(msg, "`podman save -o image.tar IMAGE`, then `hutch template import python image.tar`", "how an image becomes a template")
    contains(build_fails(t, "bad6", "FROM docker.io/library/python:3.11\nRUN true\n", "invalid"), "`hutch template import NAME image.tar`")
    build_fails(t, "bad3", "FROM base\nCOPY missing /x\n", "invalid not_found guest", context=tar_of({"a": b"a"}))
    build_fails(t, "bad4", "FROM base\nCOPY a /x\n", "invalid not_found guest")
    equal([x["name"] for x in t.c.get("/v1/templates")["templates"] if x["name"].startswith("bad")], [])


@plain
def bad_recipes(t):
    for text in ("", "RUN true\n", "FROM\n", "FROM base\nFROM base\n", "FROM base\nBREW coffee\n", "FROM base\nENV\n", "FROM base\nENV 1A=x\n",
                 "FROM base\nWORKDIR\n", "FROM base\nUSER a b\n", "FROM base\nCOPY x\n", "FROM base\nCOPY ../x /y\n", "FROM base\nCOPY /etc/passwd /y\n",
                 "FROM base\nRUN\n", "FROM base\nSTART\n", "FROM base\nREADY\n", "FROM scratch\n", "FROM base AS x\nRUN true\n", "FROM base\n\x00",
                 "FROM base\nRUN " + "x" * 2_000_000 + "\n", "FROM base\nRUN a \\\n"):
        try:
            m = build_fails(t, "badrec", text, "invalid not_found unsupported too_large", deadline=60)
        except AssertionError as e:
            raise AssertionError(f"recipe {text[:60]!r}: {e}") from None
        true(m, "a message")
    for name in ("", "A", "..", "a/b", "-x", "x" * 64, "a%00"):
        kind, body = oci.recipe_form("FROM base\n")
        r = t.c.call("POST", f"/v1/templates/{name}/build", body=body, headers={"Content-Type": kind}, ok=False)
        true(r.status in (400, 404), f"{name!r}: {r.status}")
    for kind, body in (("text/plain", b"FROM base\n"), ("multipart/form-data", b"x"), ("multipart/form-data; boundary=x", b"--y\r\n"),
                       ("multipart/form-data; boundary=x", b'--x\r\nContent-Disposition: form-data; name="nope"\r\n\r\nFROM base\r\n--x--\r\n')):
        r = t.c.call("POST", "/v1/templates/badform/build", body=body, headers={"Content-Type": kind}, ok=False)
        true(400 <= r.status < 500, f"{kind}: {r.status}")
        error_of(r.status, r.body)
    r = t.c.call("POST", "/v1/templates", json_body={"name": "x", "builtin": "no-such-recipe"}, ok=False)
    true(r.status in (400, 404) or b'"event":"error"' in r.body, r)


@plain
@timeout(120)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def build_steps_are_jailed(t):
    """A recipe runs inside a sandbox: no network, no host files, no host devices, nothing of the daemon's environment."""
    import_tiny(t)
    recipe = """FROM tinybase
RUN test ! -e %s && test ! -e %s
RUN if (exec 3<>/dev/tcp/127.0.0.1/%d) 2>/dev/null; then exit 9; fi
RUN test -z "$HUTCH_HOME$HUTCH_RUN"
RUN echo $(id -u) > /proof
""" % (t.d.home, t.d.run, t.d.port)
    built(t, "jailed", recipe)
    equal(t.create(template="jailed", isolation="container").ok(["cat", "/proof"]), "0\n")


@plain
@timeout(120)
def client_leaves_during_a_build(t):
    kind, body = oci.recipe_form("FROM base\nRUN echo begun; sleep 600\n")
    t.cleanup_later(t.c.delete, "/v1/templates/left")
    s = t.c.stream("POST", "/v1/templates/left/build", body=body, headers={"Content-Type": kind}, deadline=100)
    for e in s.events():
        if e["event"] == "log" and "begun" in e["line"]:
            break
    s.abort()
    refuses("not_found", t.c.get, "/v1/templates/left")
    # The census after this test sees whether the build's sandbox and files are gone.


@plain
@timeout(200)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def a_start_that_is_never_ready(t):
    """While its build waits the template has no name yet; only the build ends it, and leaves nothing."""
    import_tiny(t)
    kind, body = oci.recipe_form("FROM tinybase\nSTART sleep 1000\nREADY false\n", None)
    with t.c.stream("POST", "/v1/templates/never/build", body=body, headers={"Content-Type": kind}, deadline=150) as s:
        for e in s.events():
            true(e["event"] in ("progress", "log", "keepalive"), e)
            if e.get("step") == "booting the guest":
                break
        refuses("not_found", t.c.delete, "/v1/templates/never")
        refuses("not_found", t.create, template="never")
        refuses("conflict", build, t, "never", "FROM tinybase\n")
    until(lambda: build(t, "never", "FROM tinybase\nRUN false\n")[-1]["error"]["code"] != "conflict", 30, "the build that was left is over")
    refuses("not_found", t.c.get, "/v1/templates/never")


@plain
@timeout(200)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def killed_while_it_gets_ready(t):
    """READY that only a VM fulfils: a container of it waits, and can be killed at that."""
    import_tiny(t)
    built(t, "vmonly", "FROM tinybase\nSTART sleep 1000\nREADY ls /dev/vport*\n")
    for pause in (0.0, 0.3, 0.7):
        waiting = Threads()
        waiting.go(lambda: refuses("canceled", t.create, template="vmonly", isolation="container"))
        box = until(lambda: [x for x in t.c.get("/v1/sandboxes")["sandboxes"] if x["template"] == "vmonly" and x["state"] == "creating"], 20, "it is listed")[0]
        time.sleep(pause)  # between two tries of READY, or in one
        t.c.delete(f"/v1/sandboxes/{box['id']}")
        waiting.join(30)
    equal(t.c.health()["status"], "ok")


@plain
@timeout(200)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def import_oci_layout(t):
    tree = oci.tiny_tree()
    over = oci.layer({"marker": (0o644, b"second layer\n"), "etc/.wh.hostname": (0o644, b"")})
    evs = do_import(t, "tiny", oci.oci_layout(tree, [over], env=["COLOR=green"], workdir="/home/user", cmd=["/bin/sh"]))
    equal(evs[-1]["event"], "done", evs[-1])
    equal(evs[-1]["template"]["source"], "import")
    for tier in ("container", "vm"):
        box = t.create(template="tiny", isolation=tier)
        equal(box.ok(["/bin/cat", "/marker"]), "second layer\n")
        equal(box.exec(["/bin/cat", "/etc/hostname"]).text.strip() != "tiny", True, "a whiteout removes what a lower layer had")
        equal(box.ok(["/bin/sh", "-c", "echo $COLOR"]), "green\n")
        box.kill()


@plain
@timeout(200)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def import_docker_archive(t):
    evs = do_import(t, "tinyd", oci.docker_archive(oci.tiny_tree(), env=["COLOR=red"]))
    equal(evs[-1]["event"], "done", evs[-1])
    box = t.create(template="tinyd", isolation="container")
    equal(box.ok(["/bin/cat", "/marker"]), "imported\n")


@plain
@timeout(120)
def bad_imports(t):
    tree = {"bin/x": (0o755, b"x")}
    files = oci.oci_files([oci.layer(tree)])
    blob = next(k for k in files if k.startswith("blobs/"))

    def bent(**change):
        return oci._tar({**files, **change})
    lies = {
        "empty": b"", "not a tar": b"x" * 5000, "zeros": bytes(10240),
        "no index": oci._tar({k: v for k, v in files.items() if k != "index.json"}),
        "index is no JSON": bent(**{"index.json": b"{"}),
        "no manifests": bent(**{"index.json": b'{"schemaVersion":2,"manifests":[]}'}),
        "digest lies": bent(**{blob: files[blob] + b"x"}),
        "blob missing": oci._tar({k: v for k, v in files.items() if k != blob}),
        "digest is a path": bent(**{"index.json": json.dumps({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:../../../../etc/passwd", "size": 1}]}).encode()}),
        "deep JSON": bent(**{"index.json": b"[" * 100000}),
        "cut": oci._tar(files)[:3000],
    }
    for what, data in lies.items():
        try:
            evs = do_import(t, "badimp", data, deadline=60)
            equal(evs[-1]["event"], "error", f"{what}: {evs[-1]}")
            true(evs[-1]["error"]["code"] in ("invalid", "unsupported", "not_found", "too_large", "conflict"), f"{what}: {evs[-1]}")
        except ApiError as e:
            true(e.code in ("invalid", "unsupported", "not_found", "too_large"), f"{what}: {e}")
        refuses("not_found", t.c.get, "/v1/templates/badimp")


@plain
@timeout(160)
@leak_slack("fd", "hutchd: ", 12, "images of a new template stay open while it is warm")
def hostile_layers_stay_inside(t):
    """Members that point outside are refused or land inside the image; the host never changes."""
    canary = os.path.join(t.tmp, "canary")
    with open(canary, "w") as f:
        f.write("safe")
    up = "../" * 12
    shapes = {
        "dotdot": [oci.member(up + canary.lstrip("/"), b"EVIL")],
        "absolute": [oci.member(canary, b"EVIL")],
        "link then through": [oci.member("out", type=tarfile.SYMTYPE, link=t.tmp), oci.member("out/canary", b"EVIL")],
        "dotdot link then through": [oci.member("d", type=tarfile.SYMTYPE, link=up + t.tmp.lstrip("/")), oci.member("d/canary", b"EVIL")],
        "hard link outside": [oci.member("h", type=tarfile.LNKTYPE, link=canary), oci.member("h", b"EVIL")],
        "device": [oci.member("dev/evil", type=tarfile.BLKTYPE, dev=(254, 0), mode=0o666)],
        "fifo": [oci.member("pipe", type=tarfile.FIFOTYPE)],
        "duplicate": [oci.member("twice", b"1"), oci.member("twice", b"2"), oci.member("twice", type=tarfile.SYMTYPE, link="/etc"), oci.member("twice/x", b"3")],
        "whiteout of root": [oci.member(".wh..", b""), oci.member("a/.wh...", b""), oci.member(".wh..wh..opq", b"")],
        "setuid": [oci.member("bin/suid", b"x", mode=0o6755)],
        "long": [oci.member("/".join(["n" * 200] * 30), b"x")],
    }
    for what, extra in shapes.items():
        blob = oci.oci_layout(oci.tiny_tree(), [oci.layer({}, extra)])
        try:
            evs = do_import(t, "hostile", blob, deadline=100)
            last = evs[-1]
            true(last["event"] in ("done", "error"), f"{what}: {last}")
            if last["event"] == "error":
                true(last["error"]["code"] in ("invalid", "unsupported", "quota", "too_large", "conflict"), f"{what}: {last}")
            else:
                t.c.delete("/v1/templates/hostile")
        except ApiError as e:
            true(e.code in ("invalid", "unsupported", "quota", "too_large"), f"{what}: {e}")
        with open(canary) as f:
            equal(f.read(), "safe", f"{what}: a file of the host was written")
        equal(sorted(os.listdir(t.tmp)), ["canary"], what)


@plain
@timeout(100)
def sizes_that_lie(t):
    big = tarfile.TarInfo("huge")
    big.size = 1 << 50
    raw = oci.layer(oci.tiny_tree())[:-10240] + big.tobuf() + bytes(1024)
    evs = None
    try:
        evs = do_import(t, "liar", oci._tar(oci.oci_files([raw])), deadline=90)
        equal(evs[-1]["event"], "error", evs[-1])
    except ApiError as e:
        true(e.code in ("invalid", "too_large", "quota"), e)
    refuses("not_found", t.c.get, "/v1/templates/liar")


@plain
def remove(t):
    refuses("not_found", t.c.delete, "/v1/templates/none")
    box = t.create(isolation="container")
    refuses("conflict", t.c.delete, "/v1/templates/base")
    box.ok(["true"])


def manifest_of(t, name):
    for path in glob.glob(os.path.join(t.d.home, "templates", "*", "manifest.json")):
        with open(path) as f:
            m = json.load(f)
        if m["name"] == name:
            return path, m
    raise AssertionError(f"no template {name}")


def put(path, text, owner):
    """As a new file: those of a test's home are links to the seed's."""
    with open(path + ".new", "w") as f:
        f.write(text)
    os.chown(path + ".new", owner.st_uid, owner.st_gid)
    os.rename(path + ".new", path)


@plain
@own_daemon(HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0", HUTCH_POOL_CONTAINER="0")
def a_changed_recipe_is_built_anew(t):
    """base is there: ready at once. Made of something else than the recipe says now: built; the old one serves meanwhile."""
    path, m = manifest_of(t, "base")
    events = lambda: t.c.stream("POST", "/v1/templates", json_body={"builtin": "base"}, deadline=60).events()  # noqa: E731
    last = list(events())[-1]
    equal((last["event"], last["template"]["id"]), ("done", m["id"]), last)
    t.d.stop()
    put(path, json.dumps(dict(m, content_key="0" * 64)), os.stat(path))
    t.d.start()
    s = t.c.stream("POST", "/v1/templates", json_body={"builtin": "base"}, deadline=60)
    first = next(iter(s.events()))
    true(first["event"] in ("progress", "log"), first)
    equal(t.c.get("/v1/templates/base")["id"], m["id"])
    s.close()
    until(lambda: not [x for x in os.listdir(os.path.join(t.d.home, "templates")) if "." in x], 30, "the build is given up with its client")
    t.create(isolation="container").ok(["true"])


@plain
@own_daemon(HUTCH_POOL_VM="0", HUTCH_POOL_PRESTARTED="0", HUTCH_POOL_CONTAINER="0")
def snapshots_of_an_older_version_go(t):
    """A VM snapshot that another agent made is never asked for again."""
    path, _ = manifest_of(t, "base")
    vm = os.path.join(os.path.dirname(path), "vm")
    made = os.listdir(vm)
    with open(os.path.join(vm, made[0], "manifest.json")) as f:
        m = json.load(f)
    t.d.stop()
    old = os.path.join(vm, "0" * 32)
    shutil.copytree(os.path.join(vm, made[0]), old, ignore=lambda *_: ["ram"])
    put(os.path.join(old, "manifest.json"), json.dumps(dict(m, key="0" * 32, agent="0" * 64)), os.stat(path))
    for top in (old, *glob.glob(old + "/*")):
        os.chown(top, os.stat(path).st_uid, os.stat(path).st_gid)
    t.d.start()
    until(lambda: sorted(os.listdir(vm)) == sorted(made), 30, "only the old one goes")
