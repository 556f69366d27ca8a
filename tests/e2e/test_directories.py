"""Snapshots of one directory: kept, put back, put elsewhere; whole or not at all."""
import os

from hutchtest import *

TIERS = tiers("vm", "container")


@TIERS
@timeout(180)
def a_directory_is_kept_and_put_into_others(t):
    a = t.box()
    a.ok("sudo mkdir -p /work/d && sudo chown user:user /work /work/d && chmod 2750 /work/d && cd /work && echo 1 >f && chmod 600 f && ln -s /etc/passwd link && ln -s nowhere gone && "
         "ln f hard && mkfifo fifo && sudo sh -c 'echo root >d/root; chmod 4755 d/root' && truncate -s 20M hole && touch 'a name\nwith lines' && setfattr -n user.x -v y f || true")
    s = t.snapshot(a, path="/work", name="tree")
    equal((s["path"], s["memory"], s["memory_bytes"], s["tier"]), ("/work", False, 0, t.tier))
    true(s["disk_bytes"] > 0)
    equal([x["id"] for x in t.c.get("/v1/snapshots", sandbox=a.id)["snapshots"]], [s["id"]])
    look = "cd {} && find . -printf '%p %y %m %u %g %s %l\\n' | sort; cat f; stat -c %h f"
    before = a.ok(look.format("/work"))
    # Back where it was: what came since is gone, and what was changed is as it was. Links in the way are replaced, not followed.
    a.ok("cd /work && echo 2 >f && rm -rf d && mkdir -p /tmp/else && echo mine >/tmp/else/root && ln -s /tmp/else d && touch new")
    restore = lambda box, **m: t.c.call("POST", f"/v1/sandboxes/{box.id}/restore", json_body=m, deadline=60)
    restore(a, snapshot="tree")
    equal(a.ok(look.format("/work")), before)
    equal(a.ok("cat /tmp/else/root; ls -A / | grep hutch || true"), "mine\n")
    # Into another one, somewhere else; the first is gone.
    b = t.box()
    a.kill()
    restore(b, snapshot=s["id"], path="/srv/deep/er")
    equal(b.ok("sudo sh -c \"" + look.format("/srv/deep/er").replace("\\n", "\\\\n") + "\""), before)
    b.ok("sudo ln -s /tmp /srv/tmp")
    restore(b, snapshot="tree", path="/srv/tmp")
    equal(b.ok("stat -c %F /srv/tmp; ls /tmp | grep -c hole || true"), "directory\n0\n")
    # What it is not.
    contains(refuses("invalid", t.create, snapshot="tree").message, "restore")
    refuses("invalid", b.rollback, "tree")
    for path in ("work", "/", "//", "/a/../b", "/.."):
        refuses("invalid", restore, b, snapshot="tree", path=path)
        refuses("invalid", b.snapshot, path=path)
    refuses("invalid", b.snapshot, path="/srv", memory=True)
    refuses("guest", b.snapshot, path="/no/such")
    refuses("guest", restore, b, snapshot="tree", path="/proc/x")
    refuses("conflict", b.snapshot, path="/srv", name="tree")
    until(lambda: len(os.listdir(t.d.home + "/snapshots")) == 1, 10, "what failed left nothing")
    # Only so many of one directory; others are not counted.
    for path in ("/srv", "/etc/ssl", "/srv"):
        kept = b.snapshot(path=path, keep_last=1)["id"]
        t.cleanup_later(lambda kept=kept: t.c.call("DELETE", "/v1/snapshots/" + kept, ok=False))
    equal(sorted(x["path"] for x in t.c.get("/v1/snapshots", sandbox=b.id)["snapshots"]), ["/etc/ssl", "/srv"])


@TIERS
@own_daemon(HUTCH_TREE_MAX=2, HUTCH_TREE_FILES=20, HUTCH_POOL_VM=0, HUTCH_POOL_PRESTARTED=0, HUTCH_POOL_CONTAINER=0)
@timeout(120)
def its_limits_say_their_names(t):
    box = t.box()
    box.ok("mkdir a b && head -c 3000000 /dev/urandom >a/f && seq 30 | (cd b; xargs touch)")
    contains(refuses("too_large", box.snapshot, path="/home/user/a").message, "HUTCH_TREE_MAX")
    contains(refuses("too_large", box.snapshot, path="/home/user/b").message, "HUTCH_TREE_FILES")
    until(lambda: not os.listdir(t.d.home + "/snapshots"), 10, "nothing stays")
    box.ok("rm -rf a/* b/*")
    s = t.snapshot(box, path="/home/user/a", expires_s=3600)
    true(s["expires_at"])
    # A restart keeps it; a sandbox without room for it stays as it was.
    t.d.shutdown(keep=True)
    t.d.start(settle=False)
    equal(t.c.get("/v1/snapshots/" + s["id"])["path"], "/home/user/a")
    t.c.call("POST", f"/v1/sandboxes/{box.id}/restore", json_body={"snapshot": s["id"], "path": "/home/user/c"})
    equal(box.ok("ls -d c").strip(), "c")
