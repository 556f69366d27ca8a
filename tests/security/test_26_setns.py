"""Joining namespaces of others."""
import os

from attack import attack
from hutchtest import *


@attack("setns")
def join(t, a):
    r = a.both("""
        import glob
        def into(path, kind):
            fd = os.open(path, os.O_RDONLY)
            sc(308, fd, kind)
        for n in ("mnt", "net", "user", "pid", "ipc", "uts"):
            tryit("pid1-" + n, lambda n=n: into("/proc/1/ns/" + n, 0))
        def pidfd():
            sc(308, sc(434, 1, 0), 0x20000 | 0x40000000)
        tryit("pidfd", pidfd)
        tryit("chroot", lambda: os.chroot("/proc/1/root") if os.getuid() else sc(308, -1, 0))
        def escape():
            os.makedirs("/tmp/esc", exist_ok=True)
            os.chroot("/tmp/esc")
            os.chdir("/")
            for _ in range(100): os.chdir("..")
            os.chroot(".")
            return "outside" if os.path.exists("HOME_ON_THE_HOST") else "inside"
        if tryit("chroot-escape", escape) == "ok:inside": R["chroot-escape"] = "EPERM (stayed inside)"
    """.replace("HOME_ON_THE_HOST", t.d.home))
    # Joining the namespaces one is already in changes nothing; it must not lead anywhere else.
    seen = a.box.ok(["sh", "-c", "readlink /proc/self/ns/net /proc/self/ns/mnt"], user="root").split()
    for ns, kind in zip(seen, ("net", "mnt")):
        true(os.readlink(f"/proc/self/ns/{kind}") != ns or t.tier == "vm", f"{kind} namespace of the host")
    if a.refused:
        a.judge({k: v for k, v in r.items() if "pid1-" not in k and "pidfd" not in k})
    a.alive()
