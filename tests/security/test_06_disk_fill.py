"""Filling the disk, also sparsely: the sandbox's own cap, the host keeps its space."""
import os
import shutil

from attack import attack
from hutchtest import *


@attack("disk-fill", limit=150, disk_mib=2048)
def fill(t, a):
    free = shutil.disk_usage(t.d.home).free
    r = a.box.exec("dd if=/dev/urandom of=/home/user/a bs=4M count=100 2>/dev/null; dd if=/dev/zero of=/home/user/b bs=4M 2>&1 | tail -4; df -B1M --output=avail / | tail -1",
                   timeout_ms=110000, deadline=120)
    true(r.exit["kind"] in ("exit", "timeout"), r)
    if r.exit["kind"] == "exit":
        contains(r.text.lower(), "no space")
    used = free - shutil.disk_usage(t.d.home).free
    within(used >> 20, -100000, 2048 * 1.3 + 300, "MiB of the host's disk used")
    a.box.exec(["rm", "-f", "/home/user/a", "/home/user/b"], deadline=60)
    a.must_live()


@attack("disk-fill", limit=100, disk_mib=2048)
def sparse(t, a):
    free = shutil.disk_usage(t.d.home).free
    a.attempts("root", """
        def sparse():
            fd = os.open("/var/sparse", os.O_CREAT | os.O_WRONLY)
            os.ftruncate(fd, 1 << 40)
            for i in range(2000):
                os.pwrite(fd, b"x", i << 28)
        tryit("sparse", sparse)
        def falloc():
            fd = os.open("/var/falloc", os.O_CREAT | os.O_WRONLY)
            os.posix_fallocate(fd, 0, 1 << 40)
        tryit("fallocate", falloc)
    """)
    used = free - shutil.disk_usage(t.d.home).free
    within(used >> 20, -100000, 2048 * 1.3 + 300, "MiB of the host's disk used")
    a.must_live()
