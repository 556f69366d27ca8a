"""Paths in file calls: `..`, links, NUL, overlong, newlines. Nothing becomes a host path."""
import os

from attack import attack
from hutchtest import *


@attack("file-names")
def paths(t, a):
    host = os.path.join(t.tmp, "host-secret")
    with open(host, "w") as f:
        f.write("host secret")
    os.chmod(host, 0o644)
    os.chmod(t.tmp, 0o755)
    for p in ("../" * 20 + host.lstrip("/"), host, "/proc/1/root" + host, "/proc/self/root/" + "../" * 20 + host.lstrip("/"), "/proc/self/cwd/../../../../../.." + host,
              "//" + host, "/./" + "../" * 15 + host.lstrip("/"), "%2e%2e/%2e%2e" + host):
        for user in ("root", "user"):
            try:
                got = a.box.get(p, user=user)
                lacks(got, b"host secret", p)
            except ApiError as e:
                true(e.code in ("not_found", "invalid", "denied"), f"{p}: {e}")
    for p in ("a\0b", "x" * 5000, "/" + "y" * 300, "", "/tmp/" + "d/" * 3000 + "f"):
        for call in (a.box.get, a.box.stat, a.box.ls, lambda q: a.box.put(q, b"x"), a.box.mkdir, a.box.rm):
            try:
                call(p)
            except ApiError as e:
                true(e.code in ("invalid", "not_found", "denied", "conflict", "too_large", "quota"), f"{p[:20]!r}: {e}")
    a.must_live()


@attack("file-names")
def links_lead_nowhere_else(t, a):
    canary = os.path.join(t.tmp, "canary")
    with open(canary, "w") as f:
        f.write("safe")
    a.box.ok(f"ln -s {canary} /home/user/l1; ln -s / /home/user/rootlink; ln -s /proc/1/root /home/user/proclink; ln -s ../../../../../../../../{t.tmp} /home/user/uplink", user="root")
    for p in ("/home/user/l1", f"/home/user/rootlink{canary}", f"/home/user/proclink{canary}", "/home/user/uplink/canary"):
        try:
            lacks(a.box.get(p, user="root"), b"safe")
        except ApiError as e:
            true(e.code in ("not_found", "invalid", "denied"), e)
        try:
            a.box.put(p, b"EVIL", user="root")
        except ApiError as e:
            true(e.code in ("not_found", "invalid", "denied", "conflict"), e)
    with open(canary) as f:
        equal(f.read(), "safe")
    equal(sorted(os.listdir(t.tmp)), sorted(["canary", "host-canary"]))


@attack("file-names")
def names_in_events_are_escaped(t, a):
    a.box.mkdir("/home/user/w")
    with a.box.watch("/home/user/w", deadline=20) as w:
        a.box.ok("touch $'w/a\\nevent: end\\ndata: {}' w/last")
        got = w.until(lambda g: ("create", "last") in g)
        contains(got, ("create", "a\nevent: end\ndata: {}"))
